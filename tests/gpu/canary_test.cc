// Memory that must not change while every captured graph is replayed, full and padded: the keys and
// values of another request in the first and the last page, and device memory around the engine's.
#include "gpu/gpu_fixture.h"
#include "gpu/gpu_models.h"
#include "slow.h"

namespace minisgl::cuda {
namespace {

constexpr int32_t kPageSize = 4;

class GpuCanaryTest : public GpuTest {
 protected:
  // Replays of each graph: half of them with rows that fill it, half padded.
  static int32_t NumReplays() { return IsSlow() ? 2 : 1000; }
  static int32_t MaxRows() { return IsSlow() ? 4 : 256; }
  static int32_t MaxSeqLen() { return NumReplays() / 2 + 30; }

  // More than twice the pages of all rows, and odd. The driver allocates even pages first, from the
  // highest down, then freed ones: page 0 stays free.
  static int32_t NumPages() {
    return 2 * (MaxRows() + 3) * ((MaxSeqLen() + kPageSize - 1) / kPageSize + 1) + 1;
  }

  void AddKnown();
  // Decodes the known request: a row that shares its two pages.
  std::vector<RowResult> AskKnown();
  // `num_rows` rows decoded for `num_steps` steps.
  void Replay(int32_t num_rows, int32_t num_steps);

  const std::unique_ptr<TestModel> model_ = MakeGpuTinyModel(MaxSeqLen());
  std::unique_ptr<EngineDriver> driver_;
  TestRow pages_;  // the first page and the last
  std::vector<TokenId> prompt_ = RandomPrompt(2 * kPageSize, 77);
};

void GpuCanaryTest::AddKnown() {
  const int32_t last = driver_->engine()->limits().num_pages - 1;
  // Takes the last page from the driver, so that no other row gets it.
  TestRow* const holder = driver_->AddRow({1});
  driver_->ExtendAll(holder);
  ASSERT_TRUE(driver_->Step().ok());
  ASSERT_EQ(holder->pages, std::vector<PageId>{last});
  pages_.pages = {last, 0};
  TestRow* const known = driver_->AddRowSharing(pages_, 2, prompt_);
  known->computed_len = 0;
  driver_->ExtendAll(known);
  ASSERT_TRUE(driver_->Step().ok());
}

std::vector<RowResult> GpuCanaryTest::AskKnown() {
  std::vector<TokenId> more = prompt_;
  more.push_back(5);
  TestRow* const row = driver_->AddRowSharing(pages_, 2, more);
  const auto results = driver_->Generate(row, 1, 3);
  row->pages.erase(row->pages.begin(), row->pages.begin() + 2);  // these keep their contents
  driver_->FreeRow(row);
  return results;
}

void GpuCanaryTest::Replay(int32_t num_rows, int32_t num_steps) {
  std::vector<TestRow*> rows;
  for (int32_t i = 0; i < num_rows; ++i) {
    rows.push_back(driver_->AddRow(RandomPrompt(3, static_cast<uint64_t>(1000 * num_rows + i))));
    rows.back()->sampling.num_logprobs = -1;
    driver_->ExtendAll(rows.back());
    if (i % 64 == 63 || i + 1 == num_rows) {
      ASSERT_TRUE(driver_->Step().ok());
    }
  }
  for (int32_t step = 0; step < num_steps; ++step) {
    for (TestRow* row : rows) driver_->ExtendAll(row);
    const Status status = driver_->Step();
    ASSERT_TRUE(status.ok()) << status.message();
  }
  for (TestRow* row : rows) {
    driver_->FreeRow(row);
    row->results = {};  // drops the results of earlier replays
  }
}

TEST_F(GpuCanaryTest, ReplaysWriteOnlyTheirOwnRows) {
  MarkSlow("a model on the emulator");
  auto owner = Make();
  DeviceOps* const ops = owner.get();
  const std::vector<uint32_t> pattern(size_t{1} << (IsSlow() ? 12 : 20), 0x600DCAFE);
  const GpuArray before(ops, pattern);
  driver_ = std::make_unique<EngineDriver>(*model_,
                                           DriverOptions{.page_size = kPageSize,
                                                         .num_pages = NumPages(),
                                                         .max_running_requests = MaxRows() + 3,
                                                         .graph_max_rows = MaxRows()},
                                           std::move(owner));
  const GpuArray after(ops, pattern);
  ASSERT_NO_FATAL_FAILURE(AddKnown());
  const std::vector<RowResult> wanted = AskKnown();
  int32_t smaller = 0;
  for (const int32_t size : CapturedSizes(MaxRows())) {
    ASSERT_NO_FATAL_FAILURE(Replay(size, NumReplays() / 2));
    // Padded: the fewest rows that use this graph (the same size, if the previous one is smaller by
    // 1).
    ASSERT_NO_FATAL_FAILURE(Replay(smaller + 1, NumReplays() / 2));
    ASSERT_TRUE(SameResults(AskKnown(), wanted)) << "after graphs of " << size << " rows";
    smaller = size;
  }
  EXPECT_EQ(before.Read<uint32_t>(), pattern);
  EXPECT_EQ(after.Read<uint32_t>(), pattern);
}

}  // namespace
}  // namespace minisgl::cuda
