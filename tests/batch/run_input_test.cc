// Lines and rows of input files, and output files.
#include "batch/run_input.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "batch/row.h"
#include "batch/row_source.h"
#include "program/fakes.h"
#include "term/output.h"

namespace minisgl::batch {
namespace {

using Outcome = LineReader::Outcome;

struct NumberedLine {
  int64_t number;
  std::string text;
  bool operator==(const NumberedLine&) const = default;
};

class LineReaderTest : public ::testing::Test {
 protected:
  std::vector<NumberedLine> ReadAll(const std::string& content) {
    Result<LineReader> reader = LineReader::Open(folder_.Write("in", content));
    EXPECT_TRUE(reader.ok());
    return ReadAll(&*reader);
  }
  static std::vector<NumberedLine> ReadAll(LineReader* reader) {
    std::vector<NumberedLine> lines;
    std::string line;
    Outcome outcome = Outcome::kEnd;
    while ((outcome = reader->Next(1000, &line)) == Outcome::kLine ||
           outcome == Outcome::kTooLong) {
      lines.push_back({reader->line_number(), outcome == Outcome::kLine ? line : "too long"});
    }
    EXPECT_EQ(outcome, Outcome::kEnd);
    return lines;
  }
  TemporaryFolder folder_;
};

TEST_F(LineReaderTest, GivesLinesWithTheirNumbers) {
  const std::vector<NumberedLine> ab = {{1, "a"}, {2, "b"}};
  EXPECT_EQ(ReadAll("a\nb\n"), ab);
  EXPECT_EQ(ReadAll("a\nb"), ab);
  EXPECT_EQ(ReadAll("a\r\nb\r\n"), ab);
  EXPECT_EQ(ReadAll("\xEF\xBB\xBF"
                    "a\nb"),
            ab);
  EXPECT_TRUE(ReadAll("").empty());
  EXPECT_TRUE(ReadAll("\n \t\r\n\n").empty());
}

TEST_F(LineReaderTest, BlankLinesAreSkippedButCounted) {
  EXPECT_EQ(ReadAll("\na\n  \n\nb"), (std::vector<NumberedLine>{{2, "a"}, {5, "b"}}));
}

TEST_F(LineReaderTest, ByteOrderMarksElsewhereAndNulsAreContent) {
  const std::string nul("x\0y", 3);
  EXPECT_EQ(ReadAll("a\n\xEF\xBB\xBF"
                    "b\n" +
                    nul),
            (std::vector<NumberedLine>{{1, "a"},
                                       {2,
                                        "\xEF\xBB\xBF"
                                        "b"},
                                       {3, nul}}));
}

TEST_F(LineReaderTest, LinesLongerThanABufferAreWhole) {
  const std::string a(200000, 'a'), b(65536, 'b'), c(65535, 'c');
  EXPECT_EQ(ReadAll(a + "\n" + b + "\n" + c + "\n"),
            (std::vector<NumberedLine>{{1, a}, {2, b}, {3, c}}));
}

TEST_F(LineReaderTest, AnOverlongLineIsSkippedAndTheNextIsRead) {
  const std::string at_cap(kRowBytesMax, 'a');
  const std::vector<NumberedLine> lines = ReadAll(at_cap + "\n" + at_cap + "b\nc\n");
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0].text.size(), kRowBytesMax);
  EXPECT_EQ(lines[1], (NumberedLine{2, "too long"}));
  EXPECT_EQ(lines[2], (NumberedLine{3, "c"}));
}

TEST_F(LineReaderTest, ARegularFileIsReadTwice) {
  Result<LineReader> reader = LineReader::Open(folder_.Write("in", "a\nb\n"));
  ASSERT_TRUE(reader.ok());
  ASSERT_TRUE(reader->regular());
  const std::vector<NumberedLine> first = ReadAll(&*reader);
  ASSERT_TRUE(reader->Rewind().ok());
  EXPECT_EQ(ReadAll(&*reader), first);
}

TEST_F(LineReaderTest, APipeWithNothingYetDoesNotBlock) {
  const std::string path = folder_.Path("pipe");
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  const int writer = open(path.c_str(), O_RDWR | O_CLOEXEC);
  Result<LineReader> reader = LineReader::Open(path);
  ASSERT_TRUE(reader.ok());
  EXPECT_FALSE(reader->regular());
  std::string line;
  EXPECT_EQ(reader->Next(0, &line), Outcome::kNotYet);
  ASSERT_EQ(write(writer, "hal", 3), 3);
  EXPECT_EQ(reader->Next(0, &line), Outcome::kNotYet);
  ASSERT_EQ(write(writer, "f\nrest", 6), 6);
  EXPECT_EQ(reader->Next(0, &line), Outcome::kLine);
  EXPECT_EQ(line, "half");
  close(writer);
  EXPECT_EQ(reader->Next(1000, &line), Outcome::kLine);
  EXPECT_EQ(line, "rest");
  EXPECT_EQ(reader->Next(1000, &line), Outcome::kEnd);
}

TEST_F(LineReaderTest, WhatCannotBeReadIsNoInput) {
  EXPECT_EQ(LineReader::Open(folder_.Path("none")).status().code(), StatusCode::kNoInput);
  EXPECT_EQ(LineReader::Open(folder_.Path("")).status().code(), StatusCode::kNoInput);
}

class CheckRowsTest : public LineReaderTest {
 protected:
  Result<FileCheck> Check(const std::string& content) {
    Result<LineReader> reader = LineReader::Open(folder_.Write("in", content));
    EXPECT_TRUE(reader.ok());
    return CheckRows(&*reader, false);
  }
};

TEST_F(CheckRowsTest, CountsRowsAndNamesTheFirstBadOne) {
  const Result<FileCheck> check = Check("\"a\"\n\n{\n{\"prompt\": 1}\n\"b\"\n");
  ASSERT_TRUE(check.ok());
  EXPECT_EQ(check.value().rows, 4);
  EXPECT_EQ(check.value().bad_rows, 2);
  EXPECT_NE(check.value().first_bad.find("in:3: "), std::string::npos) << check.value().first_bad;
}

TEST_F(CheckRowsTest, ADuplicateIdIsABadRowThatNamesTheFirst) {
  const std::string long_id(4096, 'x');
  for (const std::string& id : {std::string("\"a\""), std::string("17"), "\"" + long_id + "\""}) {
    const std::string row = "{\"id\": " + id + ", \"prompt\": \"a\"}\n";
    const Result<FileCheck> check = Check("\n" + row + "\"c\"\n\n" + row + row);
    ASSERT_TRUE(check.ok());
    EXPECT_EQ(check->rows, 4);
    EXPECT_EQ(check->bad_rows, 2);
    EXPECT_EQ(check->has_id, (std::vector<bool>{true, false, true, true}));
    ASSERT_EQ(check->duplicates.size(), 2u);
    EXPECT_EQ(check->duplicates[0].index, 2);
    EXPECT_EQ(check->duplicates[1].line, 6);
    EXPECT_EQ(check->duplicates[1].first_index, 0);
    EXPECT_EQ(check->duplicates[1].first_line, 2);
    EXPECT_EQ(check->FindDuplicate(3), &check->duplicates[1]);
    EXPECT_EQ(check->FindDuplicate(1), nullptr);
    EXPECT_EQ(check->FindDuplicate(4), nullptr);
    EXPECT_NE(check->first_bad.find("in:5: the id "), std::string::npos) << check->first_bad;
    EXPECT_NE(check->first_bad.find("line 2"), std::string::npos) << check->first_bad;
    EXPECT_LT(check->first_bad.size(), 1000u);
  }
}

TEST_F(CheckRowsTest, RowsWithSeedsOfTheFirstRuleAreCounted) {
  const Result<FileCheck> check = Check(
      "\"a\"\n{\"prompt\": \"a\", \"n\": 2}\n{\"prompt\": \"a\", \"seed\": -1}\n"
      "{\"prompt\": \"a\", \"n\": 1, \"seed\": 3}\n{\"prompt\": 5, \"n\": 2}\n");
  ASSERT_TRUE(check.ok());
  EXPECT_EQ(check->reseeded_rows, 2);
  EXPECT_EQ(check->first_reseeded_line, 2);
}

// Returns the blocks before the first change, but no line in or after it.
TEST_F(LineReaderTest, AFileThatChangesBetweenTwoReadingsIsDetected) {
  std::string content;
  while (content.size() < 200000) content += "line " + std::to_string(content.size()) + "\n";
  const auto changed = [&](size_t at) {
    std::string other = content;
    other[at] ^= 1;
    return other;
  };
  const struct {
    std::string now;
    bool is_changed;
    size_t bytes_given_min, bytes_given_max;
  } cases[] = {
      {content, false, content.size(), content.size()},
      {content + "more\n", false, content.size(), content.size()},
      {content + "half a li", false, content.size(), content.size()},
      {changed(0), true, 0, 0},
      {changed(65535), true, 0, 0},
      {changed(65537), true, 65000, 65536},
      {changed(199999), true, 196000, 196608},
      {content.substr(0, content.size() - 1), true, 196000, 196608},
      {content.substr(0, 131072), true, 131000, 131072},
      {content.substr(0, 10), true, 0, 0},
      {"", true, 0, 0},
  };
  for (const auto& c : cases) {
    Result<LineReader> reader = LineReader::Open(folder_.Write("in", content));
    ASSERT_TRUE(reader.ok());
    std::string line, given;
    while (reader->Next(0, &line) == Outcome::kLine) {
    }
    EXPECT_EQ(reader->num_bytes(), static_cast<int64_t>(content.size()));
    folder_.Write("in", c.now);
    ASSERT_TRUE(reader->Rewind().ok());
    Outcome outcome = Outcome::kLine;
    while ((outcome = reader->Next(0, &line)) == Outcome::kLine) given += line + "\n";
    EXPECT_EQ(outcome, c.is_changed ? Outcome::kFailed : Outcome::kEnd);
    EXPECT_EQ(reader->changed(), c.is_changed);
    EXPECT_EQ(reader->status().code(), c.is_changed ? StatusCode::kBadInput : StatusCode::kOk);
    EXPECT_GE(given.size(), c.bytes_given_min);
    EXPECT_LE(given.size(), c.bytes_given_max);
    EXPECT_EQ(given, content.substr(0, given.size()));
  }
}

// A last line without a line break stays the same line when bytes are added to it.
TEST_F(LineReaderTest, BytesAppendedToTheLastLineAreNotRead) {
  Result<LineReader> reader = LineReader::Open(folder_.Write("in", "a\nhal"));
  ASSERT_TRUE(reader.ok());
  const std::vector<NumberedLine> first = ReadAll(&*reader);
  folder_.Write("in", "a\nhalf\nmore\n");
  ASSERT_TRUE(reader->Rewind().ok());
  EXPECT_EQ(ReadAll(&*reader), first);
}

TEST_F(CheckRowsTest, IdsThatAreEmptyOrHugeAreBadRows) {
  const Result<FileCheck> check = Check("{\"id\": \"\", \"prompt\": \"a\"}\n{\"id\": \"" +
                                        std::string(1 << 20, 'x') + "\", \"prompt\": \"a\"}\n");
  ASSERT_TRUE(check.ok());
  EXPECT_EQ(check.value().bad_rows, 2);
}

class OutputTest : public LineReaderTest {};

TEST_F(OutputTest, AFileThatIsNotEmptyIsRefusedWithoutForce) {
  const std::string path = folder_.Write("out", "old");
  EXPECT_EQ(term::Output::Open(path, false, -1).status().code(), StatusCode::kCannotCreate);
  EXPECT_EQ(folder_.Read("out"), "old");
  Result<std::unique_ptr<term::Output>> output = term::Output::Open(path, true, -1);
  ASSERT_TRUE(output.ok());
  EXPECT_EQ(folder_.Read("out"), "old");  // unchanged until the run begins
  ASSERT_TRUE((*output)->Begin().ok());
  ASSERT_TRUE((*output)->Write("new").ok());
  EXPECT_EQ(folder_.Read("out"), "new");
}

TEST_F(OutputTest, EmptyFilesAndDevicesAreWritten) {
  EXPECT_TRUE(term::Output::Open(folder_.Write("empty", ""), false, -1).ok());
  EXPECT_TRUE(term::Output::Open(folder_.Path("new"), false, -1).ok());
  EXPECT_TRUE(term::Output::Open("/dev/null", false, -1).ok());
}

TEST_F(OutputTest, TheInputIsNeverTheOutput) {
  const std::string path = folder_.Write("in", "\"a\"\n");
  ASSERT_EQ(symlink(path.c_str(), folder_.Path("link").c_str()), 0);
  Result<LineReader> reader = LineReader::Open(path);
  ASSERT_TRUE(reader.ok());
  for (const char* name : {"in", "link"}) {
    EXPECT_EQ(term::Output::Open(folder_.Path(name), true, reader->fd()).status().code(),
              StatusCode::kCannotCreate);
  }
  EXPECT_EQ(folder_.Read("in"), "\"a\"\n");
}

TEST_F(OutputTest, AFailureToCreateIsReported) {
  EXPECT_EQ(term::Output::Open(folder_.Path("none/out"), false, -1).status().code(),
            StatusCode::kCannotCreate);
  EXPECT_EQ(term::Output::Open(folder_.Path(""), true, -1).status().code(),
            StatusCode::kCannotCreate);
}

TEST_F(OutputTest, AFullDiskAndAClosedPipeAreDistinguished) {
  Result<std::unique_ptr<term::Output>> full = term::Output::Open("/dev/full", false, -1);
  ASSERT_TRUE(full.ok());
  EXPECT_EQ((*full)->Write("x").code(), StatusCode::kIoError);
  EXPECT_FALSE((*full)->pipe_closed());
  signal(SIGPIPE, SIG_IGN);
  const std::string path = folder_.Path("pipe");
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  const int reading_end = open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  Result<std::unique_ptr<term::Output>> pipe = term::Output::Open(path, false, -1);
  ASSERT_TRUE(pipe.ok());
  close(reading_end);
  EXPECT_EQ((*pipe)->Write("x").code(), StatusCode::kIoError);
  EXPECT_TRUE((*pipe)->pipe_closed());
}

}  // namespace
}  // namespace minisgl::batch
