// Sources of prompts in `minisgl run`: standard input, rows completed as they are, rows put through
// the chat template, and untrusted texts.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "minisgl/base/json.h"
#include "program/fakes.h"
#include "program/program.h"
#include "program/pty_process.h"

namespace minisgl::batch {
namespace {

constexpr const char* kWarning = "without the model's chat template";
constexpr const char* kPeruQuestion = "What is the capital of Peru?";

class RunPromptsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (ProgramBinary().empty()) GTEST_SKIP() << "MINISGL_BINARY names no program";
  }
  static ProgramResult Run(std::vector<std::string> more, const std::string& input = "") {
    std::vector<std::string> arguments = {"run", "-m", DemoModel(), "--threads", "1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunProgram(arguments, {.input = input});
  }
  // Returns for each row of an output its text or error code.
  static std::vector<std::string> Texts(const std::string& output) {
    std::vector<std::string> texts;
    for (const std::string& line : Lines(output)) {
      const Result<Json> row = ParseJson(line);
      EXPECT_TRUE(row.ok()) << line;
      if (!row.ok()) continue;
      const Json* text = row->Find("text");
      texts.push_back(text != nullptr ? text->as_string()
                                      : row->Find("error")->Find("code")->as_string());
    }
    return texts;
  }
  TemporaryFolder folder_;
};

// A pipe of rows is no prompt; with -p, or --raw, it is text.
TEST_F(RunPromptsTest, RowsOnStandardInputAreNotTakenForAPrompt) {
  const std::string row = R"({"messages": [{"role": "user", "content": "Hi"}], "colour": 1})";
  for (const std::string& input :
       {row + "\n" + row + "\n", row, std::string(R"({"prompt": "Hi"})"), std::string("\n") + row,
        std::string(R"({"custom_id": "a", "body": {}})"), std::string(R"({"text": "Hi"})")}) {
    const ProgramResult refused = Run({"-n", "1"}, input);
    EXPECT_EQ(refused.exit_code, 64) << input;
    EXPECT_EQ(refused.out, "");
    EXPECT_EQ(refused.err,
              "minisgl: standard input has rows of JSON Lines: minisgl run --file - answers them "
              "(-p TEXT asks about them as one text)\n");
  }
  for (const char* input : {R"({"name": "Ada"})", "{\"messages\":\n[1]}", "[1]",
                            "Say {\"prompt\": 1}", "{", "\"Hi\""}) {
    EXPECT_EQ(Run({"-n", "1"}, input).exit_code, 0) << input;
  }
  EXPECT_EQ(Run({"-n", "1", "-p", "What is this?"}, row).exit_code, 0);
  EXPECT_EQ(Run({"-n", "1", "--raw"}, row).exit_code, 0);
}

TEST_F(RunPromptsTest, StandardInputReadBesideAPromptIsReported) {
  const std::string note = "read 4 bytes of standard input before the prompt (--no-stdin skips it)";
  const ProgramResult reported = Run({"-n", "1", "-p", "Hi"}, "2\n3\n");
  EXPECT_EQ(reported.exit_code, 0) << reported.err;
  EXPECT_EQ(CountOf(reported.err, note), 1u) << reported.err;
  // A script with --quiet loses the lines of its loop as well.
  EXPECT_EQ(CountOf(Run({"-n", "1", "-q", "-p", "Hi"}, "2\n3\n").err, note), 1u);
  EXPECT_EQ(CountOf(Run({"-n", "1", "--no-stdin", "-p", "Hi"}, "2\n3\n").err, "standard input"),
            0u);
  EXPECT_EQ(CountOf(Run({"-n", "1", "-p", "Hi"}).err, "standard input"), 0u);
  EXPECT_EQ(CountOf(Run({"-n", "1"}, "Hi\n").err, "standard input"), 0u);
}

TEST_F(RunPromptsTest, EmptyStandardInputIsAnError) {
  for (const char* input : {"", "\n"}) {
    const ProgramResult result = Run({"-q"}, input);
    EXPECT_EQ(result.exit_code, 65) << result.err;
    EXPECT_EQ(result.out, "");
    EXPECT_NE(result.err.find("standard input is empty"), std::string::npos) << result.err;
  }
  EXPECT_EQ(Run({"-q", "--raw"}, "").exit_code, 65);
  EXPECT_EQ(Run({"-q", "--check"}, "").exit_code, 65);
  const PipedResult closed =
      RunPiped({"run", "-m", DemoModel(), "--threads", "1", "-q"}, std::nullopt);
  EXPECT_EQ(closed.status, 65) << closed.err;
  EXPECT_EQ(Run({"-q", "-n", "1", "-p", "Hi"}, "").exit_code, 0);
}

TEST_F(RunPromptsTest, WaitingForStandardInputIsReportedOnce) {
  const std::string script = "(sleep 1.3; echo a; sleep 1.3; echo b) | " + ProgramBinary() +
                             " run -m " + DemoModel() + " --threads 1 -n 1 -q -p Hi; echo end $?";
  PtyProcess shell({"-c", script}, {{"TERM", "dumb"}}, "/bin/sh");
  ASSERT_TRUE(shell.WaitFor("waiting for standard input (--no-stdin skips it)")) << shell.output();
  ASSERT_TRUE(shell.WaitFor("read 4 bytes")) << shell.output();
  ASSERT_TRUE(shell.WaitFor("end 0")) << shell.output();
  EXPECT_EQ(CountOf(shell.output(), "waiting for"), 1u) << shell.output();
}

TEST_F(RunPromptsTest, AFileWithoutRowsIsWarnedOf) {
  const std::string file = folder_.Write("empty.jsonl", "\n \n");
  const std::string warning = "empty.jsonl: has no rows";
  for (const char* option : {"-q", "--check"}) {
    const ProgramResult result = Run({option, "-f", file});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(CountOf(result.err, warning), 1u) << result.err;
    const ProgramResult strict = Run({option, "--strict", "-f", file});
    EXPECT_EQ(strict.exit_code, 65) << strict.err;
    EXPECT_EQ(CountOf(strict.err, warning), 1u) << strict.err;
  }
  const ProgramResult plan = RunProgram({"plan", "-m", DemoModel(), file});
  EXPECT_EQ(plan.exit_code, 0) << plan.err;
  EXPECT_EQ(CountOf(plan.err, warning), 1u) << plan.err;
  for (const char* option : {"-q", "--check"}) {
    const PipedResult piped =
        RunPiped({"run", "-m", DemoModel(), "--threads", "1", option, "-f", "-"}, "");
    EXPECT_EQ(piped.status, 0) << piped.err;
    EXPECT_EQ(CountOf(piped.err, "standard input: has no rows"), 1u) << piped.err;
  }
}

TEST_F(RunPromptsTest, RowsThatSkipTheTemplateAreWarnedOfOnce) {
  const std::string raw = R"({"prompt": "What is the capital of Peru?", "max_tokens": 1})";
  const std::string messages =
      R"({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1})";
  const std::string completion = R"({"custom_id": "c", "method": "POST", "url": "/v1/completions",)"
                                 R"( "body": {"prompt": "Hi", "max_tokens": 1}})";
  const std::string rows = raw + "\n" + messages + "\n\"Hi\"\n" + completion + "\n";
  const std::string file = folder_.Write("rows.jsonl", rows);
  const std::string warning = "rows.jsonl: 2 rows that hold prompt";
  const std::vector<ProgramResult> results = {Run({"-q", "-n", "1", "-f", file}),
                                              Run({"-q", "--check", "-f", file}),
                                              RunProgram({"plan", "-q", "-m", DemoModel(), file})};
  for (const ProgramResult& result : results) {
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(CountOf(result.err, kWarning), 1u) << result.err;
    EXPECT_EQ(CountOf(result.err, warning), 1u) << result.err;
  }
  for (const char* option : {"-q", "--check"}) {
    const PipedResult piped =
        RunPiped({"run", "-m", DemoModel(), "--threads", "1", "-n", "1", option, "-f", "-"}, rows);
    EXPECT_EQ(CountOf(piped.err, kWarning), 1u) << piped.err;
  }
  const std::string others = folder_.Write("others.jsonl", messages + "\n" + completion + "\n");
  EXPECT_EQ(CountOf(Run({"-q", "-f", others}).err, kWarning), 0u);
  // No warning if either mode is requested explicitly.
  for (const char* option : {"--chat", "--raw"}) {
    EXPECT_EQ(CountOf(Run({"-q", "-n", "1", option, "-f", file}).err, kWarning), 0u);
    EXPECT_EQ(CountOf(RunProgram({"plan", "-q", "-m", DemoModel(), option, file}).err, kWarning),
              0u);
  }
  EXPECT_EQ(Run({"--chat", "--raw", "-f", file}).exit_code, 64);
}

TEST_F(RunPromptsTest, PromptsOfAFileGoThroughTheTemplate) {
  const std::string question = kPeruQuestion;
  const std::string messages =
      R"({"messages": [{"role": "user", "content": ")" + question + "\"}]}\n";
  const std::string file =
      folder_.Write("rows.jsonl", "{\"prompt\": \"" + question + "\"}\n" + messages);
  const ProgramResult chat = Run({"-q", "--chat", "-f", file});
  EXPECT_EQ(chat.exit_code, 0) << chat.err;
  EXPECT_EQ(Texts(chat.out), (std::vector<std::string>{"The capital of Peru is Lima.",
                                                       "The capital of Peru is Lima."}));
  // With a system message, the row's prompt equals that of -p with --system; rows with messages
  // have their own.
  const std::string system = "Answer questions about these notes. Notes:\n- Olga lives in Manila.";
  const std::string about_notes = "Where does Olga live?";
  const ProgramResult one = Run({"-q", "--system", system, "-p", about_notes});
  folder_.Write("system", system);
  const std::string notes = folder_.Write("notes.jsonl", "\"" + about_notes + "\"\n" + messages);
  const ProgramResult both =
      Run({"-q", "--chat", "--system", "@" + folder_.Path("system"), "-f", notes});
  EXPECT_EQ(both.exit_code, 0) << both.err;
  ASSERT_EQ(Texts(both.out).size(), 2u);
  EXPECT_EQ(Texts(both.out)[0] + "\n", one.out);
  EXPECT_NE(one.out.find("Manila"), std::string::npos) << one.out;
  EXPECT_EQ(Texts(both.out)[1], "The capital of Peru is Lima.");
  EXPECT_EQ(Run({"-q", "--system", "x", "-f", file}).exit_code, 64);
  EXPECT_EQ(Run({"-q", "--chat", "-p", "x"}).exit_code, 64);
  EXPECT_EQ(RunProgram({"plan", "-m", DemoModel(), "--system", "x", file}).exit_code, 64);
}

TEST_F(RunPromptsTest, ARunIsResumedOnlyWithTheSameOptions) {
  const std::string file = folder_.Write("rows.jsonl", "\"Hi\"\n");
  const std::string out = folder_.Path("out.jsonl");
  const auto run = [&](std::vector<std::string> more) {
    more.insert(more.end(), {"-q", "-n", "1", "--resume", "-f", file, "-o", out});
    return Run(std::move(more));
  };
  EXPECT_EQ(run({"--chat", "--system", "Be brief."}).exit_code, 0);
  EXPECT_EQ(run({"--chat", "--system", "Be brief."}).exit_code, 0);
  const struct {
    std::vector<std::string> options;
    const char* named;
  } cases[] = {{{"--chat"}, "--system"},
               {{"--chat", "--system", "Be long."}, "--system"},
               {{}, "--chat"},
               {{"--chat", "--system", "Be brief.", "--no-parse-special"}, "--no-parse-special"}};
  for (const auto& test : cases) {
    const ProgramResult result = run(test.options);
    EXPECT_NE(result.exit_code, 0) << result.err;
    EXPECT_NE(result.err.find(test.named), std::string::npos) << result.err;
  }
}

TEST_F(RunPromptsTest, ControlTokensInUntrustedTextAreText) {
  const std::string file = folder_.Write(
      "rows.jsonl",
      "\"a</s>b\"\n{\"prompt_token_ids\": [1, 300]}\n{\"prompt_token_ids\": [1, 300, 2, 301]}\n");
  const auto ids = [](const std::string& line) {
    const Result<Json> row = ParseJson(line);
    std::vector<int64_t> ids;
    if (!row.ok() || row->Find("prompt_token_ids") == nullptr) return ids;
    for (const Json& id : row->Find("prompt_token_ids")->as_array()) ids.push_back(id.as_int());
    return ids;
  };
  const auto tokenize = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"tokenize", "-m", DemoModel(), "-f", file});
    return RunProgram(more);
  };
  constexpr int64_t kEnd = 2;  // </s>
  const std::vector<std::string> parsed = Lines(tokenize({}).out);
  ASSERT_EQ(parsed.size(), 3u);
  const std::vector<int64_t> before = ids(parsed[0]);
  EXPECT_EQ(std::count(before.begin(), before.end(), kEnd), 1) << parsed[0];
  EXPECT_EQ(ids(parsed[2]).size(), 4u) << parsed[2];
  const ProgramResult text = tokenize({"--no-parse-special"});
  EXPECT_EQ(text.exit_code, 1) << text.err;
  const std::vector<std::string> lines = Lines(text.out);
  ASSERT_EQ(lines.size(), 3u);
  const std::vector<int64_t> after = ids(lines[0]);
  EXPECT_EQ(std::count(after.begin(), after.end(), kEnd), 0) << lines[0];
  EXPECT_GT(after.size(), before.size());
  EXPECT_EQ(ids(lines[1]).size(), 2u) << lines[1];
  EXPECT_NE(lines[2].find("control token 2"), std::string::npos) << lines[2];
  // A run of rows and a run of one prompt behave the same.
  const ProgramResult run = Run({"-q", "-n", "1", "--no-parse-special", "-f", file});
  EXPECT_EQ(run.exit_code, 1) << run.err;
  ASSERT_EQ(Texts(run.out).size(), 3u);
  EXPECT_EQ(Texts(run.out)[2], "invalid_row");
  const auto prompt_tokens = [&](const char* option) {
    const ProgramResult one =
        Run({"-q", "-n", "1", "--json", "--raw", "--no-stdin", option, "-p", "a</s>b"});
    const Result<Json> row = ParseJson(one.out);
    EXPECT_TRUE(row.ok()) << one.err;
    return row.ok() ? row->Find("usage")->Find("prompt_tokens")->as_int() : 0;
  };
  EXPECT_EQ(prompt_tokens("--ordered"), static_cast<int64_t>(before.size()));
  EXPECT_EQ(prompt_tokens("--no-parse-special"), static_cast<int64_t>(after.size()));
  EXPECT_EQ(Run({"--parse-special", "--no-parse-special", "-p", "x"}).exit_code, 64);
}

}  // namespace
}  // namespace minisgl::batch
