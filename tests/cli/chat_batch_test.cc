// A prompt file beside a conversation.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "cli/chat_batch.h"
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
  // A batch that is stopped before anything was asked has nothing to finish.
  static void WaitForTokens(PtyProcess* chat) {
    for (int i = 0; i < 1000; ++i) {
      const size_t begin = chat->output().size();
      chat->Send("/batch\r");
      ASSERT_TRUE(chat->WaitFor("; answers in ")) << chat->output();
      if (chat->output().find(", 0 tokens,", begin) == std::string::npos) return;
      chat->ReadFor(0.03);
    }
    FAIL() << chat->output();
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
  WaitForTokens(chat.get());
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

// The journal beside the answers is that of a run with the options of the chat.
TEST_F(ChatBatchTest, WhatWasStoppedIsGoneOnWith) {
  // Three are answered soon, and the others take their time.
  const std::string rows = WriteRows("rows.jsonl", 9, 40);
  const std::string later = ReadAll(rows).substr(ReadAll(WriteRows("first", 3, 40)).size());
  WriteRows("rows.jsonl", 3, 4);
  std::ofstream(rows, std::ios::app) << later;
  const std::string answers = File("rows.answers.jsonl"), expected = File("run.jsonl");
  const auto run = [&](const std::string& output, const char* more) {
    return RunPiped({"run", "-m", kWrenDir, "--threads", "1", "-q", "--cpu-target", "naive",
                     "--seed", "7", "-t", "0.5", "--file", rows, "-o", output, more},
                    std::nullopt);
  };
  ASSERT_EQ(run(expected, "--force").status, 0);
  auto chat = Start({"--cpu-target", "naive", "--seed", "7", "-t", "0.5"});
  chat->Send("/batch " + rows + "\r");
  ASSERT_TRUE(chat->WaitFor("[batch 3/9] > ")) << chat->output();
  chat->Send("/batch stop\r");
  ASSERT_TRUE(chat->WaitFor("to finish")) << chat->output();
  chat->Send(kCtrlC);
  ASSERT_TRUE(chat->WaitFor("6 without an answer")) << chat->output();
  for (const char* name : {"", ".meta"}) {
    std::filesystem::copy_file(answers + name, File("copy") + name);
  }
  // The same chat may go on with it, and so may a run.
  ASSERT_TRUE(WaitForPrompt(chat.get()));
  chat->Send("/batch " + rows + "\r");
  ASSERT_TRUE(chat->WaitFor("-r to go on with it")) << chat->output();
  ASSERT_TRUE(WaitForPrompt(chat.get()));
  chat->Send("/batch -r " + rows + "\r");
  ASSERT_TRUE(chat->WaitFor("6 of ")) << chat->output();
  chat->Send("/batch wait\r");
  const PipedResult resumed = run(File("copy"), "--resume");
  EXPECT_EQ(resumed.status, 0) << resumed.err;
  EXPECT_EQ(Rows(File("copy")), Rows(expected));
  ASSERT_TRUE(chat->WaitFor("done: 6 of 6 rows")) << chat->output();
  EXPECT_EQ(Rows(answers), Rows(expected));
  ASSERT_TRUE(WaitForPrompt(chat.get()));
  EXPECT_NE(Say(chat.get(), "/batch -r " + rows).find("No row is left to ask"), std::string::npos);
  // Other options are not gone on with unasked.
  const PipedResult other =
      RunPiped(Arguments({"--seed", "8", "-t", "0.5"}), "/batch -r " + rows + "\n");
  EXPECT_NE(other.err.find("was begun with --seed"), std::string::npos) << other.err;
  EXPECT_EQ(other.status, 1);
}

TEST_F(ChatBatchTest, LeavingWhileOneRunsAsks) {
  const std::string rows = WriteRows("rows.jsonl", 40, 1500);
  auto chat = Start({"--cpu-target", "naive"});
  chat->Send("/batch " + rows + "\r");
  ASSERT_TRUE(chat->WaitFor("[batch 0/40] > ")) << chat->output();
  WaitForTokens(chat.get());
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
      {File("mine.jsonl") + " -", "standard output is the conversation"},
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

}  // namespace
}  // namespace minisgl
