// Answers whose beginning is given: /prefill in a chat.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "program/fakes.h"
#include "program/program.h"

namespace minisgl::chat {
namespace {

class ChatPrefillTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (ProgramBinary().empty()) GTEST_SKIP() << "MINISGL_BINARY names no program";
  }
  static ProgramResult Chat(const std::string& input) {
    return RunProgram({"chat", "-m", DemoModel(), "--threads", "1", "--num-pages", "512",
                       "--commands", "--temperature", "0"},
                      {input, "", {}});
  }
};

TEST_F(ChatPrefillTest, TheNextAnswerBeginsWithTheText) {
  const ProgramResult result = Chat(
      "/prefill The capital of Peru\n"
      "What is the capital of Peru?\n"
      "What is the capital of Peru?\n"
      "/prefill Rome\n"
      "/regen\n"
      "/show 1\n"
      "/prefill\n");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const std::vector<std::string> answers = Lines(result.out);
  ASSERT_EQ(answers.size(), 3u) << result.out;
  EXPECT_EQ(answers[0], "The capital of Peru is Lima.") << "the beginning is shown, too";
  EXPECT_EQ(answers[1], "The capital of Peru is Lima.") << "the answer after it begins as usual";
  EXPECT_TRUE(answers[2].starts_with("Rome")) << answers[2];
  EXPECT_NE(result.err.find("[assistant]\n" + answers[2]), std::string::npos)
      << "the whole answer is in the conversation\n"
      << result.err;
  EXPECT_NE(result.err.find("The next answer has no given beginning."), std::string::npos);
}

TEST_F(ChatPrefillTest, ItIsTakenBack) {
  const ProgramResult result = Chat(
      "/prefill Rome\n"
      "/prefill\n"
      "/prefill \"\"\n"
      "What is the capital of Peru?\n"
      "/prefill Rome\n"
      "/regen 2\n"
      "/pick 2\n");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.err.find("\nRome\n"), std::string::npos) << "what it is\n" << result.err;
  const std::vector<std::string> answers = Lines(result.out);
  ASSERT_GE(answers.size(), 3u) << result.out;
  EXPECT_EQ(answers[0], "The capital of Peru is Lima.");
  EXPECT_TRUE(answers[1].starts_with("Rome")) << answers[1];
  EXPECT_TRUE(answers[2].starts_with("Rome")) << answers[2];
}

}  // namespace
}  // namespace minisgl::chat
