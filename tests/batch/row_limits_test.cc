// Rows at the upper bounds: number of values in a row, millions of them, and memory and time of a
// row.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "batch/row.h"
#include "program/run_fixture.h"
#include "slow.h"

namespace minisgl::batch {
namespace {

ParsedRow RowOfIds(uint64_t count) {
  std::string row = "{\"prompt_token_ids\": [1";
  for (uint64_t i = 1; i < count; ++i) row += ",1";
  return ParseRow(row + "]}", 3, 7, false);
}

TEST(RowTest, ARowOfTooManyValuesIsRefused) {
  MarkSlow("rows of a million values");
  const ParsedRow most = RowOfIds(1'200'000);
  EXPECT_FALSE(most.error);
  EXPECT_EQ(most.row.prompt_token_ids.size(), 1'200'000u);
  const ParsedRow over = RowOfIds(1'300'000);
  ASSERT_TRUE(over.error);
  EXPECT_EQ(over.error->code, "invalid_row");
  EXPECT_EQ(over.error->message, "more values than fit into 48 MiB");
}

TEST(RowTest, PartsOtherThanTextAreNamedBeforeTheirData) {
  for (const char* type : {"video_url", "input_audio"}) {
    const std::string data(500, 'A');
    const ParsedRow parsed = ParseRow(std::string(R"({"messages": [{"role": "user", "content": )") +
                                          R"([{"type": "text", "text": "a"}, {"data": ")" + data +
                                          R"(", "type": ")" + type + R"("}]}]})",
                                      3, 7, false);
    ASSERT_TRUE(parsed.error);
    EXPECT_EQ(parsed.error->code, "invalid_row");
    EXPECT_EQ(parsed.error->message,
              std::string("messages[0].content may hold only parts of type text and image_url ") +
                  "(found a part of type " + type + ")");
  }
}

class LargeRowTest : public RunProgramTest {
 protected:
  // Returns the peak memory of a run that answers `input`, or refuses its one row if `refused`.
  int64_t PeakKib(const std::string& input, const std::vector<std::string>& more, bool refused) {
    std::vector<std::string> arguments = {"-q", "--file", folder_.Write("in.jsonl", input)};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const ProgramResult result = RunModel(arguments);
    EXPECT_EQ(result.exit_code, refused ? 1 : 0) << result.err;
    EXPECT_EQ(result.out.find("length_exceeded") != std::string::npos, refused) << result.out;
    return result.peak_kib;
  }
};

// 200 MiB plus 8 bytes for each byte of the row.
constexpr int64_t PeakKibMax(size_t row_bytes) {
  return (200 << 10) + static_cast<int64_t>(8 * row_bytes >> 10);
}

TEST_F(LargeRowTest, MemoryIsAFewBytesForEachOfALongText) {
  MarkSlow("encodes a text of 4 MB");
  const size_t bytes = 4'000'000;
  const std::string row = R"({"max_tokens": 1, "prompt": ")" + std::string(bytes, 'a') + "\"}\n";
  EXPECT_LT(PeakKib(row, {}, /*refused=*/true), PeakKibMax(bytes));
  EXPECT_LT(PeakKib(row, {"--on-overflow", "truncate-left"}, /*refused=*/false), PeakKibMax(bytes));
}

// For each kind of value: as many as a row may hold, in the field that expands them most; and three
// times as many, which are refused before all are in memory.
TEST_F(LargeRowTest, MemoryIsBoundedForVeryManyValues) {
  MarkSlow("rows of a million values");
  struct Shape {
    const char* value;
    int num_most;
  };
  for (const Shape& shape : {Shape{"1", 1'200'000}, Shape{"\"\"", 620'000}, Shape{"{}", 620'000},
                             Shape{"[[[[[0]]]]]", 112'000}, Shape{R"({"a":0})", 228'000}}) {
    SCOPED_TRACE(shape.value);
    const auto row = [&shape](int count) {
      std::string text = R"({"messages": [{"role": "user", "content": "a"}], "max_tokens": 1, )"
                         R"("tools": [)";
      for (int i = 0; i < count; ++i) text.append(i == 0 ? "" : ",").append(shape.value);
      return text + "]}\n";
    };
    const std::string most = row(shape.num_most);
    EXPECT_LT(PeakKib(most, {}, /*refused=*/false), PeakKibMax(most.size()));
    const std::string more = row(3 * shape.num_most);
    const ProgramResult over = RunModel({"-q", "--file", folder_.Write("over.jsonl", more)});
    EXPECT_NE(over.out.find("more values than fit into 48 MiB"), std::string::npos) << over.out;
    EXPECT_LT(over.peak_kib, PeakKibMax(more.size()));
  }
}

TEST_F(LargeRowTest, MemoryIsBoundedForVeryManyMessages) {
  MarkSlow("a row of 112,000 messages");
  std::string row = R"({"max_tokens": 1, "messages": [)";
  for (int i = 0; i < 112'000; ++i) {
    row.append(i == 0 ? "" : ",").append(R"({"role":"user","content":""})");
  }
  row += "]}\n";
  const std::string input = folder_.Write("in.jsonl", row);
  const ProgramResult result = RunModel({"-q", "--file", input});
  EXPECT_NE(result.out.find("template_error"), std::string::npos) << result.out;
  EXPECT_LT(result.peak_kib, PeakKibMax(row.size()));
}

// vLLM's GHSA-69j4-grxj-j64p: merging arguments one by one took minutes.
TEST_F(LargeRowTest, VeryManyTemplateArgumentsAreMergedInLinearTime) {
  MarkSlow("a row of 5 MB");
  std::string row = R"({"max_tokens": 1, "messages": [{"role": "user", "content": "hi"}],
                        "chat_template_kwargs": {)";
  std::erase(row, '\n');
  for (int i = 0; i < 300'000; ++i) row += fmt::format("{}\"k{}\": {}", i > 0 ? "," : "", i, i);
  row += "}}\n";
  PeakKib(row, {}, /*refused=*/false);
}

}  // namespace
}  // namespace minisgl::batch
