// A chat that waits for an answer: the line with its progress, and keys typed ahead.
#include <gtest/gtest.h>

#include <string>

#include "program/pty_chat.h"
#include "program/screen.h"
#include "slow.h"

namespace minisgl::chat {
namespace {

// As lines that a terminal without marks for pastes sends at once.
TEST_F(ChatTest, CtrlCEmptiesTheTypeAhead) {
  auto chat = Start({"--ignore-eos", "-n", "1500", "--cpu-target", "naive"});
  const std::string ahead = "/set top_k 5\rMy name is Ada.\r/set top_k 6\r/set top_";
  chat->Send("What is the capital of France?\r" + ahead);
  ASSERT_TRUE(chat->WaitFor("Paris")) << chat->output();
  chat->Send(kCtrlC);
  // The terminal itself drops keys that the program has not read yet, without a note.
  ASSERT_TRUE(chat->WaitFor("[stopped]")) << chat->output();
  ASSERT_TRUE(WaitForPrompt(chat.get())) << chat->output();
  EXPECT_NE(Say(chat.get(), "/params").find("top_k                0"), std::string::npos)
      << chat->output();
  EXPECT_EQ(Say(chat.get(), "/show").find("Ada"), std::string::npos) << chat->output();
}

// A line counts the tokens that were read; the first of the answer erases it.
TEST_F(ChatTest, ALongPromptShowsItsProgress) {
  MarkSlow("a slow engine, so that there is something to show");
  std::string text = "What is the capital of France? ";
  for (int i = 0; i < 300; ++i) text += " a" + std::to_string(i % 10);
  auto chat = Start({"-n", "8", "--max-prefill-length", "1", "--cpu-target", "naive"});
  chat->Send("\x1b[200~" + text + "\x1b[201~\r");
  ASSERT_TRUE(chat->WaitFor("reading ")) << chat->output();
  ASSERT_TRUE(chat->WaitFor(" of ")) << chat->output();
  ASSERT_TRUE(chat->WaitFor(" tokens\r")) << chat->output();
  ASSERT_TRUE(WaitForPrompt(chat.get())) << chat->output();
  Screen screen(200);
  screen.Feed(chat->output());
  for (const std::string& line : screen.Lines()) {
    EXPECT_EQ(line.find("reading "), std::string::npos) << line;
  }
  auto quiet = Start({"-q", "-n", "8", "--max-prefill-length", "1", "--cpu-target", "naive"});
  EXPECT_EQ(Say(quiet.get(), text).find("reading "), std::string::npos) << quiet->output();
}

}  // namespace
}  // namespace minisgl::chat
