// The configurations of published models with layers that have a state, as their config.json states
// them, and what is refused of them.
#include <gtest/gtest.h>

#include "config_check.h"

namespace minisgl {
namespace {

constexpr const char* kLfm2 = R"({"architectures": ["Lfm2ForCausalLM"], "model_type": "lfm2",
    "block_auto_adjust_ff_dim": true, "block_dim": 1024, "block_ff_dim": 6656,
    "block_ffn_dim_multiplier": 1.0, "block_multiple_of": 256, "block_norm_eps": 1e-05,
    "block_use_swiglu": true, "bos_token_id": 1, "conv_L_cache": 3, "conv_bias": false,
    "conv_dim": 1024, "eos_token_id": 7, "full_attn_idxs": [2, 5, 8, 10, 12, 14],
    "hidden_size": 1024, "max_position_embeddings": 128000, "norm_eps": 1e-05,
    "num_attention_heads": 16, "num_heads": 16, "num_hidden_layers": 16, "num_key_value_heads": 8,
    "rope_theta": 1000000.0, "tie_embedding": true, "torch_dtype": "bfloat16", "use_pos_enc": true,
    "vocab_size": 65536})";

constexpr const char* kLfm2Moe = R"({"architectures": ["Lfm2MoeForCausalLM"],
    "model_type": "lfm2_moe", "conv_L_cache": 3, "conv_bias": false, "hidden_size": 2048,
    "intermediate_size": 7168, "layer_types": ["conv", "conv", "full_attention", "conv", "conv",
        "conv", "full_attention", "conv", "conv", "conv", "full_attention", "conv", "conv", "conv",
        "full_attention", "conv", "conv", "conv", "full_attention", "conv", "conv",
        "full_attention", "conv", "conv"],
    "max_position_embeddings": 128000, "moe_intermediate_size": 1792, "norm_eps": 1e-05,
    "norm_topk_prob": true, "num_attention_heads": 32, "num_dense_layers": 2, "num_experts": 32,
    "num_experts_per_tok": 4, "num_hidden_layers": 24, "num_key_value_heads": 8,
    "rope_theta": 1000000.0, "routed_scaling_factor": 1.0, "tie_embedding": true,
    "use_expert_bias": true, "vocab_size": 65536})";

std::vector<int32_t> LayersWithAttention(const ModelConfig& config) {
  std::vector<int32_t> layers;
  for (int32_t i = 0; i < config.num_layers; ++i) {
    if (config.layers[static_cast<size_t>(i)].mixer == Mixer::kAttention) layers.push_back(i);
  }
  return layers;
}

TEST(StateConfigsTest, Lfm2AdjustsItsFeedForward) {
  const ModelConfig config = Config(kLfm2);
  EXPECT_EQ(CountParameters(config), 354483968);
  EXPECT_EQ(config.intermediate_size, 4608);
  EXPECT_EQ(LayersWithAttention(config), (std::vector<int32_t>{2, 5, 8, 10, 12, 14}));
  EXPECT_EQ(config.layers[0].mixer, Mixer::kShortConv);
  EXPECT_EQ(config.layers[0].rope, -1);
  EXPECT_EQ(config.layers[2].rope, 0);
  EXPECT_EQ(config.states.conv_length, 3);
  EXPECT_EQ(config.states.conv_width, 1024);
  EXPECT_TRUE(config.tie_word_embeddings);
  EXPECT_TRUE(HasStates(config));
  EXPECT_EQ(Config(kLfm2, R"({"block_auto_adjust_ff_dim": false})").intermediate_size, 6656);
  EXPECT_EQ(Config(kLfm2, R"({"block_ffn_dim_multiplier": 1.5})").intermediate_size, 6656);
  EXPECT_EQ(Config(kLfm2, R"({"block_ff_dim": null})").intermediate_size, 8192);
  EXPECT_EQ(CountParameters(Config(kLfm2, R"({"block_ff_dim": 12288, "hidden_size": 2048,
      "num_attention_heads": 32})")),
            1170340608);
  EXPECT_TRUE(LayersWithAttention(Config(kLfm2, R"({"full_attn_idxs": null})")).size() == 16);
}

TEST(StateConfigsTest, Lfm2MoeRoutesBySigmoids) {
  const ModelConfig config = Config(kLfm2Moe);
  EXPECT_EQ(CountParameters(config), 8339930560);
  EXPECT_EQ(LayersWithAttention(config), (std::vector<int32_t>{2, 6, 10, 14, 18, 21}));
  EXPECT_FALSE(config.layers[1].has_experts);
  EXPECT_TRUE(config.layers[2].has_experts);
  EXPECT_TRUE(config.experts.choice_bias);
  EXPECT_EQ(config.experts.routing.score, RouteScore::kSigmoid);
  EXPECT_FLOAT_EQ(config.experts.routing.sum_eps, 1e-6f);
}

TEST(StateConfigsTest, WhatCannotBeIsRefusedByName) {
  EXPECT_EQ(RefusedKey(kLfm2, R"({"conv_L_cache": 1})"), "conv_L_cache");
  EXPECT_EQ(RefusedKey(kLfm2, R"({"conv_L_cache": 9})"), "conv_L_cache");
  EXPECT_EQ(RefusedKey(kLfm2, R"({"full_attn_idxs": []})"), "full_attn_idxs");
  EXPECT_EQ(RefusedKey(kLfm2, R"({"full_attn_idxs": [-1]})"), "full_attn_idxs");
  EXPECT_EQ(RefusedKey(kLfm2, R"({"full_attn_idxs": 3})"), "full_attn_idxs");
  EXPECT_EQ(RefusedKey(kLfm2, R"({"block_ffn_dim_multiplier": 1000000})"),
            "block_ffn_dim_multiplier");
  EXPECT_EQ(RefusedKey(kLfm2, R"({"num_hidden_layers": 1, "layer_types": ["conv"]})"),
            "layer_types");
  EXPECT_EQ(RefusedKey(kLfm2, R"({"num_hidden_layers": 1, "layer_types": ["sliding_attention"]})"),
            "layer_types");
}

}  // namespace
}  // namespace minisgl
