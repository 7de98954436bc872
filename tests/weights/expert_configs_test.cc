// The configurations of published models with experts, as their config.json states them, and
// settings of experts that are refused.
#include <gtest/gtest.h>

#include <cmath>

#include "config_check.h"

namespace minisgl {
namespace {

constexpr const char* kMixtral = R"({"architectures": ["MixtralForCausalLM"],
    "model_type": "mixtral", "hidden_act": "silu", "hidden_size": 4096, "intermediate_size": 14336,
    "max_position_embeddings": 32768, "num_attention_heads": 32, "num_experts_per_tok": 2,
    "num_hidden_layers": 32, "num_key_value_heads": 8, "num_local_experts": 8,
    "output_router_logits": false, "rms_norm_eps": 1e-05, "rope_theta": 1000000.0,
    "router_aux_loss_coef": 0.02, "sliding_window": null, "tie_word_embeddings": false,
    "torch_dtype": "bfloat16", "vocab_size": 32000})";

constexpr const char* kQwen3Moe = R"({"architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe", "attention_bias": false, "decoder_sparse_step": 1, "head_dim": 128,
    "hidden_act": "silu", "hidden_size": 2048, "intermediate_size": 6144,
    "max_position_embeddings": 40960, "max_window_layers": 48, "mlp_only_layers": [],
    "moe_intermediate_size": 768, "norm_topk_prob": true, "num_attention_heads": 32,
    "num_experts": 128, "num_experts_per_tok": 8, "num_hidden_layers": 48,
    "num_key_value_heads": 4, "rms_norm_eps": 1e-06, "rope_scaling": null,
    "rope_theta": 1000000.0, "sliding_window": null, "tie_word_embeddings": false,
    "torch_dtype": "bfloat16", "use_sliding_window": false, "vocab_size": 151936})";

int64_t CountExpertLayers(const ModelConfig& config) {
  int64_t count = 0;
  for (const LayerConfig& layer : config.layers) count += layer.has_experts ? 1 : 0;
  return count;
}

TEST(ExpertConfigsTest, Mixtral) {
  const ModelConfig config = Config(kMixtral);
  EXPECT_EQ(config.experts.num_experts, 8);
  EXPECT_EQ(config.experts.num_chosen, 2);
  EXPECT_EQ(config.experts.intermediate_size, 14336);
  EXPECT_EQ(config.experts.shared_intermediate_size, 0);
  EXPECT_TRUE(config.experts.routing.renormalize);
  EXPECT_EQ(CountExpertLayers(config), 32);
  EXPECT_EQ(CountParameters(config), 46'702'792'704);
}

TEST(ExpertConfigsTest, Qwen2MoeSharesAnExpert) {
  constexpr const char* kText = R"({"architectures": ["Qwen2MoeForCausalLM"],
      "model_type": "qwen2_moe", "decoder_sparse_step": 1, "hidden_act": "silu",
      "hidden_size": 2048, "intermediate_size": 5632, "max_position_embeddings": 8192,
      "max_window_layers": 21, "moe_intermediate_size": 1408, "norm_topk_prob": false,
      "num_attention_heads": 16, "num_experts": 60, "num_experts_per_tok": 4,
      "num_hidden_layers": 24, "num_key_value_heads": 16, "rms_norm_eps": 1e-06,
      "rope_theta": 1000000.0, "shared_expert_intermediate_size": 5632, "sliding_window": 32768,
      "tie_word_embeddings": false, "torch_dtype": "bfloat16", "use_sliding_window": false,
      "vocab_size": 151936})";
  const ModelConfig config = Config(kText);
  EXPECT_EQ(config.experts.num_experts, 60);
  EXPECT_EQ(config.experts.intermediate_size, 1408);
  EXPECT_EQ(config.experts.shared_intermediate_size, 5632);
  EXPECT_TRUE(config.experts.shared_gate && config.qkv_bias);
  EXPECT_FALSE(config.experts.routing.renormalize);
  EXPECT_EQ(CountParameters(config), 14'315'784'192);
  const ModelConfig slides = Config(kText, R"({"use_sliding_window": true, "qkv_bias": false})");
  EXPECT_EQ(slides.layers[0].sliding_window, 32768);
  EXPECT_EQ(slides.layers[1].sliding_window, 0);
  EXPECT_EQ(slides.layers[20].sliding_window, 32768);
  EXPECT_EQ(slides.layers[22].sliding_window, 0);
  EXPECT_FALSE(slides.qkv_bias);
}

TEST(ExpertConfigsTest, KExaone) {
  constexpr const char* kText = R"({"architectures": ["ExaoneMoeForCausalLM"],
      "model_type": "exaone_moe", "head_dim": 128, "hidden_act": "silu", "hidden_size": 6144,
      "intermediate_size": 18432, "max_position_embeddings": 262144, "moe_intermediate_size": 2048,
      "n_group": 1, "topk_group": 1, "norm_topk_prob": true, "num_attention_heads": 64,
      "num_experts": 128, "num_experts_per_tok": 8, "num_hidden_layers": 48,
      "num_key_value_heads": 8, "num_shared_experts": 1, "first_k_dense_replace": 1,
      "rms_norm_eps": 1e-05, "rope_parameters": {"rope_theta": 1000000, "rope_type": "default"},
      "routed_scaling_factor": 2.5, "sliding_window": 128, "sliding_window_pattern": 4,
      "tie_word_embeddings": false, "vocab_size": 153600})";
  const ModelConfig config = Config(kText);
  EXPECT_EQ(CountParameters(config), 236'571'156'352);
  EXPECT_EQ(config.layers[3].rope, -1);
  EXPECT_EQ(config.layers[2].rope, 0);
  EXPECT_FALSE(config.layers[0].has_experts);
  EXPECT_TRUE(config.experts.choice_bias);
  EXPECT_EQ(RefusedKey(kText, R"({"mlp_layer_types": ["dense"]})"), "mlp_layer_types");
  EXPECT_EQ(RefusedKey(kText, R"({"topk_group": 2})"), "topk_group");
}

// A model of 30 billion parameters: the first layer is dense, without a window, and rotated.
TEST(ExpertConfigsTest, Cohere2Moe) {
  constexpr const char* kText = R"({"architectures": ["Cohere2MoeForCausalLM"],
      "model_type": "cohere2_moe", "attention_bias": false, "expert_selection_fn": "sigmoid",
      "first_k_dense_replace": 1, "head_dim": 128, "hidden_act": "silu", "hidden_size": 2048,
      "intermediate_size": 768, "layer_norm_eps": 1e-05, "logit_scale": 0.25,
      "max_position_embeddings": 131072, "norm_topk_prob": true, "num_attention_heads": 32,
      "num_experts": 128, "num_experts_per_tok": 8, "num_hidden_layers": 10,
      "num_key_value_heads": 4, "num_shared_experts": 0, "prefix_dense_intermediate_size": 12288,
      "prefix_dense_sliding_window_pattern": 1, "rope_theta": 50000, "sliding_window": 4096,
      "sliding_window_pattern": 4, "vocab_size": 256000})";
  const ModelConfig config = Config(kText);
  EXPECT_EQ(config.norm_kind, NormKind::kLayer);
  EXPECT_EQ(config.intermediate_size, 12288);
  EXPECT_EQ(config.experts.intermediate_size, 768);
  EXPECT_EQ(config.experts.routing, (Routing{.score = RouteScore::kSigmoid, .renormalize = true}));
  EXPECT_EQ(config.layers[0], (LayerConfig{.sliding_window = 0, .rope = 0}));
  EXPECT_EQ(config.layers[1], (LayerConfig{.sliding_window = 4096, .has_experts = true}));
  EXPECT_EQ(config.layers[4], (LayerConfig{.rope = -1, .has_experts = true}));
  EXPECT_EQ(config.layers[8], (LayerConfig{.rope = -1, .has_experts = true}));
  const int64_t attention = int64_t{2048} * 128 * (32 + 4 + 4 + 32), table = int64_t{256000} * 2048;
  EXPECT_EQ(CountParameters(config), table + 11 * 2048 + 10 * attention + 3 * 2048 * 12288 +
                                         int64_t{9} * (128 * 2048 + 128 * 3 * 2048 * 768));
  // The dense layers may have windows of their own.
  const ModelConfig more = Config(kText, R"({"first_k_dense_replace": 3,
      "prefix_dense_sliding_window_pattern": 2, "rms_norm_eps": 1e-06, "num_shared_experts": 2})");
  EXPECT_EQ(more.layers[0], (LayerConfig{.sliding_window = 4096}));
  EXPECT_EQ(more.layers[1], (LayerConfig{.rope = -1}));
  EXPECT_EQ(more.layers[6], (LayerConfig{.rope = -1, .has_experts = true}));
  EXPECT_EQ(more.norm_kind, NormKind::kRms);
  EXPECT_EQ(more.norm_eps, 1e-6);
  EXPECT_EQ(more.experts.shared_intermediate_size, 1536);
  EXPECT_TRUE(more.experts.shared_half);
  EXPECT_EQ(more.experts.routing.factor, 0.5f);
  const auto refused = [&](const char* changes) { return RefusedKey(kText, changes); };
  EXPECT_EQ(refused(R"({"expert_selection_fn": "top"})"), "expert_selection_fn");
  EXPECT_EQ(refused(R"({"shared_expert_combination_strategy": "mean"})"),
            "shared_expert_combination_strategy");
  EXPECT_EQ(refused(R"({"prefix_dense_intermediate_size": null})"),
            "prefix_dense_intermediate_size");
  EXPECT_EQ(refused(R"({"use_parallel_block": false})"), "use_parallel_block");
}

TEST(ExpertConfigsTest, HunYuanStatesEachLayer) {
  constexpr const char* kText = R"({"architectures": ["HunYuanMoEV1ForCausalLM"],
      "model_type": "hunyuan_v1_moe", "attention_bias": false, "attention_head_dim": 128,
      "head_dim": 128, "hidden_act": "silu", "hidden_size": 4096, "intermediate_size": 3072,
      "max_position_embeddings": 32768, "mlp_bias": false, "moe_intermediate_size": 3072,
      "moe_layer_num_skipped": 0, "moe_topk": 8, "num_attention_heads": 32, "num_experts": 64,
      "num_hidden_layers": 3, "num_key_value_heads": 8, "num_shared_expert": 1,
      "rms_norm_eps": 1e-05, "rope_theta": 10000.0,
      "rope_scaling": {"alpha": 1000.0, "factor": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0,
          "type": "dynamic"},
      "tie_word_embeddings": true, "use_cla": false, "use_qk_norm": true, "vocab_size": 128167})";
  EXPECT_EQ(CountParameters(Config(kText, R"({"num_hidden_layers": 32})")), 80'393'183'232);
  const ModelConfig config = Config(kText, R"({"moe_topk": [8, 8, 8],
      "num_shared_expert": [1, 1, 1], "moe_intermediate_size": [3072, 3072, 3072]})");
  EXPECT_EQ(config.experts.num_chosen, 8);
  EXPECT_EQ(config.experts.shared_intermediate_size, 3072);
  EXPECT_EQ(RefusedKey(kText, R"({"moe_topk": [8, 8, 4]})"), "moe_topk");
  EXPECT_EQ(RefusedKey(kText, R"({"moe_topk": "8"})"), "moe_topk");
  EXPECT_EQ(RefusedKey(kText, R"({"moe_topk": 65})"), "num_experts");
  EXPECT_EQ(RefusedKey(kText, R"({"moe_intermediate_size": [3072, 3072, 1]})"),
            "moe_intermediate_size");
  EXPECT_EQ(RefusedKey(kText, R"({"num_shared_expert": 2})"), "num_shared_expert");
}

TEST(ExpertConfigsTest, Qwen3Moe) {
  const ModelConfig config = Config(kQwen3Moe);
  EXPECT_EQ(config.experts.num_experts, 128);
  EXPECT_EQ(config.experts.num_chosen, 8);
  EXPECT_TRUE(config.experts.routing.renormalize);
  EXPECT_EQ(config.qk_norm, QkNorm::kHead);
  EXPECT_EQ(CountParameters(config), 30'532'122'624);
  // As transformers 5 writes the same.
  const ModelConfig newer = Config(kQwen3Moe, R"({"num_experts": null, "num_local_experts": 128})");
  EXPECT_EQ(newer.experts.num_experts, 128);
  EXPECT_EQ(Config(kQwen3Moe, R"({"use_sliding_window": true, "sliding_window": 64})")
                .layers[1]
                .sliding_window,
            64);
}

TEST(ExpertConfigsTest, SomeLayersMayBeDense) {
  const ModelConfig config =
      Config(kQwen3Moe,
             R"({"num_hidden_layers": 6, "decoder_sparse_step": 2, "mlp_only_layers": [3, 77]})");
  const std::vector<bool> wanted = {false, true, false, false, false, true};
  for (size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_EQ(config.layers[i].has_experts, wanted[i]) << i;
  }
}

TEST(ExpertConfigsTest, Olmoe) {
  constexpr const char* kText = R"({"architectures": ["OlmoeForCausalLM"], "model_type": "olmoe",
      "attention_bias": false, "clip_qkv": null, "hidden_act": "silu", "hidden_size": 2048,
      "intermediate_size": 1024, "max_position_embeddings": 4096, "norm_topk_prob": false,
      "num_attention_heads": 16, "num_experts": 64, "num_experts_per_tok": 8,
      "num_hidden_layers": 16, "num_key_value_heads": 16, "rms_norm_eps": 1e-05,
      "rope_scaling": null, "rope_theta": 10000.0, "tie_word_embeddings": false,
      "torch_dtype": "bfloat16", "vocab_size": 50304})";
  const ModelConfig config = Config(kText);
  EXPECT_EQ(config.experts.intermediate_size, 1024);
  EXPECT_EQ(config.qk_norm, QkNorm::kWhole);
  EXPECT_FALSE(config.experts.routing.renormalize);
  EXPECT_EQ(CountParameters(config), 6'919'161'856);
  EXPECT_EQ(RefusedKey(kText, R"({"clip_qkv": 8.0})"), "clip_qkv");
}

TEST(ExpertConfigsTest, GraniteMoeMultipliesToo) {
  const ModelConfig config = Config(R"({"architectures": ["GraniteMoeForCausalLM"],
      "model_type": "granitemoe", "attention_bias": false, "attention_multiplier": 0.015625,
      "embedding_multiplier": 12.0, "hidden_act": "silu", "hidden_size": 1024,
      "intermediate_size": 512, "logits_scaling": 6.0, "max_position_embeddings": 131072,
      "num_attention_heads": 16, "num_experts_per_tok": 8, "num_hidden_layers": 24,
      "num_key_value_heads": 8, "num_local_experts": 32, "residual_multiplier": 0.22,
      "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 1500000.0,
      "tie_word_embeddings": true, "torch_dtype": "bfloat16", "vocab_size": 49155})");
  EXPECT_EQ(config.experts.num_experts, 32);
  EXPECT_TRUE(config.experts.routing.renormalize);
  EXPECT_EQ(config.attention_scale, 0.015625);
  EXPECT_EQ(config.logit_scale, 1 / 6.0);
  EXPECT_EQ(CountParameters(config), 1'334'628'352);
}

constexpr const char* kGptOss = R"({"architectures": ["GptOssForCausalLM"],
    "model_type": "gpt_oss", "attention_bias": true, "experts_per_token": 4, "head_dim": 64,
    "hidden_act": "silu", "hidden_size": 2880, "initial_context_length": 4096,
    "intermediate_size": 2880, "max_position_embeddings": 131072, "num_attention_heads": 64,
    "num_experts_per_tok": 4, "num_hidden_layers": 24, "num_key_value_heads": 8,
    "num_local_experts": 32, "rms_norm_eps": 1e-05, "rope_scaling": {"beta_fast": 32.0,
      "beta_slow": 1.0, "factor": 32.0, "original_max_position_embeddings": 4096,
      "rope_type": "yarn", "truncate": false}, "rope_theta": 150000, "sliding_window": 128,
    "swiglu_limit": 7.0, "tie_word_embeddings": false, "vocab_size": 201088})";

TEST(ExpertConfigsTest, GptOss) {
  const ModelConfig config = Config(kGptOss);
  EXPECT_TRUE(config.attention_sinks && config.qkv_bias && config.attention_output_bias);
  EXPECT_TRUE(config.feed_forward_bias && config.experts.routing.renormalize);
  EXPECT_EQ(config.activation, Activation::kClampedSwiglu);
  EXPECT_EQ(config.activation_limit, 7);
  EXPECT_EQ(config.layers[0].sliding_window, 128);
  EXPECT_EQ(config.layers[1].sliding_window, 0);
  EXPECT_FALSE(config.ropes[0].truncate);
  EXPECT_EQ(config.ropes[0].theta, 150000);
  EXPECT_DOUBLE_EQ(config.ropes[0].attention_factor, 0.1 * std::log(32.0) + 1);
  EXPECT_EQ(CountParameters(config), 20'914'757'184);
  // Without settings the file means these.
  const ModelConfig silent =
      Config(kGptOss, R"({"rope_scaling": null, "rope_theta": null, "attention_bias": null})");
  EXPECT_EQ(silent.ropes, config.ropes);
  EXPECT_TRUE(silent.qkv_bias && silent.attention_output_bias);
}

constexpr const char* kGlm4Moe = R"({"architectures": ["Glm4MoeForCausalLM"],
    "model_type": "glm4_moe", "attention_bias": true, "attention_dropout": 0.0,
    "eos_token_id": [151329, 151336, 151338], "first_k_dense_replace": 1, "head_dim": 128,
    "hidden_act": "silu", "hidden_size": 4096, "intermediate_size": 10944,
    "max_position_embeddings": 131072, "moe_intermediate_size": 1408, "n_group": 1,
    "n_routed_experts": 128, "n_shared_experts": 1, "norm_topk_prob": true,
    "num_attention_heads": 96, "num_experts_per_tok": 8, "num_hidden_layers": 46,
    "num_key_value_heads": 8, "num_nextn_predict_layers": 1, "partial_rotary_factor": 0.5,
    "rms_norm_eps": 1e-05, "rope_scaling": null, "rope_theta": 1000000,
    "routed_scaling_factor": 1.0, "tie_word_embeddings": false, "topk_group": 1,
    "torch_dtype": "bfloat16", "use_qk_norm": false, "vocab_size": 151552})";

TEST(ExpertConfigsTest, Glm4Moe) {
  const ModelConfig config = Config(kGlm4Moe);
  EXPECT_EQ(config.experts.num_experts, 128);
  EXPECT_EQ(config.experts.num_chosen, 8);
  EXPECT_EQ(config.experts.shared_intermediate_size, 1408);
  EXPECT_TRUE(config.experts.choice_bias && config.qkv_bias);
  EXPECT_FALSE(config.attention_output_bias);
  EXPECT_EQ(config.experts.routing, (Routing{.score = RouteScore::kSigmoid,
                                             .renormalize = true,
                                             .best_of_group = 2,
                                             .sum_eps = 1e-20f}));
  EXPECT_EQ(config.ropes[0].dim, 64);
  EXPECT_EQ(config.qk_norm, QkNorm::kNone);
  EXPECT_EQ(CountExpertLayers(config), 45);
  EXPECT_FALSE(config.layers[0].has_experts);
  EXPECT_EQ(config.num_prediction_layers, 1);
  EXPECT_EQ(CountParameters(config), 106'852'251'264);
  // Without settings the file means these.
  const ModelConfig silent = Config(kGlm4Moe, R"({"n_group": null, "topk_group": null,
      "partial_rotary_factor": null, "routed_scaling_factor": null, "norm_topk_prob": null,
      "n_shared_experts": null, "first_k_dense_replace": null, "num_nextn_predict_layers": null,
      "num_experts_per_tok": null, "n_routed_experts": null, "moe_intermediate_size": null})");
  EXPECT_EQ(silent.experts.routing, config.experts.routing);
  EXPECT_EQ(silent.layers, config.layers);
  EXPECT_EQ(silent.num_prediction_layers, 0);  // a layer more than the model has is an error
  EXPECT_EQ(CountParameters(silent), CountParameters(config));
}

TEST(ExpertConfigsTest, Glm4MoeReadsGroups) {
  const ModelConfig config = Config(kGlm4Moe, R"({"n_group": 8, "topk_group": 4,
      "routed_scaling_factor": 2.5, "use_qk_norm": true, "num_local_experts": 128})");
  EXPECT_EQ(config.experts.routing.num_groups, 8);
  EXPECT_EQ(config.experts.routing.num_chosen_groups, 4);
  EXPECT_EQ(config.experts.routing.factor, 2.5f);
  EXPECT_EQ(config.qk_norm, QkNorm::kHead);
  EXPECT_EQ(RefusedKey(kGlm4Moe, R"({"n_group": 7})"), "n_group");
  EXPECT_EQ(RefusedKey(kGlm4Moe, R"({"n_group": 128})"), "n_group");  // groups of one
  EXPECT_EQ(RefusedKey(kGlm4Moe, R"({"n_group": 0})"), "n_group");
  EXPECT_EQ(RefusedKey(kGlm4Moe, R"({"n_group": 8, "topk_group": 9})"), "topk_group");
  // 4 experts in the chosen groups, 8 for a token.
  EXPECT_EQ(RefusedKey(kGlm4Moe, R"({"n_group": 64, "topk_group": 2})"), "topk_group");
  EXPECT_EQ(RefusedKey(kGlm4Moe, R"({"num_local_experts": 64})"), "n_routed_experts");
  EXPECT_EQ(RefusedKey(kGlm4Moe, R"({"n_shared_experts": 0})"), "n_shared_experts");
  EXPECT_EQ(RefusedKey(kGlm4Moe, R"({"routed_scaling_factor": 0})"), "routed_scaling_factor");
  EXPECT_EQ(RefusedKey(kGlm4Moe, R"({"num_nextn_predict_layers": 65})"),
            "num_nextn_predict_layers");
}

TEST(ExpertConfigsTest, Ernie45Moe) {
  constexpr const char* kText = R"({"architectures": ["Ernie4_5_MoeForCausalLM"],
      "model_type": "ernie4_5_moe", "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu",
      "hidden_size": 2560, "intermediate_size": 12288, "max_position_embeddings": 131072,
      "moe_capacity": [64, 64, 64], "moe_gate": "topk", "moe_intermediate_size": 1536, "moe_k": 6,
      "moe_layer_end_index": 27, "moe_layer_interval": 1, "moe_layer_start_index": 1,
      "moe_num_experts": 64, "moe_num_shared_experts": 2, "moe_use_aux_free": true,
      "num_attention_heads": 20, "num_hidden_layers": 28, "num_key_value_heads": 4,
      "num_nextn_predict_layers": 1, "rms_norm_eps": 1e-05, "rope_scaling": null,
      "rope_theta": 500000.0, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
      "use_bias": false, "use_cache": false, "vocab_size": 103424})";
  const ModelConfig config = Config(kText);
  EXPECT_EQ(config.experts.num_experts, 64);
  EXPECT_EQ(config.experts.num_chosen, 6);
  EXPECT_EQ(config.experts.shared_intermediate_size, 3072);
  EXPECT_EQ(config.experts.routing, (Routing{.renormalize = true, .sum_min = 1e-12f}));
  EXPECT_TRUE(config.experts.choice_bias && config.rotary_interleaved);
  EXPECT_EQ(config.head_dim, 128);
  EXPECT_EQ(CountExpertLayers(config), 27);
  EXPECT_EQ(config.num_prediction_layers, 1);
  EXPECT_EQ(CountParameters(config), 21'825'437'888);
  const ModelConfig some = Config(kText, R"({"moe_layer_interval": 2, "moe_layer_end_index": 9,
      "moe_layer_start_index": 4, "moe_num_shared_experts": 0})");
  EXPECT_EQ(CountExpertLayers(some), 3);
  EXPECT_TRUE(some.layers[5].has_experts && some.layers[7].has_experts);
  EXPECT_EQ(some.experts.shared_intermediate_size, 0);
  EXPECT_EQ(CountExpertLayers(Config(kText, R"({"moe_layer_end_index": -1})")), 27);
  EXPECT_EQ(RefusedKey(kText, R"({"use_bias": true})"), "use_bias");
  EXPECT_EQ(RefusedKey(kText, R"({"moe_k": 65})"), "moe_k");
  // The reference takes the usual names too.
  const ModelConfig other = Config(kText, R"({"moe_k": null, "num_experts_per_tok": 4,
      "moe_num_experts": null, "num_experts": 32})");
  EXPECT_EQ(other.experts.num_experts, 32);
  EXPECT_EQ(other.experts.num_chosen, 4);
  EXPECT_EQ(RefusedKey(kText, R"({"num_experts_per_tok": 4})"), "num_experts_per_tok");
  EXPECT_EQ(RefusedKey(kText, R"({"num_experts": 32})"), "num_experts");
  EXPECT_EQ(RefusedKey(kText, R"({"moe_num_experts": 0})"), "moe_num_experts");
  EXPECT_EQ(RefusedKey(kText, R"({"moe_layer_interval": 0})"), "moe_layer_interval");
  EXPECT_EQ(RefusedKey(kText, R"({"moe_norm_min": -1})"), "moe_norm_min");
}

TEST(ExpertConfigsTest, MiniMaxM2) {
  constexpr const char* kText = R"({"architectures": ["MiniMaxM2ForCausalLM"],
      "model_type": "minimax_m2", "attn_type_list": [1, 1, 1, 1], "head_dim": 128,
      "hidden_act": "silu", "hidden_size": 3072, "intermediate_size": 1536,
      "max_position_embeddings": 196608, "mtp_transformer_layers": 1, "num_attention_heads": 48,
      "num_experts_per_tok": 8, "num_hidden_layers": 4, "num_key_value_heads": 8,
      "num_local_experts": 256, "num_mtp_modules": 3, "qk_norm_type": "per_layer",
      "rms_norm_eps": 1e-06, "rope_theta": 5000000, "rotary_dim": 64, "scoring_func": "sigmoid",
      "shared_intermediate_size": 0, "tie_word_embeddings": false, "use_mtp": true,
      "use_qk_norm": true, "use_routing_bias": true, "vocab_size": 200064})";
  const ModelConfig config = Config(kText);
  EXPECT_EQ(config.experts.num_experts, 256);
  EXPECT_EQ(config.experts.num_chosen, 8);
  EXPECT_EQ(config.experts.intermediate_size, 1536);
  EXPECT_EQ(config.experts.routing, (Routing{.score = RouteScore::kSigmoid, .renormalize = true}));
  EXPECT_TRUE(config.experts.choice_bias);
  EXPECT_EQ(config.qk_norm, QkNorm::kWhole);
  EXPECT_EQ(config.ropes[0].dim, 64);
  EXPECT_EQ(config.num_prediction_layers, 3);
  // 3,668,718,848 of each layer: attention, norms, router with its bias, experts.
  EXPECT_EQ(CountParameters(config), 15'904'071'680);
  EXPECT_EQ(Config(kText, R"({"partial_rotary_factor": 0.25})").ropes[0].dim, 32);
  EXPECT_EQ(Config(kText, R"({"rotary_dim": null})").ropes[0].dim, 128);
  EXPECT_EQ(RefusedKey(kText, R"({"rotary_dim": 130})"), "rotary_dim");
  EXPECT_EQ(RefusedKey(kText, R"({"scoring_func": "softmax"})"), "scoring_func");
  EXPECT_EQ(RefusedKey(kText, R"({"use_routing_bias": false})"), "use_routing_bias");
  EXPECT_EQ(RefusedKey(kText, R"({"qk_norm_type": "per_head"})"), "qk_norm_type");
  EXPECT_EQ(RefusedKey(kText, R"({"shared_intermediate_size": 1536})"), "shared_intermediate_size");
  EXPECT_EQ(RefusedKey(kText, R"({"attn_type_list": [1, 0, 1, 1]})"), "attn_type_list");
}

TEST(ExpertConfigsTest, GptOssRefusesWhatItsActivationCannotBe) {
  EXPECT_EQ(RefusedKey(kGptOss, R"({"hidden_act": "gelu"})"), "hidden_act");
  EXPECT_EQ(RefusedKey(kGptOss, R"({"swiglu_alpha": 2.0})"), "swiglu_alpha");
  EXPECT_EQ(RefusedKey(kGptOss, R"({"swiglu_limit": 0})"), "swiglu_limit");
}

TEST(ExpertConfigsTest, RefusesNumbersOfExpertsThatCannotBe) {
  for (const char* bad : {"0", "-1", "4097", "1.5", "\"8\"", "[8]"}) {
    EXPECT_EQ(RefusedKey(kMixtral, fmt::format(R"({{"num_local_experts": {}}})", bad)),
              "num_local_experts");
    EXPECT_EQ(RefusedKey(kQwen3Moe, fmt::format(R"({{"num_experts": {}}})", bad)), "num_experts");
    EXPECT_EQ(RefusedKey(kQwen3Moe, fmt::format(R"({{"num_experts_per_tok": {}}})", bad)),
              "num_experts_per_tok");
  }
  EXPECT_EQ(RefusedKey(kMixtral, R"({"num_experts_per_tok": 9})"), "num_experts_per_tok");
  EXPECT_EQ(RefusedKey(kMixtral, R"({"num_experts": 9})"), "num_experts");
  EXPECT_EQ(RefusedKey(kMixtral, R"({"num_local_experts": 4096, "num_hidden_layers": 10000})"),
            "num_local_experts");
  for (const char* bad : {"0", "-1", "true", "[1]"}) {
    EXPECT_EQ(RefusedKey(kQwen3Moe, fmt::format(R"({{"decoder_sparse_step": {}}})", bad)),
              "decoder_sparse_step");
  }
  for (const char* bad : {"1", "[-1]", "[\"1\"]", "{}", "[1.5]"}) {
    EXPECT_EQ(RefusedKey(kQwen3Moe, fmt::format(R"({{"mlp_only_layers": {}}})", bad)),
              "mlp_only_layers");
  }
  EXPECT_EQ(RefusedKey(kQwen3Moe, R"({"moe_intermediate_size": 0})"), "moe_intermediate_size");
  EXPECT_EQ(RefusedKey(kQwen3Moe, R"({"norm_topk_prob": 1})"), "norm_topk_prob");
}

}  // namespace
}  // namespace minisgl
