// State that a chat keeps for later chats: the history of its lines, and conversations.
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "program/pty_chat.h"

namespace minisgl::chat {
namespace {

// A message that was pasted, typed over several lines or refused is one entry, also later.
TEST_F(ChatTest, AWholeMessageIsRecalled) {
  std::string words;
  for (int i = 0; i < 3000; ++i) words += "word ";
  auto chat = Start({"-n", "4"});
  chat->Send("Sum up: \x1b[200~" + words + "\rend\x1b[201~");
  ASSERT_TRUE(chat->WaitFor("[pasted text 1: 2 lines")) << chat->output();
  ASSERT_NE(Say(chat.get(), "").find("does not fit"), std::string::npos) << chat->output();
  chat->Send("\"\"\"\r");
  ASSERT_TRUE(chat->WaitFor("... ")) << chat->output();
  chat->Send("one\r");
  ASSERT_TRUE(chat->WaitFor("... ")) << chat->output();
  Say(chat.get(), "two\"\"\"");
  Say(chat.get(), "/reset");
  for (const bool later : {false, true}) {
    if (later) {
      chat->Send(kCtrlD);
      ASSERT_EQ(chat->WaitForExit(), 0);
      chat = Start({"-n", "4"});
    }
    const std::string up = "\x1b[A";
    chat->Send(up + up + (later ? up : ""));  // above the last command, or the last two
    ASSERT_TRUE(chat->WaitFor("one\u21B5two")) << chat->output();
    chat->Send(up);
    ASSERT_TRUE(chat->WaitFor("[pasted text 1: 2 lines")) << chat->output();
    EXPECT_NE(Say(chat.get(), "").find("does not fit"), std::string::npos) << chat->output();
    chat->Send(up + up + up + (later ? up : ""));
    ASSERT_TRUE(chat->WaitFor("one\u21B5two")) << chat->output();
    Say(chat.get(), "");
    Say(chat.get(), "/save -f " + File("recalled"));
    EXPECT_NE(ReadAll(File("recalled")).find("\"one\\ntwo\""), std::string::npos)
        << ReadAll(File("recalled"));
    Say(chat.get(), "/reset");
  }
}

TEST_F(ChatTest, LinesAreKeptForTheNextSession) {
  auto chat = Start();
  Say(chat.get(), "/params and some words");
  chat->Send(kCtrlD);
  ASSERT_EQ(chat->WaitForExit(), 0);
  EXPECT_EQ(ReadAll(File("minisgl/history")), "/params and some words\n");
  auto again = Start();
  again->Send("\x1b[A");
  EXPECT_TRUE(again->WaitFor("/params and some words")) << again->output();
}

TEST_F(ChatTest, AConversationIsKeptAndContinued) {
  const std::string folder = File("minisgl/sessions");
  {
    auto chat = Start({});
    Say(chat.get(), "What is the capital of France?");
    Say(chat.get(), "/branch other");
    Say(chat.get(), "What is the opposite of hot?");
    chat->Signal(SIGHUP);  // the terminal is closed
    chat->WaitForExit();
  }
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    files.push_back(entry.path());
    EXPECT_EQ(entry.status().permissions(), std::filesystem::perms(0600));
  }
  EXPECT_EQ(files.size(), 2u) << "a branch has its own";
  EXPECT_EQ(std::filesystem::status(folder).permissions(), std::filesystem::perms(0700));
  auto again = Start({"--continue"});
  EXPECT_NE(Say(again.get(), "/show").find("The opposite of hot is cold."), std::string::npos);
  Say(again.get(), "What is the capital of Italy?");
  const std::string list = Say(again.get(), "/sessions");
  EXPECT_NE(list.find("  1  "), std::string::npos) << list;
  EXPECT_NE(list.find("3 turns  What is the capital of France?"), std::string::npos) << list;
  EXPECT_NE(list.find("1 turn   What is the capital of France?"), std::string::npos) << list;
  EXPECT_EQ(list.find("  3  "), std::string::npos) << "no third one: " << list;
  EXPECT_NE(Say(again.get(), "/sessions 2").find("Loaded 2 messages"), std::string::npos);
  EXPECT_EQ(Say(again.get(), "/show").find("hot"), std::string::npos);
  EXPECT_NE(Say(again.get(), "/sessions -d all").find("once more"), std::string::npos);
  Say(again.get(), "/params");
  EXPECT_NE(Say(again.get(), "/sessions -d all").find("once more"), std::string::npos);
  EXPECT_NE(Say(again.get(), "/sessions -d 1").find("Deleted 1"), std::string::npos);
  EXPECT_NE(Say(again.get(), "/sessions -d all").find("Deleted 1"), std::string::npos);
  EXPECT_NE(Say(again.get(), "/sessions").find("No conversation is kept"), std::string::npos);
  again->Send("/exit\r");
  EXPECT_EQ(again->WaitForExit(), 0);
  EXPECT_TRUE(std::filesystem::is_empty(folder)) << "what was deleted stays deleted";
}

TEST_F(ChatTest, AConversationThatGoesOnSaysWhereItStood) {
  std::string answer;
  for (int i = 0; i < 30; ++i) answer += "line " + std::to_string(i) + "\\n";
  std::ofstream(File("long")) << R"({"role": "user", "content": "First words.\nSecond line."})"
                                 "\n"
                              << R"({"role": "assistant", "content": "Yes."})"
                                 "\n"
                              << R"({"role": "user", "content": "The last question?"})"
                                 "\n"
                              << R"({"role": "assistant", "content": ")" << answer << "\"}\n";
  auto chat = Start({"--load", File("long")});
  std::string shown = chat->Seen();
  EXPECT_NE(shown.find("2 turns, just now: First words.\r\n[user]\r\nThe last question?\r\n"
                       "[assistant]\r\n... line 22\r\n"),
            std::string::npos)
      << shown;
  EXPECT_NE(shown.find("line 29"), std::string::npos) << shown;
  Say(chat.get(), "What is the capital of France?");
  chat->Send(kCtrlD);
  ASSERT_EQ(chat->WaitForExit(), 0);
  const std::string last =
      "First words.\r\n[user]\r\nWhat is the capital of France?\r\n"
      "[assistant]\r\nThe capital of France is Paris.\r\n";
  chat = Start({"--continue"});
  EXPECT_NE(chat->Seen().find("3 turns, just now: " + last), std::string::npos) << chat->Seen();
  shown = Say(chat.get(), "/sessions");
  EXPECT_NE(shown.find("*   1  "), std::string::npos) << shown;
  EXPECT_NE(shown.find("First words.\\nSecond line. ... What is the capital of France?"),
            std::string::npos)
      << shown;
  EXPECT_NE(Say(chat.get(), "/sessions 1").find(last), std::string::npos) << chat->output();
  EXPECT_NE(Say(chat.get(), "/load " + File("long")).find("2 turns, "), std::string::npos);
  EXPECT_EQ(Say(chat.get(), "/sessions").find("*   "), std::string::npos) << "not kept yet";
  auto quiet = Start({"--continue", "-q"});
  EXPECT_EQ(quiet->Seen().find("Paris"), std::string::npos) << quiet->Seen();
}

TEST_F(ChatTest, AConversationThatBeginsAgainKeepsTheOneBefore) {
  auto chat = Start({});
  Say(chat.get(), "What is the capital of France?");
  Say(chat.get(), "/reset");
  Say(chat.get(), "What is the opposite of hot?");
  const std::string list = Say(chat.get(), "/sessions");
  EXPECT_NE(list.find("1 turn   What is the capital of France?"), std::string::npos) << list;
  EXPECT_NE(list.find("1 turn   What is the opposite of hot?"), std::string::npos) << list;
}

TEST_F(ChatTest, NothingIsKeptIfThatIsNotWanted) {
  for (const bool by_option : {true, false}) {
    auto chat =
        by_option ? Start({"--no-save"}) : Start({}, "xterm", {{"MINISGL_NO_HISTORY", "1"}});
    Say(chat.get(), "What is the capital of France?");
    chat->Send("\x1b[200~one\rsecret\x1b[201~");
    ASSERT_TRUE(chat->WaitFor("[pasted text 1")) << chat->output();
    Say(chat.get(), "");
    EXPECT_NE(Say(chat.get(), "/sessions").find("No conversation is kept"), std::string::npos);
    EXPECT_EQ(ReadAll(File("minisgl/history")).find("secret"), std::string::npos);
    EXPECT_EQ(ReadAll(File("minisgl/history")).find("France") != std::string::npos, by_option);
    std::filesystem::remove(File("minisgl/history"));
  }
  EXPECT_FALSE(std::filesystem::exists(File("minisgl/sessions")));
}

}  // namespace
}  // namespace minisgl::chat
