// --tensor-parallel through the whole program: the demo model keeps its scores, every schedule of
// one number of ranks gives the same rows, and runs with another number are told apart.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "answers/run_program.h"
#include "answers/schedule_settings.h"
#include "answers/tiny_model_fixture.h"

namespace minisgl::answers {
namespace {

std::vector<Json> RowsOnRanks(const std::string& name, const char* count) {
  const ProgramRun run = RunProgram({"run", "-m", DemoModel(), "--file", PromptFile(name),
                                     "--quiet", "--tensor-parallel", count});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  return run.Rows();
}

TEST(RanksProgramTest, TheScoresAreThoseOfOneRank) {
  for (const char* count : {"2", "4"}) {
    EXPECT_GE(CountRight(RowsOnRanks("notes.jsonl", count)), 59) << count;
    EXPECT_GE(CountRight(RowsOnRanks("conversations.jsonl", count)), 40) << count;
  }
}

// Every tenth row of a prompt file.
std::string Sample(const std::string& name) {
  std::ifstream in(PromptFile(name));
  const std::string path = ::testing::TempDir() + "minisgl_ranks_" + name;
  std::ofstream out(path);
  std::string line;
  for (int number = 0; std::getline(in, line); ++number) {
    if (number % 10 == 0) out << line << "\n";
  }
  return path;
}

TEST(RanksProgramTest, RowsAreIdenticalUnderEverySchedule) {
  ExpectIdenticalRows(
      DemoModel(), Sample("mixed.jsonl"),
      {{16, 512, 64, 2, "radix", true, "mixed", "optimistic", "priority", 0, 0, 2},
       {1, 32, 7, 1, "radix", false, "mixed", "reserve", "fcfs", SmallestPool(1), 5, 2},
       {64, 8192, 3, 4, "naive", true, "prefill-first", "optimistic", "priority", 0, 0, 2}});
}

TEST(RanksProgramTest, WhatDoesNotDivideIsAUsageErrorInOneLine) {
  const ProgramRun run =
      RunProgram({"run", "-m", DemoModel(), "-p", "x", "--tensor-parallel", "3"});
  EXPECT_EQ(run.exit_code, 64);
  EXPECT_NE(run.err.find("--tensor-parallel 3: 4 query heads do not divide; 2 or 4 would do"),
            std::string::npos)
      << run.err;
}

TEST(RanksProgramTest, InfoShowsWhatEachRankTakes) {
  const ProgramRun run = RunProgram(
      {"info", "-m", DemoModel(), "--device", "cpu", "--threads", "4", "--tensor-parallel", "2"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_NE(run.out.find("ranks         2, each with "), std::string::npos) << run.out;
}

TEST(RanksProgramTest, AnotherNumberOfRanksIsAnotherRunAndAnotherPrefixCache) {
  const TinyModelDir dir;
  const std::string output = dir.path() + "/out.jsonl", cache = dir.path() + "/cache";
  const auto run = [&](const std::vector<std::string>& more) {
    std::vector<std::string> args = {
        "run", "-m",   DemoModel(), "--file", Sample("notes.jsonl"), "-q", "-n", "4",
        "-o",  output, "--device",  "cpu",    "--prefix-cache",      cache};
    args.insert(args.end(), more.begin(), more.end());
    return RunProgram(args);
  };
  ASSERT_EQ(run({}).exit_code, 0);
  const ProgramRun resumed = run({"--resume", "--tensor-parallel", "2"});
  EXPECT_NE(resumed.exit_code, 0);
  EXPECT_NE(resumed.err.find("no --tensor-parallel (not --tensor-parallel 2)"), std::string::npos)
      << resumed.err;
  // The keys of two ranks are kept beside the keys of one, and found again.
  for (const char* cached : {"0", "1"}) {
    const ProgramRun ranks = run({"--force", "--tensor-parallel", "2", "--stats"});
    ASSERT_EQ(ranks.exit_code, 0) << ranks.err;
    const bool loads = ranks.err.find("loaded_tokens     0\n") == std::string::npos;
    EXPECT_EQ(loads, cached[0] == '1') << ranks.err;
  }
}

}  // namespace
}  // namespace minisgl::answers
