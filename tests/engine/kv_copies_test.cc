// Keys and values of pages, copied to the host and back: into pages of another size, or of another
// engine, they give the bits that computing them gives.
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "engine/device_kv_copies.h"
#include "engine/host_device_ops.h"
#include "engine/kv_copies.h"

namespace minisgl {
namespace {

std::unique_ptr<TestModel> MakeLongModel() {
  auto model = std::make_unique<TestModel>();
  model->config = TinyConfig();
  model->config.max_seq_len = 512;
  model->checkpoint = WriteCheckpoint(model->dir, TinyTensors(model->config));
  return model;
}

class KvCopiesTest : public testing::Test {
 protected:
  std::unique_ptr<EngineDriver> OnCpu(DriverOptions options) {
    return std::make_unique<EngineDriver>(model_->config, *model_->checkpoint, options,
                                          MakeNaiveOps());
  }
  std::unique_ptr<EngineDriver> OnDevice(const DriverOptions& options,
                                         HostDeviceFaults faults = {}) {
    return std::make_unique<EngineDriver>(*model_, options,
                                          MakeHostDeviceOps(uint64_t{1} << 30, faults));
  }
  std::unique_ptr<EngineDriver> Make(bool on_device, int32_t page_size) {
    const DriverOptions options{.page_size = page_size, .max_running_requests = 4};
    return on_device ? OnDevice(options) : OnCpu(options);
  }

  const std::unique_ptr<TestModel> model_ = MakeLongModel();
  const std::vector<TokenId> prompt_ = RandomPrompt(2 * kBlock + 9, 3);
};

TEST_F(KvCopiesTest, ABlockHasTheSameBytesForEveryPageSize) {
  std::vector<Block> first;
  for (const bool on_device : {false, true}) {
    for (const int32_t page_size : {1, 4, 16, 64}) {
      const auto driver = Make(on_device, page_size);
      TestRow* row = driver->AddRow(prompt_);
      driver->ExtendAll(row);
      ASSERT_TRUE(driver->Step().ok());
      auto blocks = ReadBlocks(driver.get(), *row, page_size, 2);
      // 2 layers, keys and values of 2 heads of 8 floats.
      EXPECT_EQ(blocks[0].size(), size_t{kBlock} * 2 * 2 * 2 * 8 * 4);
      EXPECT_NE(blocks[0], blocks[1]);
      if (first.empty()) first = blocks;
      EXPECT_TRUE(blocks == first) << "page size " << page_size << ", device " << on_device;
    }
  }
}

TEST_F(KvCopiesTest, APrefixFromBlocksAnswersAsComputed) {
  const auto alone = Make(false, 16);
  const auto wanted = alone->Generate(alone->AddRow(prompt_), kAll, 5);
  for (const bool from_device : {false, true}) {
    for (const bool to_device : {false, true}) {
      for (const int32_t page_size : {1, 16, 64}) {
        const auto from = Make(from_device, 4);
        const auto to = Make(to_device, page_size);
        EXPECT_TRUE(
            SameResults(AnswerFromBlocks(from.get(), 4, to.get(), page_size, prompt_, 5), wanted))
            << "page size " << page_size << ", devices " << from_device << to_device;
      }
    }
  }
}

// The CPU's operations store the keys and values of a page in orders of their own, which depend on
// the type and on the page size.
TEST_F(KvCopiesTest, TheOrderWithinAPageIsNotThatOfABlock) {
  for (const int32_t head_dim : {8, 16, 48}) {  // pairs are of multiples of 16
    TestModel model;
    model.config = TinyConfig();
    model.config.max_seq_len = 512;
    model.config.head_dim = head_dim;
    model.checkpoint = WriteCheckpoint(model.dir, TinyTensors(model.config));
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      const auto make = [&](int32_t page_size) {
        return std::make_unique<EngineDriver>(
            model, DriverOptions{
                       .page_size = page_size, .max_running_requests = 4, .weight_dtype = dtype});
      };
      const auto alone = make(16);
      const auto wanted = alone->Generate(alone->AddRow(prompt_), kAll, 5);
      std::vector<Block> first;
      for (const int32_t page_size : {2, 16, 32, 64}) {
        const auto driver = make(page_size);
        TestRow* row = driver->AddRow(prompt_);
        driver->ExtendAll(row);
        ASSERT_TRUE(driver->Step().ok());
        const auto blocks = ReadBlocks(driver.get(), *row, page_size, 2);
        if (first.empty()) first = blocks;
        EXPECT_TRUE(blocks == first) << "page size " << page_size << ", " << DTypeName(dtype);
        const auto from = make(32), to = make(page_size);
        EXPECT_TRUE(
            SameResults(AnswerFromBlocks(from.get(), 32, to.get(), page_size, prompt_, 5), wanted))
            << "page size " << page_size << ", " << DTypeName(dtype);
      }
    }
  }
}

// Codes and their scales, in the CPU's orders and in rows.
TEST_F(KvCopiesTest, BlocksOfCodesHaveTheirScales) {
  TestModel model;
  model.config = TinyConfig();
  model.config.max_seq_len = 512;
  model.config.head_dim = 48;
  model.checkpoint = WriteCheckpoint(model.dir, TinyTensors(model.config));
  const auto make = [&](int32_t page_size) {
    return std::make_unique<EngineDriver>(
        model,
        DriverOptions{.page_size = page_size, .max_running_requests = 4, .kv_kind = KvKind::kFp8});
  };
  const auto alone = make(16);
  const auto wanted = alone->Generate(alone->AddRow(prompt_), kAll, 5);
  std::vector<Block> first;
  for (const int32_t page_size : {1, 2, 16, 32, 64}) {
    const auto driver = make(page_size);
    TestRow* row = driver->AddRow(prompt_);
    driver->ExtendAll(row);
    ASSERT_TRUE(driver->Step().ok());
    const auto blocks = ReadBlocks(driver.get(), *row, page_size, 2);
    // 2 layers, keys and values of 2 heads of 48 codes and a scale.
    EXPECT_EQ(blocks[0].size(), size_t{kBlock} * 2 * 2 * 2 * 49);
    if (first.empty()) first = blocks;
    EXPECT_TRUE(blocks == first) << "page size " << page_size;
    const auto from = make(32), to = make(page_size);
    EXPECT_TRUE(
        SameResults(AnswerFromBlocks(from.get(), 32, to.get(), page_size, prompt_, 5), wanted))
        << "page size " << page_size;
  }
}

// Pages that are not named keep their contents, and so do their bytes in the block.
TEST_F(KvCopiesTest, PagesThatAreLeftOutAreNotTouched) {
  for (const bool on_device : {false, true}) {
    const auto driver = Make(on_device, 16);
    TestRow* row = driver->AddRow(prompt_);
    TestRow* other = driver->AddRow(RandomPrompt(kBlock, 5));
    driver->ExtendAll(row);
    driver->ExtendAll(other);
    ASSERT_TRUE(driver->Step().ok());
    const Block mine = ReadBlocks(driver.get(), *row, 16, 1)[0];
    const Block theirs = ReadBlocks(driver.get(), *other, 16, 1)[0];
    auto pages = PagesOfBlock(*driver, *row, 16, 0);
    pages[1] = pages[3] = kNoPage;
    // Pages 0 and 2 get the other row's contents.
    auto write = driver->engine()->BeginWrite(pages);
    write->PutBlock(theirs);
    driver->engine()->WritePages(std::move(write));
    const Block mixed = ReadBlocks(driver.get(), *row, 16, 1)[0];
    Block wanted = mine;
    const auto copy = driver->engine()->ReadPages(pages);
    ASSERT_TRUE(copy->IsReady());
    ASSERT_TRUE(copy->TakeBlock(wanted).ok());  // keeps the bytes of pages 1 and 3
    EXPECT_TRUE(mixed == wanted);
    EXPECT_FALSE(mixed == mine);
    EXPECT_FALSE(mixed == theirs);
  }
}

// A read runs after the launched steps, and sees their writes.
TEST_F(KvCopiesTest, AReadSeesTheStepsBeforeIt) {
  for (const bool on_device : {false, true}) {
    const auto collected = Make(on_device, 16);
    TestRow* row = collected->AddRow(prompt_);
    collected->ExtendAll(row);
    ASSERT_TRUE(collected->Step().ok());
    const auto wanted = ReadBlocks(collected.get(), *row, 16, 1);

    const auto driver = Make(on_device, 16);
    row = driver->AddRow(prompt_);
    driver->ExtendAll(row);
    driver->Launch();
    const auto copy = driver->engine()->ReadPages(PagesOfBlock(*driver, *row, 16, 0));
    ASSERT_TRUE(driver->Collect().ok());
    ASSERT_TRUE(copy->IsReady());
    Block block(wanted[0].size());
    std::thread([&] { EXPECT_TRUE(copy->TakeBlock(block).ok()); }).join();
    EXPECT_TRUE(block == wanted[0]);
  }
}

// The memory that a device's copies pass through is bounded, and comes back.
TEST_F(KvCopiesTest, ADeviceHasAFewBuffers) {
  const auto driver = Make(true, 16);
  TestRow* row = driver->AddRow(prompt_);
  driver->ExtendAll(row);
  ASSERT_TRUE(driver->Step().ok());
  const auto pages = PagesOfBlock(*driver, *row, 16, 0);
  for (int round = 0; round < 3; ++round) {
    std::vector<std::unique_ptr<KvBlockCopy>> copies;
    while (auto copy = driver->engine()->ReadPages(pages)) {
      copies.push_back(std::move(copy));
      ASSERT_LE(std::ssize(copies), engine::DeviceKvCopies::kBlockBuffers);
    }
    EXPECT_EQ(std::ssize(copies), engine::DeviceKvCopies::kBlockBuffers);
    EXPECT_EQ(driver->engine()->BeginWrite(pages), nullptr);
  }
  const auto blocks = ReadBlocks(driver.get(), *row, 16, 2);
  for (int round = 0; round < 9; ++round) WriteBlocks(driver.get(), *row, 16, blocks);
  EXPECT_TRUE(ReadBlocks(driver.get(), *row, 16, 2) == blocks);
}

TEST_F(KvCopiesTest, ABrokenDeviceGivesNoBlock) {
  const auto driver =
      OnDevice({.page_size = 16, .max_running_requests = 4}, HostDeviceFaults{.fail_wait = 2});
  TestRow* row = driver->AddRow(prompt_);
  driver->ExtendAll(row);
  ASSERT_TRUE(driver->Step().ok());
  const auto copy = driver->engine()->ReadPages(PagesOfBlock(*driver, *row, 16, 0));
  ASSERT_TRUE(copy->IsReady());
  Block block(static_cast<size_t>(driver->engine()->KvBlockBytes(kBlock)));
  EXPECT_FALSE(copy->TakeBlock(block).ok());
}

TEST(KvCopiesOfWindowsTest, WindowPagesAreNotCopied) {
  ModelConfig config = TinyConfig();
  config.layers[0].sliding_window = 8;
  TinyModelDir dir;
  const auto checkpoint = WriteCheckpoint(dir, TinyTensors(config));
  auto plan = PlanMemory(config, {.max_running_requests = 2, .page_size = 4, .num_pages = 40},
                         uint64_t{1} << 30);
  ASSERT_TRUE(plan.ok());
  plan->limits.num_window_pages = 20;
  plan->limits.sliding_window = 8;
  const auto engine = MakeModelEngine(config, *checkpoint, *plan, MakeNaiveOps());
  ASSERT_TRUE(engine.ok());
  EXPECT_EQ((*engine)->KvBlockBytes(kBlock), 0);
}

}  // namespace
}  // namespace minisgl
