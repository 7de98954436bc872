// The configurations of published models with layers that have a state, as their config.json states
// them, and settings that are refused.
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

constexpr const char* kQwen3Next = R"({"architectures": ["Qwen3NextForCausalLM"],
    "model_type": "qwen3_next", "attention_bias": false, "decoder_sparse_step": 1,
    "full_attention_interval": 4, "head_dim": 256, "hidden_act": "silu", "hidden_size": 2048,
    "intermediate_size": 5120, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128,
    "linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_value_head_dim": 128,
    "max_position_embeddings": 262144, "mlp_only_layers": [], "moe_intermediate_size": 512,
    "norm_topk_prob": true, "num_attention_heads": 16, "num_experts": 512,
    "num_experts_per_tok": 10, "num_hidden_layers": 48, "num_key_value_heads": 2,
    "partial_rotary_factor": 0.25, "rms_norm_eps": 1e-06, "rope_scaling": null,
    "rope_theta": 10000000, "shared_expert_intermediate_size": 512, "tie_word_embeddings": false,
    "torch_dtype": "bfloat16", "vocab_size": 151936})";

constexpr const char* kQwen3_5 = R"({"architectures": ["Qwen3_5ForConditionalGeneration"],
    "model_type": "qwen3_5", "image_token_id": 248056, "text_config": {"attention_bias": false,
        "dtype": "bfloat16", "eos_token_id": 248044, "full_attention_interval": 4,
        "head_dim": 256, "hidden_act": "silu", "hidden_size": 5120, "intermediate_size": 17408,
        "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_num_key_heads": 16,
        "linear_num_value_heads": 48, "linear_value_head_dim": 128,
        "max_position_embeddings": 262144, "model_type": "qwen3_5_text", "mtp_num_hidden_layers": 1,
        "num_attention_heads": 24, "num_hidden_layers": 64, "num_key_value_heads": 4,
        "rms_norm_eps": 1e-06, "rope_parameters": {"mrope_interleaved": true,
            "mrope_section": [11, 11, 10], "partial_rotary_factor": 0.25,
            "rope_theta": 10000000, "rope_type": "default"}, "vocab_size": 248320},
    "tie_word_embeddings": false, "vision_config": {"model_type": "qwen3_5"}})";

constexpr const char* kQwen3_5Moe = R"({"architectures": ["Qwen3_5MoeForConditionalGeneration"],
    "model_type": "qwen3_5_moe", "text_config": {"full_attention_interval": 4, "head_dim": 256,
        "hidden_act": "silu", "hidden_size": 2048, "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": 128, "linear_num_key_heads": 16, "linear_num_value_heads": 32,
        "linear_value_head_dim": 128, "max_position_embeddings": 262144,
        "model_type": "qwen3_5_moe_text", "moe_intermediate_size": 512, "num_attention_heads": 16,
        "num_experts": 256, "num_experts_per_tok": 8, "num_hidden_layers": 40,
        "num_key_value_heads": 2, "rms_norm_eps": 1e-06, "rope_parameters": {
            "mrope_interleaved": true, "mrope_section": [11, 11, 10],
            "partial_rotary_factor": 0.25, "rope_theta": 10000000, "rope_type": "default"},
        "shared_expert_intermediate_size": 512, "vocab_size": 248320},
    "tie_word_embeddings": false, "vision_config": {"model_type": "qwen3_5_moe"}})";

constexpr const char* kGraniteHybrid = R"({"architectures": ["GraniteMoeHybridForCausalLM"],
    "model_type": "granitemoehybrid", "attention_bias": false, "attention_multiplier": 0.0078125,
    "embedding_multiplier": 12, "hidden_act": "silu", "hidden_size": 1536,
    "intermediate_size": 512, "layer_types": ["mamba", "mamba", "mamba", "mamba", "mamba",
        "attention", "mamba", "mamba", "mamba", "mamba", "mamba", "mamba", "mamba", "mamba",
        "mamba", "attention", "mamba", "mamba", "mamba", "mamba", "mamba", "mamba", "mamba",
        "mamba", "mamba", "attention", "mamba", "mamba", "mamba", "mamba", "mamba", "mamba",
        "mamba", "mamba", "mamba", "attention", "mamba", "mamba", "mamba", "mamba"],
    "logits_scaling": 6, "mamba_chunk_size": 256, "mamba_conv_bias": true, "mamba_d_conv": 4,
    "mamba_d_head": 64, "mamba_d_state": 128, "mamba_expand": 2, "mamba_n_groups": 1,
    "mamba_n_heads": 48, "mamba_proj_bias": false, "max_position_embeddings": 131072,
    "normalization_function": "rmsnorm", "num_attention_heads": 12, "num_experts_per_tok": 6,
    "num_hidden_layers": 40, "num_key_value_heads": 4, "num_local_experts": 64,
    "position_embedding_type": "nope", "residual_multiplier": 0.22, "rms_norm_eps": 1e-05,
    "rope_scaling": null, "rope_theta": 10000, "shared_intermediate_size": 1024,
    "tie_word_embeddings": true, "vocab_size": 100352})";

constexpr const char* kBamba = R"({"architectures": ["BambaForCausalLM"], "model_type": "bamba",
    "attention_bias": false, "attn_layer_indices": [9, 18, 27], "attn_rotary_emb": 64,
    "hidden_act": "silu", "hidden_size": 4096, "intermediate_size": 14336,
    "mamba_chunk_size": 256, "mamba_conv_bias": true, "mamba_d_conv": 4, "mamba_d_head": 64,
    "mamba_d_state": 128, "mamba_expand": 2, "mamba_n_groups": 1, "mamba_n_heads": 128,
    "mamba_proj_bias": false, "max_position_embeddings": 262144, "num_attention_heads": 32,
    "num_hidden_layers": 32, "num_key_value_heads": 8, "rms_norm_eps": 1e-05,
    "rope_theta": 10000.0, "tie_word_embeddings": false, "vocab_size": 128256})";

constexpr const char* kNemotronH = R"({"architectures": ["NemotronHForCausalLM"],
    "model_type": "nemotron_h", "attention_bias": false, "chunk_size": 128, "conv_kernel": 4,
    "expand": 2, "head_dim": 128, "hidden_size": 2688,
    "hybrid_override_pattern": "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME",
    "intermediate_size": 1856, "layer_norm_epsilon": 1e-05, "mamba_head_dim": 64,
    "mamba_hidden_act": "silu", "mamba_num_heads": 64, "mamba_proj_bias": false,
    "max_position_embeddings": 262144, "mlp_bias": false, "mlp_hidden_act": "relu2",
    "moe_intermediate_size": 1856, "moe_shared_expert_intermediate_size": 3712, "n_group": 1,
    "n_groups": 8, "n_routed_experts": 128, "n_shared_experts": 1, "norm_topk_prob": true,
    "num_attention_heads": 32, "num_experts_per_tok": 6, "num_hidden_layers": 52,
    "num_key_value_heads": 2, "residual_in_fp32": false, "routed_scaling_factor": 2.5,
    "sliding_window": null, "ssm_state_size": 128, "tie_word_embeddings": false,
    "time_step_limit": [0.0, 1e39], "time_step_min": 0.001, "topk_group": 1,
    "use_bias": false, "use_conv_bias": true, "vocab_size": 131072})";

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

TEST(StateConfigsTest, Qwen3NextHasGatesBehindItsQueries) {
  const ModelConfig config = Config(kQwen3Next);
  EXPECT_EQ(CountParameters(config), 79674391296);
  EXPECT_EQ(LayersWithAttention(config).size(), 12u);
  EXPECT_EQ(LayersWithAttention(config)[0], 3);
  EXPECT_TRUE(config.gate_in_query && config.norm_plus_one && config.states.by_group);
  EXPECT_EQ(config.ropes[0].dim, 64);
  EXPECT_EQ(config.states.conv_width, 8192);
  EXPECT_EQ(config.states.norm_group, 128);
  EXPECT_FALSE(Config(kQwen3Next, R"({"norm_topk_prob": false})").experts.routing.renormalize);
  const ModelConfig dense = Config(kQwen3Next, R"({"mlp_only_layers": [5]})");
  EXPECT_FALSE(dense.layers[5].has_experts);
}

TEST(StateConfigsTest, Qwen3_5IsInsideItsMultimodalClass) {
  const ModelConfig config = Config(kQwen3_5);
  EXPECT_EQ(config.architecture, "Qwen3_5ForCausalLM");
  EXPECT_EQ(CountParameters(config), 26895998464);
  EXPECT_EQ(LayersWithAttention(config).size(), 16u);
  EXPECT_FALSE(config.states.by_group);
  EXPECT_EQ(config.ropes[0].dim, 64);
  EXPECT_EQ(config.ropes[0].theta, 1e7);
  const ModelConfig experts = Config(kQwen3_5Moe);
  EXPECT_EQ(CountParameters(experts), 34660610688);
  EXPECT_TRUE(experts.experts.shared_gate && experts.experts.routing.renormalize);
}

TEST(StateConfigsTest, GraniteMayHaveExpertsOrNone) {
  const ModelConfig config = Config(kGraniteHybrid);
  EXPECT_EQ(CountParameters(config), 6939037248);
  EXPECT_EQ(LayersWithAttention(config), (std::vector<int32_t>{5, 15, 25, 35}));
  EXPECT_EQ(config.layers[5].rope, -1);
  EXPECT_EQ(config.states.norm_group, 3072);
  EXPECT_TRUE(config.states.gate_before_norm);
  const ModelConfig dense = Config(kGraniteHybrid, R"({"num_local_experts": 0})");
  EXPECT_EQ(dense.experts.num_experts, 0);
  EXPECT_EQ(dense.intermediate_size, 1024);
  const ModelConfig rotated = Config(kGraniteHybrid, R"({"position_embedding_type": "rope"})");
  EXPECT_EQ(rotated.layers[5].rope, 0);
  EXPECT_EQ(rotated.layers[4].rope, -1);
}

TEST(StateConfigsTest, BambaListsItsLayersWithAttention) {
  const ModelConfig config = Config(kBamba);
  EXPECT_EQ(CountParameters(config), 9780235392);
  EXPECT_EQ(LayersWithAttention(config), (std::vector<int32_t>{9, 18, 27}));
  EXPECT_EQ(config.ropes[0].dim, 64);
}

TEST(StateConfigsTest, NemotronHHasOnePartALayer) {
  const ModelConfig config = Config(kNemotronH);
  EXPECT_EQ(CountParameters(config), 31577940288);
  EXPECT_EQ(config.num_layers, 52);
  EXPECT_EQ(LayersWithAttention(config), (std::vector<int32_t>{5, 12, 19, 26, 33, 42}));
  EXPECT_EQ(config.layers[1].mixer, Mixer::kNone);
  EXPECT_TRUE(config.layers[1].has_experts && config.layers[1].has_feed_forward);
  EXPECT_FALSE(config.layers[0].has_feed_forward);
  EXPECT_EQ(config.text_prefix, "backbone.");
  EXPECT_EQ(config.states.norm_group, 512);
  EXPECT_FALSE(config.gated);
  const ModelConfig words = Config(kNemotronH, R"({"hybrid_override_pattern": null,
      "layers_block_type": ["mamba", "attention", "moe", "mlp", "linear_attention"]})");
  EXPECT_EQ(words.num_layers, 5);
  EXPECT_FALSE(words.layers[3].has_experts);
  EXPECT_EQ(Config(kNemotronH, R"({"moe_latent_size": 1024})").experts.latent_size, 1024);
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
  EXPECT_EQ(RefusedKey(kQwen3Next, R"({"linear_num_value_heads": 24})"), "linear_num_value_heads");
  EXPECT_EQ(RefusedKey(kQwen3Next, R"({"num_hidden_layers": 3})"), "full_attention_interval");
  EXPECT_EQ(RefusedKey(kQwen3Next, R"({"hidden_act": "gelu"})"), "hidden_act");
  EXPECT_EQ(RefusedKey(kQwen3Next, R"({"attn_output_gate": false})"), "attn_output_gate");
  EXPECT_EQ(RefusedKey(kGraniteHybrid, R"({"mamba_n_heads": 50})"), "mamba_n_heads");
  EXPECT_EQ(RefusedKey(kGraniteHybrid, R"({"mamba_d_head": 32})"), "mamba_n_heads");
  EXPECT_EQ(RefusedKey(kGraniteHybrid, R"({"layer_types": null})"), "layer_types");
  EXPECT_EQ(RefusedKey(kGraniteHybrid, R"({"position_embedding_type": "alibi"})"),
            "position_embedding_type");
  EXPECT_EQ(RefusedKey(kGraniteHybrid, R"({"time_step_limit": [1, 0]})"), "time_step_limit");
  EXPECT_EQ(RefusedKey(kBamba, R"({"attn_layer_indices": null})"), "attn_layer_indices");
  EXPECT_EQ(RefusedKey(kNemotronH, R"({"hybrid_override_pattern": "MXM*"})"),
            "hybrid_override_pattern");
  EXPECT_EQ(RefusedKey(kNemotronH, R"({"hybrid_override_pattern": "MEM"})"),
            "hybrid_override_pattern");
  EXPECT_EQ(RefusedKey(kNemotronH, R"({"mlp_bias": true})"), "mlp_bias");
  EXPECT_EQ(RefusedKey(kNemotronH, R"({"n_shared_experts": 2})"), "n_shared_experts");
  EXPECT_EQ(RefusedKey(kNemotronH, R"({"layers_block_type": ["x"]})"), "layers_block_type");
}

}  // namespace
}  // namespace minisgl
