// Models whose layers do more than llama's: every schedule gives the same bits, in f32 and in bf16,
// whose products round activations on some processors.
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine_driver.h"
#include "golden_models.h"

namespace minisgl {
namespace {

constexpr int32_t kPromptLength = 75, kAnswerLength = 16;

class GoldenSchedulesTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    OpenedGolden golden = OpenGolden(GetParam());
    ASSERT_NE(golden.checkpoint, nullptr);
    config_ = std::move(golden.config);
    checkpoint_ = std::move(golden.checkpoint);
  }

  std::vector<TokenId> Prompt(uint64_t seed) const {
    return RandomPrompt(kPromptLength, seed, static_cast<int32_t>(config_.vocab_size));
  }

  // The results of one row: alone, again on cached pages, and once more beside another row.
  std::vector<RowResult> Generate(DriverOptions options, int32_t chunk) {
    options.max_running_requests = 4;
    EngineDriver driver(config_, *checkpoint_, options);
    TestRow* const first = driver.AddRow(Prompt(3));
    const std::vector<RowResult> results = driver.Generate(first, chunk, kAnswerLength);
    const int32_t num_shared = 37 / options.page_size;
    TestRow* const second = driver.AddRowSharing(*first, num_shared, Prompt(3));
    EXPECT_TRUE(SameResults(driver.Generate(second, chunk, kAnswerLength), results))
        << "after a prefix";
    TestRow* const third = driver.AddRow(Prompt(3));
    TestRow* const other = driver.AddRow(Prompt(4));
    while (third->results.size() < kAnswerLength) {
      for (TestRow* const row : {third, other}) {
        driver.Extend(row, std::min(chunk, row->known_len - row->computed_len));
      }
      EXPECT_TRUE(driver.Step().ok());
    }
    EXPECT_TRUE(SameResults(third->results, results)) << "beside another";
    return results;
  }

  ModelConfig config_;
  std::unique_ptr<Checkpoint> checkpoint_;
};

TEST_P(GoldenSchedulesTest, GiveTheSameBits) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const auto expected = Generate({.weight_dtype = dtype}, kAll);
    ASSERT_EQ(expected.size(), static_cast<size_t>(kAnswerLength));
    for (const int32_t page_size : {1, 4, 16}) {
      for (const int32_t chunk : {7, 32}) {
        const int num_threads = chunk == 7 ? 1 : 2;
        const auto found = Generate(
            {.page_size = page_size, .num_threads = num_threads, .weight_dtype = dtype}, chunk);
        EXPECT_TRUE(SameResults(found, expected)) << page_size << " " << chunk;
      }
    }
  }
}

// The same of keys and values in 8 bits, of models of differing families. They round once, when a
// token is written, so that no schedule sees other numbers.
class CodedKeysTest : public GoldenSchedulesTest {};

TEST_P(CodedKeysTest, GiveTheSameBits) {
  for (const int32_t num_ranks : {1, config_.num_heads % 2 == 0 ? 2 : 3}) {
    DriverOptions options = {.num_ranks = num_ranks, .kv_kind = KvKind::kFp8};
    const auto expected = Generate(options, kAll);
    ASSERT_EQ(expected.size(), static_cast<size_t>(kAnswerLength));
    options.kv_kind = KvKind::kAuto;
    EXPECT_FALSE(SameResults(Generate(options, kAll), expected)) << "nothing is rounded";
    options.kv_kind = KvKind::kFp8;
    for (const int32_t page_size : {1, 4, 16}) {
      for (const int32_t chunk : {7, 32}) {
        options.page_size = page_size;
        options.num_threads = chunk == 7 ? num_ranks : 2 * num_ranks;
        EXPECT_TRUE(SameResults(Generate(options, chunk), expected)) << page_size << " " << chunk;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, CodedKeysTest,
                         testing::Values("wren", "odd_heads", "glm4", "qwen3_5", "qwen3_5_moe",
                                         "qwen3_next", "stablelm", "quant_awq",
                                         "quant_ct_int4_gemma4", "quant_mxfp4_gpt_oss",
                                         "quant_mixed_nemotron_h", "quant_fp8_block_moe"),
                         [](const auto& test) { return std::string(test.param); });

INSTANTIATE_TEST_SUITE_P(All, GoldenSchedulesTest,
                         testing::Values("gemma4", "gemma4_moe", "gemma4_unified_text",
                                         "muse_glimmer", "qwen3_vl_moe", "exaone_moe", "lfm2",
                                         "lfm2_moe", "deepseek_v2", "deepseek_v3_halves",
                                         "glm4_moe_lite", "qwen3_next", "qwen3_5_moe", "bamba",
                                         "nemotron_h_latent", "olmo_hybrid", "falcon_h1"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace minisgl
