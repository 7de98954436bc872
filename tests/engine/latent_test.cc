// Keys that hold their values, as latent attention has: the memory that they take, and copies of
// pages.
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "engine/engine_driver.h"
#include "engine/kv_copies.h"
#include "engine/kv_storage.h"
#include "golden_models.h"

namespace minisgl {
namespace {

class LatentTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::string folder =
        std::string(MINISGL_SOURCE_DIR) + "/tests/golden/models/" + GetParam();
    auto config = LoadModelConfig(folder);
    auto checkpoint = Checkpoint::Open(folder);
    ASSERT_TRUE(config.ok() && checkpoint.ok());
    config_ = std::move(config).value();
    checkpoint_ = std::move(checkpoint).value();
  }
  std::unique_ptr<EngineDriver> Make(int32_t page_size, DType dtype) const {
    return std::make_unique<EngineDriver>(
        config_, *checkpoint_,
        DriverOptions{.page_size = page_size, .max_running_requests = 4, .weight_dtype = dtype});
  }
  int64_t KeyElements() const {
    return int64_t{config_.num_layers} * (config_.latent.rank + config_.latent.rotary_dim);
  }

  ModelConfig config_;
  std::unique_ptr<Checkpoint> checkpoint_;
};

TEST_P(LatentTest, ATokenTakesItsLatentAndItsRotatedPart) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const auto bytes = static_cast<uint64_t>(KeyElements()) * DTypeBytes(dtype);
    EXPECT_EQ(engine::KvBytesPerToken(config_, dtype), bytes);
    const auto plan = PlanMemory(
        config_,
        {.max_running_requests = 2, .page_size = 16, .num_pages = 40, .weight_dtype = dtype},
        uint64_t{1} << 30);
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    EXPECT_EQ(plan->kv_bytes_per_token, bytes);
    EXPECT_EQ(plan->kv_bytes, bytes * 16 * 41);
    EXPECT_EQ(Make(16, dtype)->engine()->KvBlockBytes(kBlock),
              kBlock * static_cast<int64_t>(bytes));
  }
}

TEST_P(LatentTest, StorageHasTheStridesOfValuesInKeys) {
  const auto naive = MakeNaiveOps();
  const auto storage = engine::KvStorage::Make(config_, DType::kF32, 3, 4, naive.get());
  ASSERT_TRUE(storage.ok());
  const KvLayer& kv = storage->layers()[0];
  const LatentConfig& latent = config_.latent;
  EXPECT_TRUE(kv.values_in_keys);
  EXPECT_EQ(kv.page_stride, 4 * (latent.rank + latent.rotary_dim));
  EXPECT_EQ(kv.v_offset, latent.rotary_dim);
  EXPECT_EQ(kv.value_slot_stride(), kv.slot_stride);
}

TEST_P(LatentTest, APrefixFromBlocksAnswersAsComputed) {
  const auto prompt = RandomPrompt(2 * kBlock + 9, 3, static_cast<int32_t>(config_.vocab_size));
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const auto alone = Make(16, dtype);
    const auto wanted = alone->Generate(alone->AddRow(prompt), kAll, 5);
    std::vector<Block> first;
    for (const int32_t page_size : {1, 16, 64}) {
      const auto driver = Make(page_size, dtype);
      TestRow* row = driver->AddRow(prompt);
      driver->ExtendAll(row);
      ASSERT_TRUE(driver->Step().ok());
      const auto blocks = ReadBlocks(driver.get(), *row, page_size, 2);
      if (first.empty()) first = blocks;
      EXPECT_TRUE(blocks == first) << "page size " << page_size << ", " << DTypeName(dtype);
      EXPECT_NE(blocks[0], blocks[1]);
      const auto from = Make(4, dtype), to = Make(page_size, dtype);
      EXPECT_TRUE(
          SameResults(AnswerFromBlocks(from.get(), 4, to.get(), page_size, prompt, 5), wanted))
          << "page size " << page_size << ", " << DTypeName(dtype);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, LatentTest, testing::Values("deepseek_v3", "deepseek_v3_halves"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace minisgl
