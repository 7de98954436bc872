// The line at the chat prompt: completion, history and its search, wide characters, resizing, the
// user's editor.
#include <gtest/gtest.h>

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "chat/chat_completion.h"
#include "program/pty_chat.h"
#include "program/screen.h"
#include "slow.h"
#include "temporary_folder.h"

namespace minisgl::chat {
namespace {

CompletionWords Words() {
  CompletionWords words;
  words.commands = {"save", "set", "switch", "load", "branch"};
  words.branches = {"main", "mars", "caf\u00e9"};
  words.parameters = {"temperature", "top_k", "top_p"};
  words.argument = [](std::string_view command) {
    if (command == "save" || command == "load") return ArgumentKind::kFile;
    if (command == "batch") return ArgumentKind::kTwoFiles;
    if (command == "switch") return ArgumentKind::kBranch;
    return command == "set" ? ArgumentKind::kParameter : ArgumentKind::kNone;
  };
  return words;
}

TEST(ChatCompletionTest, CommandsAndTheirArguments) {
  const struct {
    const char* line;
    size_t begin;
    std::vector<std::string> words;
  } cases[] = {
      {"/s", 1, {"save", "set", "switch"}},
      {"/", 1, {"branch", "load", "save", "set", "switch"}},
      {"/x", 1, {}},
      {"/switch ", 8, {"caf\u00e9", "main", "mars"}},
      {"/switch ma", 8, {"main", "mars"}},
      {"/set  to", 6, {"top_k", "top_p"}},
      {"/nonsense a", 10, {}},
      {"//s", 0, {}},
      {"a message /s", 0, {}},
      {"", 0, {}},
  };
  for (const auto& test : cases) {
    const Completion completion = CompleteChatLine(test.line, Words());
    EXPECT_EQ(completion.words, test.words) << test.line;
    EXPECT_EQ(test.words.empty() ? 0 : completion.begin, test.words.empty() ? 0 : test.begin)
        << test.line;
  }
}

TEST(ChatCompletionTest, ValuesOfParametersMayBeFiles) {
  const TemporaryFolder folder;
  const std::string file = folder.Write("schema.json", "{}");
  CompletionWords words = Words();
  words.parameters.push_back("json_schema");
  words.file_parameters = {"json_schema"};
  const std::string set = "/set json_schema ", typed = file.substr(0, file.size() - 6);
  const Completion completion = CompleteChatLine(set + typed, words);
  EXPECT_EQ(completion.begin, set.size());
  EXPECT_EQ(completion.words, std::vector<std::string>{file});
  EXPECT_EQ(CompleteChatLine("/set js", words).words, std::vector<std::string>{"json_schema"});
  EXPECT_TRUE(CompleteChatLine("/set top_k " + typed, words).words.empty());
}

TEST(ChatCompletionTest, FilesInMessages) {
  const TemporaryFolder folder;
  const std::string file = folder.Write("notes.txt", "x");
  const std::string before = "Summarise @", typed = file.substr(0, file.size() - 4);
  const Completion completion = CompleteChatLine(before + typed, Words());
  EXPECT_EQ(completion.begin, before.size());
  EXPECT_EQ(completion.words, std::vector<std::string>{file});
  EXPECT_TRUE(CompleteChatLine("Summarise " + typed, Words()).words.empty());
  EXPECT_TRUE(CompleteChatLine(before + typed + " ", Words()).words.empty());
}

TEST(ChatCompletionTest, CommonPrefixOfWords) {
  EXPECT_EQ(CommonPrefix({"main", "mars"}), "ma");
  EXPECT_EQ(CommonPrefix({"one"}), "one");
  EXPECT_EQ(CommonPrefix({"a", "b"}), "");
  // No completion ends inside a character.
  EXPECT_EQ(CommonPrefix({"x\u00e9", "x\u00e8"}), "x");
  EXPECT_EQ(InColumns({"a", "bb", "c"}, 8), "a   bb\nc\n");
  EXPECT_EQ(InColumns({"wide", "words"}, 1), "wide\nwords\n");
}

TEST(ChatCompletionTest, TheNearestWord) {
  const std::vector<std::string> words = {"regen", "reset", "save", "help", "stats"};
  const struct {
    const char* typed;
    const char* nearest;
  } cases[] = {{"regne", "regen"}, {"reg", "regen"},  {"hepl", "help"}, {"sav", "save"},
               {"stat", "stats"},  {"x", ""},         {"", ""},         {"zzzzz", ""},
               {"Help", "help"},   {"rest", "reset"}, {"nonsense", ""}};
  for (const auto& test : cases) EXPECT_EQ(NearestWord(test.typed, words), test.nearest);
  EXPECT_EQ(NearestWord(std::string(100000, 'x'), words), "");
}

class ChatLineTest : public ChatTest {
 protected:
  // Types `keys` at the prompt and waits until the screen shows `line` with the cursor in `column`.
  void ExpectLine(PtyProcess* chat, const std::string& keys, const std::string& line,
                  size_t column) {
    chat->Send(keys);
    Screen screen(kColumns);
    for (int attempt = 0; attempt < 12'000; ++attempt) {
      chat->ReadFor(0.02);
      const size_t begin = chat->output().rfind("\x1b[?2004h");
      screen = Screen(kColumns);
      screen.Feed(std::string_view(chat->output()).substr(begin));
      if (screen.WholeLine() == line && screen.column() == column) return;
    }
    ADD_FAILURE() << "shows \"" << screen.WholeLine() << "\", column " << screen.column()
                  << ", and not \"" << line << "\", " << column;
  }
  std::string Script(const std::string& name, const std::string& body) const {
    std::ofstream(File(name)) << "#!/bin/sh\n" << body << "\n";
    chmod(File(name).c_str(), 0755);
    return File(name);
  }

  static constexpr size_t kColumns = 200;  // default of PtyProcess
  static constexpr const char* kLeft = "\x1b[D";
  static constexpr const char* kHome = "\x01";
};

TEST_F(ChatLineTest, TabCompletesAndLists) {
  MarkSlow("many lines are typed, each waited for");
  auto chat = Start({"-n", "4"});
  ExpectLine(chat.get(), "/reg\t", "> /regen ", 9);
  ExpectLine(chat.get(), "\x15/set te\t", "> /set temperature ", 19);
  ExpectLine(chat.get(), "\x15/s\t", "> /s", 4);
  EXPECT_NE(chat->output().find("stats"), std::string::npos) << chat->output();
  Say(chat.get(), "\x15/branch first");
  Say(chat.get(), "/branch second");
  ExpectLine(chat.get(), "/switch f\t", "> /switch first ", 16);
  std::ofstream(File("some notes.jsonl")) << "x";
  std::filesystem::create_directory(File("some"));
  const std::string line = "> /load " + File("some");
  ExpectLine(chat.get(), "\x15/load " + File("so") + "\t", line, line.size());
  ExpectLine(chat.get(), " \t", line + " notes.jsonl ", line.size() + 13);
  // A message may contain a tab.
  Say(chat.get(), "\x15one\ttwo");
  Say(chat.get(), "/save " + File("saved"));
  EXPECT_NE(ReadAll(File("saved")).find("\"one\\ttwo\""), std::string::npos);
}

TEST_F(ChatLineTest, WideCharactersStandWhereTheyAreTyped) {
  MarkSlow("many lines are typed, each waited for");
  auto chat = Start({"-n", "4"});
  ExpectLine(chat.get(), "abc", "> abc", 5);
  ExpectLine(chat.get(), kHome + std::string("\u65e5\u672c"), "> \u65e5\u672cabc", 6);
  ExpectLine(chat.get(), "\U0001F600", "> \u65e5\u672c\U0001F600abc", 8);
  ExpectLine(chat.get(), "\x7f", "> \u65e5\u672cabc", 6);
  ExpectLine(chat.get(), kLeft + std::string("\u8a9e"), "> \u65e5\u8a9e\u672cabc", 6);
  ExpectLine(chat.get(), kHome + std::string("\x04"), "> \u8a9e\u672cabc", 2);
  // An accent typed separately joins the letter before it.
  ExpectLine(chat.get(), "\x05 cafe\u0301", "> \u8a9e\u672cabc caf\u00e9", 14);
  ExpectLine(chat.get(), kLeft + std::string("f"), "> \u8a9e\u672cabc caff\u00e9", 14);
  Say(chat.get(), "");
  Say(chat.get(), "/save " + File("wide"));
  EXPECT_NE(ReadAll(File("wide")).find("\u8a9e\u672cabc caff\u00e9"), std::string::npos)
      << ReadAll(File("wide"));
}

TEST_F(ChatLineTest, ALongLineOfWideCharactersWraps) {
  auto chat = Start();
  std::string text;
  for (int i = 0; i < 150; ++i) text += "\u65e5";
  ExpectLine(chat.get(), text, "> " + text, 102);
  ExpectLine(chat.get(), kHome + std::string("x"), "> x" + text.substr(0, 98 * 3), 3);
}

TEST_F(ChatLineTest, ResizingDrawsTheLineAnew) {
  auto chat = Start();
  std::string text = "words";
  while (text.size() < 120) text += " and words";
  ExpectLine(chat.get(), text, "> " + text, text.size() + 2);
  chat->Resize(50);
  // The line, three rows high at the new width, is cleared from its first row and written again in
  // rows of 50.
  ASSERT_TRUE(chat->WaitFor("\x1b[2A\r\x1b[J")) << chat->output();
  ASSERT_TRUE(chat->WaitFor("> words and words")) << chat->output();
  chat->Resize(200);
  ASSERT_TRUE(chat->WaitFor("\x1b[J")) << chat->output();
  ASSERT_TRUE(chat->WaitFor("> " + text)) << chat->output();
  chat->Send("!");
  Say(chat.get(), "");
  Say(chat.get(), "/save " + File("resized"));
  EXPECT_NE(ReadAll(File("resized")).find(text + "!"), std::string::npos);
}

TEST_F(ChatLineTest, TheHistoryIsSearched) {
  std::filesystem::create_directory(File("minisgl"));
  std::ofstream(File("minisgl/history"))
      << "/set top_k 3\nthe \u65e5\u672c line\nanother\n/params\n";
  auto chat = Start();
  chat->Send("\x12top");
  ASSERT_TRUE(chat->WaitFor("/set top_k 3")) << chat->output();
  chat->Send("\r");
  ASSERT_TRUE(WaitForPrompt(chat.get())) << chat->output();
  EXPECT_NE(Say(chat.get(), "/params").find("top_k                3"), std::string::npos)
      << chat->output();
}

TEST_F(ChatLineTest, NoHistoryIfDisabled) {
  std::filesystem::create_directory(File("minisgl"));
  std::ofstream(File("minisgl/history")) << "kept before\n";
  auto chat = Start({}, "xterm", {{"MINISGL_NO_HISTORY", "1"}});
  Say(chat.get(), "/params");
  ExpectLine(chat.get(), "\x1b[A", "> /params", 9);
  ExpectLine(chat.get(), "\x1b[A", "> /params", 9);  // with nothing before it
  chat->Send("\x15\x04");
  EXPECT_EQ(chat->WaitForExit(), 0);
  EXPECT_EQ(ReadAll(File("minisgl/history")), "kept before\n");
}

TEST_F(ChatLineTest, TheEditorsTextIsSent) {
  const std::string editor =
      Script("editor", "cp \"$1\" " + File("seen") +
                           "; printf 'What is the capital of\\nItaly?\\n\\n' > \"$1\"");
  auto chat = Start({}, "xterm", {{"VISUAL", editor}, {"EDITOR", "false"}, {"TMPDIR", dir_}});
  EXPECT_NE(Say(chat.get(), "What is the capital of France?").find("Paris"), std::string::npos);
  EXPECT_NE(Say(chat.get(), "/edit").find("Italy?"), std::string::npos) << chat->output();
  EXPECT_EQ(ReadAll(File("seen")), "What is the capital of France?\n");
  EXPECT_NE(Say(chat.get(), "/edit").find("is unchanged"), std::string::npos) << chat->output();
  Say(chat.get(), "/edit new");
  EXPECT_EQ(ReadAll(File("seen")), "");
  Say(chat.get(), "/save " + File("edited"));
  const std::string saved = ReadAll(File("edited"));
  EXPECT_EQ(saved.find("France"), std::string::npos) << saved;
  EXPECT_NE(saved.find("\"What is the capital of\\nItaly?\""), std::string::npos) << saved;
  EXPECT_EQ(std::count(saved.begin(), saved.end(), '\n'), 4) << saved;
  for (const auto& file : std::filesystem::directory_iterator(dir_)) {
    EXPECT_NE(file.path().extension(), ".md") << file.path();
  }
}

TEST_F(ChatLineTest, AnEditorThatFailsSendsNothing) {
  for (const char* body :
       {"exit 3", ": > \"$1\"", "kill $$", "printf ' \\n\\n' > \"$1\"", "rm \"$1\""}) {
    auto chat = Start({}, "xterm", {{"VISUAL", ""}, {"EDITOR", Script("editor", body)}});
    Say(chat.get(), "What is the capital of France?");
    EXPECT_NE(Say(chat.get(), "/edit").find("nothing is sent"), std::string::npos)
        << body << chat->output();
    EXPECT_NE(Say(chat.get(), "/show").find("Paris"), std::string::npos) << body;
  }
  auto chat = Start({}, "xterm", {{"VISUAL", "/no/such/editor -x"}});
  EXPECT_NE(Say(chat.get(), "/edit").find("/no/such/editor -x"), std::string::npos)
      << chat->output();
}

TEST_F(ChatLineTest, AFileIsReadBeforeTheNextMessage) {
  std::ofstream(File("notes")) << "one\ntwo\n";
  const PipedResult result =
      RunPiped(Arguments({"--commands"}),
               "/read " + File("notes") + "\nWhat is the capital of France?\nHi\n/read " +
                   File("none") + "\n/edit\n/image cat.png\n/save " + File("saved") + "\n");
  EXPECT_EQ(result.status, 1) << result.err;  // the file does not exist
  const std::string saved = ReadAll(File("saved"));
  EXPECT_NE(saved.find("\"one\\ntwo\\nWhat is the capital of France?\""), std::string::npos)
      << saved;
  EXPECT_NE(saved.find("\"Hi\""), std::string::npos) << saved;
  EXPECT_NE(result.err.find("needs a terminal"), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("reads no images"), std::string::npos) << result.err;
}

TEST_F(ChatLineTest, AFileThatWasReadIsTakenBackWithItsMessage) {
  std::ofstream(File("notes")) << "one\n";
  const PipedResult result = RunPiped(Arguments({"--commands"}),
                                      "Hi\n/read " + File("notes") +
                                          "\nWhat is the capital of France?\n/undo\nHello\n/save " +
                                          File("saved") + "\n/save " + File("saved") + "\n");
  EXPECT_EQ(result.status, 0) << result.err;  // a chat may write its own file again
  const std::string saved = ReadAll(File("saved"));
  EXPECT_NE(saved.find("\"Hello\""), std::string::npos) << saved;
  EXPECT_EQ(saved.find("one"), std::string::npos) << saved;
  EXPECT_EQ(saved.find("France"), std::string::npos) << saved;
}

TEST_F(ChatLineTest, HelpIsGrouped) {
  const PipedResult result = RunPiped(
      Arguments({"--commands"}), "/help\n/help branch\n/help /retry\n/help nonsense\n/brnach\n");
  for (const char* text : {"Branches:\n", "  /branch [NAME] [TURN]", "Settings and figures:\n",
                           "did you mean /branch?", "unknown command /nonsense"}) {
    EXPECT_NE(result.err.find(text), std::string::npos) << text << "\n" << result.err;
  }
  for (size_t begin = 0, end = 0; end != std::string::npos; begin = end + 1) {
    end = result.err.find('\n', begin);
    EXPECT_LE(result.err.substr(begin, end - begin).size(), 100u)
        << result.err.substr(begin, end - begin);
  }
}

}  // namespace
}  // namespace minisgl::chat
