// How the output file of an earlier run is read, and which of its lines are kept.
#include "batch/resume.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "batch/run_journal.h"
#include "load/device_choice.h"
#include "program/fakes.h"

namespace minisgl::batch {
namespace {

std::string Answer(int index) {
  return fmt::format("{{\"id\": \"r{0}\", \"index\": {0}, \"text\": \"t{0}\"}}", index);
}
std::string Failure(int index, const std::string& code) {
  return fmt::format(R"({{"id": "r{0}", "index": {0}, "error": {{"code": "{1}"}}}})", index, code);
}
std::string BatchAnswer(int index) {
  return fmt::format(R"({{"id": "b", "custom_id": "r{0}", "response": {{"status_code": 200, )"
                     R"("body": {{}}}}, "error": null}})",
                     index);
}
std::string BatchFailure(int index, const std::string& code) {
  return fmt::format(R"({{"id": "b", "custom_id": "r{0}", "response": {{"status_code": 400, )"
                     R"("body": {{"error": {{"code": "{1}"}}}}}}, "error": null}})",
                     index, code);
}

class ResumeTest : public ::testing::Test {
 protected:
  ResumeTest() {
    for (int64_t row = 0; row < kRows; ++row) ids_.Note(Json(fmt::format("r{}", row)), row);
    check_.rows = kRows;
    check_.has_id.assign(kRows, true);
    options_.check = &check_;
    options_.ids = &ids_;
  }
  Result<OldOutput> ReadOld(const std::string& content) {
    folder_.Write("out", content);
    return ReadOldOutput(folder_.Path("out"), "", options_);
  }
  // Returns the finished rows as digits, and the contents of the file after the repair.
  std::string FinishedOf(const std::string& content, bool ordered = false) {
    const Result<OldOutput> old = ReadOld(content);
    if (!old.ok()) return old.status().message();
    EXPECT_EQ(folder_.Read("out"), content) << "reading changes nothing";
    std::string finished;
    for (size_t row = 0; row < old->finished.size(); ++row) {
      if (old->finished[row]) finished += std::to_string(row);
    }
    const Status status = RepairOldFile(folder_.Path("out"), old->answers, ordered);
    EXPECT_TRUE(status.ok()) << status.message();
    return finished;
  }

  static constexpr int64_t kRows = 6;
  TemporaryFolder folder_;
  IdTable ids_;
  FileCheck check_;
  ResumeOptions options_;
};

TEST_F(ResumeTest, AMissingOrEmptyFileHasNoRows) {
  EXPECT_EQ(FinishedOf(""), "");
  std::filesystem::remove(folder_.Path("out"));
  const Result<OldOutput> old = ReadOldOutput(folder_.Path("out"), "", options_);
  ASSERT_TRUE(old.ok());
  EXPECT_EQ(old->finished, std::vector<bool>(kRows));
}

// Cut at every byte: a row counts if it is complete, with or without its line break.
TEST_F(ResumeTest, ATornLastRowIsCutOffOrCompleted) {
  const std::string whole = Answer(0) + "\n" + BatchAnswer(2) + "\n" + Answer(1) + "\n";
  const std::vector<std::string> rows = {Answer(0), BatchAnswer(2), Answer(1)};
  const char* finished[] = {"", "0", "02", "012"};
  for (size_t cut = 0; cut <= whole.size(); ++cut) {
    size_t num_rows = 0, kept = 0;
    while (num_rows < rows.size() && kept + rows[num_rows].size() <= cut) {
      kept += rows[num_rows++].size() + 1;
    }
    EXPECT_EQ(FinishedOf(whole.substr(0, cut)), finished[num_rows]) << cut;
    EXPECT_EQ(folder_.Read("out"), whole.substr(0, kept)) << cut;
  }
}

TEST_F(ResumeTest, ZerosLeftByAPowerFailureAreATornRow) {
  EXPECT_EQ(FinishedOf(Answer(0) + "\n" + std::string(5000, '\0')), "0");
  EXPECT_EQ(folder_.Read("out"), Answer(0) + "\n");
}

TEST_F(ResumeTest, RowsThatFailedByThemselvesStayUnlessRetried) {
  const std::string content = Answer(0) + "\n" + Failure(1, "invalid_row") + "\n" +
                              Failure(2, "cancelled") + "\n" + BatchFailure(3, "timeout") + "\n" +
                              BatchFailure(4, "cancelled") + "\n" + Failure(5, "device_fault") +
                              "\n";
  EXPECT_EQ(FinishedOf(content), "013");
  EXPECT_EQ(folder_.Read("out"), Answer(0) + "\n" + Failure(1, "invalid_row") + "\n" +
                                     BatchFailure(3, "timeout") + "\n");
  options_.retry_failed = true;
  EXPECT_EQ(FinishedOf(content), "0");
  EXPECT_EQ(folder_.Read("out"), Answer(0) + "\n");
}

TEST_F(ResumeTest, ErrorsInTheOpenAiFormatAreFailures) {
  const std::string row =
      R"({"custom_id": "r3", "response": null, "error": {"code": "batch_expired"}})";
  EXPECT_EQ(FinishedOf(row + "\n"), "3");
  options_.retry_failed = true;
  EXPECT_EQ(FinishedOf(row + "\n"), "");
}

TEST_F(ResumeTest, DuplicateLinesOfARowAreDropped) {
  EXPECT_EQ(FinishedOf(Answer(1) + "\n" + Answer(1) + "\n" + Answer(2)), "12");
  EXPECT_EQ(folder_.Read("out"), Answer(1) + "\n" + Answer(2) + "\n");
}

TEST_F(ResumeTest, ACompleteLineThatIsNotAnAnswerIsNamed) {
  struct Case {
    std::string line;
    const char* expected;
  };
  for (const Case& c :
       {Case{"{broken", "out:2: "}, Case{"", "out:2: "}, Case{"7", "not an answer row"},
        Case{"{}", "not an answer row"}, Case{"{\"index\": 1}", "not an answer row"},
        Case{"{\"id\": 1, \"index\": 6}", "answers row 6; the input has 6"},
        Case{"{\"id\": 1, \"index\": -1}", "answers row -1"},
        Case{R"({"id": "zzz", "index": 3})", "\"zzz\", which the input lacks"},
        Case{R"({"id": 3, "index": 3})", "answers the row 3, which the input"},
        Case{R"({"id": "r2", "index": 3})", "the input has that id at 2"},
        Case{R"({"id": "r2", "index": 3, "error": {"code": "cancelled"}})",
             "the input has that id at 2"},
        Case{R"({"id": null, "index": 3})", "has the index 3 and no id"},
        Case{"{\"custom_id\": \"x\", \"response\": null}", "the input lacks"},
        Case{"{\"custom_id\": \"r1\", \"response\": null}", "not an answer row"}}) {
    const Result<OldOutput> old = ReadOld(Answer(0) + "\n" + c.line + "\n" + Answer(1) + "\n");
    EXPECT_EQ(old.status().code(), StatusCode::kBadInput) << c.line;
    EXPECT_NE(old.status().message().find("out:2: "), std::string::npos) << old.status().message();
    EXPECT_NE(old.status().message().find(c.expected), std::string::npos) << old.status().message();
  }
}

// Rows 0 to 2 have unique ids; 3 has none; 4 and 5 have the id of row 1.
class ResumeDuplicatesTest : public ResumeTest {
 protected:
  ResumeDuplicatesTest() {
    ids_ = IdTable();
    for (int64_t row = 0; row < 3; ++row) ids_.Note(Json(fmt::format("r{}", row)), row);
    check_.has_id = {true, true, true, false, true, true};
    check_.duplicates = {{4, 14, 1, 11}, {5, 15, 1, 11}};
  }
  static std::string Duplicate(int index) {
    return fmt::format(R"({{"id": "r1", "index": {}, "error": {{"code": "duplicate_id"}}}})",
                       index);
  }
  static std::string BatchDuplicate(int line, const std::string& code = "duplicate_id") {
    return fmt::format(R"({{"id": "b", "custom_id": "r1", "response": {{"status_code": 400, )"
                       R"("body": {{"error": {{"code": "{}", "line": {}}}}}}}, "error": null}})",
                       code, line);
  }
};

TEST_F(ResumeDuplicatesTest, RowsWithoutIdsAreMatchedByIndex) {
  EXPECT_EQ(FinishedOf(R"({"id": null, "index": 3})"
                       "\n" +
                       Answer(0) + "\n"),
            "03");
  // A failed row may have lost its id.
  EXPECT_EQ(FinishedOf(R"({"id": null, "index": 2, "error": {"code": "invalid_row"}})"
                       "\n"),
            "2");
  EXPECT_NE(FinishedOf(R"({"id": "r0", "index": 3})"
                       "\n")
                .find("out:1: "),
            std::string::npos);
}

TEST_F(ResumeDuplicatesTest, ErrorRowsOfDuplicatesAreNotTakenForTheFirst) {
  EXPECT_EQ(FinishedOf(Duplicate(5) + "\n" + Answer(0) + "\n"), "05");
  EXPECT_EQ(FinishedOf(Duplicate(4) + "\n" + Answer(1) + "\n" + Duplicate(5) + "\n"), "145");
  EXPECT_EQ(FinishedOf(BatchDuplicate(15) + "\n"), "5");
  EXPECT_EQ(FinishedOf(BatchDuplicate(14) + "\n" + BatchAnswer(1) + "\n"), "14");
  EXPECT_EQ(FinishedOf(BatchDuplicate(14, "invalid_row") + "\n"), "4");
  EXPECT_EQ(FinishedOf(BatchDuplicate(11, "invalid_row") + "\n"), "1");
  options_.retry_failed = true;
  EXPECT_EQ(FinishedOf(BatchDuplicate(15) + "\n" + BatchAnswer(1) + "\n"), "1");
}

TEST_F(ResumeTest, OrderedOutputIsSorted) {
  EXPECT_EQ(FinishedOf(Answer(3) + "\n" + Failure(2, "cancelled") + "\n" + Answer(1), true), "13");
  EXPECT_EQ(folder_.Read("out"), Answer(1) + "\n" + Answer(3) + "\n");
  EXPECT_EQ(FinishedOf(Answer(3) + "\n" + Answer(1) + "\n", false), "13");
  EXPECT_EQ(folder_.Read("out"), Answer(3) + "\n" + Answer(1) + "\n");
}

TEST_F(ResumeTest, LeftoversOfAKilledRepairAreRemoved) {
  folder_.Write("out.resume.part", "half");
  EXPECT_EQ(FinishedOf(Answer(0) + "\n"), "0");
  EXPECT_FALSE(std::filesystem::exists(folder_.Path("out.resume.part")));
}

TEST_F(ResumeTest, AddedRowsGoToTheirPlaces) {
  RowSelection selection;
  selection.finished = {true, false, true, false, false, true};
  selection.first = 1;
  const std::string old_rows = Answer(2) + "\n" + Answer(5) + "\n";
  const std::string path =
      folder_.Write("out", old_rows + Answer(1) + "\n" + Answer(3) + "\n" + Answer(4) + "\n");
  EXPECT_TRUE(NeedsMerge(selection, kRows));
  ASSERT_TRUE(MergeInOrder(path, selection, kRows, static_cast<int64_t>(old_rows.size())).ok());
  std::string sorted;
  for (int row = 1; row < kRows; ++row) sorted += Answer(row) + "\n";
  EXPECT_EQ(folder_.Read("out"), sorted);
  selection.end = 3;
  EXPECT_TRUE(NeedsMerge(selection, kRows));
  selection.end = 2;
  EXPECT_FALSE(NeedsMerge(selection, kRows));
}

// With --errors a row is in one of two files.
class TwoFilesTest : public ResumeTest {
 protected:
  // Returns the finished rows as digits, and repairs both files.
  std::string FinishedOfBoth(const std::string& answers, const std::string& errors) {
    folder_.Write("out", answers);
    folder_.Write("errors", errors);
    const Result<OldOutput> old =
        ReadOldOutput(folder_.Path("out"), folder_.Path("errors"), options_);
    if (!old.ok()) return old.status().message();
    std::string finished;
    for (size_t row = 0; row < old->finished.size(); ++row) {
      if (old->finished[row]) finished += std::to_string(row);
    }
    EXPECT_TRUE(RepairOldFile(folder_.Path("out"), old->answers, false).ok());
    EXPECT_TRUE(RepairOldFile(folder_.Path("errors"), old->errors, false).ok());
    return finished;
  }
};

TEST_F(TwoFilesTest, BothCountAndEachKeepsItsRows) {
  const std::string answers = Answer(0) + "\n" + BatchAnswer(3) + "\n";
  const std::string errors = Failure(1, "invalid_row") + "\n" + BatchFailure(4, "timeout") + "\n" +
                             Failure(2, "cancelled") + "\n";
  EXPECT_EQ(FinishedOfBoth(answers, errors), "0134");
  EXPECT_EQ(folder_.Read("out"), answers);
  EXPECT_EQ(folder_.Read("errors"),
            Failure(1, "invalid_row") + "\n" + BatchFailure(4, "timeout") + "\n");
  options_.retry_failed = true;
  EXPECT_EQ(FinishedOfBoth(answers, errors), "03");
  EXPECT_EQ(folder_.Read("out"), answers);
  EXPECT_EQ(folder_.Read("errors"), "");
}

TEST_F(TwoFilesTest, EitherMayBeTorn) {
  const std::string answers = Answer(0) + "\n" + Answer(1).substr(0, 9);
  const std::string errors = Failure(3, "timeout") + "\n" + Failure(2, "timeout").substr(0, 5);
  EXPECT_EQ(FinishedOfBoth(answers, errors), "03");
  EXPECT_EQ(folder_.Read("out"), Answer(0) + "\n");
  EXPECT_EQ(folder_.Read("errors"), Failure(3, "timeout") + "\n");
}

TEST_F(TwoFilesTest, AnAnswerIsKeptInPlaceOfAnErrorOfItsRow) {
  EXPECT_EQ(FinishedOfBoth(Answer(1) + "\n", Failure(1, "timeout") + "\n"), "1");
  EXPECT_EQ(folder_.Read("out"), Answer(1) + "\n");
  EXPECT_EQ(folder_.Read("errors"), "");
}

TEST_F(TwoFilesTest, ExchangedFilesAreRefused) {
  const std::string message = FinishedOfBoth(Failure(1, "timeout") + "\n", Answer(0) + "\n");
  EXPECT_NE(message.find("errors:1: is an answer, and --errors names a file of error rows"),
            std::string::npos)
      << message;
}

// A run on two GPUs has two ranks, whichever option says so; a run on one GPU has none.
TEST(RunJournalTest, TheNumberOfRanksIsThatOfTheDevicesToo) {
  const TemporaryFolder folder;
  folder.Write("in.jsonl", "{\"prompt\": \"x\"}\n");
  const auto reader = LineReader::Open(folder.Path("in.jsonl"));
  ASSERT_TRUE(reader.ok()) << reader.status().message();
  const auto describe = [&](const char* device, int32_t tensor_parallel) {
    RunOptions options;
    options.engine.device = load::ParseDevice(device).value();
    options.engine.tensor_parallel = tensor_parallel;
    auto run = DescribeRun(options, *reader, {.rows = 1}, {}, folder.Path(""));
    EXPECT_TRUE(run.ok()) << run.status().message();
    return run.ok() ? std::move(run).value() : Json();
  };
  const Json two = describe("cuda:0,1", 1);
  EXPECT_EQ(*two.Find("options")->Find("--tensor-parallel"), Json(2));
  const auto difference = [&](const Json& now) {
    return DifferenceOfRuns(two, now, *reader, {.rows = 1}).value();
  };
  EXPECT_EQ(difference(describe("cpu", 2)), "");
  EXPECT_NE(difference(describe("cuda:0", 1)).find("--tensor-parallel 2 (not no --tensor-parallel"),
            std::string::npos)
      << difference(describe("cuda:0", 1));
}

}  // namespace
}  // namespace minisgl::batch
