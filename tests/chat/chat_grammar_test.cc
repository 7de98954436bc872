// Answers of a form in a chat: by the options and by /set.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "program/fakes.h"
#include "program/program.h"

namespace minisgl::chat {
namespace {

class ChatGrammarTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (ProgramBinary().empty()) GTEST_SKIP() << "MINISGL_BINARY names no program";
  }
  static ProgramResult Chat(std::vector<std::string> more, const std::string& input) {
    std::vector<std::string> arguments = {"chat", "-m",          DemoModel(), "--threads",
                                          "1",    "--num-pages", "512",       "--commands"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunProgram(arguments, {input, "", {}});
  }
  static bool IsYesOrNo(const std::string& text) { return text == "yes" || text == "no"; }

  TemporaryFolder folder_;
};

TEST_F(ChatGrammarTest, SetReplacesTheFormOfTheOptions) {
  const ProgramResult result = Chat({"--choice", "yes", "--choice", "no"},
                                    "What is the capital of Peru?\n"
                                    "/set regex [0-9]{3}\n"
                                    "What is the capital of Peru?\n"
                                    "/set regex none\n"
                                    "What is the capital of Peru?\n");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const std::vector<std::string> answers = Lines(result.out);
  ASSERT_EQ(answers.size(), 3u) << result.out;
  EXPECT_TRUE(IsYesOrNo(answers[0])) << answers[0];
  EXPECT_EQ(answers[1].size(), 3u) << answers[1];
  EXPECT_EQ(answers[1].find_first_not_of("0123456789"), std::string::npos) << answers[1];
  EXPECT_GT(answers[2].size(), 3u) << answers[2];
}

// Later answers are not what was asked for, which a script must be told.
TEST_F(ChatGrammarTest, AFailedSetFromAPipeFailsTheChat) {
  const ProgramResult result = Chat({"--choice", "yes", "--choice", "no"},
                                    "/set regex a(\n"
                                    "What is the capital of Peru?\n");
  EXPECT_EQ(result.exit_code, 1) << result.err;
  EXPECT_NE(result.err.find("regular expression: byte 2"), std::string::npos) << result.err;
  EXPECT_TRUE(IsYesOrNo(Lines(result.out).at(0))) << result.out;
}

TEST_F(ChatGrammarTest, AnAnswerThatIsCutInsideIsReported) {
  const ProgramResult result = Chat({"--regex", "[a-z ]{60}", "-n", "3"}, "Hello\n");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.err.find("[the grammar allows no end there: "), std::string::npos) << result.err;
}

TEST_F(ChatGrammarTest, ABadFormEndsTheChatBeforeItsModelIsLoaded) {
  const ProgramResult result = Chat({"--regex", "a("}, "Hello\n");
  EXPECT_EQ(result.exit_code, 65);
  EXPECT_EQ(result.err, "minisgl: regular expression: byte 2: a `(` without its `)`\n");
  EXPECT_EQ(result.out, "");
}

// A batch beside the chat follows the command line, as minisgl run with the same options would.
TEST_F(ChatGrammarTest, ABatchHasTheFormOfTheOptions) {
  const std::string rows =
      folder_.Write("rows.jsonl", "{\"prompt\": \"a\"}\n{\"prompt\": \"b\"}\n");
  const std::string out = folder_.Path("out.jsonl");
  const ProgramResult result =
      Chat({"--choice", "yes", "--choice", "no"},
           "/set regex none\n/batch " + rows + " " + out + "\n/batch wait\n");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const std::vector<std::string> answers = Lines(folder_.Read("out.jsonl"));
  ASSERT_EQ(answers.size(), 2u);
  for (const std::string& line : answers) {
    const Result<Json> row = ParseJson(line);
    ASSERT_TRUE(row.ok() && row->Find("text") != nullptr) << line;
    EXPECT_TRUE(IsYesOrNo(row->Find("text")->as_string())) << line;
  }
}

}  // namespace
}  // namespace minisgl::chat
