// Reports of run and chat: statistics, summary and trace; and the effect of drafts on them.
#include "report/reports.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "minisgl/base/json.h"
#include "program/fakes.h"
#include "program/program.h"
#include "term/run_history.h"

namespace minisgl::report {
namespace {

using Arguments = std::vector<std::string>;

class ReportFilesTest : public ::testing::Test {
 protected:
  Status Open(const load::ReportOptions& options, bool force = false) {
    Result<std::unique_ptr<term::Output>> answers =
        term::Output::Open(folder_.Path("answers"), true, -1);
    EXPECT_TRUE(answers.ok());
    return files_.Open(options, force, -1, **answers);
  }
  static load::ReportOptions Trace(const std::string& path) { return {.trace = path}; }

  TemporaryFolder folder_;
  ReportFiles files_;
};

TEST_F(ReportFilesTest, WithoutOptionsNothingIsWritten) {
  ASSERT_TRUE(Open({}).ok());
  EXPECT_FALSE(files_.Sinks().trace);
  EXPECT_FALSE(files_.Sinks().cache_events);
  EXPECT_TRUE(files_.WriteSummary({}).ok());
  EXPECT_EQ(files_.End(7), 7);
}

TEST_F(ReportFilesTest, ATraceIsTheConcatenationOfItsPieces) {
  const std::string path = folder_.Write("trace", "old");
  ASSERT_TRUE(Open(Trace(path), /*force=*/true).ok());
  EXPECT_EQ(folder_.Read("trace"), "old");  // unchanged until the first event of the trace
  files_.Sinks().trace("[1");
  files_.Sinks().trace(",2]");
  EXPECT_EQ(files_.End(0), 0);
  EXPECT_EQ(folder_.Read("trace"), "[1,2]");
}

TEST_F(ReportFilesTest, FilesThatAreFullOrSharedOrCannotBeCreatedAreRefused) {
  for (const std::string& path :
       {folder_.Write("old", "old"), folder_.Path("answers"), folder_.Path("none/trace")}) {
    EXPECT_EQ(Open(Trace(path)).code(), StatusCode::kCannotCreate) << path;
  }
  const std::string both = folder_.Path("both");
  const Status status = Open({.summary = both, .trace = both});
  EXPECT_EQ(status.code(), StatusCode::kCannotCreate);
  EXPECT_NE(status.message().find("for another option"), std::string::npos) << status.message();
}

// A full disk is reported once, at the end, and hides no other failure.
TEST_F(ReportFilesTest, AFailedTraceChangesTheStatusOfASuccessfulRun) {
  ASSERT_TRUE(Open(Trace("/dev/full")).ok());
  testing::internal::CaptureStderr();
  for (int i = 0; i < 3; ++i) files_.Sinks().trace("piece");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  for (const auto& [before, after] : {std::pair(0, 74), {1, 74}, {70, 70}, {130, 130}}) {
    testing::internal::CaptureStderr();
    EXPECT_EQ(files_.End(before), after);
    const std::string message = testing::internal::GetCapturedStderr();
    EXPECT_EQ(Lines(message).size(), 1u);
    EXPECT_NE(message.find("/dev/full"), std::string::npos) << message;
  }
}

// A closed pipe of a report gives no message, but changes the exit status.
TEST_F(ReportFilesTest, AClosedPipeIs141WithoutAMessage) {
  signal(SIGPIPE, SIG_IGN);
  const std::string path = folder_.Path("pipe");
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  for (const load::ReportOptions& options : {Trace(path), load::ReportOptions{.summary = path}}) {
    const int reading_end = open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    ReportFiles files;
    Result<std::unique_ptr<term::Output>> answers =
        term::Output::Open(folder_.Path("answers"), true, -1);
    ASSERT_TRUE(answers.ok());
    ASSERT_TRUE(files.Open(options, false, -1, **answers).ok());
    close(reading_end);
    testing::internal::CaptureStderr();
    if (files.Sinks().trace) files.Sinks().trace("piece");
    EXPECT_TRUE(files.WriteSummary({}).ok());
    EXPECT_EQ(files.End(0), 141);
    EXPECT_EQ(files.End(70), 70);
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  }
}

class ReportsProgramTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (ProgramBinary().empty()) GTEST_SKIP() << "MINISGL_BINARY names no program";
  }
  static Arguments Command(const std::string& command, const Arguments& more) {
    Arguments arguments = {command, "-m", DemoModel(), "--num-pages", "512", "--threads", "1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  static ProgramResult Run(const Arguments& more) { return RunProgram(Command("run", more)); }
  static ProgramResult Chat(const Arguments& more, const std::string& input) {
    return RunProgram(Command("chat", more), {input, "", {}});
  }
  // Returns the exit status of a program that gets `signals` while it answers. If it ends before
  // they arrive, tries again.
  static int ExitOfStopped(const Arguments& arguments, const std::vector<int>& signals) {
    int exit_code = 0;
    for (int tries = 0; exit_code == 0 && tries < 20; ++tries) {
      Program program(arguments, {});
      program.WaitForOutput();
      for (const int number : signals) program.Signal(number);
      exit_code = program.Wait().exit_code;
    }
    return exit_code;
  }
  // Returns `count` rows with repetitive answers.
  std::string Rows(int count, const char* more = "") const {
    std::string rows;
    for (int i = 0; i < count; ++i) {
      rows += R"({"prompt": "one two three one two three one two", "ignore_eos": true, )"
              R"("max_tokens": 60)" +
              std::string(more) + "}\n";
    }
    return folder_.Write("in.jsonl", rows);
  }
  Json ReadJson(const std::string& name) const {
    Result<Json> json = ParseJson(folder_.Read(name));
    EXPECT_TRUE(json.ok()) << name << ": " << json.status().message();
    return json.ok() ? std::move(json).value() : Json();
  }
  // Expects a complete trace in the Chrome trace event format.
  void ExpectTrace(const std::string& name) const {
    const Json json = ReadJson(name);
    const Json* events = json.is_array() ? &json : json.Find("traceEvents");
    ASSERT_NE(events, nullptr) << folder_.Read(name).substr(0, 200);
    EXPECT_FALSE(events->as_array().empty());
    for (const Json& event : events->as_array()) ASSERT_NE(event.Find("ph"), nullptr);
  }

  TemporaryFolder folder_;
};

TEST_F(ReportsProgramTest, AMinusIsStandardOutputForOneOfThem) {
  const std::string answers = folder_.Path("answers.txt");
  const ProgramResult result =
      Run({"-p", "x", "--max-tokens", "1", "-o", answers, "--summary", "-"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const Result<Json> summary = ParseJson(result.out);
  ASSERT_TRUE(summary.ok()) << result.out;
  ASSERT_NE(summary->Find("rows_done"), nullptr) << result.out;
  EXPECT_EQ(summary->Find("rows_done")->as_int(), 1);
  for (const char* report : {"--summary", "--trace", "--events"}) {
    const ProgramResult refused = Run({"-p", "x", report, "-"});
    EXPECT_EQ(refused.exit_code, 64);
    EXPECT_NE(refused.err.find("answers are written there"), std::string::npos) << refused.err;
  }
  const ProgramResult both =
      Run({"-p", "x", "-o", answers, "--force", "--summary", "-", "--trace", "-"});
  EXPECT_EQ(both.exit_code, 64);
  EXPECT_NE(both.err.find("the summary is written there"), std::string::npos) << both.err;
}

TEST_F(ReportsProgramTest, ARunLeavesAWholeTrace) {
  EXPECT_EQ(Run({"--file", Rows(3), "--trace", folder_.Path("trace")}).exit_code, 0);
  ExpectTrace("trace");
  EXPECT_EQ(Run({"-p", "Hi", "-n", "2", "--trace", folder_.Path("one")}).exit_code, 0);
  ExpectTrace("one");
}

TEST_F(ReportsProgramTest, ATraceIsWholeAfterASignal) {
  for (const int count : {1, 2}) {
    const std::string name = "trace" + std::to_string(count);
    const Arguments arguments = {
        "-p",      "Hi",           "--ignore-eos", "-n",      "1900",
        "--force", "--cpu-target", "naive",        "--trace", folder_.Path(name)};
    EXPECT_EQ(ExitOfStopped(Command("run", arguments), std::vector<int>(count, SIGINT)), 130);
    ExpectTrace(name);
  }
}

TEST_F(ReportsProgramTest, ATraceIsWholeAfterARunThatFailed) {
  EXPECT_EQ(Run({"--file", Rows(3), "-o", "/dev/full", "--trace", folder_.Path("trace")}).exit_code,
            74);
  ExpectTrace("trace");
}

TEST_F(ReportsProgramTest, AFailedTraceCostsNoAnswer) {
  const std::string rows = Rows(3);
  const ProgramResult result = Run({"--quiet", "--raw", "--file", rows, "--trace", "/dev/full"});
  EXPECT_EQ(result.exit_code, 74);
  EXPECT_EQ(Lines(result.out).size(), 3u);
  EXPECT_EQ(Lines(result.err).size(), 1u) << result.err;
  EXPECT_NE(result.err.find("/dev/full: cannot be written"), std::string::npos) << result.err;
}

TEST_F(ReportsProgramTest, ATraceThatCannotBeMadeIs73BeforeAnythingRuns) {
  const std::string rows = Rows(1), old = folder_.Write("old", "mine");
  for (const std::string& path : {folder_.Path("none/trace"), old, rows}) {
    const ProgramResult run = Run({"--file", rows, "--trace", path});
    EXPECT_EQ(run.exit_code, 73) << run.err;
    EXPECT_EQ(run.out, "");
    const ProgramResult chat = Chat({"--trace", path}, "Hi\n");
    EXPECT_EQ(chat.exit_code, 73) << chat.err;
    EXPECT_EQ(chat.out, "");
  }
  EXPECT_EQ(folder_.Read("old"), "mine");
  EXPECT_EQ(Run({"--file", rows, "--force", "--trace", old}).exit_code, 0);
  ExpectTrace("old");
}

// Few pages, so that some are evicted.
TEST_F(ReportsProgramTest, EventsReplayedGiveTheBlocksThatAreCachedAtTheEnd) {
  std::string rows;
  for (int i = 0; i < 12; ++i) {
    const std::string number = std::to_string(i);
    rows += R"({"prompt": ")" + number + " one two three " + number +
            R"( one two", "ignore_eos": true, "max_tokens": 60})" + "\n";
  }
  const ProgramResult run =
      RunProgram({"run", "-m", DemoModel(), "--quiet", "--num-pages", "24", "--threads", "1",
                  "--file", folder_.Write("in.jsonl", rows), "-o", folder_.Path("out"), "--events",
                  "-", "--summary", folder_.Path("summary")});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  std::set<std::string> cached;
  int64_t evicted = 0;
  for (const std::string& text : Lines(run.out)) {
    const Result<Json> line = ParseJson(text);
    ASSERT_TRUE(line.ok()) << text;
    const std::string event = line->Find("event")->as_string();
    if (event == "started") {
      EXPECT_EQ(*line->Find("blocks_max"), Json(24));
      continue;
    }
    const std::string hash = line->Find("hash")->as_string();
    const Json& parent = *line->Find("parent");
    EXPECT_TRUE(parent.is_null() || cached.contains(parent.as_string())) << text;
    if (event == "stored") {
      EXPECT_TRUE(cached.insert(hash).second) << text;
    } else {
      EXPECT_EQ(event, "evicted");
      EXPECT_EQ(cached.erase(hash), 1u) << text;
      ++evicted;
    }
  }
  const Json scheduler = *ReadJson("summary").Find("scheduler");
  EXPECT_GT(evicted, 0);
  EXPECT_EQ(evicted, scheduler.Find("evicted_pages")->as_int());
  EXPECT_EQ(std::ssize(cached), scheduler.Find("pages_cached")->as_int());
}

TEST_F(ReportsProgramTest, EventsThatCannotBeWrittenCostNoAnswer) {
  const ProgramResult result = Run({"--quiet", "--file", Rows(3), "--events", "/dev/full"});
  EXPECT_EQ(result.exit_code, 74);
  EXPECT_EQ(Lines(result.out).size(), 3u);
  EXPECT_NE(result.err.find("/dev/full: cannot be written"), std::string::npos) << result.err;
}

// Description of the run, and its history, whose sums are the totals.
TEST_F(ReportsProgramTest, ASummarySaysWhatRanAndHowItWentOverTime) {
  const ProgramResult result =
      Run({"--quiet", "--file", Rows(20), "--summary", folder_.Path("summary")});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const Json summary = ReadJson("summary");
  EXPECT_EQ(*summary.Find("model"), Json("wren"));
  EXPECT_EQ(*summary.Find("weights"), Json("bf16"));
  EXPECT_NE(summary.Find("device")->as_string().find("cpu"), std::string::npos);
  EXPECT_FALSE(summary.Find("version")->as_string().empty());
  EXPECT_EQ(*summary.Find("options")->Find("num_pages"), Json(512));
  EXPECT_EQ(*summary.Find("options")->Find("max_prefill_length"), Json(512));
  EXPECT_GT(summary.Find("requests_per_s")->as_double(), 0);
  EXPECT_GT(summary.Find("peak_memory_bytes")->as_int(), 1 << 20);
  ASSERT_NE(summary.Find("time_series"), nullptr);
  const Result<term::TimeSeries> series =
      term::ParseTimeSeries(*summary.Find("time_series"), "summary");
  ASSERT_TRUE(series.ok()) << series.status().message();
  const auto total = [&](const std::vector<double>& rates) {
    double sum = 0, before = 0;
    for (size_t i = 0; i < rates.size(); ++i) {
      sum += rates[i] * (series->time_s[i] - std::exchange(before, series->time_s[i]));
    }
    return sum;
  };
  EXPECT_FALSE(series->time_s.empty());
  EXPECT_NEAR(total(series->completion_tokens_per_s), 20 * 60, 60);
  EXPECT_NEAR(total(series->prompt_tokens_per_s),
              static_cast<double>(summary.Find("prompt_tokens")->as_int()), 20);
  // Each column is on one line, so that the file stays readable.
  EXPECT_LT(Lines(folder_.Read("summary")).size(), 120u);
}

TEST_F(ReportsProgramTest, AChatLeavesATraceAndASummary) {
  const ProgramResult result = Chat({"--quiet", "--page-size", "1", "-n", "8", "--trace",
                                     folder_.Path("trace"), "--summary", folder_.Path("summary")},
                                    "Hi\nWhat is the capital of Peru?\n");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  ExpectTrace("trace");
  const Json summary = ReadJson("summary");
  ASSERT_NE(summary.Find("scheduler"), nullptr);
  EXPECT_EQ(*summary.Find("rows_done"), Json(2));
  EXPECT_EQ(*summary.Find("rows_failed"), Json(0));
  EXPECT_GT(summary.Find("completion_tokens")->as_int(), 2);
  EXPECT_GT(summary.Find("cached_tokens")->as_int(), 0);
  // Its turns belong to one session, whose prefix stays cached.
  EXPECT_EQ(*summary.Find("scheduler")->Find("sessions"), Json(1));
  EXPECT_GT(summary.Find("scheduler")->Find("session_pages")->as_int(), 0);
}

TEST_F(ReportsProgramTest, AChatThatASignalEndsLeavesThemToo) {
  const Arguments arguments = {"-p",           "Hi",
                               "--ignore-eos", "-n",
                               "1900",         "--force",
                               "--cpu-target", "naive",
                               "--trace",      folder_.Path("trace"),
                               "--summary",    folder_.Path("summary")};
  EXPECT_EQ(ExitOfStopped(Command("chat", arguments), {SIGTERM}), 128 + SIGTERM);
  ExpectTrace("trace");
  EXPECT_EQ(*ReadJson("summary").Find("rows_done"), Json(1));
}

TEST_F(ReportsProgramTest, AChatsSummaryThatCannotBeWrittenIs74AfterTheAnswers) {
  const ProgramResult result = Chat({"-n", "4", "--summary", "/dev/full"}, "Hi\n");
  EXPECT_EQ(result.exit_code, 74);
  EXPECT_NE(result.out, "");
  EXPECT_NE(result.err.find("/dev/full: cannot be written"), std::string::npos) << result.err;
}

TEST_F(ReportsProgramTest, StatsArePrintedAtTheEnd) {
  const ProgramResult run = Run({"--quiet", "--stats", "--file", Rows(2)});
  const ProgramResult chat = Chat({"--quiet", "--stats", "-n", "4"}, "Hi\n");
  for (const ProgramResult* result : {&run, &chat}) {
    EXPECT_EQ(result->exit_code, 0);
    for (const char* line :
         {"generated_tokens  ", "hit_rate          ", "preemptions       0\n",
          "recomputed_tokens 0\n", "waiting           p50 ", "first_token       p50 ",
          "between_tokens    p50 ", "host_step         p50 "}) {
      EXPECT_NE(result->err.find(line), std::string::npos) << line << "\n" << result->err;
    }
    EXPECT_EQ(result->err.find("max 0.000 ms\n"), std::string::npos) << result->err;
  }
  EXPECT_NE(chat.err.find("  last answer"), std::string::npos) << chat.err;
}

// The answers are the same, and drafts were made and accepted.
TEST_F(ReportsProgramTest, DraftsChangeNoAnswer) {
  for (const char* sampling : {"", ", \"temperature\": 0.8, \"seed\": 3"}) {
    const std::string rows = Rows(2, sampling);
    const std::string summary = folder_.Path("summary");
    const ProgramResult plain = Run({"--quiet", "--file", rows});
    const ProgramResult drafted =
        Run({"--quiet", "--file", rows, "--speculate", "ngram:4", "--force", "--summary", summary});
    EXPECT_EQ(drafted.exit_code, 0) << drafted.err;
    EXPECT_EQ(drafted.out, plain.out);
    const Json figures = ReadJson("summary");
    ASSERT_NE(figures.Find("scheduler"), nullptr);
    EXPECT_GT(figures.Find("scheduler")->Find("drafted_tokens")->as_int(), 0) << sampling;
    EXPECT_NE(figures.Find("draft_acceptance_percent"), nullptr) << sampling;
  }
  EXPECT_EQ(Run({"--file", Rows(1), "--speculate", "ngram:17"}).exit_code, 64);
}

// The demo model, which drafts for itself, is always right.
TEST_F(ReportsProgramTest, ASmallModelsDraftsAreCountedByPlace) {
  const std::string rows = Rows(2);
  const std::string itself = "draft:" + DemoModel() + ":3";
  const ProgramResult plain = Run({"--quiet", "--file", rows});
  const ProgramResult drafted =
      Run({"--quiet", "--file", rows, "--speculate", itself, "--summary", folder_.Path("summary")});
  EXPECT_EQ(drafted.exit_code, 0) << drafted.err;
  EXPECT_EQ(drafted.out, plain.out);
  const Json figures = ReadJson("summary");
  ASSERT_NE(figures.Find("draft_acceptance_by_place"), nullptr);
  EXPECT_EQ(figures.Find("draft_acceptance_by_place")->Dump(), "[100.0, 100.0, 100.0]");
  EXPECT_GT(figures.Find("tokens_per_step")->as_double(), 1.5);
  const ProgramResult chat =
      Chat({"-n", "24", "--ignore-eos", "--commands", "--speculate", itself}, "Hi\n/stats\n");
  EXPECT_NE(chat.err.find("  drafts        right: 100.0 %, by place 100 %"), std::string::npos)
      << chat.out << chat.err;
  // What the demo model lacks, and what is no model, is one error.
  const ProgramResult layer = Run({"--file", rows, "--speculate", "mtp"});
  EXPECT_EQ(layer.exit_code, 64);
  EXPECT_NE(layer.err.find("no layer that predicts"), std::string::npos) << layer.err;
  const ProgramResult missing = Run({"--file", rows, "--speculate", "draft:" + folder_.Path("no")});
  EXPECT_EQ(missing.exit_code, 66) << missing.err;
  EXPECT_EQ(Run({"--quiet", "--file", rows, "--speculate", "auto"}).out, plain.out);
}

TEST_F(ReportsProgramTest, InfoShowsWhatDraftsTake) {
  const auto info = [](const Arguments& more) {
    const ProgramResult result = RunProgram(Command("info", more));
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.out;
  };
  EXPECT_EQ(info({}).find("drafts "), std::string::npos);
  EXPECT_NE(info({"--speculate", "ngram:2"}).find("2 tokens of a request in a step, 64 of all"),
            std::string::npos);
  // Not more tokens than a step may have.
  EXPECT_NE(info({"--speculate", "ngram:16"}).find("16 tokens of a request in a step, 512 of all"),
            std::string::npos);
}

}  // namespace
}  // namespace minisgl::report
