// Runs that --resume accepts and refuses: inputs that change during the run, rows with other ids,
// journals of an earlier version, templates, drawn seeds; and kills with bad rows, duplicate rows
// and several answers.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "minisgl/base/json.h"
#include "program/fakes.h"
#include "program/program.h"
#include "slow.h"

namespace minisgl::batch {
namespace {

namespace fs = std::filesystem;
using Arguments = std::vector<std::string>;

class RunResumeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (ProgramBinary().empty()) GTEST_SKIP() << "MINISGL_BINARY names no program";
    out_ = folder_.Path("out.jsonl");
    model_ = DemoModel();
  }

  Arguments Run(const std::string& input, const Arguments& more) const {
    Arguments arguments = {"run",       "-m", model_,   "--num-pages", "512",
                           "--threads", "1",  "--file", input,         "--max-running-requests",
                           "8"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  ProgramResult RunFile(const std::string& input, const Arguments& more) const {
    return RunProgram(Run(input, more));
  }
  // Expects exit status 73 and unchanged rows.
  void Refuses(const std::string& input, const Arguments& more, const std::string& expected) const {
    const std::string rows = folder_.Read("out.jsonl");
    Arguments arguments = {"-o", out_, "--resume"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const ProgramResult result = RunFile(input, arguments);
    EXPECT_EQ(result.exit_code, 73) << result.err;
    EXPECT_NE(result.err.find(expected), std::string::npos) << result.err;
    EXPECT_EQ(folder_.Read("out.jsonl"), rows);
  }
  // Replaces `from`, which must be in the file.
  void Edit(const std::string& name, const std::string& from, const std::string& to) const {
    std::string text = folder_.Read(name);
    const size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from << " in " << text;
    folder_.Write(name, text.replace(at, from.size(), to));
  }
  // Returns the rows sorted, without the cache statistics, which may differ.
  static std::vector<std::string> SortedRows(const std::string& text) {
    constexpr std::string_view kCached = "\"cached_tokens\": ";
    std::vector<std::string> rows = Lines(text);
    for (std::string& row : rows) {
      EXPECT_TRUE(ParseJson(row).ok()) << row;
      for (size_t at = row.find(kCached); at != std::string::npos; at = row.find(kCached, at + 1)) {
        const size_t begin = at + kCached.size();
        row.erase(begin, row.find_first_not_of("0123456789", begin) - begin);
      }
    }
    std::sort(rows.begin(), rows.end());
    return rows;
  }
  void WaitForBytes(const Program& program, uintmax_t bytes) const {
    std::error_code error;
    while (program.Runs()) {
      const uintmax_t size = fs::file_size(out_, error);
      if (!error && size >= bytes) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  TemporaryFolder folder_;
  std::string out_, model_;
};

// Many more rows than are read ahead, in many blocks.
class ChangedInputTest : public RunResumeTest {
 protected:
  static std::string Rows(int count) {
    std::string text;
    for (int i = 0; i < count; ++i) {
      text += "{\"id\": \"r" + std::to_string(i) + "\", \"prompt\": \"a\", \"max_tokens\": 1, " +
              "\"metadata\": \"" + std::string(400, 'm') + "\"}\n";
    }
    return text;
  }
  // Runs a file that is replaced by `now` after the first answer.
  ProgramResult RunWhileItBecomes(const std::string& before, const std::string& now) {
    const std::string input = folder_.Write("in.jsonl", before);
    fs::remove(out_);
    Program program(Run(input, {"-o", out_}), {});
    WaitForBytes(program, 1);
    program.Signal(SIGSTOP);
    folder_.Write("in.jsonl", now);
    program.Signal(SIGCONT);
    return program.Wait();
  }
  static constexpr int kRows = 2000;
};

TEST_F(ChangedInputTest, IsReportedAndAnswersBelongToTheOldFile) {
  MarkSlow("thousands of rows");
  const std::string rows = Rows(kRows);
  const std::string input = folder_.Write("in.jsonl", rows);
  ASSERT_EQ(RunFile(input, {"-o", folder_.Path("whole")}).exit_code, 0);
  const std::vector<std::string> whole = SortedRows(folder_.Read("whole"));
  std::string edited = rows;
  edited.replace(edited.size() - 500, 1, "x");
  for (const std::string& now : {rows.substr(0, rows.size() * 3 / 4), edited}) {
    const ProgramResult changed = RunWhileItBecomes(rows, now);
    EXPECT_EQ(changed.exit_code, 65) << changed.err;
    EXPECT_NE(changed.err.find("in.jsonl: changed while it was read: "), std::string::npos)
        << changed.err;
    EXPECT_NE(changed.err.find(" of its 2000 rows "), std::string::npos) << changed.err;
    EXPECT_NE(changed.err.find("--resume runs the rest"), std::string::npos) << changed.err;
    const std::vector<std::string> some = SortedRows(folder_.Read("out.jsonl"));
    EXPECT_GE(some.size(), 1000u);
    EXPECT_LT(some.size(), whole.size());
    EXPECT_TRUE(std::includes(whole.begin(), whole.end(), some.begin(), some.end()));
    Refuses(input, {}, "was begun with other rows");
    folder_.Write("in.jsonl", rows);
    EXPECT_EQ(RunFile(input, {"-o", out_, "--resume"}).exit_code, 0);
    EXPECT_TRUE(SortedRows(folder_.Read("out.jsonl")) == whole);
  }
}

TEST_F(ChangedInputTest, AddedRowsAreLeftForTheNextRun) {
  MarkSlow("thousands of rows");
  const std::string rows = Rows(kRows);
  const ProgramResult first = RunWhileItBecomes(rows, Rows(kRows + 5) + "{\"id\": \"half");
  EXPECT_EQ(first.exit_code, 0) << first.err;
  EXPECT_EQ(Lines(folder_.Read("out.jsonl")).size(), static_cast<size_t>(kRows));
  const std::string input = folder_.Write("in.jsonl", Rows(kRows + 6));
  const ProgramResult second = RunFile(input, {"-o", out_, "--resume"});
  EXPECT_EQ(second.exit_code, 0) << second.err;
  EXPECT_NE(second.err.find("6 to run"), std::string::npos) << second.err;
  EXPECT_EQ(Lines(folder_.Read("out.jsonl")).size(), static_cast<size_t>(kRows + 6));
}

TEST_F(RunResumeTest, ARowWithAnotherIdIsNamedAndNotAccepted) {
  const std::string input =
      folder_.Write("in.jsonl",
                    "{\"id\": \"r0\", \"prompt\": \"a\", \"max_tokens\": 1}\n"
                    "{\"id\": \"r1\", \"prompt\": \"a\", \"max_tokens\": 1}\n");
  ASSERT_EQ(RunFile(input, {"-o", out_, "--ordered"}).exit_code, 0);
  Edit("out.jsonl", "\"r0\"", "\"zzz\"");
  const std::string rows = folder_.Read("out.jsonl");
  const ProgramResult result = RunFile(input, {"-o", out_, "--resume"});
  EXPECT_EQ(result.exit_code, 65) << result.err;
  EXPECT_NE(result.err.find("out.jsonl:1: answers the row \"zzz\""), std::string::npos)
      << result.err;
  EXPECT_EQ(folder_.Read("out.jsonl"), rows);
}

TEST_F(RunResumeTest, JournalsOfTheFirstVersionResumeUnlessSeedsDiffer) {
  const std::string plain = "{\"prompt\": \"Once\", \"temperature\": 1, \"max_tokens\": 4}\n";
  const std::string several = "{\"prompt\": \"Once\", \"temperature\": 1, \"n\": 2}\n";
  const auto make_old = [&] {
    Edit("out.jsonl.meta", "\"minisgl_run\": 2", "\"minisgl_run\": 1");
    Edit("out.jsonl.meta", "\"templates_sha256\"", "\"unknown\"");
  };
  const std::string input = folder_.Write("in.jsonl", plain + plain);
  ASSERT_EQ(RunFile(input, {"-o", out_}).exit_code, 0);
  make_old();
  EXPECT_EQ(RunFile(input, {"-o", out_, "--resume"}).exit_code, 0);
  // The journal now has this version, and added rows may have several answers.
  folder_.Write("in.jsonl", plain + plain + several);
  EXPECT_EQ(RunFile(input, {"-o", out_, "--resume"}).exit_code, 0);
  make_old();
  Refuses(input, {}, "1 row is affected, the first on line 3");
  EXPECT_EQ(RunFile(input, {"-o", out_, "--resume", "--force"}).exit_code, 0);
  folder_.Write("in.jsonl", plain + "{\"prompt\": \"Once\", \"seed\": -1}\n");
  EXPECT_EQ(RunFile(input, {"-o", out_, "--force"}).exit_code, 0);
  make_old();
  Refuses(input, {}, "the first on line 2");
  Edit("out.jsonl.meta", "\"minisgl_run\": 1", "\"minisgl_run\": 3");
  Refuses(input, {}, "was written by a later version");
}

TEST_F(RunResumeTest, ATemplateInTheModelsFolderIsPartOfTheRun) {
  model_ = folder_.Path("model");
  const fs::path templates = fs::path(model_) / "additional_chat_templates";
  fs::create_directories(templates);
  for (const auto& entry : fs::directory_iterator(DemoModel())) {
    fs::create_symlink(fs::absolute(entry.path()), fs::path(model_) / entry.path().filename());
  }
  const auto write_template = [&](const std::string& text) {
    folder_.Write("model/additional_chat_templates/plain.jinja", text);
  };
  write_template("{{ messages[0]['content'] }}");
  const std::string input = folder_.Write(
      "in.jsonl", R"({"messages": [{"role": "user", "content": "a"}], "max_tokens": 1})");
  const Arguments plain = {"--chat-template", "plain"};
  ASSERT_EQ(RunFile(input, {"-o", out_, "--chat-template", "plain"}).exit_code, 0);
  EXPECT_EQ(RunFile(input, {"-o", out_, "--resume", "--chat-template", "plain"}).exit_code, 0);
  write_template("{{ messages[0]['content'] }}!");
  Refuses(input, plain, "other templates in the model's additional_chat_templates");
}

TEST_F(RunResumeTest, WhatAnswersMustBeIsPartOfTheRun) {
  const std::string input =
      folder_.Write("in.jsonl", R"({"prompt": "a", "guided_regex": "b", "max_tokens": 1})");
  const std::string file = folder_.Path("s.json");
  folder_.Write("s.json", "{}");
  const struct {
    Arguments given, other;
    std::string difference;
  } cases[] = {
      {{}, {"--regex", "a"}, "no --regex (not --regex \"a\")"},
      {{"--regex", "a"}, {"--regex", "b"}, "--regex \"a\" (not --regex \"b\")"},
      {{"--choice", "a"}, {"--choice", "a", "--choice", "b"}, "--choice [\"a\"] (not --choice ["},
      {{"--json-schema", file}, {}, "(not no --json-schema)"},
      {{"--regex", "root ::= \"a\""},
       {"--grammar", folder_.Write("g", "root ::= \"a\"")},
       "(not no --regex)"},
  };
  for (const auto& test : cases) {
    fs::remove(out_);
    Arguments arguments = {"-o", out_};
    arguments.insert(arguments.end(), test.given.begin(), test.given.end());
    ASSERT_EQ(RunFile(input, arguments).exit_code, 0);
    Refuses(input, test.other, test.difference);
    arguments.push_back("--resume");
    EXPECT_EQ(RunFile(input, arguments).exit_code, 0);
  }
  fs::remove(out_);
  ASSERT_EQ(RunFile(input, {"-o", out_, "--json-schema", file}).exit_code, 0);
  // The same file under another name is the same schema; the row's own is in its text.
  const std::string copy = folder_.Write("copy.json", "{}");
  EXPECT_EQ(RunFile(input, {"-o", out_, "--json-schema", copy, "--resume"}).exit_code, 0);
  folder_.Write("s.json", "{ }");
  Refuses(input, {"--json-schema", file}, "--json-schema \"sha256 ");
  Edit("in.jsonl", "\"b\"", "\"c\"");
  Refuses(input, {"--json-schema", copy}, "was begun with other rows");
}

TEST_F(RunResumeTest, ADrawnSeedIsKeptOnResume) {
  std::string text;
  for (int i = 0; i < 20; ++i) {
    text += "{\"prompt\": \"Once\", \"temperature\": 1, \"max_tokens\": 8, \"ignore_eos\": true}\n";
  }
  const std::string input = folder_.Write("in.jsonl", text);
  const Arguments drawn = {"-o", out_, "--seed", "-1", "--ordered", "--resume"};
  const ProgramResult first = RunFile(input, drawn);
  ASSERT_EQ(first.exit_code, 0) << first.err;
  const std::string whole = folder_.Read("out.jsonl");
  folder_.Write("out.jsonl", Lines(whole)[0] + "\n");
  EXPECT_EQ(RunFile(input, drawn).exit_code, 0);
  EXPECT_EQ(SortedRows(folder_.Read("out.jsonl")), SortedRows(whole));
  // The seed is logged, and gives the same answers.
  const size_t at = first.err.find("--seed ");
  ASSERT_NE(at, std::string::npos) << first.err;
  const std::string seed = first.err.substr(at + 7, first.err.find(' ', at + 7) - at - 7);
  EXPECT_EQ(SortedRows(RunFile(input, {"--seed", seed}).out), SortedRows(whole));
  EXPECT_NE(SortedRows(RunFile(input, {"--seed", "-1"}).out), SortedRows(whole));
}

// Rows that fail in each way, duplicates, and several answers, in both formats.
TEST_F(RunResumeTest, KilledRunsWithBadAndDuplicateRowsResumeCompletely) {
  MarkSlow("many runs, killed and resumed");
  std::string text;
  for (int i = 0; i < 12; ++i) {
    const std::string number = std::to_string(i);
    text += "{\"id\": \"n" + number + "\", \"prompt\": \"Once\", \"temperature\": 1, \"n\": 3, " +
            "\"seed\": " + number + ", \"max_tokens\": 12, \"metadata\": 1e3}\n";
    text += "{\"id\": \"n" + number + "\", \"prompt\": \"Once\"}\n";
    text += "{\"id\": \"bad" + number + "\", \"prompt\": \"Once\", \"seed\": 1e999}\n";
    text += "{\"prompt\": \"Once\", \"temperature\": 1, \"seed\": -1, \"max_tokens\": 12}\n";
    text += "{\"custom_id\": \"b" + std::to_string(i / 2) +
            "\", \"body\": {\"prompt\": \"Once\", " + "\"max_tokens\": 12.0}}\n";
    text += "{\"custom_id\": \"c" + number + "\", \"body\": {\"prompt\": \"cut\n";
  }
  const std::string input = folder_.Write("in.jsonl", text);
  ASSERT_EQ(RunFile(input, {"-o", folder_.Path("whole"), "--ordered"}).exit_code, 1);
  const std::string whole = folder_.Read("whole");
  const std::vector<std::string> rows = SortedRows(whole);
  ASSERT_EQ(rows.size(), 72u);
  std::mt19937 random(20261124);
  for (int kill_number = 0; kill_number < 12; ++kill_number) {
    if (kill_number % 3 == 0) fs::remove(out_);
    Program program(Run(input, {"-o", out_, "--resume", "--quiet"}), {});
    WaitForBytes(program, random() % whole.size());
    program.Signal(SIGKILL);
    program.Wait();
    if (kill_number % 3 != 2) continue;
    const ProgramResult resumed = RunFile(input, {"-o", out_, "--resume"});
    ASSERT_EQ(resumed.exit_code, 1) << resumed.err;
    ASSERT_EQ(SortedRows(folder_.Read("out.jsonl")), rows) << resumed.err;
  }
}

}  // namespace
}  // namespace minisgl::batch
