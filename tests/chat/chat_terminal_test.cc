// The chat's prompt on a shared terminal: the screen when the prompt changes, after stops, for keys
// without meaning, and for pastes that contain the end-of-paste mark.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "program/pty_chat.h"
#include "program/screen.h"
#include "slow.h"

namespace minisgl::chat {
namespace {

class ChatTerminalTest : public ChatTest {
 protected:
  // Returns the screen after the output from `begin` up to the text that was waited for.
  static Screen ScreenOf(const PtyProcess& chat, size_t columns, size_t begin) {
    Screen screen(columns);
    screen.Feed(std::string_view(chat.Seen()).substr(begin));
    return screen;
  }
  // Reads until the last line of the screen is `line` with the cursor in `column`.
  static void ExpectLine(PtyProcess* chat, const std::string& line, size_t column) {
    Screen screen(kColumns);
    for (int attempt = 0; attempt < 12'000; ++attempt) {
      chat->ReadFor(0.02);
      screen = Screen(kColumns);
      screen.Feed(chat->output());
      if (screen.WholeLine() == line && screen.column() == column) return;
    }
    ADD_FAILURE() << "shows \"" << screen.WholeLine() << "\", column " << screen.column()
                  << ", and not \"" << line << "\", " << column;
  }
  std::string Saved(PtyProcess* chat) const {
    Say(chat, "/save -f " + File("saved"));
    return ReadAll(File("saved"));
  }

  static constexpr size_t kColumns = 200;  // default of PtyProcess
};

// No row of the program's own lines is longer than the terminal's, which would cut within a word.
TEST_F(ChatTerminalTest, ItsOwnLinesFitTheTerminal) {
  for (const int columns : {30, 60, 90, 200}) {
    auto chat = Start();
    chat->Resize(columns);
    for (const auto& [line, says] : std::vector<std::pair<std::string, std::string>>{
             {"/help", "/regen [N]"},
             {"/help set", "repetition_penalty"},
             {"/help sessions", "/sessions -d 2"},
             {"/params", "temperature"},
             {"/nonsense", "unknown command"},
             {"/branch a b c", "/branch takes a name"},
             {"/regen 1000", "/regen takes the number"}}) {
      chat->PassOver();
      chat->Send(line + "\r");
      ASSERT_TRUE(chat->WaitFor("\x1b[?2004l")) << chat->output();
      ASSERT_TRUE(chat->WaitFor("\x1b[?2004h")) << chat->output();  // the next prompt
      const std::string shown = chat->Seen();
      const size_t begin = shown.rfind("\x1b[?2004l");
      const std::string output = shown.substr(begin + 8, shown.rfind("\x1b[") - begin - 8);
      EXPECT_NE(output.find(says), std::string::npos) << output;
      std::istringstream rows(output);
      for (std::string row; std::getline(rows, row);) {
        if (!row.empty() && row.back() == '\r') row.pop_back();
        EXPECT_LE(row.size(), static_cast<size_t>(columns)) << line << ": " << row;
      }
    }
    chat->Send(kCtrlD);
    EXPECT_EQ(chat->WaitForExit(), 0);
  }
}

TEST_F(ChatTerminalTest, TheStatusOfABatchIsShownInItsPlace) {
  MarkSlow("a slow engine, so that there is something to show");
  std::ofstream rows(File("rows.jsonl"));
  for (int i = 0; i < 20000; ++i) rows << "{\"prompt\": \"Tell me a story.\", \"max_tokens\": 4}\n";
  rows.close();
  auto chat = Start({"-q", "--cpu-target", "naive", "--on-overflow", "error"});
  // The second width is so small that the line takes several rows.
  const std::string text = "some words before it is sent";
  for (const int columns : {200, 24}) {
    chat->Resize(columns);
    chat->Send("/batch -f " + File("rows.jsonl") + "\r");
    ASSERT_TRUE(chat->WaitFor("/20000] > ")) << chat->output();
    const size_t begin = chat->output().rfind("\x1b[?2004h");
    chat->Send(text + "\x1b[D\x1b[D");
    for (int i = 0; i < 4; ++i) {
      ASSERT_TRUE(chat->WaitFor("[batch ")) << chat->output();
      ASSERT_TRUE(chat->WaitFor("sent")) << chat->output();
    }
    const Screen screen = ScreenOf(*chat, static_cast<size_t>(columns), begin);
    // A space at the end of a row need not be written.
    std::string shown;
    for (const std::string& line : screen.Lines()) shown += line;
    shown.erase(std::remove(shown.begin(), shown.end(), ' '), shown.end());
    EXPECT_TRUE(shown.starts_with("[batch")) << shown;
    EXPECT_TRUE(shown.ends_with("/20000]>somewordsbeforeitissent")) << shown;
    EXPECT_EQ(shown.find("[batch", 1), std::string::npos) << shown;
    chat->Send(kCtrlC);
    ASSERT_TRUE(chat->WaitFor("/20000] > ")) << chat->output();
    chat->Send(std::string("/batch stop\r") + kCtrlC);
    ASSERT_TRUE(chat->WaitFor("stopped:")) << chat->output();
    ASSERT_TRUE(WaitForPrompt(chat.get())) << chat->output();
  }
}

TEST_F(ChatTerminalTest, WordsOfAnAnswerAreNotCut) {
  auto chat = Start({"-q"});
  chat->Resize(24);
  EXPECT_NE(Say(chat.get(), "What is the capital of Peru?").find("The capital of Peru is\r\nLima."),
            std::string::npos)
      << chat->output();
  auto plain = Start({"-q", "--plain"});
  plain->Resize(24);
  EXPECT_NE(Say(plain.get(), "What is the capital of Peru?").find("The capital of Peru is Lima."),
            std::string::npos)
      << plain->output();
}

TEST_F(ChatTerminalTest, ANewWidthWhileAnAnswerComesLosesNoText) {
  MarkSlow("a slow engine, so that the width changes inside of the answer");
  std::ofstream(File("rows.jsonl")) << "{\"prompt\": \"Tell me a story.\", \"max_tokens\": 8}\n";
  const std::string question = "What is the capital of France?";
  for (const bool has_batch : {false, true}) {
    auto chat = Start({"-q", "--cpu-target", "naive"});
    if (has_batch) {
      chat->Send("/batch -f " + File("rows.jsonl") + "\r");
      ASSERT_TRUE(chat->WaitFor("] > ")) << chat->output();
    }
    const auto wait_for_prompt = [&] {  // which says "[batch" while one runs
      return chat->WaitFor("\x1b[?2004h") && chat->WaitFor("> ");
    };
    chat->Send(question + "\r");
    ASSERT_TRUE(chat->WaitFor("The")) << chat->output();
    for (const int columns : {24, 200, 60}) chat->Resize(columns);
    ASSERT_TRUE(wait_for_prompt()) << chat->output();
    chat->Send("/save -f " + File("saved") + "\r");
    ASSERT_TRUE(wait_for_prompt()) << chat->output();
    EXPECT_NE(ReadAll(File("saved")).find("\"The capital of France is Paris.\""), std::string::npos)
        << ReadAll(File("saved")) << chat->output();
  }
}

// The next prompt stands below all rows of the line that the key clears.
TEST_F(ChatTerminalTest, CtrlCInALineOfSeveralRowsLeavesACleanScreen) {
  constexpr size_t kNarrow = 40;
  const std::string text(110, 'x');  // three rows
  for (const std::string keys : {"\x01", "\x1b[D", ""}) {
    auto chat = Start({"-q"});
    chat->Resize(kNarrow);
    chat->Send("/copy 0\r");  // the next line has the new width
    ASSERT_TRUE(chat->WaitFor("from the")) << chat->output();
    ASSERT_TRUE(WaitForPrompt(chat.get())) << chat->output();
    const size_t begin = chat->Seen().rfind("\x1b[?2004h");
    chat->Send(text + keys);
    ASSERT_TRUE(chat->WaitFor(text.substr(0, 20))) << chat->output();
    chat->Send(kCtrlC);
    ASSERT_TRUE(WaitForPrompt(chat.get())) << chat->output();
    chat->Send("\r");
    ASSERT_TRUE(WaitForPrompt(chat.get())) << chat->output();
    chat->Send("next");
    ASSERT_TRUE(chat->WaitFor("next")) << chat->output();
    const Screen screen = ScreenOf(*chat, kNarrow, begin);
    const std::vector<std::string> lines = screen.Lines();
    ASSERT_EQ(lines.size(), 3u) << ::testing::PrintToString(lines);
    EXPECT_EQ(lines[0], "> " + text + "^C");
    EXPECT_EQ(lines[1], "> ");
    EXPECT_EQ(lines[2], "> next");
  }
}

TEST_F(ChatTerminalTest, MessagesThatAreShownAgainAreLaidOutAsAnswersAre) {
  std::ofstream(File("said")) << R"({"role": "user", "content": "**not** bold"})"
                                 "\n"
                              << R"({"role": "assistant", "content": "**bold** word"})"
                                 "\n";
  PtyProcess chat(Arguments({"--load", File("said")}),
                  {{"TERM", "xterm"}, {"NO_COLOR", ""}, {"XDG_STATE_HOME", dir_}});
  for (const char* command : {"", "/show\r"}) {
    chat.Send(command);
    ASSERT_TRUE(chat.WaitFor("**not** bold")) << chat.output();
    ASSERT_TRUE(chat.WaitFor("\x1b[1mbold\x1b[0m word")) << chat.output();
    ASSERT_TRUE(chat.WaitFor("\x1b[?2004h")) << chat.output();
  }
  auto plain = Start({"--load", File("said"), "--plain"});
  EXPECT_NE(plain->Seen().find("**bold** word"), std::string::npos) << plain->output();
}

// Under a shell, which takes over the terminal while the chat is stopped.
TEST_F(ChatTerminalTest, CtrlZStopsItAndTheLineIsThereAgain) {
  std::string command = ProgramPath();
  for (const std::string& argument : Arguments({})) command += " " + argument;
  const std::string script =
      command +
      "; echo stopped with $?; stty -a | grep -o -e '-*icanon'; read go; fg; "
      "echo left with $?";
  PtyProcess shell({"-m", "-c", script},
                   {{"TERM", "xterm"}, {"NO_COLOR", "1"}, {"XDG_STATE_HOME", dir_}}, "/bin/sh");
  ASSERT_TRUE(shell.WaitFor(kEditingPrompt)) << shell.output();
  shell.Send("half typed\x1b[D\x1b[D");  // the cursor is inside the line
  ExpectLine(&shell, "> half typed", 10);
  shell.Send("\x1a");
  ASSERT_TRUE(shell.WaitFor("stopped with 148")) << shell.output();  // 128 + SIGTSTP
  // The terminal was restored by the chat itself, including unmarked pastes.
  ASSERT_TRUE(shell.WaitFor("\nicanon")) << shell.output();
  EXPECT_GT(shell.output().rfind("\x1b[?2004l"), shell.output().rfind("\x1b[?2004h"));
  shell.Send("\r");
  ASSERT_TRUE(shell.WaitFor("> half typed")) << shell.output();
  ExpectLine(&shell, "> half typed", 10);
  shell.Send("X\x1b[D!");
  ExpectLine(&shell, "> half typ!Xed", 11);
  Say(&shell, "");
  EXPECT_NE(Saved(&shell).find("\"half typ!Xed\""), std::string::npos) << ReadAll(File("saved"));
  shell.Send(kCtrlD);
  ASSERT_TRUE(shell.WaitFor("left with 0")) << shell.output();
  EXPECT_EQ(shell.WaitForExit(), 0) << shell.output();
}

// A stop that the program cannot see (SIGSTOP), after which the terminal has the shell's modes.
TEST_F(ChatTerminalTest, AfterAStopTheTerminalIsSetAgain) {
  auto chat = Start();
  chat->Send("half typed");
  ExpectLine(chat.get(), "> half typed", 12);
  ASSERT_FALSE(chat->IsInLineMode());
  chat->Stop();
  chat->SetLineMode();
  chat->PassOver();
  chat->Signal(SIGCONT);
  ASSERT_TRUE(chat->WaitFor("> half typed")) << chat->output();
  ExpectLine(chat.get(), "> half typed", 12);
  EXPECT_FALSE(chat->IsInLineMode());
  chat->Send("\x1b[D\x1b[D!");
  ExpectLine(chat.get(), "> half typ!ed", 11);
}

// A change of the height alone is a resize too.
TEST_F(ChatTerminalTest, ALineIsNotShownTwiceForANewHeight) {
  auto chat = Start();
  chat->Send("some words\x1b[D");
  ExpectLine(chat.get(), "> some words", 11);
  const size_t begin = chat->output().size();
  chat->Signal(SIGWINCH);
  ASSERT_TRUE(chat->WaitFor("\x1b[J> some words")) << chat->output().substr(begin);
  ExpectLine(chat.get(), "> some words", 11);
}

// If no shell could continue it, the system ignores such a stop.
TEST_F(ChatTerminalTest, AStopWithoutAShellIsIgnored) {
  auto chat = Start();
  chat->Send("half typed");
  ExpectLine(chat.get(), "> half typed", 12);
  chat->Send("\x1a");
  ASSERT_TRUE(chat->WaitFor("^Z")) << chat->output();
  ExpectLine(chat.get(), "> half typed", 12);
  chat->Send("!");
  ExpectLine(chat.get(), "> half typed!", 13);
}

// As on a machine that knows no description of a newer terminal.
TEST_F(ChatTerminalTest, ATerminalWithoutADescriptionIsEditedLikeOthers) {
  auto chat = Start({}, "xterm-unknown-here");
  chat->Send("abc\x1b[D\x1b[DX");
  ExpectLine(chat.get(), "> aXbc", 4);
  EXPECT_EQ(chat->output().find("dumb"), std::string::npos) << chat->output();
}

TEST_F(ChatTerminalTest, UnknownKeysTypeNothing) {
  auto chat = Start();
  // F5, F12, Insert, Shift with an arrow and with F3, Ctrl with Delete, focus events, a function
  // key of the Linux console, and an end-of-paste mark.
  for (const char* key : {"\x1b[15~", "\x1b[24~", "\x1b[2~", "\x1b[1;2D", "\x1b[1;2R", "\x1b[3;5~",
                          "\x1b[I", "\x1b[[A", "\x1b[201~"}) {
    chat->Send(key);
  }
  chat->Send("one two");
  ExpectLine(chat.get(), "> one two", 9);
  // With Ctrl or Alt, arrows move by words; other keys of a terminal keep their meaning.
  chat->Send("\x1b[1;5D!");
  ExpectLine(chat.get(), "> one !two", 7);
  chat->Send("\x1b[1;3D\x1b[1;3D?\x1b[1;5C,");
  ExpectLine(chat.get(), "> ?one, !two", 7);
  chat->Send("\x1b[H<\x1b[F>\x1bOD\x1bOD\x1b[3~");
  ExpectLine(chat.get(), "> <?one, !tw>", 12);
}

TEST_F(ChatTerminalTest, APasteThatHoldsItsEndLeavesNoMark) {
  auto chat = Start();
  chat->Send("\x1b[200~one \x1b[201~two\x1b[201~ three");
  ExpectLine(chat.get(), "> one two three", 15);
  Say(chat.get(), "");
  EXPECT_NE(Saved(chat.get()).find("\"one two three\""), std::string::npos)
      << ReadAll(File("saved"));
}

TEST_F(ChatTerminalTest, ALineBreakAtTheEndOfAPasteBeginsNoLine) {
  auto one_line = Start();
  one_line->Send("see \x1b[200~one line\r\x1b[201~");
  ExpectLine(one_line.get(), "> see one line", 14);
  auto chat = Start();
  chat->Send("\x1b[200~one\rtwo\r\x1b[201~");
  ExpectLine(chat.get(), "> [pasted text 1: 2 lines, 8 bytes]", 35);
}

}  // namespace
}  // namespace minisgl::chat
