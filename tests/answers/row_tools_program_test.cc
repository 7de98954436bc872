// Tools of the user that rows of a file call, and signals while one runs. The model writes a known
// text.
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "answers/run_program.h"
#include "answers/scripted_model.h"
#include "answers/tool_script.h"
#include "program/program.h"
#include "temporary_folder.h"

namespace minisgl::answers {
namespace {

using ::minisgl::Program;
using ::minisgl::ProgramResult;

class RowToolsProgramTest : public ::testing::Test {
 protected:
  // A tool that adds its input as a line to the file "called" and prints "seven".
  std::string Tool() const {
    folder_.Write("tool", "(cat; echo) >> " + folder_.Path("called") + "; echo seven\n");
    return "f=sh " + folder_.Path("tool");
  }
  // A tool that writes its process id into the file "pid" and never ends.
  std::string EndlessTool() const {
    const std::string pid = folder_.Path("pid");
    folder_.Write("endless", "echo $$ > " + pid + ".new; mv " + pid + ".new " + pid +
                                 "; exec sleep 1000000\n");
    return "f=sh " + folder_.Path("endless");
  }
  std::vector<std::string> Args(const std::string& rows,
                                const std::vector<std::string>& options) const {
    std::vector<std::string> args = {"run", "-m",          model_.path(),   "--file",
                                     rows,  "--yes-tools", "--temperature", "0"};
    args.insert(args.end(), options.begin(), options.end());
    return args;
  }
  std::string Rows(int count, const std::string& more = "") const {
    std::string rows;
    for (int i = 0; i < count; ++i) {
      rows += R"({"id": )" + std::to_string(i) +
              R"(, "messages": [{"role": "user", "content": "Hi"}])" + more + "}\n";
    }
    return folder_.Write("rows.jsonl", rows);
  }
  size_t NumCalls() const { return CountOf(folder_.Read("called"), "\n"); }

  // Starts the program, waits until the endless tool runs, sends the signal, and expects that both
  // end.
  ProgramResult SignalWhileToolRuns(const std::vector<std::string>& args, int signal_number) const {
    Program program(args, {});
    while (folder_.Read("pid").empty() && program.Runs()) std::this_thread::yield();
    const int pid = std::atoi(folder_.Read("pid").c_str());
    EXPECT_GT(pid, 0);
    EXPECT_EQ(kill(pid, 0), 0);
    program.Signal(signal_number);
    ProgramResult result = program.Wait();
    EXPECT_NE(kill(pid, 0), 0) << "the tool is killed, and waited for";
    return result;
  }

  const TemporaryFolder folder_;
  const ScriptedModel model_{CallerScript()};
};

TEST_F(RowToolsProgramTest, EachRowHasItsCallsRun) {
  const ProgramRun run = RunProgram(Args(Rows(20), {"--tool", Tool()}));
  EXPECT_EQ(run.exit_code, 0) << run.err;
  const std::vector<Json> rows = run.Rows();
  ASSERT_EQ(rows.size(), 20u);
  for (const Json& row : rows) {
    EXPECT_EQ(*row.Find("text"), Json("It is done.")) << row.Dump();
    EXPECT_EQ(*row.Find("tool_messages")->as_array().at(1).Find("content"), Json("seven"));
  }
  EXPECT_EQ(NumCalls(), 20u);
}

TEST_F(RowToolsProgramTest, QuestionsOfTablesHaveThem) {
  const std::string table = folder_.Write("rows.csv", "text\na\nb\n");
  const ProgramRun run = RunProgram(
      Args(table, {"--tool", Tool(), "--template", "{{ text }}", "-o", folder_.Path("out.csv")}));
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_NE(folder_.Read("out.csv").find("It is done."), std::string::npos);
  EXPECT_EQ(NumCalls(), 2u);
}

TEST_F(RowToolsProgramTest, CheckRunsNothing) {
  const ProgramRun run = RunProgram(Args(Rows(2), {"--tool", Tool(), "--check"}));
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(NumCalls(), 0u);
  const ProgramRun refused = RunProgram(Args(Rows(2, ", \"n\": 2"), {"--tool", Tool(), "--check"}));
  EXPECT_EQ(refused.exit_code, 65) << refused.err;
}

TEST_F(RowToolsProgramTest, AFailedToolIsAnsweredWithItsError) {
  const ProgramRun run = RunProgram(Args(Rows(2), {"--tool", "f=false"}));
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_NE(run.out.find("failed with the exit status 1"), std::string::npos) << run.out;
}

TEST_F(RowToolsProgramTest, AKilledRunStartsUnfinishedRowsAgain) {
  const std::string out = folder_.Path("out.jsonl");
  const std::string rows = Rows(3);
  // The first row is answered, and the second one's tool does not end.
  const std::string pid = folder_.Path("pid");
  folder_.Write("second", "(cat; echo) >> " + folder_.Path("called") + "\nif [ -e " +
                              folder_.Path("go") + " ] || mkdir " + folder_.Path("first") +
                              " 2>/dev/null; then echo seven; exit; fi\n" + "until grep -q seven " +
                              out + "; do sleep 0.01; done\n" + "echo $$ > " + pid + ".new; mv " +
                              pid + ".new " + pid + "; exec sleep 1000000\n");
  std::vector<std::string> args =
      Args(rows, {"--tool", "f=sh " + folder_.Path("second"), "-o", out, "--tool-jobs", "1"});
  {
    Program program(args, {});
    while (folder_.Read("pid").empty() && program.Runs()) std::this_thread::yield();
    program.Signal(SIGKILL);
    program.Wait();
    kill(-std::atoi(folder_.Read("pid").c_str()), SIGKILL);
  }
  EXPECT_EQ(CountOf(folder_.Read("out.jsonl"), "It is done."), 1u);
  folder_.Write("go", "");
  args.push_back("--resume");
  const ProgramRun run = RunProgram(args);
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(CountOf(folder_.Read("out.jsonl"), "It is done."), 3u);
  EXPECT_EQ(NumCalls(), 4u) << "the second row's twice";
  args.insert(args.end(), {"--tool-turns", "3"});
  const ProgramRun other = RunProgram(args);
  EXPECT_EQ(other.exit_code, 73) << other.err;
  EXPECT_NE(other.err.find("--tool-turns 8"), std::string::npos) << other.err;
}

// The first row of a session is kept, and the others go on behind its calls.
TEST_F(RowToolsProgramTest, AResumedSessionGoesOnBehindItsCalls) {
  const std::string rows = Rows(3, R"(, "session": "s")");
  const std::string out = folder_.Path("out.jsonl");
  std::vector<std::string> args = Args(rows, {"--tool", Tool(), "-o", out});
  ASSERT_EQ(RunProgram(args).exit_code, 0);
  const std::string whole = folder_.Read("out.jsonl");
  ASSERT_EQ(CountOf(whole, "It is done."), 3u) << whole;
  folder_.Write("out.jsonl", whole.substr(0, whole.find('\n') + 1));
  args.push_back("--resume");
  const ProgramRun run = RunProgram(args);
  EXPECT_EQ(run.exit_code, 0) << run.err;
  const auto without_cached = [](const std::string& text) {
    ProgramRun read;
    read.out = text;
    return Comparable(read.Rows());
  };
  EXPECT_EQ(without_cached(folder_.Read("out.jsonl")), without_cached(whole));
  EXPECT_EQ(NumCalls(), 5u);
}

TEST_F(RowToolsProgramTest, ASignalEndsTheToolOfARow) {
  for (const int signal_number : {SIGINT, SIGTERM}) {
    folder_.Write("pid", "");
    const std::string out = folder_.Path("out.jsonl");
    const ProgramResult result = SignalWhileToolRuns(
        Args(Rows(2), {"--tool", EndlessTool(), "--grace", "0", "-o", out, "--force"}),
        signal_number);
    EXPECT_EQ(result.exit_code, 128 + signal_number) << result.err;
    EXPECT_EQ(folder_.Read("out.jsonl"), "") << "the rows are left to --resume";
    EXPECT_NE(result.err.find("--resume"), std::string::npos) << result.err;
  }
}

TEST_F(RowToolsProgramTest, ASignalEndsTheToolOfAPrompt) {
  for (const int signal_number : {SIGINT, SIGTERM}) {
    folder_.Write("pid", "");
    const ProgramResult result =
        SignalWhileToolRuns({"run", "-m", model_.path(), "-p", "Hi", "--temperature", "0",
                             "--yes-tools", "--tool", EndlessTool()},
                            signal_number);
    EXPECT_EQ(result.exit_code, 128 + signal_number) << result.err;
    EXPECT_EQ(result.out, "");
  }
}

TEST_F(RowToolsProgramTest, ATimeLimitIsTheAnswer) {
  const ProgramRun run =
      RunProgram(Args(Rows(1), {"--tool", EndlessTool(), "--tool-timeout", "0.01"}));
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_NE(run.out.find("was stopped after 0.01 seconds"), std::string::npos) << run.out;
}

}  // namespace
}  // namespace minisgl::answers
