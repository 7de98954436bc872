// Messages of `minisgl run` about inputs and options that are not what they seem.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <string>

#include "program/run_fixture.h"

namespace minisgl::batch {
namespace {

class RunMessagesTest : public RunProgramTest {};

TEST_F(RunMessagesTest, CheckListsTenBadRowsAndCountsTheOthers) {
  std::string input;
  for (int i = 0; i < 30; ++i) input += "{\"prmpt\": 1}\n{\"prompt\": \"a\"}\n";
  input += "{\"prompt\": 1}\n";
  const std::string rows = folder_.Write("in.jsonl", input);
  const ProgramResult check = RunModel({"--raw", "--check", "--file", rows});
  EXPECT_EQ(check.exit_code, 65);
  EXPECT_EQ(Lines(check.err).size(), 10u + 2 + 1 + 1) << check.err;
  EXPECT_NE(check.err.find("in.jsonl:19: unsupported_field: prmpt "), std::string::npos);
  EXPECT_NE(check.err.find("in.jsonl: 20 rows more with unsupported_field: prmpt is not a known"),
            std::string::npos)
      << check.err;
  EXPECT_NE(check.err.find("in.jsonl: 1 row more with invalid_row: prompt "), std::string::npos);
  EXPECT_NE(check.err.find("in.jsonl: 61 rows, 31 bad, "), std::string::npos);
  const ProgramResult all = RunModel({"--raw", "--check", "--verbose", "--file", rows});
  EXPECT_EQ(CountOf(all.err, "unsupported_field: prmpt"), 30u) << all.err;
}

// The prompt of several answers counts for each, as in plan and in a run.
TEST_F(RunMessagesTest, CheckCountsPromptTokensAsPlanDoes) {
  const std::string rows = folder_.Write("in.jsonl", "{\"prompt\": \"Hi there\", \"n\": 3}\n");
  const ProgramResult plan = RunProgram({"plan", "-m", DemoModel(), rows, "--raw", "--json"});
  const Result<Json> figures = ParseJson(plan.out);
  ASSERT_TRUE(figures.ok()) << plan.out << plan.err;
  ASSERT_NE(figures->Find("prompt_tokens"), nullptr) << plan.out;
  const ProgramResult check = RunModel({"--raw", "--check", "--file", rows});
  EXPECT_NE(check.err.find("1 rows, 0 bad, " + figures->Find("prompt_tokens")->Dump() + " prompt"),
            std::string::npos)
      << check.err << plan.out;
}

TEST_F(RunMessagesTest, ATextAsAFileOfRowsIsNamed) {
  const std::string notes = folder_.Write("notes.txt", "A plain text.\nAnd more.\n");
  const ProgramResult few = RunModel({"--file", notes});
  EXPECT_EQ(few.exit_code, 1);
  EXPECT_NE(few.err.find("no line of it is JSON; -p @" + notes + " asks its text as one prompt"),
            std::string::npos)
      << few.err;
  std::string lines;
  for (int i = 0; i < 12; ++i) lines += "A line of a text\n";
  const std::string many = folder_.Write("many.txt", lines);
  ExpectFails(RunModel({"--file", many}), 65, "-p @" + many + " asks its text as one prompt");
  const std::string mixed =
      folder_.Write("mixed", "A text\n{\"prompt\": \"a\", \"max_tokens\": 1}\n");
  EXPECT_EQ(RunModel({"--file", mixed}).err.find("-p @"), std::string::npos);
}

// Opening it would wait for a program that writes.
TEST_F(RunMessagesTest, AFifoIsRefusedBeforeItIsOpened) {
  const std::string fifo = folder_.Path("fifo");
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  ExpectFails(RunModel({"--file", fifo, "-o", folder_.Path("out"), "--resume"}), 64,
              "--resume needs a regular file");
  ExpectFails(RunModel({"--file", fifo, "--strict"}), 64, "--strict needs a regular file");
}

TEST_F(RunMessagesTest, LogprobsOfATextAreSaidToBeMissing) {
  const Arguments ask = {"-q", "--no-stdin", "-n", "2", "-p", "Hi", "--logprobs", "1"};
  const std::string warning = "--logprobs is written in rows: --json prints the answer as one";
  EXPECT_NE(RunModel(ask).err.find(warning), std::string::npos);
  Arguments as_row = ask;
  as_row.push_back("--json");
  const ProgramResult row = RunModel(as_row);
  EXPECT_EQ(row.err, "");
  EXPECT_NE(Rows(row.out).at(0).Find("logprobs"), nullptr);
}

TEST_F(RunMessagesTest, AStoppedAnswerIsNoRow) {
  Program program(Run({"--no-stdin", "-p", "Tell me a story.", "--ignore-eos", "-n", "1900",
                       "--cpu-target", "naive"}),
                  {});
  program.WaitForOutput();
  program.Signal(SIGTERM);
  const ProgramResult stopped = program.Wait();
  EXPECT_EQ(stopped.exit_code, 128 + SIGTERM);
  EXPECT_EQ(stopped.err, "minisgl: stopped: the answer is not complete\n");
}

}  // namespace
}  // namespace minisgl::batch
