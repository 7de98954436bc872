// Runs that end early: by a signal, a closed pipe, a full disk, a timeout.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "program/run_fixture.h"

namespace minisgl::batch {
namespace {

class RunEndsTest : public RunProgramTest {};

TEST_F(RunEndsTest, AFullDiskIs74) {
  const std::string rows = folder_.Write("in.jsonl", kPeruRow + "\n");
  const ProgramResult to_file = RunModel({"--file", rows, "-o", "/dev/full"});
  ExpectFails(to_file, 74, "/dev/full");
  EXPECT_EQ(to_file.err.find("1 done"), std::string::npos) << to_file.err;
  EXPECT_EQ(RunProgram(Run({"--file", rows}), {"", "/dev/full", {}}).exit_code, 74);
  EXPECT_EQ(RunProgram(Run({"-p", kPeru}), {"", "/dev/full", {}}).exit_code, 74);
}

TEST_F(RunEndsTest, AClosedPipeIs141WithoutAMessage) {
  std::string input;
  for (int i = 0; i < 40; ++i) input += kPeruRow + "\n";
  const std::string rows = folder_.Write("in.jsonl", input);
  const std::string pipe = folder_.Path("pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const int reading_end = open(pipe.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  // The pipe's buffer is smaller than the answers, so that the writer cannot finish before the
  // reader leaves.
  ASSERT_EQ(fcntl(reading_end, F_SETPIPE_SZ, 4096), 4096);
  Program program(Run({"--quiet", "--file", rows, "-o", pipe}), {});
  // After the first byte, the writer has opened the pipe too.
  char byte = 0;
  for (int tries = 0; read(reading_end, &byte, 1) != 1 && tries < 30000; ++tries) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  close(reading_end);
  const ProgramResult result = program.Wait();
  EXPECT_EQ(result.exit_code, 141);
  EXPECT_EQ(result.err, "");
}

TEST_F(RunEndsTest, ASignalStopsAStreamedAnswerAtOnce) {
  const std::string summary = folder_.Path("summary");
  int exit_code = 0;
  // The answer may be complete before the signal arrives: then try again.
  for (int tries = 0; exit_code == 0 && tries < 20; ++tries) {
    Program program(Run({"-p", kPeru, "--ignore-eos", "-n", "1900", "--cpu-target", "naive",
                         "--grace", "3600", "--summary", summary, "--force"}),
                    {});
    program.WaitForOutput();
    program.Signal(SIGINT);
    exit_code = program.Wait().exit_code;
  }
  EXPECT_EQ(exit_code, 130);
  // The answer was not finished first.
  const Result<Json> figures = ParseJson(folder_.Read("summary"));
  ASSERT_TRUE(figures.ok()) << folder_.Read("summary");
  EXPECT_LT(figures->Find("completion_tokens")->as_int(), 1900);
}

// A signal after the first of many rows: submitted rows finish, and the others are counted and not
// written.
TEST_F(RunEndsTest, ASignalEndsTheRunInOrderWithoutTheRest) {
  std::string input = "{\"prompt\": \"a\", \"ignore_eos\": true, \"max_tokens\": 1}\n";
  for (int i = 0; i < 300; ++i) {
    input += "{\"prompt\": \"a\", \"ignore_eos\": true, \"temperature\": 1, \"max_tokens\": 200}\n";
  }
  Program program(Run({"--file", folder_.Write("in.jsonl", input), "--max-running-requests", "1"}),
                  {});
  program.WaitForOutput();
  program.Signal(SIGTERM);
  const ProgramResult result = program.Wait();
  EXPECT_EQ(result.exit_code, 128 + SIGTERM);
  const std::vector<Json> out = Rows(result.out);
  ASSERT_FALSE(out.empty());
  ASSERT_LT(out.size(), 301u);
  std::set<int64_t> indexes;
  for (const Json& row : out) {
    EXPECT_EQ(Code(row), "");
    EXPECT_TRUE(indexes.empty() || *indexes.rbegin() < row.Find("index")->as_int());
    indexes.insert(row.Find("index")->as_int());
  }
  const std::string counts = std::to_string(out.size()) + " done, 0 failed, " +
                             std::to_string(301 - out.size()) + " not answered, ";
  EXPECT_NE(result.err.find(counts), std::string::npos) << counts << result.err;
}

// A program that has sent rows by a pipe, or has read a part of an answer, waits for each of them.
TEST_F(RunEndsTest, ASignalAnswersTheRowsOfAPipe) {
  const std::string row = "{\"prompt\": \"a\", \"ignore_eos\": true, \"max_tokens\": 1900}\n";
  ASSERT_EQ(mkfifo(folder_.Path("rows").c_str(), 0600), 0);
  const int rows = open(folder_.Path("rows").c_str(), O_RDWR | O_CLOEXEC);
  Program program(Run({"--file", folder_.Path("rows"), "--max-running-requests", "2",
                       "--cpu-target", "naive", "--grace", "0", "-q", "--unordered"}),
                  {});
  const std::string first = "{\"prompt\": \"a\", \"max_tokens\": 1}\n";
  ASSERT_EQ(write(rows, (row + first).data(), row.size() + first.size()),
            std::ssize(row) + std::ssize(first));
  program.WaitForOutput();
  program.Signal(SIGTERM);
  const ProgramResult result = program.Wait();
  close(rows);
  EXPECT_EQ(result.exit_code, 128 + SIGTERM);
  const std::vector<Json> out = Rows(result.out);
  ASSERT_EQ(out.size(), 2u) << result.out;
  EXPECT_EQ(Code(out[1]), "cancelled");
}

TEST_F(RunEndsTest, ASecondSignalEndsTheRunAtOnceInOrder) {
  const std::string row = "{\"prompt\": \"a\", \"ignore_eos\": true, \"max_tokens\": 1900}\n";
  const std::string rows = folder_.Write(
      "in.jsonl", "{\"prompt\": \"a\", \"max_tokens\": 1}\n" + row + row + row + row + row + row);
  Program program(Run({"--file", rows, "--max-running-requests", "1", "--cpu-target", "naive",
                       "--grace", "3600"}),
                  {});
  program.WaitForOutput();
  program.Signal(SIGINT);
  // A second signal before the first is handled would be merged with it.
  program.WaitForError("to finish");
  program.Signal(SIGINT);
  const ProgramResult result = program.Wait();
  EXPECT_EQ(result.exit_code, 128 + SIGINT);
  const std::vector<Json> out = Rows(result.out);
  // Four are submitted at once: the first signal alone would have let them finish.
  ASSERT_LT(out.size(), 4u);
  for (size_t i = 0; i < out.size(); ++i) {
    EXPECT_EQ(*out[i].Find("index"), Json(static_cast<int64_t>(i)));
    EXPECT_EQ(Code(out[i]), "");
  }
}

TEST_F(RunEndsTest, ARowWithTooLittleTimeEndsAsTimeout) {
  const ProgramResult result =
      RunModel({"--file", "-", "--cpu-target", "naive"},
               R"({"prompt": "a", "ignore_eos": true, "max_tokens": 1900, "timeout_s": 0.05})"
               "\n"
               R"({"prompt": "a", "ignore_eos": true, "max_tokens": 1900, "timeout_s": 0.000001})"
               "\n"
               R"({"prompt": "a", "max_tokens": 1, "timeout_s": 1000})"
               "\n");
  EXPECT_EQ(result.exit_code, 1) << result.err;
  const std::vector<Json> out = Rows(result.out);
  ASSERT_EQ(out.size(), 3u);
  // On a slow machine, not even the first token arrived in time.
  if (Code(out[0]).empty()) {
    EXPECT_EQ(*out[0].Find("finish_reason"), Json("timeout"));
    EXPECT_LT(out[0].Find("usage")->Find("completion_tokens")->as_int(), 1900);
    EXPECT_NE(result.err.find("finish reasons  1 length, 1 timeout\n"), std::string::npos)
        << result.err;
    EXPECT_NE(result.err.find("an answer was cut since it took too long (timeout_s); "
                              "--retry-timeouts asks such rows again"),
              std::string::npos)
        << result.err;
  } else {
    EXPECT_EQ(Code(out[0]), "timeout");
  }
  EXPECT_EQ(Code(out[1]), "timeout");
  EXPECT_EQ(Code(out[2]), "");
}

// Whatever else is on standard error, lines with a brace are the progress.
TEST_F(RunEndsTest, ProgramsGetProgressAsJson) {
  const std::string rows = folder_.Write("in.jsonl", kPeruRow + "\n{\"prompt\": 3}\n");
  const ProgramResult result = RunModel({"--file", rows, "--quiet", "--progress", "json"});
  EXPECT_EQ(result.exit_code, 1);
  std::vector<Json> objects;
  for (const std::string& line : Lines(result.err)) {
    if (line.starts_with('{')) objects.push_back(Rows(line + "\n").front());
  }
  ASSERT_FALSE(objects.empty()) << result.err;
  EXPECT_EQ(*objects.back().Find("ended"), Json(true));
  EXPECT_EQ(*objects.back().Find("rows_done"), Json(1));
  EXPECT_EQ(*objects.back().Find("rows_failed"), Json(1));
  EXPECT_EQ(*objects.back().Find("rows_total"), Json(2));
  const ProgramResult none = RunModel({"--file", rows, "--progress", "none"});
  EXPECT_NE(none.err.find("tokens/s"), std::string::npos) << "the summary stays";
  ExpectFails(RunModel({"-p", "a", "--progress", "json"}), 64, "give it with --file");
}

// Standard error of a run of which nothing is to be said is empty, but for the summary of a file.
TEST_F(RunEndsTest, SettingsOfTheModelAreNamedOnlyIfTheyMatter) {
  EXPECT_EQ(RunModel({"-p", kPeru}).err, "");
  const ProgramResult told = RunModel({"-p", kPeru, "--verbose"});
  EXPECT_NE(told.err.find("defaults of generation_config.json: max_tokens 256"), std::string::npos)
      << told.err;
  const ProgramResult cut = RunModel({"-p", kPeru, "--ignore-eos"});
  EXPECT_NE(cut.err.find("an answer was cut after 256 tokens, the default of "
                         "generation_config.json"),
            std::string::npos)
      << cut.err;
}

// Some rows fail: the error codes and the first failure are reported, and codes that did not occur
// are not mentioned.
TEST_F(RunEndsTest, FailuresAreSummarizedAtTheEnd) {
  const std::string rows = folder_.Write(
      "in.jsonl", kPeruRow +
                      "\n{\"prompt\": 3}\n{\"prompt\": \n{\"prompt\": \"a\", \"n\": \"x\"}\n" +
                      R"({"prompt": "a", "audio": 1})" + "\n");
  const std::string expected =
      "minisgl: 4 failed: 3 invalid_row, 1 unsupported_field; first: line 2: ";
  const std::string summary = folder_.Path("summary");
  const ProgramResult result =
      RunModel({"--file", rows, "-o", folder_.Path("out"), "--summary", summary});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.err.find("1 done, 4 failed,"), std::string::npos) << result.err;
  EXPECT_NE(result.err.find(expected), std::string::npos) << result.err;
  const Result<Json> figures = ParseJson(folder_.Read("summary"));
  ASSERT_TRUE(figures.ok());
  EXPECT_EQ(figures->Find("failures")->Dump(), R"({"invalid_row": 3, "unsupported_field": 1})");
  EXPECT_EQ(*figures->Find("rows_cancelled"), Json(0));
  // It is a warning, so --quiet does not suppress it.
  const ProgramResult quiet = RunModel({"-q", "--file", rows});
  EXPECT_EQ(quiet.exit_code, 1);
  EXPECT_TRUE(quiet.err.starts_with(expected)) << quiet.err;
  EXPECT_EQ(Lines(quiet.err).size(), 1u) << quiet.err;
}

TEST_F(RunEndsTest, MaxFailuresEndsTheRunInOrder) {
  const std::string bad = "{\"prompt\": 3}\n";
  std::string input = kPeruRow + "\n" + bad + bad + bad;
  for (int i = 0; i < 50; ++i) input += kPeruRow + "\n";
  const std::string rows = folder_.Write("in.jsonl", input), out = folder_.Path("out");
  const ProgramResult few = RunModel({"-q", "--file", rows, "-o", out, "--max-failures", "3"});
  EXPECT_EQ(few.exit_code, 1);
  EXPECT_TRUE(few.err.starts_with("minisgl: 3 failed (--max-failures 3); stopping")) << few.err;
  const std::vector<Json> ended = Rows(folder_.Read("out"));
  EXPECT_LE(ended.size(), 4u);
  for (const Json& row : ended) EXPECT_NE(Code(row), "cancelled");
  // The others are run by the next run, in which again as many may fail.
  const ProgramResult resumed =
      RunModel({"--file", rows, "-o", out, "--resume", "--max-failures", "3"});
  EXPECT_EQ(resumed.exit_code, 1) << resumed.err;  // for the three that failed before
  const ProgramResult again = RunModel({"-q", "--file", rows, "-o", out, "--resume"});
  EXPECT_EQ(again.exit_code, 1);
  EXPECT_EQ(again.err, "minisgl: 3 failed before; --retry-failed runs them again\n");
  const ProgramResult whole = RunModel({"-q", "--file", rows, "--max-failures", "4"});
  EXPECT_EQ(whole.exit_code, 1);
  std::set<std::string> expected, found;
  for (const std::string& row : Lines(whole.out)) expected.insert(row);
  for (const std::string& row : Lines(folder_.Read("out"))) found.insert(row);
  EXPECT_EQ(found.size(), 54u);
  EXPECT_EQ(found, expected);
  ExpectFails(RunModel({"-p", "a", "--max-failures", "3"}), 64, "--max-failures applies to rows");
  ExpectFails(RunModel({"--file", rows, "--max-failures", "0"}), 64, "--max-failures");
}

// If the last row of the input fails, there is nothing left to stop.
TEST_F(RunEndsTest, MaxFailuresAtTheEndOfTheInputStopsNothing) {
  const ProgramResult result =
      RunModel({"-q", "--file", "-", "--max-failures", "1", "--ordered"}, "{\"prompt\": 3}\n");
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.err.find("stopping"), std::string::npos) << result.err;
}

}  // namespace
}  // namespace minisgl::batch
