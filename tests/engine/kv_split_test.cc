// Division of bytes into pages and window pages.
#include "engine/kv_split.h"

#include <gtest/gtest.h>

#include "minisgl/engine/model_engine.h"

namespace minisgl::engine {
namespace {

// Six layers, five of them with a window of 1024 keys; 8 KiB per token and layer in f32.
ModelConfig HybridConfig(int32_t window = 1024) {
  ModelConfig config;
  config.architecture = "LlamaForCausalLM";
  config.dtype = DType::kBF16;
  config.vocab_size = 32000;
  config.hidden_size = 1024;
  config.intermediate_size = 4096;
  config.num_layers = 6;
  config.num_heads = 8;
  config.num_kv_heads = 4;
  config.head_dim = 256;
  config.max_seq_len = 32768;
  config.ropes = {{.dim = config.head_dim}};
  config.layers.resize(6);
  for (size_t i = 0; i < 5; ++i) config.layers[i].sliding_window = window;
  return config;
}

EngineLimits LimitsFor(int32_t max_seq_len) {
  EngineLimits limits;
  limits.page_size = 16;
  limits.max_seq_len = max_seq_len;
  return limits;
}

KvSplit MustSplit(const ModelConfig& config, int32_t max_seq_len) {
  const auto split = KvSplit::Make(config, LimitsFor(max_seq_len), 512, DType::kF32);
  EXPECT_TRUE(split.has_value());
  return *split;
}

TEST(KvSplitTest, WithoutWindowsAPageHoldsAllLayers) {
  constexpr uint64_t kPage = uint64_t{6} * 8192 * 16;
  for (const KvSplit& split :
       {MustSplit(HybridConfig(0), 8192), MustSplit(HybridConfig(8192), 8192)}) {
    EXPECT_EQ(split.window(), 0);
    EXPECT_EQ(split.page_bytes(), kPage);
    EXPECT_EQ(split.WindowPages(1000), 0);
    EXPECT_EQ(split.PagesWithin(11 * kPage), 10);
    EXPECT_EQ(split.PagesWithin(11 * kPage - 1), 9);
    EXPECT_EQ(split.PagesWithin(kPage), 0);
  }
}

TEST(KvSplitTest, LayersWithAWindowGetTheirShare) {
  const KvSplit split = MustSplit(HybridConfig(), 8192);
  EXPECT_EQ(split.window(), 1024);
  EXPECT_EQ(split.page_bytes(), uint64_t{8192} * 16);
  EXPECT_EQ(split.window_page_bytes(), uint64_t{5} * 8192 * 16);
  // A request is entitled to 65 window pages, and has 256 pages at four windows.
  // Two steps in flight compute 1024 tokens of prompts.
  EXPECT_EQ(split.WindowPages(10000), (10000 * 65 + 255) / 256 + 64);
  EXPECT_EQ(split.WindowPages(256), 65 + 64);
  EXPECT_EQ(split.WindowPages(70), 70) << "never more than pages";
}

TEST(KvSplitTest, PagesWithinIsTheMostThatFits) {
  for (const int32_t max_seq_len : {1200, 2000, 8192, 32768}) {
    const KvSplit split = MustSplit(HybridConfig(), max_seq_len);
    for (const uint64_t bytes : {uint64_t{1} << 22, uint64_t{1} << 28, uint64_t{77777777777}}) {
      const int64_t pages = split.PagesWithin(bytes);
      EXPECT_LE(*split.Bytes(pages), bytes);
      EXPECT_GT(*split.Bytes(pages + 1), bytes);
    }
  }
}

// The search for the longest request that fits relies on this.
TEST(KvSplitTest, OneRequestTakesMoreTheLongerItIs) {
  uint64_t before = 0;
  for (int32_t length = 2; length <= 32768; length += 37) {
    const KvSplit split = MustSplit(HybridConfig(), length);
    const uint64_t bytes = *split.Bytes((length + 15) / 16);
    EXPECT_GE(bytes, before) << length;
    before = bytes;
  }
}

TEST(KvSplitTest, AModelOfWindowsAloneHasPagesOfNoBytes) {
  ModelConfig config = HybridConfig();
  config.layers[5].sliding_window = 512;
  const KvSplit split = MustSplit(config, 8192);
  EXPECT_EQ(split.window(), 1024);
  EXPECT_EQ(split.page_bytes(), 0u);
  EXPECT_GT(split.PagesWithin(uint64_t{1} << 30),
            static_cast<int64_t>(3 * (uint64_t{1} << 30) / split.window_page_bytes()));
}

TEST(KvSplitTest, ThePlanHasBothCounts) {
  const auto plan = PlanMemory(HybridConfig(), {}, uint64_t{8} << 30);
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_EQ(plan->limits.sliding_window, 1024);
  EXPECT_EQ(plan->kv_bytes_per_token, 6u * 4096);
  EXPECT_EQ(plan->window_bytes_per_token, 5u * 4096);
  EXPECT_GT(plan->limits.num_window_pages, 65);
  EXPECT_LT(plan->limits.num_window_pages, plan->limits.num_pages / 3);
  const auto together = PlanMemory(HybridConfig(0), {}, uint64_t{8} << 30);
  ASSERT_TRUE(together.ok());
  EXPECT_EQ(together->limits.num_window_pages, 0);
  EXPECT_EQ(together->kv_bytes_per_token, 6u * 4096);
  EXPECT_GT(plan->limits.num_pages, 2 * together->limits.num_pages);
  // The same bytes, within one page of each kind.
  EXPECT_LE(plan->kv_bytes, uint64_t{2} << 30);
  EXPECT_GT(plan->kv_bytes, (uint64_t{2} << 30) - (uint64_t{1} << 20));
}

// If each page has a window page, there is one pool.
TEST(KvSplitTest, ASmallPoolIsNotSplit) {
  const auto plan =
      PlanMemory(HybridConfig(), {.max_seq_len = 1100, .num_pages = 100}, uint64_t{16} << 30);
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_EQ(plan->limits.num_window_pages, 0);
  EXPECT_EQ(plan->kv_bytes_per_token, 6u * 4096);
  EXPECT_EQ(plan->window_bytes_per_token, 0u);
}

}  // namespace
}  // namespace minisgl::engine
