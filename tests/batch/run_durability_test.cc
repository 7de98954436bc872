// Runs that are killed, stopped, short of disk or memory, or sharded: no row is lost, torn or
// duplicated, and a resumed run gives the same rows as an uninterrupted one.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "long_form.h"
#include "minisgl/base/json.h"
#include "program/fakes.h"
#include "program/program.h"
#include "slow.h"

namespace minisgl::batch {
namespace {

namespace fs = std::filesystem;
using Arguments = std::vector<std::string>;
using std::chrono::milliseconds;

class RunDurabilityTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (ProgramBinary().empty()) GTEST_SKIP() << "MINISGL_BINARY names no program";
    out_ = folder_.Path("out.jsonl");
  }

  static Arguments Run(const std::string& input, const Arguments& more) {
    Arguments arguments = {"run",       "-m", DemoModel(), "--num-pages", "512",
                           "--threads", "1",  "--file",    input,         "--max-running-requests",
                           "8"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  static ProgramResult RunFile(const std::string& input, const Arguments& more) {
    return RunProgram(Run(input, more));
  }
  // Rows with notes share prefixes; the rows after them are sampled with seeds from their indexes.
  std::string WriteInput(int pairs = 24) const {
    std::string text;
    for (int i = 0; i < pairs; ++i) {
      text += "{\"id\": \"n" + std::to_string(i) + "\", \"messages\": [{\"role\": \"user\", " +
              "\"content\": \"Repeat after me: bucket Cairo Nairobi " + std::to_string(i % 7) +
              "\"}], \"max_tokens\": 24}\n";
      text += "{\"id\": " + std::to_string(i) + ", \"prompt\": \"Once\", \"temperature\": 1, " +
              "\"max_tokens\": 16, \"ignore_eos\": true}\n";
    }
    return folder_.Write("in.jsonl", text);
  }
  // Returns the rows sorted, without the cache statistics, which may differ.
  static std::vector<std::string> SortedRows(const std::string& text) {
    std::vector<std::string> rows;
    for (const std::string& line : Lines(text)) {
      Result<Json> row = ParseJson(line);
      EXPECT_TRUE(row.ok()) << line;
      if (!row.ok()) continue;
      if (const Json* usage = row->Find("usage")) {
        Json copy = *usage;
        copy.Set("cached_tokens", 0);
        row->Set("usage", copy);
      }
      rows.push_back(row->Dump());
    }
    std::sort(rows.begin(), rows.end());
    return rows;
  }
  static int64_t CountRows(const std::string& text, const std::string& holding) {
    int64_t count = 0;
    for (const std::string& line : Lines(text)) count += line.find(holding) != std::string::npos;
    return count;
  }
  // Waits until the output has `bytes` or the program has ended.
  void WaitForBytes(const Program& program, uintmax_t bytes) const {
    std::error_code error;
    while (program.Runs()) {
      const uintmax_t size = fs::file_size(out_, error);
      if (!error && size >= bytes) return;
      std::this_thread::sleep_for(milliseconds(1));
    }
  }

  TemporaryFolder folder_;
  std::string out_;
};

TEST_F(RunDurabilityTest, KilledRunsResumeToTheRowsOfTheUninterruptedOne) {
  MarkSlow("many runs, killed and resumed");
  const std::string input = WriteInput();
  ASSERT_EQ(RunFile(input, {"-o", folder_.Path("whole")}).exit_code, 0);
  const std::string whole = folder_.Read("whole");
  const std::vector<std::string> rows = SortedRows(whole);
  ASSERT_EQ(rows.size(), 48u);
  std::mt19937 random(20261122);
  const int kills = ShortOrLong(20, 200);
  int killed_inside = 0;
  for (int kill_number = 0; kill_number < kills; ++kill_number) {
    // Some outputs survive several kills before they are complete.
    if (kill_number % 3 == 0) fs::remove(out_);
    Program program(Run(input, {"-o", out_, "--resume", "--quiet"}), {});
    WaitForBytes(program, random() % whole.size());
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 4000));
    program.Signal(SIGKILL);
    const ProgramResult killed = program.Wait();
    killed_inside += killed.exit_code == 128 + SIGKILL ? 1 : 0;
    if (kill_number % 3 != 2) continue;
    const ProgramResult resumed = RunFile(input, {"-o", out_, "--resume"});
    ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
    ASSERT_EQ(SortedRows(folder_.Read("out.jsonl")), rows) << resumed.err;
  }
  EXPECT_GT(killed_inside, kills / 4);
  // No file is left beside the output except its journal.
  int files = 0;
  for (const auto& entry : fs::directory_iterator(fs::path(out_).parent_path())) {
    files += entry.path().filename().string().starts_with("out.jsonl") ? 1 : 0;
  }
  EXPECT_EQ(files, 2);
}

TEST_F(RunDurabilityTest, RowsLeftByASignalAreRunOnResume) {
  // A fast machine may finish before the signal arrives: then retry with more rows.
  std::string input;
  ProgramResult stopped;
  size_t num_rows = 48;
  for (stopped.exit_code = 0; stopped.exit_code == 0 && num_rows < 100000; num_rows *= 2) {
    input = WriteInput(static_cast<int>(num_rows / 2));
    fs::remove(out_);
    Program program(Run(input, {"-o", out_, "--grace", "0", "--ordered", "--resume"}), {});
    WaitForBytes(program, 1);
    program.Signal(SIGHUP);
    stopped = program.Wait();
  }
  num_rows /= 2;
  EXPECT_EQ(stopped.exit_code, 129) << stopped.err;
  ASSERT_EQ(RunFile(input, {"-o", folder_.Path("whole"), "--ordered"}).exit_code, 0);
  const std::string before = folder_.Read("out.jsonl");
  EXPECT_LT(Lines(before).size(), num_rows);
  EXPECT_EQ(CountRows(before, "cancelled"), 0);
  EXPECT_NE(stopped.err.find("minisgl: stopped; --resume goes on with the "), std::string::npos)
      << stopped.err;
  const ProgramResult resumed = RunFile(input, {"-o", out_, "--ordered", "--resume"});
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  const std::string after = folder_.Read("out.jsonl");
  EXPECT_EQ(SortedRows(after), SortedRows(folder_.Read("whole")));
  const std::vector<std::string> lines = Lines(after);
  for (size_t i = 0; i < lines.size(); ++i) {
    EXPECT_NE(lines[i].find("\"index\": " + std::to_string(i) + ","), std::string::npos);
  }
}

// The last rows of the file were written first.
TEST_F(RunDurabilityTest, OrderedOutputIsInOrderEvenIfEarlierRowsAreAddedLast) {
  const std::string input = WriteInput();
  ASSERT_EQ(RunFile(input, {"-o", out_, "--ordered"}).exit_code, 0);
  const std::vector<std::string> lines = Lines(folder_.Read("out.jsonl"));
  std::string some;
  for (size_t i = 20; i < lines.size(); i += 2) some += lines[i] + "\n";
  folder_.Write("out.jsonl", some + lines[0] + "\n" + lines[7].substr(0, 30));
  const ProgramResult resumed = RunFile(input, {"-o", out_, "--ordered", "--resume"});
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_NE(resumed.err.find("torn"), std::string::npos) << resumed.err;
  const std::vector<std::string> after = Lines(folder_.Read("out.jsonl"));
  ASSERT_EQ(after.size(), lines.size());
  for (size_t i = 0; i < after.size(); ++i) {
    EXPECT_EQ(SortedRows(after[i]), SortedRows(lines[i]));
  }
}

TEST_F(RunDurabilityTest, AnotherRunIsNotResumed) {
  const std::string input = WriteInput();
  const Arguments resume = {"-o", out_, "--resume"};
  ASSERT_EQ(RunFile(input, {"-o", out_, "--seed", "7"}).exit_code, 0);
  const std::string rows = folder_.Read("out.jsonl");
  const auto refuses = [&](const Arguments& more, const std::string& expected) {
    Arguments arguments = resume;
    arguments.insert(arguments.end(), more.begin(), more.end());
    const ProgramResult result = RunFile(input, arguments);
    EXPECT_EQ(result.exit_code, 73) << result.err;
    EXPECT_NE(result.err.find(expected), std::string::npos) << result.err;
    EXPECT_EQ(folder_.Read("out.jsonl"), rows);
  };
  refuses({}, "begun with --seed \"7\" (not no --seed)");
  refuses({"--seed", "7", "--temperature", "0.5"}, "no --temperature (not --temperature 0.5)");
  refuses({"--seed", "7", "--shard", "1/2"}, "--shard");
  EXPECT_EQ(RunFile(input, {"-o", out_, "--resume", "--seed", "7"}).exit_code, 0);
  EXPECT_EQ(RunFile(input, {"-o", out_, "--resume", "--force"}).exit_code, 0);
  // Added rows are run; a changed row is detected.
  const std::string old_input = folder_.Read("in.jsonl");
  folder_.Write("in.jsonl",
                old_input + "{\"id\": \"more\", \"prompt\": \"a\", \"max_tokens\": 1}\n");
  EXPECT_EQ(RunFile(input, resume).exit_code, 0);
  EXPECT_EQ(CountRows(folder_.Read("out.jsonl"), "\"more\""), 1);
  EXPECT_EQ(Lines(folder_.Read("out.jsonl")).size(), 49u);
  folder_.Write("in.jsonl", "{\"prompt\": \"a\"}\n" + old_input);
  const ProgramResult changed = RunFile(input, resume);
  EXPECT_EQ(changed.exit_code, 73);
  EXPECT_NE(changed.err.find("other rows (49"), std::string::npos) << changed.err;
  fs::remove(out_ + ".meta");
  const ProgramResult unknown = RunFile(input, resume);
  EXPECT_EQ(unknown.exit_code, 73);
  EXPECT_NE(unknown.err.find("out.jsonl.meta: does not exist"), std::string::npos) << unknown.err;
}

// Rows of the OpenAI Batch format are identified only by their id.
TEST_F(RunDurabilityTest, BatchFilesAreResumedToo) {
  std::string text;
  for (int i = 0; i < 12; ++i) {
    text += "{\"custom_id\": \"c" + std::to_string(i) + "\", \"method\": \"POST\", \"url\": " +
            "\"/v1/completions\", \"body\": {\"model\": \"m\", \"prompt\": \"Once\", " +
            "\"temperature\": 1, \"max_tokens\": " + (i == 5 ? "0" : "8") + "}}\n";
  }
  const std::string input = folder_.Write("in.jsonl", text);
  ASSERT_EQ(RunFile(input, {"-o", out_, "--ordered"}).exit_code, 1);
  const std::string whole = folder_.Read("out.jsonl");
  const std::vector<std::string> lines = Lines(whole);
  ASSERT_EQ(lines.size(), 12u);
  folder_.Write("out.jsonl", lines[3] + "\n" + lines[5] + "\n" + lines[8].substr(0, 40));
  const ProgramResult resumed = RunFile(input, {"-o", out_, "--ordered", "--resume"});
  EXPECT_EQ(resumed.exit_code, 1) << resumed.err;
  EXPECT_NE(resumed.err.find("1 rows answered, 1 failed"), std::string::npos) << resumed.err;
  const auto without_cached = [](std::string rows) {
    const std::string name = "\"cached_tokens\": ";
    for (size_t at = rows.find(name); at != std::string::npos; at = rows.find(name, at + 1)) {
      rows.erase(at + name.size(), rows.find_first_of("},", at) - at - name.size());
    }
    return rows;
  };
  EXPECT_EQ(without_cached(folder_.Read("out.jsonl")), without_cached(whole));
}

TEST_F(RunDurabilityTest, FailedRowsAreRetriedOnRequest) {
  const std::string input =
      folder_.Write("in.jsonl", "{\"prompt\": \"a\", \"max_tokens\": 1}\n{\"colour\": 1}\n");
  ASSERT_EQ(RunFile(input, {"-o", out_}).exit_code, 1);
  const std::string rows = folder_.Read("out.jsonl");
  const ProgramResult finished = RunFile(input, {"-o", out_, "--resume"});
  EXPECT_EQ(finished.exit_code, 1);
  EXPECT_NE(finished.err.find("1 rows answered, 1 failed (--retry-failed"), std::string::npos)
      << finished.err;
  EXPECT_EQ(folder_.Read("out.jsonl"), rows);
  const ProgramResult again = RunFile(input, {"-o", out_, "--resume", "--retry-failed"});
  EXPECT_EQ(again.exit_code, 1);
  EXPECT_NE(again.err.find("0 done, 1 failed"), std::string::npos) << again.err;
  EXPECT_EQ(SortedRows(folder_.Read("out.jsonl")), SortedRows(rows));
}

TEST_F(RunDurabilityTest, WhatCannotBeResumedIsWrongUsage) {
  const std::string input = folder_.Write("in.jsonl", "\"a\"\n");
  const std::string pipe = folder_.Path("pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const int both_ends = open(pipe.c_str(), O_RDWR | O_CLOEXEC);
  for (const auto& [file, more] :
       std::vector<std::pair<std::string, Arguments>>{{input, {"--resume"}},
                                                      {input, {"--retry-failed", "-o", out_}},
                                                      {pipe, {"--resume", "-o", out_}},
                                                      {pipe, {"--shard", "1/2"}},
                                                      {input, {"--resume", "-o", "/dev/null"}},
                                                      {input, {"--shard", "3/2"}},
                                                      {input, {"--shard", "auto/2", "-o", out_}},
                                                      {input, {"--grace", "-1"}}}) {
    const ProgramResult result = RunFile(file, more);
    EXPECT_EQ(result.exit_code, 64) << more.front() << result.err;
  }
  close(both_ends);
  EXPECT_FALSE(fs::exists(out_));
}

TEST_F(RunDurabilityTest, TwoRunsDoNotWriteOneOutput) {
  // More rows than the first run can answer before the second has started.
  std::string text = "{\"prompt\": \"a\", \"max_tokens\": 1}\n";
  for (int i = 0; i < 400; ++i) {
    text += "{\"prompt\": \"a\", \"max_tokens\": 1900, \"ignore_eos\": true}\n";
  }
  const std::string input = folder_.Write("in.jsonl", text);
  Program first(Run(input, {"-o", out_, "--cpu-target", "naive", "--grace", "0"}), {});
  WaitForBytes(first, 1);
  const ProgramResult second = RunFile(input, {"-o", out_, "--resume"});
  EXPECT_EQ(second.exit_code, 73);
  EXPECT_NE(second.err.find("already being written"), std::string::npos) << second.err;
  first.Signal(SIGTERM);
  EXPECT_EQ(first.Wait().exit_code, 143);
}

TEST_F(RunDurabilityTest, ARemovedOutputIsReported) {
  std::string text = "{\"prompt\": \"a\", \"max_tokens\": 1}\n";
  for (int i = 0; i < 1000; ++i) {
    text += "{\"prompt\": \"a\", \"max_tokens\": 100, \"ignore_eos\": true}\n";
  }
  Program program(Run(folder_.Write("in.jsonl", text), {"-o", out_}), {});
  WaitForBytes(program, 1);
  fs::remove(out_);
  const ProgramResult result = program.Wait();
  EXPECT_EQ(result.exit_code, 74) << result.err;
  EXPECT_NE(result.err.find("removed"), std::string::npos) << result.err;
}

// The disk is full after a number of bytes: complete rows are kept, and the run is resumed.
TEST_F(RunDurabilityTest, AFileSizeLimitLosesNothingThatWasWritten) {
  const std::string input = WriteInput();
  ASSERT_EQ(RunFile(input, {"-o", folder_.Path("whole")}).exit_code, 0);
  const std::vector<std::string> rows = SortedRows(folder_.Read("whole"));
  const int points = ShortOrLong(4, 40);
  for (int point = 0; point < points; ++point) {
    rlimit old_limit{};
    getrlimit(RLIMIT_FSIZE, &old_limit);
    const rlimit limit = {2200 + static_cast<rlim_t>(point * 4000 / points), old_limit.rlim_max};
    fs::remove(out_);
    setrlimit(RLIMIT_FSIZE, &limit);
    Program program(Run(input, {"-o", out_, "--quiet"}), {});
    setrlimit(RLIMIT_FSIZE, &old_limit);
    const ProgramResult full = program.Wait();
    EXPECT_EQ(full.exit_code, 74) << full.err;
    EXPECT_NE(full.err.find("--resume"), std::string::npos) << full.err;
    const std::string text = folder_.Read("out.jsonl");
    EXPECT_TRUE(text.empty() || text.ends_with('\n'));
    EXPECT_LE(text.size(), limit.rlim_cur);
    const ProgramResult resumed = RunFile(input, {"-o", out_, "--resume"});
    ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
    ASSERT_EQ(SortedRows(folder_.Read("out.jsonl")), rows);
  }
}

TEST_F(RunDurabilityTest, ShardsJoinedAreTheWholeRun) {
  const std::string input = WriteInput();
  ASSERT_EQ(RunFile(input, {"-o", folder_.Path("whole"), "--ordered"}).exit_code, 0);
  std::string joined;
  for (const int number : {1, 2, 3}) {
    const std::string shard = std::to_string(number) + "/3";
    const ProgramResult result =
        RunFile(input, {"-o", folder_.Path("part-%s"), "--ordered", "--shard", shard});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    joined += folder_.Read("part-" + std::to_string(number) + "-of-3");
  }
  const std::vector<std::string> whole = Lines(folder_.Read("whole")), parts = Lines(joined);
  ASSERT_EQ(parts.size(), whole.size());
  for (size_t i = 0; i < whole.size(); ++i) EXPECT_EQ(SortedRows(parts[i]), SortedRows(whole[i]));
  const ProgramResult auto_shard =
      RunProgram(Run(input, {"--shard", "auto", "--ordered", "--quiet"}),
                 {"", "", {"PMI_RANK=1", "PMI_SIZE=3"}});
  EXPECT_EQ(SortedRows(auto_shard.out), SortedRows(folder_.Read("part-2-of-3")));
}

// Every row is read, noted and answered with an error; none is kept in memory. The model's memory
// varies by some megabytes from start to start, so that --check, which loads no weights, is more
// precise for few rows. (The kernel counts a program's peak from its fork on, so this process must
// stay small.)
TEST_F(RunDurabilityTest, MemoryDoesNotGrowWithTheInput) {
  MarkSlow("thousands of rows");
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the sanitizer's memory is not the program's";
#endif
  const auto peak_kib = [&](int64_t rows, const Arguments& more, int exit_code) {
    const std::string path = folder_.Path("in.jsonl");
    const std::string token = exit_code == 0 ? "7" : "9999999";
    std::ofstream file(path);
    for (int64_t row = 0; row < rows; ++row) {
      file << "{\"id\": \"row-" << row << "\", \"prompt_token_ids\": [" << token << "]}\n";
    }
    file.close();
    const ProgramResult result = RunFile(path, more);
    EXPECT_EQ(result.exit_code, exit_code) << result.err;
    return result.peak_kib;
  };
  const int64_t many = ShortOrLong(100'000, 1'000'000);
  constexpr int64_t kNoiseKib = 1024, kModelNoiseKib = 12 * 1024;
  const Arguments check = {"--check", "--quiet"};
  EXPECT_LT(peak_kib(many, check, 0), peak_kib(1000, check, 0) + many * 32 / 1024 + kNoiseKib);
  const Arguments run = {"-o", out_, "--force", "--quiet"};
  EXPECT_LT(peak_kib(many, run, 1), peak_kib(1000, run, 1) + many * 32 / 1024 + kModelNoiseKib);
}

// Exit statuses that a shell sees for the first command of a pipeline.
class PipelineTest : public RunDurabilityTest {
 protected:
  // Returns "0" if `command` ended with 0 while `reader` read its standard output.
  std::string StatusOf(const std::string& command, const std::string& reader) {
    const std::string script = "{ " + command + "; echo $? >" + folder_.Path("status") + "; } 2>" +
                               folder_.Path("err") + " | " + reader + " >/dev/null";
    EXPECT_EQ(std::system(script.c_str()), 0);
    return folder_.Read("status");
  }
};

TEST_F(PipelineTest, AReaderThatLeavesEndsTheRunQuietly) {
  std::string text;
  for (int i = 0; i < 400; ++i) text += "{\"prompt\": \"a\", \"max_tokens\": 2}\n";
  const std::string input = folder_.Write("in.jsonl", text);
  const std::string run =
      ProgramBinary() + " run --quiet --raw --num-pages 512 --threads 1 -m " + DemoModel() + " ";
  for (const auto& [command, reader] : std::vector<std::pair<std::string, std::string>>{
           {run + "--file " + input, "head -n 1"},
           {run + "--file - <" + input, "head -n 1"},
           {run + "--file " + input, "true"},
           {run + "--file " + input + " -o /dev/stdout", "head -n 2"}}) {
    EXPECT_EQ(StatusOf(command, reader), "141\n") << command;
    EXPECT_EQ(folder_.Read("err"), "") << command;
  }
}

// The streamed answer is longer than the pipe's buffer, so that the program cannot finish before
// the reader leaves.
TEST_F(RunDurabilityTest, AReaderThatLeavesEndsAStreamedAnswerQuietly) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  ASSERT_EQ(fcntl(ends[1], F_SETPIPE_SZ, 4096), 4096);
  Program program({"run", "--quiet", "--num-pages", "512", "--threads", "1", "-m", DemoModel(),
                   "-n", "1900", "--ignore-eos", "-p", "Once"},
                  {.output_fd = ends[1]});
  close(ends[1]);
  char byte = 0;
  EXPECT_EQ(read(ends[0], &byte, 1), 1);
  close(ends[0]);
  const ProgramResult result = program.Wait();
  EXPECT_EQ(result.exit_code, 141);
  EXPECT_EQ(result.err, "");
}

// Commands that write once, after the reader has left.
TEST_F(RunDurabilityTest, AReaderThatLeftEndsOtherCommandsQuietlyToo) {
  const std::string input = folder_.Write("in.jsonl", "{\"prompt\": \"a\"}\n");
  const std::string summary = folder_.Path("summary"), model = DemoModel();
  ASSERT_EQ(RunProgram({"run", "--quiet", "-n", "1", "--file", input, "-o", folder_.Path("out"),
                        "--summary", summary, "-m", model})
                .exit_code,
            0);
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  close(ends[0]);
  for (const Arguments& arguments :
       {Arguments{"info", "-m", model}, Arguments{"plan", input, "-m", model},
        Arguments{"report", summary}, Arguments{"--help"}, Arguments{"run", "--help"},
        Arguments{"bench", "bs1", "--output-tokens", "4", "--copy-mib", "1", "--matrix-size", "16",
                  "--device", "cpu", "-m", model}}) {
    const ProgramResult result = RunProgram(arguments, {.output_fd = ends[1]});
    EXPECT_EQ(result.exit_code, 141) << arguments.front();
    EXPECT_EQ(result.err, "") << arguments.front();
  }
  close(ends[1]);
}

TEST_F(PipelineTest, HelpAndVersionThatCannotBeWrittenAre74) {
  for (const char* arguments : {" --help", " run --help", " bench nano --help", " --version"}) {
    const std::string err = folder_.Path("err");
    const std::string script = ProgramBinary() + arguments + " >/dev/full 2>" + err;
    const int status = std::system(script.c_str());
    EXPECT_EQ(WEXITSTATUS(status), 74) << arguments;
    EXPECT_NE(folder_.Read("err").find("cannot be written"), std::string::npos) << arguments;
  }
}

TEST_F(RunDurabilityTest, InputsAndOutputsOfEveryKind) {
  const std::string row = "{\"prompt\": \"a\", \"max_tokens\": 1}\n";
  const std::string input = folder_.Write("in.jsonl", row);
  fs::create_hard_link(input, folder_.Path("hard"));
  fs::create_symlink(input, folder_.Path("soft"));
  const std::string folder = folder_.Path("folder");
  fs::create_directory(folder);
  folder_.Write("old", "old\n");
  folder_.Write("empty", "");
  folder_.Write("in.jsonl.of", row);
  fs::create_hard_link(folder_.Path("in.jsonl.of"), folder_.Path("of.meta"));
  folder_.Write("mine.meta", "my own notes\n");
  struct Case {
    std::string input, output;
    int exit_code;
    bool forced;
  };
  for (const Case& c :
       {Case{input, input, 73, true}, Case{input, folder_.Path("hard"), 73, true},
        Case{input, folder_.Path("soft"), 73, true}, Case{input, folder_.Path("old"), 73, false},
        Case{input, folder, 73, true}, Case{input, folder_.Path("none/out"), 73, true},
        Case{folder_.Path("in.jsonl.of"), folder_.Path("of"), 73, true},
        Case{input, folder_.Path("mine"), 73, false}, Case{folder, out_, 66, true},
        Case{folder_.Path("none"), out_, 66, true}, Case{"/dev/null", out_, 0, true},
        Case{folder_.Path("empty"), out_, 0, true}, Case{input, "/dev/null", 0, false},
        Case{input, folder_.Path("empty"), 0, false}, Case{input, "/dev/full", 74, true}}) {
    Arguments more = {"-o", c.output};
    if (c.forced) more.push_back("--force");
    const ProgramResult result = RunFile(c.input, more);
    EXPECT_EQ(result.exit_code, c.exit_code) << c.input << " " << c.output << " " << result.err;
    EXPECT_EQ(folder_.Read("in.jsonl"), row) << c.output;
    EXPECT_EQ(folder_.Read("in.jsonl.of"), row);
    EXPECT_EQ(folder_.Read("old"), "old\n");
    EXPECT_EQ(folder_.Read("mine.meta"), "my own notes\n");
  }
  EXPECT_FALSE(fs::exists(folder_.Path("none")));
  // By descriptor, as in `-o /dev/stdout >>in.jsonl`.
  const ProgramResult by_descriptor =
      RunProgram(Run(input, {"-o", "/dev/stdout", "--force"}), {"", input, {}});
  EXPECT_EQ(by_descriptor.exit_code, 73) << by_descriptor.err;
  EXPECT_EQ(folder_.Read("in.jsonl"), row);
}

// Each signal at each stage: while the model loads, before the first answer, during answers, while
// running requests finish, a second time then, and after everything is written.
TEST_F(RunDurabilityTest, SignalsAtEveryStageEndTheRunWithTheirStatus) {
  MarkSlow("a run for each signal and stage");
  std::string text;
  for (int i = 0; i < 60; ++i)
    text += "{\"prompt\": \"a\", \"max_tokens\": 60, \"ignore_eos\": true}\n";
  const std::string input = folder_.Write("in.jsonl", text);
  enum Moment { kLoading, kBeforeAnswers, kAmongAnswers, kDraining, kTwice, kAtTheEnd, kMoments };
  const std::vector<int> signals = {SIGINT, SIGTERM, SIGHUP};
  for (const int signal_number : signals) {
    for (int moment = 0; moment < kMoments; ++moment) {
      if (!IsLongForm() && moment % 3 != signal_number % 3) continue;
      fs::remove(out_);
      Program program(
          Run(input, {"-o", out_, "--quiet", "--raw", "--grace", moment == kTwice ? "60" : "0.2"}),
          {});
      if (moment == kBeforeAnswers) std::this_thread::sleep_for(milliseconds(60));
      if (moment >= kAmongAnswers) WaitForBytes(program, 1);
      if (moment == kAtTheEnd) WaitForBytes(program, 60 * 100);
      program.Signal(signal_number);
      if (moment == kDraining || moment == kTwice) {
        std::this_thread::sleep_for(milliseconds(20));
        if (moment == kTwice) program.Signal(SIGTERM);
      }
      const ProgramResult result = program.Wait();
      const bool finished = result.exit_code == 0;  // before the signal came
      EXPECT_TRUE(finished || result.exit_code == 128 + signal_number)
          << moment << ": " << result.exit_code << result.err;
      EXPECT_EQ(result.err, "");
      const std::string rows = folder_.Read("out.jsonl");
      EXPECT_TRUE(rows.empty() || rows.ends_with('\n'));
      EXPECT_LE(SortedRows(rows).size(), 60u) << moment;
      EXPECT_EQ(CountRows(rows, "cancelled"), 0) << moment;
      EXPECT_EQ(RunFile(input, {"-o", out_, "--resume"}).exit_code, 0);
      EXPECT_EQ(Lines(folder_.Read("out.jsonl")).size(), 60u);
      EXPECT_EQ(CountRows(folder_.Read("out.jsonl"), "cancelled"), 0);
    }
  }
}

}  // namespace
}  // namespace minisgl::batch
