// An input that is not JSON Lines gives one error; an input with some bad lines gives error rows.
#include "batch/input_kind.h"

#include <gtest/gtest.h>

#include <string>

#include "batch/row_source.h"
#include "program/fakes.h"

namespace minisgl::batch {
namespace {

std::string Times(const std::string& text, int count) {
  std::string all;
  for (int i = 0; i < count; ++i) all += text;
  return all;
}

// Returns the kind that the input looks like, "" if it may be JSON Lines.
std::string Looks(const std::string& begin, bool is_all = true) {
  const Status status = CheckIsJsonLines(begin, is_all, "in");
  if (status.ok()) return "";
  EXPECT_EQ(status.code(), StatusCode::kBadInput);
  const std::string& message = status.message();
  const std::string before = "in: is not a JSON Lines file (it looks like ";
  EXPECT_TRUE(message.starts_with(before)) << message;
  return message.substr(before.size(), message.find(");") - before.size());
}

TEST(InputKindTest, ArchivesAndPointersAreNamedFromTheirFirstBytes) {
  for (const bool is_all : {true, false}) {
    EXPECT_EQ(Looks("\x1F\x8B\x08", is_all), "gzip");
    EXPECT_EQ(Looks("version https://git-lfs.github.com/spec/v1\noid", is_all),
              "a git-lfs pointer");
    EXPECT_EQ(Looks("PAR1\x15", is_all), "Parquet");
    EXPECT_EQ(Looks(std::string("\xFF\xFE{\0\"\0", 6), is_all), "UTF-16");
    EXPECT_EQ(Looks("<!DOCTYPE html>\n", is_all), "an HTML page");
    EXPECT_EQ(Looks(std::string(100, '\0'), is_all),
              "an incomplete download, which begins with zero bytes");
  }
}

TEST(InputKindTest, JsonThatIsNotOneValueALineIsNamed) {
  const std::string array = "a JSON array", object = "JSON over several lines";
  EXPECT_EQ(Looks(R"([{"prompt": "a"}, {"prompt": "b"}])"), array);
  EXPECT_EQ(Looks("[\n" + Times("{\"prompt\": \"a\"},\n", 20), false), array);
  EXPECT_EQ(Looks("[{\"prompt\": \"a\"},\n" + Times(" {\"prompt\": \"a\"},\n", 20), false), array);
  EXPECT_EQ(Looks("\xEF\xBB\xBF[\n  {\n    \"prompt\": \"a\"\n  }\n]\n"), array);
  EXPECT_EQ(Looks("[\"a\",\n\"b\"]"), array);
  EXPECT_EQ(Looks("[\n\"a\",\n\"b\"\n]\n"), array);
  // A line longer than the bytes that are examined.
  EXPECT_EQ(Looks("[{\"prompt\": \"" + std::string(65000, 'a'), false), array);
  EXPECT_EQ(Looks("{\n  \"prompt\": \"a\"\n}\n"), object);
  EXPECT_EQ(Looks("{\r\n  \"prompt\": \"a\",\r\n", false), object);
  EXPECT_EQ(Looks("{'prompt': 'a'}\n"), "Python dictionaries");
}

TEST(InputKindTest, TablesAreNamed) {
  EXPECT_EQ(Looks("id,prompt\n1,\"a, b\"\n"), "CSV");
  EXPECT_EQ(Looks("\xEF\xBB\xBFid;prompt\n1;a\n"), "CSV");
  EXPECT_EQ(Looks("id\tprompt\n1\ta\n"), "a table separated by tabs");
  EXPECT_EQ(Looks(Times("x,1\n", 10), false), "CSV");
}

TEST(InputKindTest, TenLinesThatAreNotRowsAreEnough) {
  EXPECT_EQ(Looks(Times("What is this?\n\n", 10), false), "text");
  EXPECT_EQ(Looks(Times("What is this?\n\n", 9) + "\"a\"\n"), "");
  EXPECT_EQ(Looks(Times("What is this?\n", 9), false), "");
  EXPECT_EQ(Looks(Times("17\n", 10)), "text");
  EXPECT_EQ(Looks(Times("[1, 2]\n", 10)), "text");
}

// Lines that may be rows, or too few lines to tell.
TEST(InputKindTest, ErrorsInSomeRowsAreErrorRows) {
  for (const std::string& begin :
       {std::string(), std::string("\n \n"), std::string("not json"), std::string("{\"prompt\": "),
        std::string("Hello, you.\nBye, you.\n"), Times("{\"prompt\": NaN}\n", 20),
        std::string("[\n{\"prompt\": \"a\"}\n{\"prompt\": \"b\"}\n"),
        Times("{ \"a\": 1, \"a\": 2}\n", 20), std::string("\"a, b\"\n\"c, d\"\n"),
        std::string("x,1\nx,2\nx,3\n{\"prompt\": \"a\"}\n"), std::string("{}\n"),
        "{\"prompt\": \"" + std::string(65000, 'a'), std::string(65000, '['),
        std::string("{\n\"a prompt\"\n")}) {
    EXPECT_EQ(Looks(begin, begin.size() < 60000), "") << begin.substr(0, 60);
  }
  // Only one line of a pipe has arrived.
  EXPECT_EQ(Looks("x,1\nx,2\n", false), "");
}

// The file is not read to its end, and no row is returned.
TEST(InputKindTest, ASourceFailsAtItsFirstRow) {
  const TemporaryFolder folder;
  Result<LineReader> reader = LineReader::Open(folder.Write("in.csv", Times("x,1\n", 100000)));
  ASSERT_TRUE(reader.ok());
  const Result<FileCheck> check = CheckRows(&*reader, /*lenient=*/true);
  ASSERT_FALSE(check.ok());
  EXPECT_NE(check.status().message().find("in.csv: is not a JSON Lines file (it looks like CSV)"),
            std::string::npos)
      << check.status().message();
  EXPECT_EQ(check.status().code(), StatusCode::kBadInput);
}

// Files smaller than a block, larger, and of exactly one block are read completely after the check.
TEST(InputKindTest, ExaminedBytesAreNotLost) {
  const TemporaryFolder folder;
  for (const size_t size : {size_t{10}, size_t{65535}, size_t{65536}, size_t{65537}}) {
    const std::string line = "\"" + std::string(size - 3, 'a') + "\"\n";
    Result<LineReader> reader = LineReader::Open(folder.Write("in", line + line));
    ASSERT_TRUE(reader.ok());
    const Result<FileCheck> check = CheckRows(&*reader, false);
    ASSERT_TRUE(check.ok()) << check.status().message();
    EXPECT_EQ(check->rows, 2);
    EXPECT_EQ(check->bad_rows, 0);
  }
}

}  // namespace
}  // namespace minisgl::batch
