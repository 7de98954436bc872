// Large rows are prepared beside the loop of a run: other rows continue while one is encoded, a
// stop ends the encoding at once, and running out of memory there is reported by the loop.
#include "batch/row_preparer.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "batch/answer_writer.h"
#include "batch/run_loop.h"
#include "program/fakes.h"

namespace minisgl::batch {
namespace {

constexpr size_t kLargeBytes = 40'000;

// Blocks on a large text until it is opened or cancelled.
class GatedTokenizer : public ByteTokenizer {
 public:
  Status EncodeTo(std::span<const TextPiece> pieces, const TokenSink& sink) const override {
    if (pieces.front().text.size() < kLargeBytes) return ByteTokenizer::EncodeTo(pieces, sink);
    at_work = true;
    if (no_memory) throw std::bad_alloc();
    while (!open) {
      if (!sink({})) return {};
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return ByteTokenizer::EncodeTo(pieces, sink);
  }

  bool no_memory = false;
  mutable std::atomic<bool> at_work{false}, open{false};
};

class RowPreparerTest : public ::testing::Test {
 protected:
  RowPreparerTest() {
    auto tokenizer = std::make_unique<GatedTokenizer>();
    gate_ = tokenizer.get();
    text_.tokenizer = std::move(tokenizer);
    options_.truncate_left = true;
  }

  static std::string LargeRow() { return '"' + std::string(kLargeBytes, 'l') + "\"\n"; }

  static ReadyRow LargeReadyRow(int64_t index) {
    ReadyRow ready;
    ready.row = ParseRow(LargeRow(), index, index + 1).row;
    ready.bytes = kLargeBytes;
    return ready;
  }

  // Returns the rows that a run over `input` writes, as "INDEX CODE".
  std::vector<std::string> Run(const std::string& input, const RunLoopOptions& loop_options) {
    Result<LineReader> reader = LineReader::Open(folder_.Write("in.jsonl", input));
    FileRowSource source(&*reader, false, true);
    const auto output = term::Output::Open(folder_.Path("out.jsonl"), true, -1);
    EXPECT_TRUE(output.ok() && (*output)->Begin().ok());
    const PromptBuilder builder(&text_, runtime_.limits(), options_);
    JsonAnswerWriter writer(output->get(), text_.tokenizer.get(), /*ordered=*/false);
    RunLoop loop(&runtime_, &builder, &source, &writer, nullptr, loop_options);
    EXPECT_TRUE(loop.Run().ok());
    std::vector<std::string> rows;
    for (const std::string& line : Lines(folder_.Read("out.jsonl"))) {
      const Json row = *ParseJson(line);
      const Json* const error = row.Find("error");
      rows.push_back(row.Find("index")->Dump() +
                     (error == nullptr ? "" : " " + error->Find("code")->as_string()));
    }
    return rows;
  }

  TemporaryFolder folder_;
  TextModel text_ = FakeTextModel();
  GatedTokenizer* gate_ = nullptr;
  FakeRuntime runtime_{SmallLimits()};
  PromptBuilderOptions options_;
};

TEST_F(RowPreparerTest, OtherRowsContinueWhileALargeOneIsEncoded) {
  runtime_.on_submit = [&](const FakeRuntime::Submission& request) {
    runtime_.Answer(request, "x");
    if (runtime_.submissions.size() == 2) gate_->open = true;
  };
  EXPECT_EQ(Run(LargeRow() + "\"a\"\n\"b\"\n", {}), (std::vector<std::string>{"1", "2", "0"}));
}

// The grace period does not apply to rows that are not submitted.
TEST_F(RowPreparerTest, AStopEndsTheEncodingOfALargeRow) {
  RunLoopOptions options;
  options.grace = std::chrono::hours(1);
  options.writes_cancelled = true;
  options.stop = [&] { return term::StopRequest{gate_->at_work ? SIGINT : 0, false}; };
  // The second row may have been read before the stop.
  const std::vector<std::string> rows = Run(LargeRow() + LargeRow(), options);
  ASSERT_FALSE(rows.empty());
  EXPECT_EQ(rows.front(), "0 cancelled");
  EXPECT_TRUE(rows.size() == 1 || rows.back() == "1 cancelled");
}

TEST_F(RowPreparerTest, RowsKeepTheirOrderAndTheirFields) {
  gate_->open = true;
  const PromptBuilder builder(&text_, runtime_.limits(), options_);
  RowPreparer preparer(&builder);
  for (const int64_t index : {3, 4, 5}) preparer.Add(LargeReadyRow(index));
  EXPECT_EQ(preparer.num_answers(), 3);
  EXPECT_EQ(preparer.bytes(), 3 * kLargeBytes);
  for (const int64_t index : {3, 4}) {
    const auto prepared = preparer.Take(std::chrono::minutes(10));
    ASSERT_TRUE(prepared && !prepared->error);
    EXPECT_EQ(prepared->ready.row.index, index);
    EXPECT_EQ(prepared->ready.prompts.size(), 1u);
  }
  EXPECT_EQ(preparer.bytes(), kLargeBytes);
  const std::vector<Row> cancelled = preparer.Cancel();
  ASSERT_EQ(cancelled.size(), 1u);
  EXPECT_EQ(cancelled[0].index, 5);
  EXPECT_TRUE(cancelled[0].prompt.empty());
  EXPECT_TRUE(preparer.empty());
}

TEST_F(RowPreparerTest, OutOfMemoryOnTheThreadIsRethrown) {
  gate_->no_memory = true;
  const PromptBuilder builder(&text_, runtime_.limits(), options_);
  RowPreparer preparer(&builder);
  preparer.Add(LargeReadyRow(0));
  EXPECT_THROW(preparer.Take(std::chrono::minutes(10)), std::bad_alloc);
  EXPECT_TRUE(preparer.empty());
}

}  // namespace
}  // namespace minisgl::batch
