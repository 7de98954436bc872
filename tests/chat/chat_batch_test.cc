// A prompt file in the background of a chat.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "chat/chat_batch.h"
#include "minisgl/base/json.h"
#include "program/pty_chat.h"
#include "slow.h"

namespace minisgl::chat {
namespace {

constexpr const char* kPrompts = MINISGL_SOURCE_DIR "/prompts/mixed.jsonl";

class ChatBatchTest : public ChatTest {
 protected:
  // Writes rows whose answers have `tokens` tokens each. Tests must not depend on the progress at a
  // given moment: they use more rows than any machine can answer meanwhile, and stop them.
  std::string WriteRows(const std::string& name, int rows, int tokens) const {
    std::ofstream out(File(name));
    for (int i = 0; i < rows; ++i) {
      out << R"({"id": )" << i << R"(, "prompt": "Tell me a story.", "ignore_eos": true, )"
          << R"("max_tokens": )" << tokens << "}\n";
    }
    return File(name);
  }
  static constexpr int kManyRows = 400;
  // One row that is answered soon, and many that are not.
  std::string WriteEndlessRows() const {
    const std::string rows = ReadAll(WriteRows("rows.jsonl", kManyRows, 1500));
    const size_t end = rows.find('\n') + 1;
    const std::string first = R"({"id": 0, "prompt": "Tell me a story.", "max_tokens": 1})";
    std::ofstream(File("rows.jsonl")) << first << '\n' << rows.substr(end);
    return File("rows.jsonl");
  }
  // Waits until `path` contains an answer.
  void WaitForAnAnswer(PtyProcess* chat, const std::string& path) const {
    for (int i = 0; i < 20000 && ReadAll(path).empty(); ++i) chat->ReadFor(0.01);
    ASSERT_NE(ReadAll(path), "") << chat->output();
  }
  // Waits until a row is running: a batch stopped earlier has nothing to finish.
  static void WaitForTokens(PtyProcess* chat) {
    for (int i = 0; i < 8000; ++i) {
      const size_t begin = chat->output().size();
      chat->Send("/batch\r");
      ASSERT_TRUE(chat->WaitFor("; answers in ")) << chat->output();
      if (chat->output().find(", 0 tokens,", begin) == std::string::npos) return;
      chat->ReadFor(0.03);
    }
    FAIL() << chat->output();
  }
  // Returns the rows of an answer file by id, without what depends on other requests.
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
  static int64_t CountOf(const std::map<std::string, std::string>& rows, const std::string& text) {
    return std::count_if(rows.begin(), rows.end(),
                         [&](const auto& row) { return row.second == text; });
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
  const PipedResult result =
      RunPiped(Arguments({"--commands"}),
               "/batch " + std::string(kPrompts) + " " + File("answers.jsonl") +
                   "\nWhat is the capital of France?\nWhat is the opposite of hot?\n");
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out, "The capital of France is Paris.\nThe opposite of hot is cold.\n");
  EXPECT_NE(result.err.find("done: 200 of 200 rows"), std::string::npos) << result.err;
  EXPECT_EQ(Rows(File("answers.jsonl")), Rows(expected));
}

TEST_F(ChatBatchTest, ThePromptShowsHowFarItIs) {
  MarkSlow("a slow engine, so that there is something to show");
  const std::string rows = WriteRows("rows.jsonl", 20000, 4);
  auto chat = Start({"--cpu-target", "naive"});
  chat->Send("/batch " + rows + "\r");
  ASSERT_TRUE(chat->WaitFor("20000 of ")) << chat->output();
  ASSERT_TRUE(chat->WaitFor("/20000] > ")) << chat->output();
  // Typed text stays while the numbers before it change, and a turn does not wait for the rows.
  chat->Send("What is the capital of France?");
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(chat->WaitFor("[batch ")) << chat->output();
    ASSERT_TRUE(chat->WaitFor("/20000] > What is the capital of France?")) << chat->output();
  }
  chat->Send("\r");
  ASSERT_TRUE(chat->WaitFor("Paris")) << chat->output();
  ASSERT_TRUE(chat->WaitFor("/20000] > ")) << chat->output();
  Say(chat.get(), "/batch stop");
  // The end of a batch is shown without a key press.
  chat->Send("/batch -f " + WriteRows("rows.jsonl", 9, 4) + "\r");
  ASSERT_TRUE(chat->WaitFor("9 of ")) << chat->output();
  ASSERT_TRUE(chat->WaitFor("[batch done] > ")) << chat->output();
  chat->Send("/batch\r");
  ASSERT_TRUE(chat->WaitFor("done: 9 of 9 rows")) << chat->output();
  ASSERT_TRUE(WaitForPrompt(chat.get())) << chat->output();
  EXPECT_EQ(Rows(File("rows.answers.jsonl")).size(), 9u);
  chat->Send(kCtrlD);
  EXPECT_EQ(chat->WaitForExit(), 0);
}

TEST_F(ChatBatchTest, ABatchIsStopped) {
  const std::string rows = WriteRows("rows.jsonl", kManyRows, 1500);
  auto chat = Start({"--cpu-target", "naive"});
  chat->Send("/batch " + rows + "\r");
  ASSERT_TRUE(chat->WaitFor("/400] > ")) << chat->output();
  chat->Send("/batch " + rows + "\r");
  ASSERT_TRUE(chat->WaitFor("A batch is already running")) << chat->output();
  WaitForTokens(chat.get());
  chat->Send("/batch stop\r");
  ASSERT_TRUE(chat->WaitFor("5 s to finish")) << chat->output();
  chat->Send(kCtrlC);  // at once
  ASSERT_TRUE(chat->WaitFor("stopped: ")) << chat->output();
  ASSERT_TRUE(WaitForPrompt(chat.get())) << chat->output();
  const auto answers = Rows(File("rows.answers.jsonl"));
  EXPECT_EQ(CountOf(answers, "cancelled"), 0);
  const int64_t num_left = kManyRows - std::ssize(answers);
  const std::string expected = "stopped: " + std::to_string(answers.size()) + " of 400 rows, " +
                               std::to_string(num_left) + " without an answer";
  EXPECT_NE(chat->output().find(expected), std::string::npos) << expected << chat->output();
  // The submitted rows, 16 of them, were not waited for.
  EXPECT_GT(num_left, kManyRows - 16) << chat->output();
  EXPECT_NE(Say(chat.get(), "What is the capital of France?").find("Paris"), std::string::npos);
  chat->Send(kCtrlD);
  EXPECT_EQ(chat->WaitForExit(), 0);
}

// The journal beside the answers equals the journal of a run with the options of the chat.
TEST_F(ChatBatchTest, AStoppedBatchIsResumed) {
  MarkSlow("a slow engine, so that the stop finds rows that are running");
  const std::string rows = File("rows.jsonl"), answers = File("rows.answers.jsonl");
  const std::string expected = File("run.jsonl");
  const auto run = [&](const std::string& output, const char* more) {
    return RunPiped({"run", "-m", kWrenDir, "--threads", "1", "-q", "--cpu-target", "naive",
                     "--seed", "7", "-t", "0.5", "--file", rows, "-o", output, more},
                    std::nullopt);
  };
  auto chat = Start({"--cpu-target", "naive", "--seed", "7", "-t", "0.5"});
  // More rows than are submitted at once. A fast machine may answer all of them before the stop:
  // then retry with more.
  int num_rows = 24, shown = 1;
  for (; shown == 1 && num_rows < 100000; num_rows *= 2) {
    WriteRows("rows.jsonl", num_rows, 12);
    chat->Send("/batch -f " + rows + "\r");
    ASSERT_TRUE(chat->WaitFor(" in the background")) << chat->output();
    ASSERT_NO_FATAL_FAILURE(WaitForAnAnswer(chat.get(), answers));
    chat->Send("/batch stop\r");
    shown = chat->WaitForOneOf({" without an answer", "done: "});
    ASSERT_TRUE(WaitForPrompt(chat.get())) << chat->output();
  }
  ASSERT_EQ(shown, 0) << chat->output();
  ASSERT_EQ(run(expected, "--force").status, 0);
  const std::string num_left = std::to_string(num_rows / 2 - std::ssize(Rows(answers)));
  for (const char* name : {"", ".meta"}) {
    std::filesystem::copy_file(answers + name, File("copy") + name);
  }
  // Both the same chat and a run may continue the output.
  chat->Send("/batch " + rows + "\r");
  ASSERT_TRUE(chat->WaitFor("-r to continue it")) << chat->output();
  ASSERT_TRUE(WaitForPrompt(chat.get()));
  chat->Send("/batch -r " + rows + "\r");
  ASSERT_TRUE(chat->WaitFor(num_left + " of ")) << chat->output();
  chat->Send("/batch wait\r");
  const PipedResult resumed = run(File("copy"), "--resume");
  EXPECT_EQ(resumed.status, 0) << resumed.err;
  EXPECT_EQ(Rows(File("copy")), Rows(expected));
  ASSERT_TRUE(chat->WaitFor("done: " + num_left + " of " + num_left + " rows")) << chat->output();
  EXPECT_EQ(Rows(answers), Rows(expected));
  ASSERT_TRUE(WaitForPrompt(chat.get()));
  EXPECT_NE(Say(chat.get(), "/batch -r " + rows).find("No rows are left to run"),
            std::string::npos);
  // With other options, the output is not continued without -f.
  const PipedResult other =
      RunPiped(Arguments({"--commands", "--seed", "8", "-t", "0.5"}), "/batch -r " + rows + "\n");
  EXPECT_NE(other.err.find("was begun with --seed"), std::string::npos) << other.err;
  EXPECT_EQ(other.status, 1);
}

// Rows read before the change are answered; the rest needs the original file.
TEST_F(ChatBatchTest, AFileThatChangesWhileItIsReadIsReported) {
  MarkSlow("more rows than are read ahead");
  const std::string rows = WriteRows("rows.jsonl", 6000, 1), answers = File("rows.answers.jsonl");
  const std::string before = ReadAll(rows);
  auto chat = Start({});
  chat->Send("/batch " + rows + "\r");
  WaitForAnAnswer(chat.get(), answers);
  chat->Signal(SIGSTOP);
  std::ofstream(rows) << before.substr(0, before.size() - 100);
  chat->Signal(SIGCONT);
  ASSERT_TRUE(chat->WaitFor("[batch done] > ")) << chat->output();
  chat->Send("/batch\r");
  ASSERT_TRUE(chat->WaitFor("rows.jsonl: changed while it was read")) << chat->output();
  const size_t answered = Rows(answers).size();
  EXPECT_GT(answered, 1000u);
  EXPECT_LT(answered, 6000u);
  std::ofstream(rows) << before;
  chat->Send("/batch -r " + rows + "\r");
  ASSERT_TRUE(chat->WaitFor(std::to_string(6000 - answered) + " of ")) << chat->output();
  ASSERT_TRUE(chat->WaitFor("[batch done] > ")) << chat->output();
  EXPECT_EQ(Rows(answers).size(), 6000u);
  chat->Send(kCtrlD);
  EXPECT_EQ(chat->WaitForExit(), 0);
}

TEST_F(ChatBatchTest, CtrlCEndsTheWaitingAndNotTheBatch) {
  const std::string rows = WriteRows("rows.jsonl", kManyRows, 1500);
  auto chat = Start({"--cpu-target", "naive"});
  chat->Send("/batch " + rows + "\r");
  ASSERT_TRUE(chat->WaitFor("/400] > ")) << chat->output();
  chat->Send("/batch wait\r");
  ASSERT_TRUE(chat->WaitFor("(Ctrl-C ceases to wait)")) << chat->output();
  chat->Send(kCtrlC);
  ASSERT_TRUE(chat->WaitFor("the batch goes on; /batch stop ends it")) << chat->output();
  ASSERT_TRUE(chat->WaitFor("/400] > ")) << chat->output();
  chat->Send("/batch\r");
  ASSERT_TRUE(chat->WaitFor("rows.jsonl: ")) << "it runs, it is not \"stopped:\"" << chat->output();
}

TEST_F(ChatBatchTest, LeavingWhileABatchRunsNeedsConfirmation) {
  const std::string rows = WriteRows("rows.jsonl", kManyRows, 1500);
  auto chat = Start({"--cpu-target", "naive"});
  chat->Send("/batch " + rows + "\r");
  ASSERT_TRUE(chat->WaitFor("/400] > ")) << chat->output();
  WaitForTokens(chat.get());
  chat->Send(kCtrlD);
  ASSERT_TRUE(chat->WaitFor("A batch is running, with ")) << chat->output();
  ASSERT_TRUE(chat->WaitFor(" rows to go")) << chat->output();
  ASSERT_TRUE(chat->WaitFor("/400] > ")) << chat->output();
  chat->Send("/exit\r");
  ASSERT_TRUE(chat->WaitFor("5 s to finish")) << chat->output();
  chat->Send(kCtrlC);
  EXPECT_EQ(chat->WaitForExit(), 0) << chat->output();
  EXPECT_EQ(CountOf(Rows(File("rows.answers.jsonl")), "cancelled"), 0);
}

TEST_F(ChatBatchTest, ASignalToEndWritesWhatWasDone) {
  MarkSlow("a slow engine, so that the signal finds rows that are running");
  auto chat = Start({"--cpu-target", "naive"});
  chat->Send("/batch " + WriteEndlessRows() + "\r");
  WaitForAnAnswer(chat.get(), File("rows.answers.jsonl"));
  chat->Signal(SIGTERM);
  EXPECT_EQ(chat->WaitForExit(), 128 + SIGTERM) << chat->output();
  const auto answers = Rows(File("rows.answers.jsonl"));
  EXPECT_LT(answers.size(), size_t{kManyRows});
  EXPECT_EQ(CountOf(answers, "cancelled"), 0);
}

TEST_F(ChatBatchTest, AFailedStartIsReportedAndTheChatContinues) {
  std::ofstream(File("mine.answers.jsonl")) << "mine";
  WriteRows("mine.jsonl", 1, 2);
  const struct {
    std::string arguments;
    const char* message;
  } cases[] = {
      {File("none.jsonl"), "cannot be opened"},
      {dir_, "is a directory"},
      {"/dev/null", "not a regular file"},
      {"-", "standard input is the conversation"},
      {File("mine.jsonl") + " -", "standard output is the conversation"},
      {File("mine.jsonl"), "exists and is not empty"},
      {File("mine.jsonl") + " " + File("mine.jsonl"), "exists and is not empty"},
      {"-f " + File("mine.jsonl") + " " + File("mine.jsonl"),
       "is the file that rows are read from"},
      {File("mine.jsonl") + " /no/such/folder/x", "cannot be created"},
      {"", "No batch was started"},
      {"stop", "No batch is running"},
  };
  for (const auto& test : cases) {
    const PipedResult result =
        RunPiped(Arguments({"--commands"}),
                 "/batch " + test.arguments + "\nWhat is the capital of France?\n");
    EXPECT_NE(result.err.find(test.message), std::string::npos) << test.arguments << "\n"
                                                                << result.err;
    EXPECT_EQ(result.out, "The capital of France is Paris.\n");
  }
  EXPECT_EQ(ReadAll(File("mine.answers.jsonl")), "mine");
  // A failed row affects the exit status if input comes from a pipe.
  std::ofstream(File("bad.jsonl")) << "{\"prompt\": 3}\n{\"prompt\": \"a\", \"max_tokens\": 1}\n";
  const PipedResult result =
      RunPiped(Arguments({"--commands"}), "/batch " + File("bad.jsonl") + "\n");
  EXPECT_EQ(result.status, 1) << result.err;
  EXPECT_NE(result.err.find("1 of 2 rows, 1 without an answer"), std::string::npos) << result.err;
}

TEST(ChatBatchFilesTest, AnswersStandBesideTheirRows) {
  EXPECT_EQ(DefaultAnswersPath("rows.jsonl"), "rows.answers.jsonl");
  EXPECT_EQ(DefaultAnswersPath("a.b/rows"), "a.b/rows.answers.jsonl");
  EXPECT_EQ(DefaultAnswersPath(".jsonl"), ".jsonl.answers.jsonl");
}

}  // namespace
}  // namespace minisgl::chat
