// `minisgl plan` compared to the run that it predicts.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "minisgl/base/json.h"
#include "program/fakes.h"
#include "program/program.h"

namespace minisgl::cli {
namespace {

class PlanProgramTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (ProgramBinary().empty()) GTEST_SKIP() << "MINISGL_BINARY names no program";
  }
  static ProgramResult Program(const std::string& command, std::vector<std::string> more,
                               const std::string& input = "") {
    std::vector<std::string> arguments = {command, "-m", DemoModel(), "--threads", "1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunProgram(arguments, {input, "", {}});
  }
  static Json Parse(const std::string& text) {
    Result<Json> json = ParseJson(text);
    EXPECT_TRUE(json.ok()) << text;
    return json.ok() ? std::move(json).value() : Json();
  }
  Json Plan(const std::string& file, std::vector<std::string> more) const {
    more.insert(more.begin(), {file, "--json"});
    const ProgramResult result = Program("plan", more);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return Parse(result.out);
  }
  // Expects the plan to equal the figures of the run.
  void ExpectPlanned(const std::string& file, const std::vector<std::string>& more) const {
    std::vector<std::string> arguments = {"--quiet", "--file",    file,
                                          "--force", "--summary", folder_.Path("summary")};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const ProgramResult run = Program("run", arguments);
    EXPECT_EQ(run.exit_code, 0) << run.err;
    const Json summary = Parse(folder_.Read("summary")), plan = Plan(file, more);
    EXPECT_EQ(*plan.Find("exact"), Json(true));
    for (const char* key : {"prompt_tokens", "cached_tokens", "computed_tokens"}) {
      EXPECT_EQ(*plan.Find(key), *summary.Find(key)) << key;
    }
    EXPECT_LE(summary.Find("completion_tokens")->as_int(),
              plan.Find("completion_tokens_max")->as_int());
    EXPECT_LE(summary.Find("scheduler")->Find("pages_peak")->as_int(),
              plan.Find("pages_needed")->as_int());
  }

  TemporaryFolder folder_;
};

TEST_F(PlanProgramTest, APlanPredictsTheRun) {
  const std::string notes = MINISGL_SOURCE_DIR "/prompts/notes.jsonl";
  ExpectPlanned(notes, {"--num-pages", "2048"});
  ExpectPlanned(notes, {"--num-pages", "2048", "--page-size", "64"});
  ExpectPlanned(notes, {"--num-pages", "30000", "--page-size", "1", "--max-prefill-length", "100"});
  // Several answers to one prompt; prompts as ids, as text and as messages.
  std::string rows;
  for (int i = 0; i < 12; ++i) {
    rows += R"({"prompt_token_ids": [5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, )" +
            std::to_string(30 + i % 3) + R"(], "n": 3, "max_tokens": 5})" + "\n";
    rows += R"({"prompt": "one two three one two three one two three one two three ten", )"
            R"("max_tokens": 5})"
            "\n";
  }
  const std::string file = folder_.Write("rows.jsonl", rows);
  ExpectPlanned(file, {"--num-pages", "2048", "--page-size", "4"});
  ExpectPlanned(file, {"--num-pages", "2048", "--cache", "naive"});
}

TEST_F(PlanProgramTest, TheTextIsReadableAndBadRowsAreCounted) {
  const std::string rows = R"({"prompt": "Hi", "max_tokens": 3})"
                           "\n{\"prompt\": 7}\n{\"oops\n";
  const ProgramResult result = Program("plan", {"--raw", "-"}, rows);
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.out.find("rows        3, 2 bad\n"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("\nat once     1 request (all of them)\n"), std::string::npos);
  EXPECT_NE(result.out.find("\ntime        unknown: --from"), std::string::npos) << result.out;
  EXPECT_NE(result.err.find("standard input:2: invalid_row: "), std::string::npos) << result.err;
  EXPECT_EQ(Lines(result.err).size(), 1u) << result.err;
  EXPECT_EQ(Program("plan", {"-"}).out, "rows        0, 0 bad\n");
}

TEST_F(PlanProgramTest, GrammarsThatCannotBeCompiledAreBadRows) {
  std::string rows;
  for (int i = 0; i < 30; ++i) {
    const bool is_bad = i % 3 == 1;
    rows += std::string(R"({"prompt": "Hi", "max_tokens": 3, "guided_regex": "a)") +
            (is_bad ? "(" : "") + "\"}\n";
  }
  const std::string file = folder_.Write("rows.jsonl", rows);
  ProgramResult result = Program("plan", {"--raw", file});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.out.find("rows        30, 10 bad\n"), std::string::npos) << result.out;
  EXPECT_NE(result.err.find("rows.jsonl:2: invalid_grammar: byte 2: a `(` without its `)`"),
            std::string::npos)
      << result.err;
  result = Program("run", {"--raw", "--check", "--quiet", "--file", file});
  EXPECT_EQ(result.exit_code, 65);
  const std::vector<std::string> lines = Lines(result.err);
  ASSERT_EQ(lines.size(), 10u) << result.err;
  EXPECT_NE(lines[9].find("rows.jsonl:29: invalid_grammar: byte 2"), std::string::npos);
  // A grammar of the options ends the command before any row is read.
  for (const char* command : {"plan", "run"}) {
    result = Program(command, {"--file", file, "--regex", "a("});
    EXPECT_EQ(result.exit_code, 65) << command;
    EXPECT_EQ(result.err, "minisgl: regular expression: byte 2: a `(` without its `)`\n");
    EXPECT_EQ(result.out, "");
  }
}

TEST_F(PlanProgramTest, BytesHaveADecimalBelowAHundred) {
  const std::string notes = MINISGL_SOURCE_DIR "/prompts/notes.jsonl";
  const auto says = [&](const char* pages, const std::string& line) {
    const ProgramResult plan = Program("plan", {notes, "--num-pages", pages});
    EXPECT_NE(plan.out.find(line), std::string::npos) << plan.out;
  };
  says("2048", "9.7 MiB for all rows at their longest; the pool has 96.0 MiB (2,048 pages");
  says("2200", "the pool has 103 MiB (2,200 pages");
}

TEST_F(PlanProgramTest, AnEarlierRunTellsTheTime) {
  const std::string notes = MINISGL_SOURCE_DIR "/prompts/notes.jsonl";
  const std::string summary = folder_.Path("summary");
  EXPECT_EQ(Program("run", {"--quiet", "--file", notes, "--summary", summary}).exit_code, 0);
  const Json plan = Plan(notes, {"--from", summary});
  const Json found = Parse(folder_.Read("summary"));
  EXPECT_EQ(*plan.Find("completion_tokens"), *found.Find("completion_tokens"));
  // The same work again takes the same time.
  EXPECT_NEAR(plan.Find("seconds")->as_double(), found.Find("seconds")->as_double(),
              0.01 * found.Find("seconds")->as_double());
  const ProgramResult text = Program("plan", {"--file", notes, "--from", summary});
  EXPECT_NE(text.out.find("(as fast as wren, cpu"), std::string::npos) << text.out;
}

TEST_F(PlanProgramTest, UnreadableInputsAreReported) {
  const std::string notes = MINISGL_SOURCE_DIR "/prompts/notes.jsonl";
  EXPECT_EQ(Program("plan", {}).exit_code, 64);
  EXPECT_EQ(Program("plan", {folder_.Path("none")}).exit_code, 66);
  EXPECT_EQ(Program("plan", {notes, "--from", folder_.Path("none")}).exit_code, 66);
  const ProgramResult bad = Program("plan", {notes, "--from", folder_.Write("bad", "{}")});
  EXPECT_EQ(bad.exit_code, 65);
  EXPECT_NE(bad.err.find("bad: has no seconds"), std::string::npos) << bad.err;
  EXPECT_EQ(RunProgram({"plan", "-m", folder_.Path("none"), notes}).exit_code, 66);
}

// Texts have no answers: neither the plan nor the summary of the run speaks of them.
TEST_F(PlanProgramTest, TextsThatBecomeVectorsAndScoresArePlanned) {
  const std::string texts = folder_.Write(
      "texts.jsonl",
      "{\"text\": \"Omar lives in Paris.\"}\n{\"input\": [\"the cat\", \"the cat sat\"]}\n{}\n");
  const std::string queries = folder_.Write(
      "queries.jsonl",
      "{\"query\": \"Where?\", \"documents\": [\"here\", \"there\", \"nowhere\"]}\n\"where\"\n");
  const std::string goldens = MINISGL_SOURCE_DIR "/tests/golden/";
  const struct {
    std::string command, model, file;
    std::vector<std::string> more;
    int64_t bad_rows;
    bool shares;
  } cases[] = {
      {"embed", goldens + "pooling/bert", texts, {}, 1, false},
      {"embed", DemoModel(), texts, {}, 1, false},
      {"classify", goldens + "scoring/classes", texts, {}, 1, true},
      {"rerank", goldens + "scoring/reranker", queries, {"--query", "Where?"}, 0, true},
      {"rerank", goldens + "scoring/cross_bert", queries, {"--query", "Where?"}, 0, false}};
  for (const auto& one : cases) {
    std::vector<std::string> arguments = {"plan",   "-m",        one.model,  one.file,
                                          "--json", "--command", one.command};
    arguments.insert(arguments.end(), one.more.begin(), one.more.end());
    const ProgramResult planned = RunProgram(arguments, {});
    const Json plan = Parse(planned.out);
    ASSERT_TRUE(plan.is_object()) << planned.err;
    EXPECT_EQ(*plan.Find("bad_rows"), Json(one.bad_rows)) << planned.out;
    EXPECT_EQ(*plan.Find("completion_tokens_max"), Json(0));
    arguments = {one.command,
                 "-m",
                 one.model,
                 "--file",
                 one.file,
                 "-o",
                 folder_.Path("out"),
                 "--force",
                 "--summary",
                 folder_.Path("summary"),
                 "--threads",
                 "1"};
    arguments.insert(arguments.end(), one.more.begin(), one.more.end());
    const ProgramResult run = RunProgram(arguments, {});
    const Json summary = Parse(folder_.Read("summary"));
    for (const char* key : {"prompt_tokens", "cached_tokens"}) {
      EXPECT_EQ(*plan.Find(key), *summary.Find(key)) << one.command << " " << key << run.err;
    }
    EXPECT_EQ(plan.Find("cached_tokens")->as_int() > 0, one.shares && one.command == "rerank");
    EXPECT_NE(run.err.find("tokens/s"), std::string::npos) << run.err;
    for (const char* word : {"answer", "first token", " out;"}) {
      EXPECT_EQ(run.err.find(word), std::string::npos) << run.err;
    }
    arguments = {"plan", "-m", one.model, one.file, "--command", one.command};
    arguments.insert(arguments.end(), one.more.begin(), one.more.end());
    const std::string text = RunProgram(arguments, {}).out;
    EXPECT_NE(text.find("\ntexts "), std::string::npos) << text;
    EXPECT_EQ(text.find("answer"), std::string::npos) << text;
    EXPECT_EQ(text.find("\nshared") != std::string::npos, one.shares) << text;
  }
  const std::string usual = RunProgram({"plan", "-m", goldens + "pooling/bert", texts}, {}).out;
  EXPECT_NE(usual.find("; 3 texts"), std::string::npos) << usual;
  const std::string table = folder_.Write("t.csv", "id,text\n1,the cat\n2,a\n");
  const std::string of_table = RunProgram({"plan", "-m", goldens + "pooling/bert", table}, {}).out;
  EXPECT_NE(of_table.find("2, 0 bad"), std::string::npos) << of_table;
  EXPECT_EQ(RunProgram({"plan", "-m", DemoModel(), texts, "--query", "a"}, {}).exit_code, 64);
  EXPECT_EQ(
      RunProgram({"plan", "-m", DemoModel(), texts, "--command", "embed", "--chat"}, {}).exit_code,
      64);
}

}  // namespace
}  // namespace minisgl::cli
