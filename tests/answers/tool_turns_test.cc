// Tools of the user in `minisgl run -p`: run, answered and bounded. The model writes a known text.
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "answers/run_program.h"
#include "answers/scripted_model.h"
#include "answers/tool_script.h"
#include "temporary_folder.h"

namespace minisgl::answers {
namespace {

class ToolTurnsTest : public ::testing::Test {
 protected:
  ProgramRun Ask(const ScriptedModel& model, const std::vector<std::string>& options) const {
    std::vector<std::string> args = {"run", "-m", model.path(), "-p", "Hi", "--temperature", "0"};
    args.insert(args.end(), options.begin(), options.end());
    return RunProgram(args);
  }
  // A tool that keeps its input in the file "called" and prints "seven".
  std::string Tool() const {
    folder_.Write("tool", "cat >> " + folder_.Path("called") + "; echo seven\n");
    return "f=sh " + folder_.Path("tool");
  }
  const TemporaryFolder folder_;
};

TEST_F(ToolTurnsTest, ACallIsRunAndTheModelGoesOn) {
  const ScriptedModel model(CallerScript());
  const ProgramRun run = Ask(model, {"--tool", Tool(), "--yes-tools"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(run.out, "It is done.\n");
  EXPECT_EQ(folder_.Read("called"), "{\"n\": 41}");
  EXPECT_NE(run.err.find("[call] f {\"n\": 41}"), std::string::npos) << run.err;
  EXPECT_NE(run.err.find("[f] seven"), std::string::npos) << run.err;
}

TEST_F(ToolTurnsTest, RowsOfJsonHaveTheCalls) {
  const ScriptedModel model(CallerScript());
  const ProgramRun run = Ask(model, {"--tool", Tool(), "--yes-tools", "--json"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  const std::vector<Json> rows = run.Rows();
  ASSERT_EQ(rows.size(), 2u) << run.out;
  EXPECT_NE(rows[0].Find("tool_calls"), nullptr) << run.out;
  EXPECT_EQ(*rows[1].Find("text"), Json("It is done."));
}

TEST_F(ToolTurnsTest, TheTurnsAreBounded) {
  const ScriptedModel model(CallerScript(/*calls_again=*/true));
  const ProgramRun run = Ask(model, {"--tool", Tool(), "--yes-tools", "--tool-turns", "3"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(folder_.Read("called"), "{\"n\": 41}{\"n\": 41}{\"n\": 41}");
  EXPECT_NE(run.err.find("those of 3 answers were (--tool-turns)"), std::string::npos) << run.err;
}

TEST_F(ToolTurnsTest, NothingRunsUnlessItIsSaid) {
  const ScriptedModel model(CallerScript());
  const ProgramRun unasked = Ask(model, {"--tool", Tool()});
  EXPECT_EQ(unasked.exit_code, 64);
  EXPECT_NE(unasked.err.find("--yes-tools"), std::string::npos) << unasked.err;
  const ProgramRun raw = Ask(model, {"--tool", Tool(), "--yes-tools", "--raw"});
  EXPECT_EQ(raw.exit_code, 64) << raw.err;
  const ProgramRun check = Ask(model, {"--tool", Tool(), "--yes-tools", "--check"});
  EXPECT_EQ(check.exit_code, 64) << check.err;
  const std::string rows = folder_.Write("rows.jsonl", "{\"prompt\": \"a\"}\n");
  const ProgramRun file = RunProgram({"run", "-m", model.path(), "--file", rows, "--tool", Tool()});
  EXPECT_EQ(file.exit_code, 64);
  EXPECT_NE(file.err.find("--yes-tools"), std::string::npos) << file.err;
  EXPECT_EQ(folder_.Read("called"), "");
}

}  // namespace
}  // namespace minisgl::answers
