// Curves as SVG: round scales, untrusted texts, and `minisgl report` with valid and hostile summary
// files.
#include "report/svg_chart.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "minisgl/base/json.h"
#include "program/fakes.h"
#include "program/program.h"
#include "term/run_history.h"

namespace minisgl::report {
namespace {

TEST(SvgChartTest, ScalesAreRoundAndReachTheLargestValue) {
  EXPECT_EQ(RoundTicks(8, 4), (std::vector<double>{0, 2, 4, 6, 8}));
  EXPECT_EQ(RoundTicks(100, 4), (std::vector<double>{0, 25, 50, 75, 100}));
  EXPECT_EQ(RoundTicks(0, 4).size(), 5u);  // all zeros still needs a scale
  for (const double most : {1e-9, 0.3, 1.0, 7.0, 9.99, 255.0, 256.0, 1001.0, 3.2e14}) {
    for (const int count : {1, 4, 10}) {
      const std::vector<double> ticks = RoundTicks(most, count);
      EXPECT_GE(ticks.back(), most * (1 - 1e-9)) << most;
      EXPECT_LE(ticks.size(), static_cast<size_t>(count) + 1) << most;
      EXPECT_GE(ticks.size(), 2u) << most;
    }
  }
}

TEST(SvgChartTest, TimesAreRoundInTheUnitsOfClocks) {
  EXPECT_EQ(RoundTimes(22, 10), (std::vector<double>{0, 2.5, 5, 7.5, 10, 12.5, 15, 17.5, 20}));
  EXPECT_EQ(RoundTimes(150, 10)[1], 15);
  EXPECT_EQ(RoundTimes(3600, 10)[1], 600);
  EXPECT_EQ(RoundTimes(8 * 3600, 10)[1], 3600);
  EXPECT_EQ(RoundTimes(30.0 * 86400, 10)[1], 5 * 86400);
  for (const double seconds : {0.01, 0.2, 59.0, 101.0, 4000.0, 90000.0, 1e7, 1e15}) {
    const std::vector<double> times = RoundTimes(seconds, 10);
    EXPECT_LE(times.size(), 11u) << seconds;
    EXPECT_GE(times.size(), 3u) << seconds;
    EXPECT_LE(times.back(), seconds * (1 + 1e-9));
  }
}

TEST(SvgChartTest, LabelsAreShort) {
  EXPECT_EQ(TickLabel(0), "0");
  EXPECT_EQ(TickLabel(0.25), "0.25");
  EXPECT_EQ(TickLabel(12.5), "12.5");
  EXPECT_EQ(TickLabel(1500), "1.5k");
  EXPECT_EQ(TickLabel(20e6), "20M");
  EXPECT_EQ(TimeLabel(0), "0 s");
  EXPECT_EQ(TimeLabel(0.5), "0.5 s");
  EXPECT_EQ(TimeLabel(150), "2m30s");
  EXPECT_EQ(TimeLabel(5400), "1h30m");
  EXPECT_EQ(TimeLabel(2 * 86400), "2d");
}

size_t Count(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(SvgChartTest, AnyTextGivesAWellFormedPicture) {
  Chart chart;
  chart.title = "<script>alert(1)</script> & \"x\"\x01\xEF\xBF\xBF\xFF";
  chart.lines = {{"<line>", 3}};
  chart.seconds = 10;
  chart.panels = {{"<b>", "&u", {{"<s>", 0, {{5, 1}, {10, 2}}}, {"empty", 1, {}}}, {}}};
  const std::string svg = DrawSvg(chart);
  EXPECT_EQ(svg.find("<script"), std::string::npos);
  EXPECT_EQ(svg.find("<b>"), std::string::npos);
  EXPECT_EQ(svg.find('\x01'), std::string::npos);
  EXPECT_EQ(svg.find("\xEF\xBF\xBF"), std::string::npos);
  EXPECT_NE(svg.find("&lt;script&gt;"), std::string::npos);
  EXPECT_EQ(Count(svg, "<text"), Count(svg, "</text>"));
  EXPECT_EQ(Count(svg, "<polyline"), 1u);  // a series without points has no line
  EXPECT_TRUE(svg.ends_with("</svg>\n"));
  // No external references.
  EXPECT_EQ(Count(svg, "http"), 1u);  // the XML namespace
}

TEST(SvgChartTest, AnEmptyRunIsDrawn) {
  Chart chart;
  chart.panels = {{"nothing", "x", {{"none", 0, {}}}, {}}};
  const std::string svg = DrawSvg(chart);
  EXPECT_EQ(svg.find("nan"), std::string::npos) << svg;
  EXPECT_EQ(svg.find("inf"), std::string::npos) << svg;
}

// The x of the first mark of a legend.
double LegendBegin(const std::string& svg) {
  double begin = 1e9;
  const std::string mark = "<rect class=\"f";
  for (size_t at = svg.find(mark); at != std::string::npos; at = svg.find(mark, at + 1)) {
    begin = std::min(begin, std::stod(svg.substr(svg.find(" x=\"", at) + 4)));
  }
  return begin;
}

TEST(SvgChartTest, ALegendOfSixDoesNotReachTheTitle) {
  Chart chart;
  chart.seconds = 10;
  ChartPanel panel = {"Prompts computed", "tokens/s", {}, {}};
  for (int i = 0; i < kChartColours; ++i) {
    panel.series.push_back({std::to_string(i + 1), i, {{5, 1}, {10, 12345}}});
  }
  chart.panels = {panel};
  const std::string svg = DrawSvg(chart);
  EXPECT_NE(svg.find(">Prompts computed, means</text>"), std::string::npos) << svg;
  EXPECT_NE(svg.find(">6: 6.17k</text>"), std::string::npos) << svg;
  // The title begins at 68, with less than 9 for each of its 23 characters.
  EXPECT_GT(LegendBegin(svg), 68 + 9 * 23);
  chart.panels[0].series.resize(2);
  EXPECT_NE(DrawSvg(chart).find("2 (mean 6.17k)"), std::string::npos) << "if there is room";
}

class ReportProgramTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (ProgramBinary().empty()) GTEST_SKIP() << "MINISGL_BINARY names no program";
  }
  static ProgramResult Report(std::vector<std::string> arguments, const std::string& input = "") {
    arguments.insert(arguments.begin(), "report");
    return RunProgram(arguments, {input, "", {}});
  }
  // Returns a summary of a run of two seconds.
  static Json Summary() {
    Json series = Json(Json::Object());
    for (const term::TimeSeriesColumn& column : term::TimeSeriesColumns()) {
      series.Set(column.name,
                 *ParseJson(std::string(column.name) == "time_s" ? "[1.0, 2.0]" : "[30, 60]"));
    }
    Json json = *ParseJson(R"({"model": "wren", "device": "cpu", "rows_done": 1200,
        "rows_failed": 3, "seconds": 2.0, "prompt_tokens": 500, "cached_tokens": 250,
        "computed_tokens": 250, "completion_tokens": 90, "preemptions": 1,
        "scheduler": {"pages_total": 100}})");
    json.Set("time_series", std::move(series));
    return json;
  }
  std::string Write(const std::string& name, const Json& json) const {
    return folder_.Write(name, json.Dump());
  }

  TemporaryFolder folder_;
};

TEST_F(ReportProgramTest, ARunIsDrawn) {
  const ProgramResult result = Report({Write("a.json", Summary())});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  for (const char* part :
       {"<svg ", ">wren</text>",
        "1,203 rows in 2.0 s, 3 failed: 45 tokens/s out, 250 in; "
        "50.0 % of 500 prompt tokens cached; 1 preemptions",
        ">Answers</text>", ">Queue</text>", "prefers-color-scheme:dark", "running (mean 45)"}) {
    EXPECT_NE(result.out.find(part), std::string::npos) << part << "\n" << result.out;
  }
  // In a panel with one curve, the area below it is filled: answers and the queue.
  EXPECT_EQ(Count(result.out, "<polygon"), 2u);
  const std::string path = folder_.Path("a.svg");
  EXPECT_EQ(Report({folder_.Path("a.json"), "-o", path, "--title", "A title"}).exit_code, 0);
  EXPECT_NE(folder_.Read("a.svg").find(">A title</text>"), std::string::npos);
  EXPECT_EQ(Report({folder_.Path("a.json"), "-o", path}).exit_code, 73);  // the file exists
  EXPECT_EQ(Report({folder_.Path("a.json"), "-o", path, "--force"}).exit_code, 0);
  EXPECT_EQ(Report({"-"}, Summary().Dump()).exit_code, 0);
}

TEST_F(ReportProgramTest, RunsOfOtherLengthsAreDrawnInShares) {
  Json longer = Summary();
  Json series = *longer.Find("time_series");
  series.Set("time_s", *ParseJson("[60.0, 120.0]"));
  longer.Set("time_series", series).Set("seconds", 120);
  const std::string a = Write("a.json", Summary()), b = Write("b.json", longer);
  const ProgramResult shares = Report({a, b});
  EXPECT_EQ(shares.exit_code, 0) << shares.err;
  EXPECT_NE(shares.out.find(">100 %</text>"), std::string::npos);
  EXPECT_NE(shares.out.find("The times of the runs differ much"), std::string::npos);
  const ProgramResult seconds = Report({a, a});
  EXPECT_EQ(seconds.out.find("The times of the runs differ"), std::string::npos);
  EXPECT_NE(seconds.out.find(">2 s</text>"), std::string::npos);
}

// As in a summary of another program.
TEST_F(ReportProgramTest, PagesAreDrawnWhereTheyAreKnown) {
  constexpr const char* kPages = "pages in use";
  EXPECT_NE(Report({"-"}, Summary().Dump()).out.find(kPages), std::string::npos);
  Json json = Summary();
  json.Set("scheduler", Json(Json::Object()));
  const ProgramResult result = Report({"-"}, json.Dump());
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out.find(kPages), std::string::npos);
}

TEST_F(ReportProgramTest, SeveralRunsAreCompared) {
  const std::string a = Write("first.json", Summary()), b = Write("second.json", Summary());
  const ProgramResult result = Report({a, b});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.out.find(">2 runs</text>"), std::string::npos);
  EXPECT_NE(result.out.find(">2  second: wren, 1,203 rows"), std::string::npos) << result.out;
  EXPECT_EQ(Count(result.out, "<polyline"), 8u);
  EXPECT_EQ(Report({a, a, a, a, a, a, a}).exit_code, 64);
  EXPECT_EQ(Report({"-", "-"}).exit_code, 64);
}

// A tenth of a second in which ten prompt tokens were computed must not count as half of the run.
TEST_F(ReportProgramTest, MeansAreWeighted) {
  Json json = Summary(), series = *json.Find("time_series");
  series.Set("time_s", *ParseJson("[1.9, 2.0]"));
  series.Set("prompt_tokens_per_s", *ParseJson("[1000, 100]"));
  series.Set("cache_hit_percent", *ParseJson("[90, 0]"));
  series.Set("batch_size", *ParseJson("[0, 7]"));
  series.Set("running", *ParseJson("[40, 20]"));
  json.Set("time_series", series);
  // Means from the totals, as in the title, and steps as the scheduler counted them.
  json.Set("prompt_tokens", 1910).Set("cached_tokens", 1710);
  json.Set("scheduler", *ParseJson(R"({"steps": 4, "step_rows": 50})"));
  const ProgramResult exact = Report({Write("a.json", json)});
  for (const char* part : {"; 89.5 % of 1.91k prompt tokens", "hits (mean 89.5)",
                           "in a step (mean 12.5)", "running (mean 39)"}) {
    EXPECT_NE(exact.out.find(part), std::string::npos) << part << exact.out;
  }
  const std::string path = folder_.Path("a.json");
  const ProgramResult both = Report({path, path});
  EXPECT_EQ(Count(both.out, "(mean 89.5)"), 2u) << both.out;
  EXPECT_EQ(Count(both.out, "(mean 12.5)"), 2u) << both.out;
  // From the points alone, if there are no totals.
  json.Set("prompt_tokens", 0).Set("cached_tokens", 0).Set("scheduler", Json(Json::Object()));
  const ProgramResult drawn = Report({Write("b.json", json)});
  EXPECT_NE(drawn.out.find("hits (mean 89.5)"), std::string::npos) << drawn.out;
  EXPECT_NE(drawn.out.find("in a step (mean 7)"), std::string::npos) << drawn.out;
}

TEST_F(ReportProgramTest, ARunThatScoredShowsItsPerplexity) {
  Json json = Summary();
  json.Set("completion_tokens", 0);
  json.Set("scores", *ParseJson(R"({"rows": 1200, "tokens": 4321, "logprob": -9000.0,
                                    "perplexity": 8.0261234})"));
  const ProgramResult result = Report({"-"}, json.Dump());
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.out.find("3 failed: perplexity 8.02612 over 4,321 tokens; 250 tokens/s in"),
            std::string::npos)
      << result.out;
  // The perplexity of noise is beyond all other numbers; without a token it is null.
  json.Set("scores", *ParseJson(R"({"tokens": 1, "perplexity": 1e200})"));
  EXPECT_NE(Report({"-"}, json.Dump()).out.find("perplexity 1e+200 over 1 tokens"),
            std::string::npos);
  json.Set("scores", *ParseJson(R"({"tokens": 0, "perplexity": null})"));
  EXPECT_NE(Report({"-"}, json.Dump()).out.find("0 tokens/s out"), std::string::npos);
  json.Set("scores", *ParseJson(R"({"tokens": -1, "perplexity": 2})"));
  EXPECT_EQ(Report({"-"}, json.Dump()).exit_code, 65);
}

TEST_F(ReportProgramTest, RowsWithoutAnAnswerAreListedSeparately) {
  Json json = Summary();
  json.Set("rows_done", 4520).Set("rows_failed", 15480).Set("rows_cancelled", 15436);
  const ProgramResult result = Report({Write("a.json", json)});
  EXPECT_NE(
      result.out.find("4,564 rows in 2.0 s, 44 failed, 15,436 more not answered: 45 tokens/s"),
      std::string::npos)
      << result.out;
}

TEST_F(ReportProgramTest, AnswersAreNoSummary) {
  const ProgramResult answers = Report({folder_.Write("a.jsonl", "{\"id\": 1}\n{\"id\": 2}\n")});
  EXPECT_EQ(answers.exit_code, 65);
  EXPECT_NE(answers.err.find("; give a file that --summary of run or chat wrote"),
            std::string::npos)
      << answers.err;
}

TEST_F(ReportProgramTest, AnInvalidSummaryIs65AndNamesTheField) {
  const auto with = [](const char* key, const char* text) {
    Json json = Summary();
    json.Set(key, *ParseJson(text));
    return json;
  };
  const struct {
    Json json;
    const char* expected;
  } cases[] = {
      {Json(3), "must hold an object"},
      {*ParseJson("{}"), "has no seconds"},
      {with("rows_done", "-1"), "rows_done must be an integer"},
      {with("rows_done", "1e30"), "rows_done must be an integer"},
      {with("rows_cancelled", "4"), "rows_cancelled must be at most rows_failed, 3 (found 4)"},
      {with("seconds", "\"two\""), "seconds must be a number"},
      {with("scheduler", "{\"pages_total\": []}"), "scheduler: pages_total must be an integer"},
      {with("time_series", "[]"), "time_series must be an object"},
      {with("time_series", "{}"), "time_series has no time_s"},
      {with("time_series", "{\"time_s\": [1, \"x\"]}"), "time_series.time_s[1]"},
  };
  for (const auto& bad : cases) {
    const ProgramResult result = Report({Write("bad.json", bad.json)});
    EXPECT_EQ(result.exit_code, 65) << bad.expected;
    EXPECT_EQ(result.out, "");
    EXPECT_EQ(Lines(result.err).size(), 1u) << result.err;
    EXPECT_NE(result.err.find("bad.json: "), std::string::npos) << result.err;
    EXPECT_NE(result.err.find(bad.expected), std::string::npos) << result.err;
  }
  EXPECT_EQ(Report({folder_.Write("text", "no JSON")}).exit_code, 65);
  EXPECT_EQ(Report({folder_.Path("none")}).exit_code, 66);
  EXPECT_EQ(Report({}).exit_code, 64);
}

TEST_F(ReportProgramTest, ASummaryIsNeverWrittenOver) {
  const std::string path = Write("a.json", Summary());
  const std::string before = folder_.Read("a.json");
  EXPECT_EQ(Report({path, "-o", path, "--force"}).exit_code, 73);
  EXPECT_EQ(folder_.Read("a.json"), before);
  EXPECT_EQ(Report({path, "-o", "/dev/full"}).exit_code, 74);
}

}  // namespace
}  // namespace minisgl::report
