// A prompt file beside a conversation, and reasoning apart from answers.
#include <gtest/gtest.h>
#include <pty.h>
#include <signal.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "cli/chat_batch.h"
#include "cli/chat_turn.h"
#include "minisgl/base/json.h"
#include "pty_chat.h"

namespace minisgl {
namespace {

constexpr const char* kPrompts = MINISGL_SOURCE_DIR "/prompts/mixed.jsonl";

class ChatBatchTest : public ChatTest {
 protected:
  // Rows whose answers have `tokens` tokens each.
  std::string WriteRows(const std::string& name, int rows, int tokens) const {
    std::ofstream out(File(name));
    for (int i = 0; i < rows; ++i) {
      out << R"({"id": )" << i << R"(, "prompt": "Tell me a story.", "ignore_eos": true, )"
          << R"("max_tokens": )" << tokens << "}\n";
    }
    return File(name);
  }
  // The rows of an answer file by id, without what depends on what else runs.
  static std::map<std::string, std::string> Rows(const std::string& path) {
    std::map<std::string, std::string> rows;
    std::ifstream in(path);
    for (std::string line; std::getline(in, line);) {
      const Result<Json> row = ParseJson(line);
      EXPECT_TRUE(row.ok()) << line;
      if (!row.ok()) continue;
      const Json* text = row->Find("text");
      const Json* error = row->Find("error");
      const std::string shown = text != nullptr ? text->Dump() : error->Find("code")->as_string();
      EXPECT_TRUE(rows.emplace(row->Find("id")->Dump(), shown).second) << line;
    }
    return rows;
  }
};

TEST_F(ChatBatchTest, AnswersAreThoseOfRun) {
  const std::string expected = File("run.jsonl");
  ASSERT_EQ(
      RunPiped({"run", "-m", kWrenDir, "--threads", "1", "-q", "--file", kPrompts, "-o", expected},
               std::nullopt)
          .status,
      0);
  // The end of input waits for the batch; turns are answered meanwhile.
  const PipedResult result = RunPiped(
      Arguments({}), "/batch " + std::string(kPrompts) + " " + File("answers.jsonl") +
                         "\nWhat is the capital of France?\nWhat is the opposite of hot?\n");
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out, "The capital of France is Paris.\nThe opposite of hot is cold.\n");
  EXPECT_NE(result.err.find("done: 200 of 200 rows"), std::string::npos) << result.err;
  EXPECT_EQ(Rows(File("answers.jsonl")), Rows(expected));
}

TEST_F(ChatBatchTest, ThePromptShowsHowFarItIs) {
  const std::string rows = WriteRows("rows.jsonl", 9, 40);
  auto chat = Start({"--cpu-target", "naive"});
  chat->Send("/batch " + rows + "\r");
  ASSERT_TRUE(chat->WaitFor("9 of ")) << chat->output();
  ASSERT_TRUE(chat->WaitFor("[batch 0/9] > ")) << chat->output();
  // What is typed stays while the numbers before it change, and a turn does not wait for the rows.
  chat->Send("What is the capital of France?");
  ASSERT_TRUE(chat->WaitFor("[batch ")) << chat->output();
  ASSERT_TRUE(chat->WaitFor("/9] > What is the capital of France?")) << chat->output();
  chat->Send("\r");
  ASSERT_TRUE(chat->WaitFor("Paris")) << chat->output();
  ASSERT_TRUE(chat->WaitFor("/9] > ")) << chat->output();
  ASSERT_TRUE(chat->WaitFor("[batch done] > ")) << chat->output();
  chat->Send("/batch\r");
  ASSERT_TRUE(chat->WaitFor("done: 9 of 9 rows")) << chat->output();
  ASSERT_TRUE(WaitForPrompt(chat.get())) << chat->output();
  EXPECT_EQ(Rows(File("rows.answers.jsonl")).size(), 9u);
  chat->Send(kCtrlD);
  EXPECT_EQ(chat->WaitForExit(), 0);
}

TEST_F(ChatBatchTest, ABatchIsStopped) {
  const std::string rows = WriteRows("rows.jsonl", 40, 1500);
  auto chat = Start({"--cpu-target", "naive"});
  chat->Send("/batch " + rows + "\r");
  ASSERT_TRUE(chat->WaitFor("[batch 0/40] > ")) << chat->output();
  chat->Send("/batch " + rows + "\r");
  ASSERT_TRUE(chat->WaitFor("A batch runs already")) << chat->output();
  chat->Send("/batch stop\r");
  ASSERT_TRUE(chat->WaitFor("5 s to finish")) << chat->output();
  chat->Send(kCtrlC);  // at once
  ASSERT_TRUE(chat->WaitFor("stopped: 0 of 40 rows, 40 without an answer")) << chat->output();
  ASSERT_TRUE(WaitForPrompt(chat.get())) << chat->output();
  const auto answers = Rows(File("rows.answers.jsonl"));
  EXPECT_EQ(answers.size(), 40u);
  for (const auto& [id, text] : answers) EXPECT_EQ(text, "cancelled") << id;
  EXPECT_NE(Say(chat.get(), "What is the capital of France?").find("Paris"), std::string::npos);
  chat->Send(kCtrlD);
  EXPECT_EQ(chat->WaitForExit(), 0);
}

TEST_F(ChatBatchTest, LeavingWhileOneRunsAsks) {
  const std::string rows = WriteRows("rows.jsonl", 40, 1500);
  auto chat = Start({"--cpu-target", "naive"});
  chat->Send("/batch " + rows + "\r");
  ASSERT_TRUE(chat->WaitFor("[batch 0/40] > ")) << chat->output();
  chat->Send(kCtrlD);
  ASSERT_TRUE(chat->WaitFor("A batch runs, with 40 rows to go")) << chat->output();
  ASSERT_TRUE(chat->WaitFor("[batch 0/40] > ")) << chat->output();
  chat->Send("/exit\r");
  ASSERT_TRUE(chat->WaitFor("5 s to finish")) << chat->output();
  chat->Send(kCtrlC);
  EXPECT_EQ(chat->WaitForExit(), 0) << chat->output();
  EXPECT_EQ(Rows(File("rows.answers.jsonl")).size(), 40u);
}

TEST_F(ChatBatchTest, ASignalToEndWritesWhatWasDone) {
  const std::string rows = WriteRows("rows.jsonl", 6, 40);
  auto chat = Start({"--cpu-target", "naive"});
  chat->Send("/batch " + rows + "\r");
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(chat->WaitFor("[batch ")) << chat->output();
  chat->Signal(SIGTERM);
  EXPECT_EQ(chat->WaitForExit(), 128 + SIGTERM) << chat->output();
  const auto answers = Rows(File("rows.answers.jsonl"));
  EXPECT_EQ(answers.size(), 6u);
  EXPECT_GE(std::count_if(answers.begin(), answers.end(),
                          [](const auto& row) { return row.second != "cancelled"; }),
            1);
}

TEST_F(ChatBatchTest, WhatCannotRunIsSaidAndTheChatGoesOn) {
  std::ofstream(File("mine.answers.jsonl")) << "mine";
  WriteRows("mine.jsonl", 1, 2);
  const struct {
    std::string arguments;
    const char* message;
  } cases[] = {
      {File("none.jsonl"), "cannot be opened"},
      {dir_, "is a directory"},
      {"/dev/null", "no regular file"},
      {"-", "standard input is the conversation"},
      {File("mine.jsonl"), "exists and is not empty"},
      {File("mine.jsonl") + " " + File("mine.jsonl"), "exists and is not empty"},
      {"-f " + File("mine.jsonl") + " " + File("mine.jsonl"),
       "is the file that rows are read from"},
      {File("mine.jsonl") + " /no/such/folder/x", "cannot be created"},
      {"", "No batch was started"},
      {"stop", "No batch runs"},
  };
  for (const auto& test : cases) {
    const PipedResult result =
        RunPiped(Arguments({}), "/batch " + test.arguments + "\nWhat is the capital of France?\n");
    EXPECT_NE(result.err.find(test.message), std::string::npos) << test.arguments << "\n"
                                                                << result.err;
    EXPECT_EQ(result.out, "The capital of France is Paris.\n");
  }
  EXPECT_EQ(ReadAll(File("mine.answers.jsonl")), "mine");
  // A row that fails shows in the exit status of a pipe.
  std::ofstream(File("bad.jsonl")) << "{\"prompt\": 3}\n{\"prompt\": \"a\", \"max_tokens\": 1}\n";
  const PipedResult result = RunPiped(Arguments({}), "/batch " + File("bad.jsonl") + "\n");
  EXPECT_EQ(result.status, 1) << result.err;
  EXPECT_NE(result.err.find("1 of 2 rows, 1 without an answer"), std::string::npos) << result.err;
}

TEST(ChatBatchFilesTest, AnswersStandBesideTheirRows) {
  EXPECT_EQ(DefaultAnswersPath("rows.jsonl"), "rows.answers.jsonl");
  EXPECT_EQ(DefaultAnswersPath("a.b/rows"), "a.b/rows.answers.jsonl");
  EXPECT_EQ(DefaultAnswersPath(".jsonl"), ".jsonl.answers.jsonl");
}

// A template that has the model reason from the start; it never says that it is done.
class ChatReasoningTest : public ChatTest {
 protected:
  std::vector<std::string> Thinking(std::vector<std::string> more) const {
    std::ofstream(File("think.jinja"))
        << "{{ bos_token }}{% for m in messages %}{{ '<|' + m['role'] + '|>\\n' + "
           "m['content'].split('</think>')[-1] + eos_token + '\\n' }}{% endfor %}"
           "{% if add_generation_prompt %}{{ '<|assistant|>\\n<think>' }}{% endif %}";
    more.insert(more.end(), {"--chat-template", File("think.jinja")});
    return Arguments(std::move(more));
  }
};

TEST_F(ChatReasoningTest, InAPipeItStandsOnStandardError) {
  const PipedResult plain = RunPiped(Arguments({"-n", "3"}), "Hi\n");
  const PipedResult shown = RunPiped(Thinking({"-n", "3"}), "Hi\n");
  EXPECT_EQ(shown.out, "\n");
  EXPECT_GT(shown.err.size(), plain.err.size());
  EXPECT_EQ(shown.err.find('\x1b'), std::string::npos);
  const PipedResult hidden = RunPiped(Thinking({"-n", "3", "--hide-thinking"}), "Hi\n");
  EXPECT_EQ(hidden.out, "\n");
  EXPECT_EQ(hidden.err, plain.err);
}

TEST_F(ChatReasoningTest, OnATerminalItIsDimmed) {
  PtyProcess chat(Thinking({}), {{"TERM", "xterm"}, {"NO_COLOR", ""}, {"XDG_STATE_HOME", dir_}});
  ASSERT_TRUE(chat.WaitFor("2004h")) << chat.output();
  chat.Send("What is the capital of France?\r");
  ASSERT_TRUE(chat.WaitFor("\x1b[2m")) << chat.output();
  ASSERT_TRUE(chat.WaitFor("\x1b[22m")) << chat.output();
  chat.Send(kCtrlD);
  EXPECT_EQ(chat.WaitForExit(), 0);
}

// What `printer` writes to a pipe or a terminal.
std::string ReadBack(int fd) {
  std::string text(4096, '\0');
  const ssize_t got = read(fd, text.data(), text.size());
  text.resize(got > 0 ? static_cast<size_t>(got) : 0);
  return text;
}

TEST(AnswerPrinterTest, ReasoningStandsApartFromTheAnswer) {
  int out[2], err[2];
  ASSERT_EQ(pipe(out), 0);
  ASSERT_EQ(pipe(err), 0);
  AnswerPrinter printer(out[1], err[1]);
  for (const char* text : {"so ", "then"}) EXPECT_TRUE(printer.ShowReasoning(text));
  for (const char* text : {"", "yes", "\x1b[1m"}) EXPECT_TRUE(printer.Show(text));
  EXPECT_TRUE(printer.EndAnswer());
  EXPECT_TRUE(printer.Show("no thought"));
  EXPECT_TRUE(printer.EndAnswer());
  EXPECT_EQ(ReadBack(out[0]), "yes\x1b[1m\nno thought\n");
  EXPECT_EQ(ReadBack(err[0]), "so then\n");
  for (const int fd : {out[0], out[1], err[0], err[1]}) close(fd);
}

TEST(AnswerPrinterTest, OnATerminalBothAreFiltered) {
  int master = -1, terminal = -1;
  ASSERT_EQ(openpty(&master, &terminal, nullptr, nullptr, nullptr), 0);
  termios settings{};
  tcgetattr(terminal, &settings);
  settings.c_oflag &= ~static_cast<tcflag_t>(OPOST);
  tcsetattr(terminal, TCSANOW, &settings);
  setenv("TERM", "xterm", 1);
  for (const char* no_colour : {"", "1"}) {
    setenv("NO_COLOR", no_colour, 1);
    AnswerPrinter printer(terminal, -1);
    for (const char* text : {"a\x1b", "[31mb"}) EXPECT_TRUE(printer.ShowReasoning(text));
    EXPECT_TRUE(printer.Show("c\x1b]0;t\x07"));
    EXPECT_TRUE(printer.EndAnswer());
    EXPECT_EQ(ReadBack(master),
              *no_colour == '\0' ? "\x1b[2ma\x1b[22m\x1b[2mb\x1b[22m\n\nc\n" : "ab\n\nc\n");
  }
  unsetenv("NO_COLOR");
  close(master);
  close(terminal);
}

}  // namespace
}  // namespace minisgl
