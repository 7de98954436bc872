// The room beside a chat compared to figures computed by hand.
#include "load/chat_share.h"

#include <gtest/gtest.h>

namespace minisgl::load {
namespace {

// A dense model of 8 billion weights, with keys and values of bf16.
ModelConfig Dense8() {
  ModelConfig config;
  config.num_layers = 36;
  config.hidden_size = 4096;
  config.num_heads = 32;
  config.num_kv_heads = 8;
  config.head_dim = 128;
  config.intermediate_size = 12288;
  config.vocab_size = 151936;
  config.layers.resize(36);
  return config;
}

// 128 experts of which a token chooses 8, in the place of each feed-forward part.
ModelConfig Mixture() {
  ModelConfig config = Dense8();
  config.experts.num_experts = 128;
  config.experts.num_chosen = 8;
  config.experts.intermediate_size = 1536;  // 8 of them are as wide as the part they replace
  for (LayerConfig& layer : config.layers) layer.has_experts = true;
  return config;
}

MemoryPlan PlanOf(const WeightFormat& format) {
  MemoryPlan plan;
  plan.weight_format = format;
  plan.kv_bytes_per_token = 2 * 2 * 36 * 8 * 128;
  return plan;
}

TEST(ChatShareTest, WithoutAShareNothingIsBounded) {
  const RoomBesideChat beside = RoomForShare(0, Dense8(), PlanOf(DType::kBF16), false);
  EXPECT_EQ(beside.room, 0);
  EXPECT_EQ(beside.keys_per_token, 0);
}

// A weight of bf16 is read in the time of 2 / (3/8) products on the CPU, and of 128 on a GPU, where
// a ninth of a step is left.
TEST(ChatShareTest, ADenseModelHasRoomForSomeRows) {
  const MemoryPlan plan = PlanOf(DType::kBF16);
  EXPECT_EQ(RoomForShare(0.5, Dense8(), plan, false).room, 5333);
  EXPECT_EQ(RoomForShare(0.9, Dense8(), plan, true).room, 14222);
  EXPECT_EQ(RoomForShare(0.25, Dense8(), plan, false).room, 16000);
  // 7.6e9 weights, 3/8 bytes each, against 147,456 bytes of a key and a value in all layers.
  EXPECT_NEAR(static_cast<double>(RoomForShare(0.5, Dense8(), plan, false).keys_per_token), 19250,
              200);
}

TEST(ChatShareTest, FewerBytesHaveLessRoom) {
  const int64_t int8 =
      RoomForShare(0.5, Dense8(), PlanOf({DType::kBF16, Quantization::kInt8}), false).room;
  const int64_t int4 =
      RoomForShare(0.5, Dense8(), PlanOf({DType::kBF16, Quantization::kInt4}), false).room;
  const int64_t codes =
      RoomForShare(0.5, Dense8(), PlanOf({DType::kBF16, Quantization::kStored}), false).room;
  EXPECT_NEAR(static_cast<double>(int8), 5500, 300);
  EXPECT_NEAR(static_cast<double>(int4), 3200, 300);
  EXPECT_EQ(codes, int4);
}

// Another row reads experts of its own: nearly the whole step again, whatever the machine computes.
TEST(ChatShareTest, AMixtureHasRoomForLess) {
  const MemoryPlan plan = PlanOf(DType::kBF16);
  EXPECT_NEAR(static_cast<double>(RoomForShare(0.5, Mixture(), plan, false).room), 1080, 60);
  EXPECT_NEAR(static_cast<double>(RoomForShare(0.9, Mixture(), plan, true).room), 145, 10);
}

TEST(ChatShareTest, AShareOfNearlyAllIsNoLackOfABound) {
  EXPECT_GE(RoomForShare(0.999999, Mixture(), PlanOf(DType::kBF16), true).room, 1);
}

}  // namespace
}  // namespace minisgl::load
