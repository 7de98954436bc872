// The limits of minisgl bench compared to figures computed by hand for an H200: 4.3 TB/s, 790
// TFLOP/s.
#include "bench/bench_limits.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "bench/bench_device.h"
#include "bench/bench_nano.h"

namespace minisgl::bench {
namespace {

constexpr Ceilings kH200 = {.bytes_per_s = 4.3e12, .flops_per_s = 790e12};

ModelConfig Shape(int32_t layers, int64_t width, int32_t heads, int32_t kv_heads, int32_t head_dim,
                  int64_t feed_forward, int64_t vocabulary) {
  ModelConfig config;
  config.num_layers = layers;
  config.hidden_size = width;
  config.num_heads = heads;
  config.num_kv_heads = kv_heads;
  config.head_dim = head_dim;
  config.intermediate_size = feed_forward;
  config.vocab_size = vocabulary;
  config.layers.resize(static_cast<size_t>(layers));
  return config;
}

const ModelConfig kQwen06 = Shape(28, 1024, 16, 8, 128, 3072, 151936);
const ModelConfig kQwen8 = Shape(36, 4096, 32, 8, 128, 12288, 151936);
const ModelConfig kQwen14 = Shape(40, 5120, 40, 8, 128, 17408, 151936);
const ModelConfig kLlama1 = Shape(16, 2048, 32, 8, 64, 8192, 128256);

ModelCost Bf16Cost(const ModelConfig& config) {
  const double kv_bytes = 2.0 * 2 * config.num_layers * config.num_kv_heads * config.head_dim;
  return CostOf(config, DType::kBF16, kv_bytes);
}

void ExpectNear(double found, double wanted) { EXPECT_NEAR(found, wanted, 0.01 * wanted); }

TEST(BenchLimitsTest, CountsBytesOfAStep) {
  const ModelCost cost = Bf16Cost(kQwen06);
  ExpectNear(cost.layer_weights, 440.4e6);
  ExpectNear(cost.head_weights, 155.6e6);
  ExpectNear(cost.step_bytes, 1.192e9);
  EXPECT_EQ(cost.kv_bytes_per_token, 114'688);
  EXPECT_EQ(cost.pair_flops, 4 * 28 * 16 * 128);
  ExpectNear(Bf16Cost(kQwen8).step_bytes, 15.136e9);
  ExpectNear(Bf16Cost(kQwen14).step_bytes, 27.98e9);
  ExpectNear(Bf16Cost(kLlama1).step_bytes, 2.471e9);
  EXPECT_EQ(CostOf(kQwen06, DType::kF32, 0).step_bytes, 2 * cost.step_bytes);
  // One byte a weight, and two bytes of scale for each 32.
  EXPECT_EQ(CostOf(kQwen06, {DType::kBF16, Quantization::kInt8}, 0).step_bytes,
            cost.step_bytes * 34 / 64);
}

TEST(BenchLimitsTest, LayersWithAStateReadNoKeys) {
  ModelConfig config = kQwen06;
  const ModelCost before = CostOf(config, DType::kBF16, 0);
  config.states = {.conv_length = 4, .conv_width = 1000, .num_heads = 5, .value_dim = 20};
  for (size_t i = 0; i < 14; ++i) config.layers[i].mixer = Mixer::kMamba2;
  const ModelCost cost = CostOf(config, DType::kBF16, 0);
  EXPECT_EQ(cost.pair_flops, before.pair_flops / 2);
  const double attention = 1024.0 * (2 * 16 + 2 * 8) * 128, mamba = 1024.0 * (1000 + 2 * 100);
  EXPECT_EQ(cost.layer_weights, before.layer_weights - 14 * (attention - mamba));
  config.layers[0].has_feed_forward = false;
  EXPECT_EQ(CostOf(config, DType::kBF16, 0).layer_weights,
            cost.layer_weights - 3.0 * 1024 * static_cast<double>(config.intermediate_size));
}

TEST(BenchLimitsTest, TheNanoWorkloadIsTheOneOthersRun) {
  const WorkloadLimit limit = LimitOf(NanoLengths(), 256, Bf16Cost(kQwen06), kH200);
  EXPECT_EQ(NanoLengths().size(), 256u);
  EXPECT_EQ(limit.prompt_tokens, 142'827);
  EXPECT_EQ(limit.output_tokens, 133'966);
  EXPECT_EQ(limit.prompt_pairs, 49'201'762);
  EXPECT_EQ(limit.decode_steps, 1'023);
  EXPECT_EQ(limit.decode_rows, 133'966 - 256);
  EXPECT_EQ(limit.kv_positions, 120'795'204);
  for (const Lengths& row : NanoLengths()) {
    EXPECT_TRUE(row.prompt >= 100 && row.prompt <= 1024 && row.output >= 100 && row.output <= 1024);
  }
}

TEST(BenchLimitsTest, ASharedPrefixIsCountedOnce) {
  const ModelCost cost = Bf16Cost(kQwen06);
  const Lengths whole = {100, 5};
  const WorkloadLimit alone = LimitOf({&whole, 1}, 1, cost, kH200);
  const WorkloadLimit shared = LimitOfShared(1, 96, {4, 5}, cost, kH200);
  EXPECT_EQ(shared.prompt_tokens, alone.prompt_tokens);
  EXPECT_EQ(shared.prompt_pairs, alone.prompt_pairs);
  EXPECT_EQ(shared.kv_positions, alone.kv_positions);
  EXPECT_NEAR(shared.total_s(), alone.total_s(), 1e-12);

  const WorkloadLimit many = LimitOfShared(32, 96, {4, 3}, cost, kH200);
  EXPECT_EQ(many.output_tokens, 96);
  EXPECT_EQ(many.decode_steps, 2);
  EXPECT_EQ(many.kv_positions, (96 + 32 * 5) + (96 + 32 * 6));
  EXPECT_EQ(many.prompt_pairs, 96 * 97 / 2 + 32 * (4 * 96 + 4 * 5 / 2));
  // Keys that are read once still take part in the computation of each row.
  const Ceilings slow_cores = {.bytes_per_s = 1e18, .flops_per_s = 1e9};
  EXPECT_NEAR(LimitOfShared(32, 96, {4, 3}, cost, slow_cores).kv_s,
              32 * (101 + 102) * cost.pair_flops / 1e9, 1e-9);
}

TEST(BenchLimitsTest, NanoOnAnH200) {
  const WorkloadLimit small = LimitOf(NanoLengths(), 256, Bf16Cost(kQwen06), kH200);
  ExpectNear(small.prefill_s, 0.174);
  ExpectNear(small.kv_s, 3.222);
  ExpectNear(small.total_s(), 3.70);
  ExpectNear(small.output_tokens_per_s(), 36'200);
  const auto rate = [](const ModelConfig& config) {
    return LimitOf(NanoLengths(), 256, Bf16Cost(config), kH200).output_tokens_per_s();
  };
  ExpectNear(rate(kQwen14), 8'075);
  ExpectNear(rate(kQwen8), 12'682);
  ExpectNear(rate(kLlama1), 70'000);
}

TEST(BenchLimitsTest, OneRowReadsAllWeights) {
  ExpectNear(1 / StepLimit(1, 0, Bf16Cost(kLlama1), kH200), 1'740);
  ExpectNear(1 / StepLimit(1, 0, Bf16Cost(kQwen06), kH200), 3'607);
  ExpectNear(1 / StepLimit(1, 0, Bf16Cost(kQwen14), kH200), 154);
  // Above the number of rows at which computing takes as long as reading, computing is the limit.
  const ModelCost cost = Bf16Cost(kQwen14);
  EXPECT_EQ(StepLimit(180, 0, cost, kH200), StepLimit(1, 0, cost, kH200));
  EXPECT_GT(StepLimit(200, 0, cost, kH200), 1.05 * StepLimit(1, 0, cost, kH200));
}

// By hand: two places, three rows. Row 2 takes the place of row 1, which ends after one step.
TEST(BenchLimitsTest, NoMoreRowsDecodeThanMayRun) {
  const std::vector<Lengths> rows = {{10, 4}, {20, 2}, {30, 3}, {40, 1}};
  const WorkloadLimit limit = LimitOf(rows, 2, Bf16Cost(kQwen06), kH200);
  EXPECT_EQ(limit.decode_steps, 3);
  EXPECT_EQ(limit.decode_rows, 6);
  EXPECT_EQ(limit.kv_positions, (11 + 12 + 13) + 21 + (31 + 32));
  EXPECT_EQ(limit.output_tokens, 10);
  EXPECT_EQ(LimitOf(rows, 1, Bf16Cost(kQwen06), kH200).decode_steps, 6);
}

TEST(BenchLimitsTest, PairsOfAChunkCountWhatIsCached) {
  EXPECT_EQ(CausalPairs(0, 3), 6);
  EXPECT_EQ(CausalPairs(10, 3), 11 + 12 + 13);
  const ModelCost cost = Bf16Cost(kQwen06);
  EXPECT_DOUBLE_EQ(PrefillLimit(0, 30, cost, kH200) + PrefillLimit(30, 70, cost, kH200),
                   PrefillLimit(0, 100, cost, kH200));
}

TEST(BenchLimitsTest, MedianIsTheMiddle) {
  EXPECT_EQ(Median({3, 1, 2}), 2);
  EXPECT_EQ(Median({4, 1, 2, 3}), 2.5);
  EXPECT_EQ(Median({7}), 7);
}

}  // namespace
}  // namespace minisgl::bench
