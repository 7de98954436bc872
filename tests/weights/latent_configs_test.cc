// The configurations of published models with latent attention, as their config.json states them,
// and settings that are refused.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>

#include "config_check.h"

namespace minisgl {
namespace {

constexpr const char* kV2Lite = R"({"architectures": ["DeepseekV2ForCausalLM"],
    "model_type": "deepseek_v2", "attention_bias": false, "aux_loss_alpha": 0.001,
    "bos_token_id": 100000, "eos_token_id": 100001, "first_k_dense_replace": 1,
    "hidden_act": "silu", "hidden_size": 2048, "intermediate_size": 10944, "kv_lora_rank": 512,
    "max_position_embeddings": 163840, "moe_intermediate_size": 1408, "moe_layer_freq": 1,
    "n_group": 1, "n_routed_experts": 64, "n_shared_experts": 2, "norm_topk_prob": false,
    "num_attention_heads": 16, "num_experts_per_tok": 6, "num_hidden_layers": 27,
    "num_key_value_heads": 16, "pretraining_tp": 1, "q_lora_rank": null, "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64, "rms_norm_eps": 1e-06, "rope_scaling": {"beta_fast": 32,
        "beta_slow": 1, "factor": 40, "mscale": 0.707, "mscale_all_dim": 0.707,
        "original_max_position_embeddings": 4096, "type": "yarn"}, "rope_theta": 10000,
    "routed_scaling_factor": 1.0, "scoring_func": "softmax", "seq_aux": true,
    "tie_word_embeddings": false, "topk_group": 1, "topk_method": "greedy",
    "torch_dtype": "bfloat16", "v_head_dim": 128, "vocab_size": 102400})";

constexpr const char* kV3 = R"({"architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "deepseek_v3", "attention_bias": false, "bos_token_id": 0, "eos_token_id": 1,
    "ep_size": 1, "first_k_dense_replace": 3, "hidden_act": "silu", "hidden_size": 7168,
    "intermediate_size": 18432, "kv_lora_rank": 512, "max_position_embeddings": 163840,
    "moe_intermediate_size": 2048, "moe_layer_freq": 1, "n_group": 8, "n_routed_experts": 256,
    "n_shared_experts": 1, "norm_topk_prob": true, "num_attention_heads": 128,
    "num_experts_per_tok": 8, "num_hidden_layers": 61, "num_key_value_heads": 128,
    "num_nextn_predict_layers": 1, "q_lora_rank": 1536, "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64, "quantization_config": {"activation_scheme": "dynamic", "fmt": "e4m3",
        "quant_method": "fp8", "weight_block_size": [128, 128]}, "rms_norm_eps": 1e-06,
    "rope_scaling": {"beta_fast": 32, "beta_slow": 1, "factor": 40, "mscale": 1.0,
        "mscale_all_dim": 1.0, "original_max_position_embeddings": 4096, "type": "yarn"},
    "rope_theta": 10000, "routed_scaling_factor": 2.5, "scoring_func": "sigmoid",
    "tie_word_embeddings": false, "topk_group": 4, "topk_method": "noaux_tc",
    "torch_dtype": "bfloat16", "v_head_dim": 128, "vocab_size": 129280})";

constexpr const char* kGlmFlash = R"({"architectures": ["Glm4MoeLiteForCausalLM"],
    "model_type": "glm4_moe_lite", "attention_bias": false, "dtype": "bfloat16",
    "eos_token_id": [154820, 154827, 154829], "first_k_dense_replace": 1, "hidden_act": "silu",
    "hidden_size": 2048, "intermediate_size": 10240, "kv_lora_rank": 512,
    "max_position_embeddings": 202752, "moe_intermediate_size": 1536, "n_group": 1,
    "n_routed_experts": 64, "n_shared_experts": 1, "norm_topk_prob": true,
    "num_attention_heads": 20, "num_experts_per_tok": 4, "num_hidden_layers": 47,
    "num_key_value_heads": 20, "num_nextn_predict_layers": 1, "pad_token_id": 154820,
    "partial_rotary_factor": 1.0, "q_lora_rank": 768, "qk_nope_head_dim": 192,
    "qk_rope_head_dim": 64, "rms_norm_eps": 1e-05, "rope_scaling": null, "rope_theta": 1000000,
    "routed_scaling_factor": 1.8, "tie_word_embeddings": false, "topk_group": 1,
    "topk_method": "noaux_tc", "v_head_dim": 256, "vocab_size": 154880})";

int64_t CountLayersWithExperts(const ModelConfig& config) {
  int64_t count = 0;
  for (const LayerConfig& layer : config.layers) count += layer.has_experts ? 1 : 0;
  return count;
}

double SharpeningOf40(double mscale) { return 0.1 * mscale * std::log(40.0) + 1; }

TEST(LatentConfigsTest, DeepseekV2Lite) {
  const ModelConfig config = Config(kV2Lite);
  EXPECT_EQ(config.latent, (LatentConfig{512, 0, 128, 64, 128}));
  EXPECT_EQ(CountParameters(config), 15'706'484'224);
  EXPECT_EQ(CountLayersWithExperts(config), 26);
  EXPECT_EQ(config.experts.shared_intermediate_size, 2816);
  EXPECT_EQ(config.experts.routing, Routing());
  EXPECT_TRUE(config.rotary_interleaved);
  EXPECT_EQ(config.ropes[0].dim, 64);
  // mscale and mscale_all_dim are equal: cosines are not changed, scores are.
  EXPECT_DOUBLE_EQ(config.ropes[0].attention_factor, 1);
  const double sharpening = SharpeningOf40(0.707);
  EXPECT_DOUBLE_EQ(config.attention_scale, sharpening * sharpening / std::sqrt(192.0));
}

// A latent and a rotated part are one KV head, whose values are in its keys.
TEST(LatentConfigsTest, AttentionHasOneHeadOfKeysForAllOfQueries) {
  const ModelConfig config = Config(kV2Lite);
  const LayerShape shape = LayerShapeOf(config, 5);
  EXPECT_EQ(shape.num_heads, 16);
  EXPECT_EQ(shape.num_kv_heads, 1);
  EXPECT_EQ(shape.head_dim, 576);
  EXPECT_EQ(shape.value_dim, 512);
  EXPECT_TRUE(shape.values_in_keys);
  EXPECT_TRUE(HasUniformAttention(config));
}

TEST(LatentConfigsTest, DeepseekV2ChoosesByGroups) {
  const ModelConfig config = Config(kV2Lite, R"({"topk_method": "group_limited_greedy",
      "n_group": 8, "topk_group": 3, "n_routed_experts": 160, "routed_scaling_factor": 16.0,
      "q_lora_rank": 1536})");
  Routing wanted;
  wanted.num_groups = 8;
  wanted.num_chosen_groups = 3;
  wanted.factor = 16;
  EXPECT_EQ(config.experts.routing, wanted);
  EXPECT_EQ(config.latent.query_rank, 1536);
  EXPECT_FALSE(config.experts.choice_bias);
}

TEST(LatentConfigsTest, DeepseekV3) {
  const ModelConfig config = Config(kV3);
  EXPECT_EQ(config.latent, (LatentConfig{512, 1536, 128, 64, 128}));
  EXPECT_EQ(CountParameters(config), 671'026'419'200);
  EXPECT_EQ(CountLayersWithExperts(config), 58);
  EXPECT_EQ(config.num_prediction_layers, 1);
  const Routing& routing = config.experts.routing;
  EXPECT_EQ(routing.score, RouteScore::kSigmoid);
  EXPECT_EQ(routing.num_groups, 8);
  EXPECT_EQ(routing.num_chosen_groups, 4);
  EXPECT_EQ(routing.best_of_group, 2);
  EXPECT_EQ(routing.factor, 2.5f);
  EXPECT_TRUE(routing.renormalize && config.experts.choice_bias);
  const double sharpening = SharpeningOf40(1);
  EXPECT_DOUBLE_EQ(config.attention_scale, sharpening * sharpening / std::sqrt(192.0));
  EXPECT_FALSE(Config(kV3, R"({"rope_interleave": false})").rotary_interleaved);
}

TEST(LatentConfigsTest, Glm47Flash) {
  const ModelConfig config = Config(kGlmFlash);
  EXPECT_EQ(config.latent, (LatentConfig{512, 768, 192, 64, 256}));
  EXPECT_EQ(config.norm_eps, 1e-5);
  EXPECT_DOUBLE_EQ(config.attention_scale, 1 / 16.0);
  EXPECT_EQ(CountLayersWithExperts(config), 46);
  EXPECT_EQ(config.experts.routing.factor, 1.8f);
  EXPECT_EQ(config.num_prediction_layers, 1);
  std::string types = R"(["sparse", "dense")";
  for (int i = 2; i < 47; ++i) types += R"(, "sparse")";
  const ModelConfig listed = Config(kGlmFlash, R"({"mlp_layer_types": )" + types + "]}");
  EXPECT_TRUE(listed.layers[0].has_experts);
  EXPECT_FALSE(listed.layers[1].has_experts);
}

// Scores are sharpened only where a scaling is stated with mscale_all_dim.
TEST(LatentConfigsTest, ScoresHaveTheScaleOfTheReference) {
  const double plain = 1 / std::sqrt(192.0);
  EXPECT_DOUBLE_EQ(Config(kV3, R"({"rope_scaling": null})").attention_scale, plain);
  EXPECT_DOUBLE_EQ(Config(kV3, R"({"rope_scaling": {"type": "yarn", "factor": 40,
      "original_max_position_embeddings": 4096}})")
                       .attention_scale,
                   plain);
  EXPECT_DOUBLE_EQ(Config(kV3, R"({"rope_scaling": {"rope_type": "default", "factor": 40,
      "mscale_all_dim": 1.0}})")
                       .attention_scale,
                   plain);
  const double sharpening = SharpeningOf40(0.5);
  EXPECT_DOUBLE_EQ(Config(kV3, R"({"rope_scaling": {"rope_type": "linear", "factor": 40,
      "mscale_all_dim": 0.5}})")
                       .attention_scale,
                   sharpening * sharpening * plain);
}

TEST(LatentConfigsTest, WhatIsNotSupportedIsNamed) {
  EXPECT_EQ(RefusedKey(kV3, R"({"num_key_value_heads": 64})"), "num_key_value_heads");
  EXPECT_EQ(RefusedKey(kV3, R"({"qk_rope_head_dim": 63})"), "qk_rope_head_dim");
  EXPECT_EQ(RefusedKey(kV3, R"({"kv_lora_rank": 0})"), "kv_lora_rank");
  EXPECT_EQ(RefusedKey(kV3, R"({"q_lora_rank": 0})"), "q_lora_rank");
  EXPECT_EQ(RefusedKey(kV3, R"({"v_head_dim": 100000})"), "v_head_dim");
  EXPECT_EQ(RefusedKey(kV3, R"({"scoring_func": "softmax"})"), "scoring_func");
  EXPECT_EQ(RefusedKey(kV3, R"({"topk_method": "greedy"})"), "topk_method");
  EXPECT_EQ(RefusedKey(kV3, R"({"moe_layer_freq": 2})"), "moe_layer_freq");
  EXPECT_EQ(RefusedKey(kV3, R"({"n_group": 7})"), "n_group");
  EXPECT_EQ(RefusedKey(kV3, R"({"num_attention_heads": null})"), "num_attention_heads");
  EXPECT_EQ(RefusedKey(kV2Lite, R"({"norm_topk_prob": true})"), "norm_topk_prob");
  EXPECT_EQ(RefusedKey(kV2Lite, R"({"topk_method": "noaux_tc"})"), "topk_method");
  EXPECT_EQ(RefusedKey(kV2Lite, R"({"scoring_func": "sigmoid"})"), "scoring_func");
  EXPECT_EQ(RefusedKey(kV2Lite, R"({"num_experts_per_tok": null})"), "num_experts_per_tok");
  EXPECT_EQ(RefusedKey(kV2Lite, R"({"mlp_bias": true})"), "mlp_bias");
  EXPECT_EQ(RefusedKey(kGlmFlash, R"({"mlp_layer_types": ["dense"]})"), "mlp_layer_types");
  EXPECT_EQ(RefusedKey(kGlmFlash, R"({"partial_rotary_factor": 0.5})"), "partial_rotary_factor");
}

}  // namespace
}  // namespace minisgl
