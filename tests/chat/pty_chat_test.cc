// `minisgl chat` at a pseudo-terminal and through pipes, with the demo model.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "minisgl/base/json.h"
#include "program/pty_chat.h"
#include "term/run_history.h"

namespace minisgl::chat {
namespace {

TEST_F(ChatTest, AnswersAndLeavesAtTheEndOfInput) {
  auto chat = Start();
  EXPECT_NE(Say(chat.get(), "What is the capital of France?").find("Paris"), std::string::npos)
      << chat->output();
  chat->Send(kCtrlD);
  EXPECT_EQ(chat->WaitForExit(), 0) << chat->output();
}

TEST_F(ChatTest, KeysTypedDuringAnAnswerCount) {
  auto chat = Start();
  chat->Send(std::string("What is the capital of France?\r") + kCtrlD);
  EXPECT_EQ(chat->WaitForExit(), 0) << chat->output();
  EXPECT_NE(chat->output().find("Paris"), std::string::npos) << chat->output();
}

// minisgl report can draw it: nothing is lost, and idle time is included.
TEST_F(ChatTest, TheSummaryHasATimeSeries) {
  const std::string path = File("chat.json");
  auto chat = Start({"--summary", path});
  Say(chat.get(), "What is the capital of France?");
  chat->ReadFor(1);
  Say(chat.get(), "What is the opposite of hot?");
  chat->Send(kCtrlD);
  ASSERT_EQ(chat->WaitForExit(), 0) << chat->output();
  const Result<Json> summary = ParseJson(ReadAll(path));
  ASSERT_TRUE(summary.ok() && summary->Find("time_series") != nullptr) << ReadAll(path);
  const Result<term::TimeSeries> series =
      term::ParseTimeSeries(*summary->Find("time_series"), "chat.json");
  ASSERT_TRUE(series.ok()) << series.status().message();
  ASSERT_FALSE(series->time_s.empty());
  EXPECT_GT(series->time_s.back(), summary->Find("seconds")->as_double() + 1);
  double tokens = 0, running = 0, before = 0, longest = 0;
  for (size_t i = 0; i < series->time_s.size(); ++i) {
    const double length = series->time_s[i] - before;
    before = series->time_s[i];
    longest = std::max(longest, length);
    tokens += length * series->completion_tokens_per_s[i];
    running += length * series->running[i];
  }
  EXPECT_NEAR(tokens, summary->Find("completion_tokens")->as_double(), 0.5);
  // At most one request, and none while the chat was idle; a sample stands for the time before it,
  // which each answer's begin and end divide.
  EXPECT_LT(running, summary->Find("seconds")->as_double() + 4 * longest);
  const PipedResult drawn = RunPiped({"report", path, "-o", File("chat.svg")}, std::nullopt);
  EXPECT_EQ(drawn.status, 0) << drawn.err;
  EXPECT_TRUE(ReadAll(File("chat.svg")).starts_with("<svg"));
}

TEST_F(ChatTest, CommandsLeave) {
  for (const char* command : {"/exit", "/bye", "/quit"}) {
    auto chat = Start();
    chat->Send(std::string(command) + "\r");
    EXPECT_EQ(chat->WaitForExit(), 0) << command << chat->output();
  }
}

TEST_F(ChatTest, TheNameOfACommandAloneIsNotSentAtOnce) {
  auto chat = Start({"-n", "4"});
  for (const std::string word : {"exit", "Quit", "bye ", "help", "clear"}) {
    EXPECT_NE(Say(chat.get(), word).find("once more"), std::string::npos) << chat->output();
  }
  EXPECT_NE(Say(chat.get(), "/show").find("Nothing was said"), std::string::npos);
  Say(chat.get(), "exit");
  EXPECT_EQ(Say(chat.get(), "exit").find("once more"), std::string::npos);
  EXPECT_NE(Say(chat.get(), "/show").find("[user]\r\nexit"), std::string::npos) << chat->output();
  EXPECT_NE(Say(chat.get(), "exit").find("once more"), std::string::npos) << "a new message";
  Say(chat.get(), "Help me.");
  EXPECT_NE(Say(chat.get(), "/show").find("Help me."), std::string::npos);
  const PipedResult piped = RunPiped(Arguments({"-n", "2"}), "exit\nHi\n");
  EXPECT_EQ(std::count(piped.out.begin(), piped.out.end(), '\n'), 2) << piped.out;
}

TEST_F(ChatTest, CtrlCStopsAnAnswerAndNotTheProgram) {
  auto chat = Start({"--ignore-eos", "-n", "1500", "--cpu-target", "naive"});
  ASSERT_TRUE(StopAnAnswer(chat.get(), "What is the capital of France?", "Paris"))
      << chat->output();
  Say(chat.get(), "/set ignore_eos off");
  // The partial answer stays in the conversation.
  Say(chat.get(), "/save " + File("stopped"));
  EXPECT_NE(ReadAll(File("stopped")).find("Paris"), std::string::npos);
  EXPECT_NE(Say(chat.get(), "What is the opposite of hot?").find("cold"), std::string::npos)
      << chat->output();
  chat->Send(kCtrlD);
  EXPECT_EQ(chat->WaitForExit(), 0);
}

TEST_F(ChatTest, CtrlCBeforeTheAnswerBeginsTakesTheMessageBack) {
  // One token a step makes reading the prompt slow.
  auto chat = Start({"--max-prefill-length", "1", "--cpu-target", "naive"});
  std::string text = "Count these:";
  for (int i = 0; i < 800; ++i) text += " a" + std::to_string(i % 10);
  // A fast machine may have read it before the key arrives: then try again.
  int shown = 1;
  for (int tries = 0; shown == 1 && tries < 20; ++tries) {
    if (tries > 0) Say(chat.get(), "/reset");
    chat->Send("\x1b[200~" + text + "\x1b[201~\r");
    ASSERT_TRUE(chat->WaitFor("2004l")) << chat->output();  // the line editor has the terminal
    chat->Send(kCtrlC);
    shown = chat->WaitForOneOf({"taken back", kEditingPrompt});
  }
  ASSERT_EQ(shown, 0) << chat->output();
  ASSERT_TRUE(WaitForPrompt(chat.get())) << chat->output();
  EXPECT_NE(Say(chat.get(), "What is the capital of France?").find("Paris"), std::string::npos)
      << chat->output();
  chat->Send(kCtrlD);
  EXPECT_EQ(chat->WaitForExit(), 0);
}

TEST_F(ChatTest, CtrlCClearsALine) {
  auto chat = Start();
  chat->Send("no such thing");
  ASSERT_TRUE(chat->WaitFor("no such thing"));
  chat->Send(kCtrlC);
  ASSERT_TRUE(WaitForPrompt(chat.get())) << chat->output();
  chat->Send("/exit\r");
  EXPECT_EQ(chat->WaitForExit(), 0) << chat->output();
}

// All at once: if the terminal generated the signal, it would discard the line before it is read.
TEST_F(ChatTest, ACtrlCThatClearsALineDoesNotCountAtAnEmptyPrompt) {
  auto chat = Start();
  chat->Send(std::string("abc") + kCtrlC);
  ASSERT_TRUE(WaitForPrompt(chat.get())) << chat->output();
  EXPECT_EQ(chat->output().find("leaves)"), std::string::npos) << chat->output();
  chat->Send(kCtrlC);
  ASSERT_TRUE(chat->WaitFor("leaves)")) << chat->output();
  ASSERT_TRUE(WaitForPrompt(chat.get())) << chat->output();
  chat->Send(kCtrlC);
  EXPECT_EQ(chat->WaitForExit(), 130) << chat->output();
}

TEST_F(ChatTest, CtrlCTypedWithTheMessageStopsItsAnswer) {
  auto chat = Start({"--ignore-eos", "-n", "1500", "--cpu-target", "naive"});
  chat->Send(std::string("What is the capital of France?\r") + kCtrlC);
  ASSERT_TRUE(chat->WaitFor("[stopped")) << chat->output();
  ASSERT_TRUE(WaitForPrompt(chat.get())) << chat->output();
  chat->Send(kCtrlD);
  EXPECT_EQ(chat->WaitForExit(), 0) << chat->output();
}

TEST_F(ChatTest, ThePromptIsBoldAndWhatFollowsIsNot) {
  PtyProcess chat(Arguments({}), {{"TERM", "xterm"}, {"NO_COLOR", ""}, {"XDG_STATE_HOME", dir_}});
  ASSERT_TRUE(chat.WaitFor("\x1b[1m>\x1b[0m ")) << chat.output();
  chat.Send("\"\"\"one\r");
  ASSERT_TRUE(chat.WaitFor("\x1b[1m...\x1b[0m ")) << chat.output();
  chat.Send("two\"\"\"\r");
  ASSERT_TRUE(chat.WaitFor("\x1b[1m>\x1b[0m ")) << chat.output();
  chat.Send(kCtrlD);
  EXPECT_EQ(chat.WaitForExit(), 0) << chat.output();
  EXPECT_GT(chat.output().rfind("\x1b[0m"), chat.output().rfind("\x1b[1m"));
}

TEST_F(ChatTest, CtrlCTwiceAtAnEmptyPromptLeaves) {
  auto chat = Start();
  chat->Send(kCtrlC);
  ASSERT_TRUE(chat->WaitFor("leaves)")) << chat->output();
  ASSERT_TRUE(WaitForPrompt(chat.get())) << chat->output();
  chat->Send(kCtrlC);
  EXPECT_EQ(chat->WaitForExit(), 130) << chat->output();
}

TEST_F(ChatTest, ASignalToEndEndsItWithItsStatus) {
  for (const int signal_number : {SIGTERM, SIGHUP}) {
    auto chat = Start();
    chat->Signal(signal_number);
    EXPECT_EQ(chat->WaitForExit(), 128 + signal_number) << chat->output();
  }
  auto chat = Start({"--ignore-eos", "-n", "1500", "--cpu-target", "naive"});
  chat->Send("What is the capital of France?\r");
  ASSERT_TRUE(chat->WaitFor("Paris")) << chat->output();
  chat->Signal(SIGTERM);
  EXPECT_EQ(chat->WaitForExit(), 128 + SIGTERM) << chat->output();
}

TEST_F(ChatTest, AnUnknownCommandIsAMessage) {
  auto chat = Start();
  EXPECT_NE(Say(chat.get(), "/nonsense").find("unknown command /nonsense"), std::string::npos);
  EXPECT_NE(Say(chat.get(), "/help").find("/regen"), std::string::npos);
  EXPECT_NE(Say(chat.get(), "/set colour red").find("no parameter"), std::string::npos);
  EXPECT_NE(Say(chat.get(), "/load " + File("none")).find("cannot be opened"), std::string::npos);
  chat->Send(kCtrlD);
  EXPECT_EQ(chat->WaitForExit(), 0);
}

TEST_F(ChatTest, AFullContextDropsTheOldestTurns) {
  auto chat = Start({"--max-seq-len", "96", "--system", "Be brief."});
  bool dropped = false;
  for (int i = 0; i < 8 && !dropped; ++i) {
    dropped =
        Say(chat.get(), "What is the capital of France?").find("dropped") != std::string::npos;
  }
  EXPECT_TRUE(dropped) << chat->output();
  EXPECT_NE(Say(chat.get(), "/context").find("older messages were dropped"), std::string::npos);
  EXPECT_NE(Say(chat.get(), "/system").find("Be brief."), std::string::npos);
  // All of it is saved.
  Say(chat.get(), "/save " + File("all"));
  const std::string all = ReadAll(File("all"));
  EXPECT_EQ(all.find("{\"role\": \"system\""), 0u) << all;
  EXPECT_GE(std::count(all.begin(), all.end(), '\n'), 5);
  chat->Send(kCtrlD);
  EXPECT_EQ(chat->WaitForExit(), 0);
}

TEST_F(ChatTest, AFullContextIsAnErrorWhereAskedFor) {
  auto chat = Start({"--max-seq-len", "96", "--on-overflow", "error"});
  bool refused = false;
  for (int i = 0; i < 8 && !refused; ++i) {
    refused =
        Say(chat.get(), "What is the capital of France?").find("does not fit") != std::string::npos;
  }
  EXPECT_TRUE(refused) << chat->output();
  Say(chat.get(), "/reset");
  EXPECT_NE(Say(chat.get(), "What is the capital of France?").find("Paris"), std::string::npos);
  chat->Send(kCtrlD);
  EXPECT_EQ(chat->WaitForExit(), 0);
}

TEST_F(ChatTest, APasteOfLinesIsSavedAsItWas) {
  auto chat = Start();
  chat->Send("Look: \x1b[200~one\r/two\rthree\x1b[201~");
  ASSERT_TRUE(chat->WaitFor("3 lines"));
  Say(chat.get(), "");
  Say(chat.get(), "/save " + File("pasted"));
  EXPECT_NE(ReadAll(File("pasted")).find("Look: one\\n/two\\nthree"), std::string::npos)
      << ReadAll(File("pasted"));
  chat->Send(kCtrlD);
  EXPECT_EQ(chat->WaitForExit(), 0);
}

TEST_F(ChatTest, APasteThatSpellsALabelIsNotTakenForOne) {
  auto chat = Start();
  chat->Send("\x1b[200~one\r[pasted text 2: 2 lines, 3 bytes]\x1b[201~");
  ASSERT_TRUE(chat->WaitFor("[pasted text 1: 2 lines")) << chat->output();
  chat->Send(" then \x1b[200~a\rb\x1b[201~");
  ASSERT_TRUE(chat->WaitFor("[pasted text 2: 2 lines, 3 bytes]")) << chat->output();
  Say(chat.get(), "");
  Say(chat.get(), "/save " + File("pasted"));
  EXPECT_NE(ReadAll(File("pasted")).find("one\\n[pasted text 2: 2 lines, 3 bytes] then a\\nb\""),
            std::string::npos)
      << ReadAll(File("pasted"));
  chat->Send(kCtrlD);
  EXPECT_EQ(chat->WaitForExit(), 0);
}

TEST_F(ChatTest, AConversationIsSavedAndLoaded) {
  auto chat = Start();
  Say(chat.get(), "My name is Ada.");
  Say(chat.get(), "/save " + File("one"));
  chat->Send(kCtrlD);
  ASSERT_EQ(chat->WaitForExit(), 0);
  auto again = Start({"--load", File("one")});
  Say(again.get(), "/save " + File("two"));
  EXPECT_EQ(ReadAll(File("one")), ReadAll(File("two")));
  EXPECT_FALSE(ReadAll(File("one")).empty());
  EXPECT_NE(Say(again.get(), "What is my name?").find("Ada"), std::string::npos) << again->output();
  // Another file is not overwritten, but the file of this conversation is.
  std::ofstream(File("mine")) << "mine";
  EXPECT_NE(Say(again.get(), "/save " + File("mine")).find("not empty"), std::string::npos);
  EXPECT_EQ(ReadAll(File("mine")), "mine");
  Say(again.get(), "/save " + File("two"));
  EXPECT_NE(ReadAll(File("two")), ReadAll(File("one")));
  again->Send(kCtrlD);
  EXPECT_EQ(again->WaitForExit(), 0);
}

TEST_F(ChatTest, AnsweringAgainGivesAnotherAnswer) {
  auto chat = Start({"--temperature", "2", "--seed", "1"});
  Say(chat.get(), "Tell me a story.");
  Say(chat.get(), "/save " + File("first"));
  Say(chat.get(), "/regen");
  Say(chat.get(), "/save " + File("second"));
  EXPECT_NE(ReadAll(File("first")), ReadAll(File("second")));
  const std::string second = ReadAll(File("second"));
  EXPECT_EQ(std::count(second.begin(), second.end(), '\n'), 2);
  // The same seed gives the same first answer in another session.
  auto again = Start({"--temperature", "2", "--seed", "1"});
  Say(again.get(), "Tell me a story.");
  Say(again.get(), "/save " + File("third"));
  EXPECT_EQ(ReadAll(File("first")), ReadAll(File("third")));
  Say(again.get(), "/undo");
  EXPECT_NE(Say(again.get(), "/save " + File("fourth")).find("nothing to save"), std::string::npos);
}

TEST_F(ChatTest, TheSecondTurnHitsTheCache) {
  auto chat = Start({"--page-size", "1"});
  Say(chat.get(), "What is the capital of France?");
  EXPECT_NE(Say(chat.get(), "/stats").find(", 0 of them cached"), std::string::npos)
      << chat->output();
  Say(chat.get(), "What is the opposite of hot?");
  const std::string stats = Say(chat.get(), "/stats");
  EXPECT_NE(stats.find("of them cached"), std::string::npos) << stats;
  EXPECT_EQ(stats.find(" 0 of them cached"), std::string::npos) << stats;
}

TEST_F(ChatTest, AnAnswerIsCopiedToTheClipboardOfTheTerminal) {
  auto chat = Start({});
  EXPECT_NE(Say(chat.get(), "/copy").find("no answer to copy"), std::string::npos);
  Say(chat.get(), "What is the capital of France?");
  Say(chat.get(), "What is the opposite of hot?");
  // "The capital of France is Paris." and "The opposite of hot is cold."
  EXPECT_NE(
      Say(chat.get(), "/copy 2").find("\x1b]52;c;VGhlIGNhcGl0YWwgb2YgRnJhbmNlIGlzIFBhcmlzLg==\x07"),
      std::string::npos)
      << chat->output();
  EXPECT_NE(Say(chat.get(), "/copy").find("\x1b]52;c;VGhlIG9wcG9zaXRlIG9mIGhvdCBpcyBjb2xkLg==\x07"),
            std::string::npos)
      << chat->output();
  EXPECT_NE(Say(chat.get(), "/copy 3").find("fewer answers"), std::string::npos);
  EXPECT_NE(Say(chat.get(), "/copy x").find("takes the number"), std::string::npos);
}

TEST_F(ChatTest, WordsAfterACommandThatTakesNoneAreRefused) {
  auto chat = Start({});
  Say(chat.get(), "What is the capital of France?");
  for (const std::string command : {"/undo 2", "/reset all", "/clear it", "/bye now"}) {
    EXPECT_NE(Say(chat.get(), command).find("takes no words after it"), std::string::npos);
  }
  EXPECT_NE(Say(chat.get(), "/show").find("Paris"), std::string::npos) << "nothing was done";
  Say(chat.get(), "/undo ");
  EXPECT_NE(Say(chat.get(), "/show").find("Nothing was said"), std::string::npos);
}

TEST_F(ChatTest, AFileIsPutBeforeAMessage) {
  std::ofstream(File("notes.txt")) << "Olga lives in Manila.\n";
  auto chat = Start({});
  EXPECT_NE(Say(chat.get(), "Read @" + File("none.txt")).find("nothing is sent"), std::string::npos)
      << chat->output();
  Say(chat.get(), "Where does Olga live? @" + File("notes.txt"));
  const std::string shown = Say(chat.get(), "/show");
  EXPECT_NE(shown.find("notes.txt:\r\nOlga lives in Manila.\r\n\r\nWhere does Olga live? "),
            std::string::npos)
      << shown;
}

TEST_F(ChatTest, TheCacheIsShownAndEmptied) {
  auto chat = Start({"--page-size", "1"});
  EXPECT_NE(Say(chat.get(), "/cache").find("cached        0 of "), std::string::npos)
      << chat->output();
  Say(chat.get(), "What is the capital of France?");
  const std::string full = Say(chat.get(), "/cache");
  EXPECT_NE(full.find("for 1 open conversation"), std::string::npos) << full;
  EXPECT_EQ(full.find("cached        0 of "), std::string::npos) << full;
  Say(chat.get(), "/cache reset");
  // The next turn finds nothing, not even what the conversation had kept.
  Say(chat.get(), "What is the opposite of hot?");
  EXPECT_NE(Say(chat.get(), "/stats").find(", 0 of them cached"), std::string::npos)
      << chat->output();
  EXPECT_NE(Say(chat.get(), "/cache now").find("no argument, or reset"), std::string::npos);
}

TEST_F(ChatTest, NoControlSequenceOfATextReachesTheTerminal) {
  auto chat = Start({"--system",
                     "a\x1b]0;title\x07"
                     "b\x1b[2Jc"});
  EXPECT_NE(Say(chat.get(), "/system").find("abc"), std::string::npos) << chat->output();
  EXPECT_EQ(chat->output().find("title"), std::string::npos);
}

TEST_F(ChatTest, ADumbTerminalGetsNoControlSequence) {
  auto chat = Start({}, "dumb");
  EXPECT_NE(Say(chat.get(), "What is the capital of France?").find("Paris"), std::string::npos);
  chat->Send(kCtrlD);
  EXPECT_EQ(chat->WaitForExit(), 0);
  EXPECT_EQ(chat->output().find('\x1b'), std::string::npos) << chat->output();
}

TEST_F(ChatTest, AMessageOfSeveralLines) {
  auto chat = Start();
  chat->Send("\"\"\"one\r");
  ASSERT_TRUE(chat->WaitFor("... ")) << chat->output();
  Say(chat.get(), "two\"\"\"");
  Say(chat.get(), "/save " + File("lines"));
  EXPECT_NE(ReadAll(File("lines")).find("\"one\\ntwo\""), std::string::npos) << chat->output();
}

TEST_F(ChatTest, EachLineOfAPipeIsATurn) {
  const PipedResult result =
      RunPiped(Arguments({}), "What is the capital of France?\n\nWhat is the opposite of hot?\n");
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_NE(result.out.find("Paris"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("cold"), std::string::npos) << result.out;
  EXPECT_EQ(std::count(result.out.begin(), result.out.end(), '\n'), 2) << result.out;
  EXPECT_EQ(result.out.find('>'), std::string::npos);
  EXPECT_EQ((result.out + result.err).find('\x1b'), std::string::npos);
}

TEST_F(ChatTest, NothingInAPipeIsACommand) {
  std::ofstream(File("victim")) << "precious";
  const std::string input =
      "Hi\n/save -f " + File("victim") + "\n/exit\n//one\n\"\"\"two\nthree\\\nHi\n";
  const PipedResult result = RunPiped(Arguments({"-n", "1"}), input);
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(ReadAll(File("victim")), "precious");
  EXPECT_EQ(std::count(result.out.begin(), result.out.end(), '\n'), 7) << result.out;
  const std::string hint = "--commands takes such lines as commands";
  const size_t at = result.err.find(hint);
  ASSERT_NE(at, std::string::npos) << result.err;
  EXPECT_EQ(result.err.find(hint, at + 1), std::string::npos) << result.err;
  EXPECT_EQ(RunPiped(Arguments({"-q", "-n", "1"}), input).err.find(hint), std::string::npos);
  EXPECT_EQ(RunPiped(Arguments({"-n", "1"}), "Hi\n").err.find(hint), std::string::npos);
  const PipedResult commands =
      RunPiped(Arguments({"--commands", "-n", "1"}), "Hi\n/save -f " + File("victim") + "\n");
  EXPECT_NE(ReadAll(File("victim")), "precious") << commands.err;
  EXPECT_EQ(commands.err.find(hint), std::string::npos) << commands.err;
}

// Turns dropped for an answer that failed are neither lost nor duplicated.
TEST_F(ChatTest, ATurnThatFailsLeavesTheConversationAsItWas) {
  const std::string long_text(5000, 'x');
  const std::string two_turns = "What is the capital of France?\nWhat is the opposite of hot?\n";
  const struct {
    const char* name;
    std::string fails;
  } cases[] = {
      {"again", "/system " + long_text + "\n/regen\n/system \"\"\n"},
      {"message", long_text + "\n"},
  };
  for (const auto& test : cases) {
    const PipedResult result =
        RunPiped(Arguments({"--commands", "--max-seq-len", "512"}),
                 two_turns + test.fails + "/context\n/save " + File(test.name) + "\n");
    EXPECT_NE(result.err.find("does not fit the context"), std::string::npos) << result.err;
    EXPECT_EQ(result.err.find("dropped"), std::string::npos) << result.err;
    const std::string saved = ReadAll(File(test.name));
    EXPECT_EQ(std::count(saved.begin(), saved.end(), '\n'), 4) << test.name << "\n" << saved;
  }
}

TEST_F(ChatTest, AMessageThatCanNeverFitLosesNothing) {
  std::string text;
  while (text.size() < 20000) text += "blah ";
  const PipedResult result =
      RunPiped(Arguments({}), "My name is Zack.\n" + text + "\nWhat is my name?\n");
  EXPECT_NE(result.err.find("does not fit the context"), std::string::npos) << result.err;
  EXPECT_EQ(result.err.find("dropped"), std::string::npos) << result.err;
  EXPECT_NE(result.out.find("Your name is Zack"), std::string::npos) << result.out;
}

TEST_F(ChatTest, AContextErrorNamesTheLimitingOption) {
  const struct {
    std::vector<std::string> options;
    const char* advice;
  } cases[] = {
      {{"--num-pages", "1"}, "send shorter messages, or raise --num-pages\n"},
      {{"--max-seq-len", "64"}, "send shorter messages, or raise --max-seq-len\n"},
      {{}, "send shorter messages\n"},  // limited by the model's context
  };
  std::string text;
  while (text.size() < 20000) text += "word ";
  for (const auto& test : cases) {
    const PipedResult result = RunPiped(Arguments(test.options), text + "\n");
    EXPECT_NE(result.err.find(test.advice), std::string::npos) << result.err;
  }
}

TEST_F(ChatTest, InvalidUtf8IsReportedOnce) {
  const std::string warning = "not UTF-8";
  const PipedResult result = RunPiped(Arguments({"-n", "2"}), "caf\xe9\nna\xefve\nHi\n");
  EXPECT_EQ(result.status, 0) << result.err;
  const size_t at = result.err.find(warning);
  ASSERT_NE(at, std::string::npos) << result.err;
  EXPECT_EQ(result.err.find(warning, at + 1), std::string::npos) << result.err;
  EXPECT_EQ(RunPiped(Arguments({"-n", "2"}), "caf\u00e9 \uFFFD\n").err.find(warning),
            std::string::npos);
  auto chat = Start({"-n", "2"});
  EXPECT_NE(Say(chat.get(), "caf\xe9").find(warning), std::string::npos) << chat->output();
  EXPECT_EQ(Say(chat.get(), "caf\xe9").find(warning), std::string::npos) << chat->output();
}

TEST_F(ChatTest, AClosedStandardInputIsItsEnd) {
  const PipedResult result =
      RunPiped(Arguments({"-p", "What is the capital of France?"}), std::nullopt);
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_NE(result.out.find("Paris"), std::string::npos) << result.out;
}

TEST_F(ChatTest, AFirstTurnFromTheCommandLine) {
  const PipedResult result = RunPiped(Arguments({"-p", "What is the capital of France?"}), "");
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_NE(result.out.find("Paris"), std::string::npos) << result.out;
}

TEST_F(ChatTest, ATurnThatFailsInAPipeShowsInTheStatus) {
  std::string text;
  while (text.size() < 20000) text += "word ";
  const PipedResult result = RunPiped(Arguments({}), text + "\nWhat is the capital of France?\n");
  EXPECT_EQ(result.status, 1) << result.err;
  EXPECT_NE(result.err.find("does not fit the context"), std::string::npos) << result.err;
  EXPECT_NE(result.out.find("Paris"), std::string::npos) << result.out;
}

TEST_F(ChatTest, AModelWithoutATemplateIsRefused) {
  std::filesystem::copy(kWrenDir, File("model"));
  std::filesystem::permissions(File("model/tokenizer_config.json"),
                               std::filesystem::perms::owner_all,
                               std::filesystem::perm_options::add);
  std::ofstream(File("model/tokenizer_config.json"))
      << "{\"add_bos_token\": true, \"bos_token\": \"<s>\", \"eos_token\": \"</s>\"}";
  const PipedResult result = RunPiped({"chat", "-m", File("model")}, "Hi\n");
  EXPECT_EQ(result.status, 65) << result.err;
  EXPECT_NE(result.err.find("--chat-template"), std::string::npos) << result.err;
}

// A template for contents that are lists of parts.
TEST_F(ChatTest, AMessageIsPassedAsPartsOrRefused) {
  std::ofstream(File("parts.jinja"))
      << "{{ bos_token }}{% for m in messages %}{{ '<|' + m.role + '|>\n' }}"
         "{% for c in m.content %}{{ c.text }}{% endfor %}{{ eos_token + '\n' }}{% endfor %}"
         "{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}";
  const std::string input = "What is the capital of France?\nAnd of Peru?\n";
  std::vector<std::string> args = Arguments({"--chat-template", File("parts.jinja")});
  EXPECT_EQ(RunPiped(args, input).out, RunPiped(Arguments({}), input).out);
  args.insert(args.end(), {"--template-content", "string"});
  const PipedResult refused = RunPiped(args, "What is the capital of France?\n");
  EXPECT_EQ(refused.status, 1) << refused.err;
  EXPECT_EQ(refused.out, "");
  EXPECT_NE(refused.err.find("messages[0] (role user): the chat template leaves out its text; pass "
                             "it in another form with --template-content parts"),
            std::string::npos)
      << refused.err;
}

TEST_F(ChatTest, WrongOptionsAreUsageErrors) {
  EXPECT_EQ(RunPiped(Arguments({"--on-overflow", "explode"}), "").status, 64);
  EXPECT_EQ(RunPiped(Arguments({"--logprobs", "3"}), "").status, 64);
  EXPECT_EQ(RunPiped(Arguments({"--load", File("none")}), "").status, 66);
  EXPECT_EQ(RunPiped(Arguments({"--system", "@" + File("none")}), "").status, 66);
}

}  // namespace
}  // namespace minisgl::chat
