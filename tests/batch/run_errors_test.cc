// Runs with --errors: error rows in a file of their own, through kills, resumes, orders and tables.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "program/run_fixture.h"

namespace minisgl::batch {
namespace {

namespace fs = std::filesystem;

constexpr int kRowsEnough = 60;

class RunErrorsTest : public RunProgramTest {
 protected:
  RunErrorsTest() : out_(folder_.Path("out")), errors_(folder_.Path("errors")) {}

  // Every third row is not valid; the rows are short.
  static std::string Input(int rows, int max_tokens = 1) {
    std::string text;
    for (int i = 0; i < rows; ++i) {
      const std::string name = "{\"id\": \"r" + std::to_string(i) + "\", ";
      text += name + (i % 3 == 1 ? "\"promt\": \"a\"}\n"
                                 : "\"prompt\": \"a\", \"ignore_eos\": true, \"max_tokens\": " +
                                       std::to_string(max_tokens) + "}\n");
    }
    return text;
  }
  Arguments Command(const std::string& input, const Arguments& more) const {
    Arguments arguments = {"--raw", "--quiet", "-f", input, "-o", out_, "--errors", errors_};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return Run(arguments);
  }
  ProgramResult RunFile(const std::string& input, const Arguments& more = {}) const {
    return RunProgram(Command(input, more));
  }
  // The indexes of the rows of a file, in its order.
  std::vector<int64_t> IndexesIn(const std::string& name) const {
    std::vector<int64_t> indexes;
    for (const Json& row : Rows(folder_.Read(name))) {
      indexes.push_back(row.Find("index")->as_int());
    }
    return indexes;
  }
  // Expects each row of Input(rows) once, in the file where it belongs.
  void ExpectAll(int rows, bool in_order) const {
    std::vector<int64_t> answers = IndexesIn("out"), errors = IndexesIn("errors");
    std::vector<int64_t> good, bad;
    for (int i = 0; i < rows; ++i) (i % 3 == 1 ? bad : good).push_back(i);
    if (!in_order) {
      std::sort(answers.begin(), answers.end());
      std::sort(errors.begin(), errors.end());
    }
    EXPECT_EQ(answers, good);
    EXPECT_EQ(errors, bad);
    for (const Json& row : Rows(folder_.Read("out"))) EXPECT_EQ(Code(row), "");
    for (const Json& row : Rows(folder_.Read("errors"))) EXPECT_EQ(Code(row), "unsupported_field");
  }

  const std::string out_, errors_;
};

TEST_F(RunErrorsTest, ErrorRowsHaveAFileOfTheirOwn) {
  const ProgramResult run = RunFile(folder_.Write("in", Input(9)), {"--ordered"});
  EXPECT_EQ(run.exit_code, 1) << run.err;
  EXPECT_NE(run.err.find("3 failed: 3 unsupported_field; first: line 2"), std::string::npos);
  EXPECT_NE(run.err.find("all are in " + errors_), std::string::npos) << run.err;
  ExpectAll(9, /*in_order=*/true);
}

TEST_F(RunErrorsTest, BesideStandardOutputAndInTheFormatOfTheBatchService) {
  const std::string batch =
      R"({"custom_id": "a", "url": "/v1/completions", "body": {"prompt": 3}})";
  const ProgramResult run = RunModel({"--raw", "-f", "-", "--errors", errors_},
                                     "{\"prompt\": \"a\", \"max_tokens\": 1}\n" + batch + "\n");
  EXPECT_EQ(run.exit_code, 1) << run.err;
  EXPECT_EQ(Lines(run.out).size(), 1u);
  const std::vector<Json> rows = Rows(folder_.Read("errors"));
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].Find("response")->Find("status_code")->as_int(), 400);
}

TEST_F(RunErrorsTest, AFileWithoutErrorsIsEmptyAndForceReplacesAnOldOne) {
  folder_.Write("errors", "old\n");
  const std::string input = folder_.Write("in", "{\"prompt\": \"a\", \"max_tokens\": 1}\n");
  ExpectFails(RunFile(input), 73, "is not empty (4 bytes); --force replaces it");
  EXPECT_EQ(folder_.Read("errors"), "old\n");
  EXPECT_FALSE(fs::exists(folder_.Path("out.meta")));
  EXPECT_EQ(RunFile(input, {"--force"}).exit_code, 0);
  EXPECT_TRUE(fs::exists(errors_));
  EXPECT_EQ(folder_.Read("errors"), "");
}

// Killed while it writes both files, and continued, in any order.
TEST_F(RunErrorsTest, AKilledRunLosesNothingInEitherFile) {
  const int rows = kRowsEnough;
  const std::string input = folder_.Write("in", Input(rows, 60));
  for (const bool ordered : {false, true}) {
    const Arguments more = ordered ? Arguments{"--ordered"} : Arguments{};
    fs::remove(out_);
    fs::remove(errors_);
    fs::remove(folder_.Path("out.meta"));
    {
      Program program(Command(input, more), {});
      while (program.Runs() && (folder_.Read("out").empty() || folder_.Read("errors").empty())) {
      }
      program.Signal(SIGKILL);
    }
    // The leftover of a write that was cut.
    folder_.Write("errors", folder_.Read("errors") + "{\"id\": \"r");
    Arguments resume = more;
    resume.emplace_back("--resume");
    const ProgramResult run = RunFile(input, resume);
    EXPECT_EQ(run.exit_code, 1) << run.err;
    ExpectAll(rows, ordered);
  }
}

TEST_F(RunErrorsTest, RetriedRowsMoveToTheOutput) {
  const std::string input = folder_.Write("in", Input(kRowsEnough));
  // Rows that timed out in an earlier run, and would not now.
  ASSERT_EQ(RunFile(input, {"--ordered"}).exit_code, 1);
  std::string answers = folder_.Read("out"), errors = folder_.Read("errors");
  const size_t end = answers.find('\n') + 1;
  answers.erase(0, end);
  errors +=
      "{\"id\": \"r0\", \"index\": 0, \"error\": {\"code\": \"timeout\", \"message\": \"\"}}\n";
  folder_.Write("out", answers);
  folder_.Write("errors", errors);
  const ProgramResult kept = RunFile(input, {"--ordered", "--resume"});
  EXPECT_EQ(kept.exit_code, 1);
  EXPECT_EQ(folder_.Read("out"), answers);
  const ProgramResult run = RunFile(input, {"--ordered", "--resume", "--retry-failed"});
  EXPECT_EQ(run.exit_code, 1) << run.err;
  ExpectAll(kRowsEnough, /*in_order=*/true);
}

TEST_F(RunErrorsTest, ARunGoesOnWithTheSameFileOnly) {
  const std::string input = folder_.Write("in", Input(3));
  ASSERT_EQ(RunFile(input).exit_code, 1);
  const ProgramResult without = RunModel({"-f", input, "-o", out_, "--resume"});
  ExpectFails(without, 73, "was begun with --errors \"errors\" (not no --errors)");
  EXPECT_EQ(Lines(folder_.Read("out")).size(), 2u);
}

// An output without rows may still have a run to resume.
TEST_F(RunErrorsTest, ARunOfWhichAllRowsFailedIsComparedToo) {
  const std::string input = folder_.Write("in", "{\"promt\": \"a\"}\n");
  ASSERT_EQ(RunFile(input).exit_code, 1);
  EXPECT_EQ(folder_.Read("out"), "");
  ExpectFails(RunFile(input, {"--resume", "--seed", "7"}), 73, "was begun with no --seed");
  EXPECT_EQ(RunFile(input, {"--resume"}).exit_code, 1);
  EXPECT_EQ(Lines(folder_.Read("errors")).size(), 1u);
}

TEST_F(RunErrorsTest, FilesOfTheRunAreNotMistakenForEachOther) {
  const std::string input = folder_.Write("in", Input(3));
  folder_.Write("empty", "");
  const std::string part = out_ + ".minisgl-part";
  const struct {
    Arguments more;
    std::string expected;
  } cases[] = {
      {{"-o", out_, "--errors", out_}, "names the same file as -o"},
      {{"-o", out_, "--errors", input}, "is the file that rows are read from"},
      {{"-o", out_, "--errors", out_ + ".meta"}, "the journal of"},
      {{"-o", out_, "--errors", errors_, "--summary", errors_}, "already being written"},
      {{"--errors", "-"}, "answers are written to standard output already"},
      {{"-o", out_, "--errors", errors_, "--shard", "auto/2"}, "into -o"},
      {{"-o", out_ + "%s", "--errors", errors_, "--shard", "auto/2"}, "into --errors"},
  };
  for (const auto& c : cases) {
    Arguments arguments = {"-f", input};
    arguments.insert(arguments.end(), c.more.begin(), c.more.end());
    const ProgramResult run = RunModel(arguments);
    EXPECT_TRUE(run.exit_code == 73 || run.exit_code == 64) << run.err;
    EXPECT_NE(run.err.find(c.expected), std::string::npos) << run.err;
  }
  EXPECT_EQ(folder_.Read("in"), Input(3));
}

TEST_F(RunErrorsTest, ShardsHaveFilesOfTheirOwn) {
  const std::string input = folder_.Write("in", Input(9));
  std::string answers, errors;
  for (const std::string shard : {"1", "2"}) {
    const ProgramResult run = RunModel({"--raw", "-f", input, "-o", out_ + ".%s", "--errors",
                                        errors_ + ".%s", "--ordered", "--shard", shard + "/2"});
    EXPECT_EQ(run.exit_code, 1) << run.err;
    answers += folder_.Read("out." + shard + "-of-2");
    errors += folder_.Read("errors." + shard + "-of-2");
  }
  folder_.Write("out", answers);
  folder_.Write("errors", errors);
  ExpectAll(9, /*in_order=*/true);
}

// The table of failed rows can be corrected and run as it is.
TEST_F(RunErrorsTest, TablesAreMadeOfBoth) {
  const std::string input = folder_.Write("in.csv", "id,place\na,Peru\nb,1,2\nc,Italy\n");
  const ProgramResult run =
      RunModel({"-f", input, "--template", "What is the capital of {{ place }}?", "-o",
                folder_.Path("out.csv"), "--errors", folder_.Path("bad.csv")});
  EXPECT_EQ(run.exit_code, 1) << run.err;
  EXPECT_EQ(folder_.Read("out.csv"),
            "id,place,text,error\na,Peru,The capital of Peru is Lima.,\n"
            "c,Italy,The capital of Italy is Rome.,\n");
  EXPECT_EQ(folder_.Read("bad.csv"),
            "id,place,error,line,record\n"
            "b,1,\"invalid_row: has 3 fields, and the header has 2\",3,\"b,1,2\"\n");
  EXPECT_EQ(Lines(folder_.Read("bad.csv.jsonl")).size(), 1u);
  // Rows beside a table of errors are in order at the end, too.
  std::string many = "place\n\"Tell me a long story about a river and a boat. \"\n";
  for (int i = 0; i < 20; ++i) many += "Peru\n";
  const ProgramResult rows =
      RunModel({"-f", folder_.Write("many.csv", many), "--template", "{{ place }}", "-o",
                folder_.Path("rows.jsonl"), "--errors", folder_.Path("none.csv")});
  EXPECT_EQ(rows.exit_code, 0) << rows.err;
  const std::vector<std::string> in_order = Lines(folder_.Read("rows.jsonl"));
  ASSERT_EQ(in_order.size(), 21u);
  for (size_t i = 0; i < in_order.size(); ++i) {
    EXPECT_NE(in_order[i].find("\"index\": " + std::to_string(i) + ","), std::string::npos);
  }
  const ProgramResult to_stdout =
      RunModel({"-f", input, "--template", "{{ place }}", "--errors", folder_.Path("worse.csv")});
  ExpectFails(to_stdout, 64, "give -o FILE");
  const ProgramResult to_pipe = RunModel({"-f", input, "--template", "{{ place }}", "-o",
                                          folder_.Path("other.csv"), "--errors", "/dev/null"});
  ExpectFails(to_pipe, 64, "a table as -o is made beside a file of error rows");
}

// A scored text is counted by whichever file it is in.
TEST_F(RunErrorsTest, ScoresTakeTheOption) {
  const std::string input = folder_.Write("in", "{\"text\": \"Once upon\"}\n{\"txt\": \"a\"}\n");
  const ProgramResult run = RunProgram({"score", "-m", DemoModel(), "--threads", "1", "--num-pages",
                                        "64", "-f", input, "--errors", errors_});
  EXPECT_EQ(run.exit_code, 1) << run.err;
  EXPECT_EQ(Lines(run.out).size(), 1u);
  EXPECT_EQ(IndexesIn("errors"), std::vector<int64_t>{1});
}

}  // namespace
}  // namespace minisgl::batch
