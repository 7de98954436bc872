// The configurations of published models without experts, as their config.json states them: the
// values read from each, and the published number of parameters.
#include <gtest/gtest.h>

#include <cmath>

#include "config_check.h"

namespace minisgl {
namespace {

TEST(DenseConfigsTest, Arcee) {
  const ModelConfig config = Config(R"({"architectures": ["ArceeForCausalLM"],
      "model_type": "arcee", "attention_bias": false, "head_dim": 128, "hidden_act": "relu2",
      "hidden_size": 2560, "intermediate_size": 18432, "max_position_embeddings": 65536,
      "mlp_bias": false, "num_attention_heads": 20, "num_hidden_layers": 36,
      "num_key_value_heads": 4, "rms_norm_eps": 1e-05,
      "rope_scaling": {"beta_fast": 32.0, "beta_slow": 1.0, "factor": 20.0, "mscale": 1.0,
          "original_max_position_embeddings": 4096, "rope_type": "yarn"},
      "rope_theta": 10000.0, "tie_word_embeddings": false, "vocab_size": 128004})");
  EXPECT_FALSE(config.gated);
  EXPECT_EQ(config.activation, Activation::kRelu2);
  EXPECT_EQ(CountParameters(config), 4'619'184'640);
}

TEST(DenseConfigsTest, ApertusHasNumbersOfAnActivationInEachLayer) {
  constexpr const char* kText = R"({"architectures": ["ApertusForCausalLM"],
      "model_type": "apertus", "attention_bias": false, "hidden_act": "xielu", "hidden_size": 4096,
      "intermediate_size": 21504, "max_position_embeddings": 65536, "mlp_bias": false,
      "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8,
      "post_norm": false, "qk_norm": true, "rms_norm_eps": 1e-05,
      "rope_scaling": {"factor": 8.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
          "original_max_position_embeddings": 8192, "rope_type": "llama3", "type": "llama3"},
      "rope_theta": 12000000, "tie_word_embeddings": false, "vocab_size": 131072})";
  const ModelConfig config = Config(kText);
  EXPECT_EQ(config.activation, Activation::kXielu);
  EXPECT_EQ(config.qk_norm, QkNorm::kHead);
  EXPECT_FALSE(config.gated);
  EXPECT_EQ(CountParameters(config), 8'053'338'240);
  const ModelConfig plain = Config(kText, R"({"hidden_act": "relu2"})");
  EXPECT_EQ(CountParameters(plain), CountParameters(config) - int64_t{4} * 32);
  EXPECT_EQ(Config(kText, R"({"rope_scaling": null, "rope_theta": null})").ropes, config.ropes);
  EXPECT_EQ(RefusedKey(kText, R"({"qk_norm": false})"), "qk_norm");
  EXPECT_EQ(RefusedKey(kText, R"({"post_norm": true})"), "post_norm");
  EXPECT_EQ(RefusedKey(kText, R"({"architectures": ["ArceeForCausalLM"], "model_type": "arcee"})"),
            "hidden_act");
}

TEST(DenseConfigsTest, MistralSlidesInEveryLayer) {
  constexpr const char* kText = R"({"architectures": ["MistralForCausalLM"],
      "model_type": "mistral", "hidden_act": "silu", "hidden_size": 4096,
      "intermediate_size": 14336, "max_position_embeddings": 32768, "num_attention_heads": 32,
      "num_hidden_layers": 32, "num_key_value_heads": 8, "rms_norm_eps": 1e-05,
      "rope_theta": 10000.0, "sliding_window": 4096, "tie_word_embeddings": false,
      "torch_dtype": "bfloat16", "vocab_size": 32000})";
  const ModelConfig config = Config(kText);
  EXPECT_EQ(config.layers, std::vector<LayerConfig>(32, {.sliding_window = 4096}));
  EXPECT_EQ(CountParameters(config), 7'241'732'096);
  EXPECT_EQ(Config(kText, R"({"sliding_window": null})").layers, std::vector<LayerConfig>(32));
  const ModelConfig nemo = Config(kText, R"({"hidden_size": 5120, "head_dim": 128,
      "num_hidden_layers": 40, "vocab_size": 131072, "sliding_window": null,
      "rope_theta": 1000000.0})");
  EXPECT_EQ(nemo.head_dim, 128);
  EXPECT_EQ(CountParameters(nemo), 12'247'782'400);
}

// A window that the file does not name is 4,096 keys wide.
TEST(DenseConfigsTest, MistralsSilenceIsAWindow) {
  const ModelConfig config = Config(R"({"model_type": "mistral", "hidden_size": 256,
      "intermediate_size": 64, "num_attention_heads": 8, "num_hidden_layers": 2,
      "vocab_size": 100})");
  EXPECT_EQ(config.layers, std::vector<LayerConfig>(2, {.sliding_window = 4096}));
}

TEST(DenseConfigsTest, Ministral3ScalesItsQueries) {
  constexpr const char* kText = R"({"architectures": ["Ministral3ForCausalLM"],
      "model_type": "ministral3", "dtype": "bfloat16", "head_dim": 128, "hidden_act": "silu",
      "hidden_size": 3072, "intermediate_size": 9216, "max_position_embeddings": 262144,
      "num_attention_heads": 32, "num_hidden_layers": 26, "num_key_value_heads": 8,
      "rms_norm_eps": 1e-05, "sliding_window": null, "tie_word_embeddings": true,
      "vocab_size": 131072, "rope_parameters": {"beta_fast": 32.0, "beta_slow": 1.0,
        "factor": 16.0, "llama_4_scaling_beta": 0.1, "mscale": 1.0, "mscale_all_dim": 1.0,
        "original_max_position_embeddings": 16384, "rope_theta": 1000000.0, "rope_type": "yarn",
        "type": "yarn"}})";
  const ModelConfig config = Config(kText);
  EXPECT_EQ(config.ropes, std::vector{(RopeConfig{.theta = 1e6,
                                                  .dim = 128,
                                                  .scaling = RopeScaling::kYarn,
                                                  .factor = 16,
                                                  .original_max_seq_len = 16384})});
  EXPECT_EQ(config.query_scale_beta, 0.1);
  EXPECT_EQ(config.query_scale_length, 16384);
  // Without settings the file means these.
  const ModelConfig silent = Config(kText, R"({"rope_parameters": null})");
  EXPECT_EQ(silent.ropes, config.ropes);
  EXPECT_EQ(silent.query_scale_beta, 0.1);
}

TEST(DenseConfigsTest, Qwen2SlidesFromALayerOn) {
  constexpr const char* kText = R"({"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2",
      "hidden_act": "silu", "hidden_size": 3584, "intermediate_size": 18944,
      "max_position_embeddings": 32768, "max_window_layers": 21, "num_attention_heads": 28,
      "num_hidden_layers": 28, "num_key_value_heads": 4, "rms_norm_eps": 1e-06,
      "rope_theta": 1000000.0, "sliding_window": 131072, "tie_word_embeddings": false,
      "torch_dtype": "bfloat16", "use_sliding_window": false, "vocab_size": 152064})";
  const ModelConfig config = Config(kText);
  EXPECT_TRUE(config.qkv_bias);
  EXPECT_FALSE(config.attention_output_bias);
  EXPECT_EQ(config.layers, std::vector<LayerConfig>(28));
  EXPECT_EQ(CountParameters(config), 7'615'616'512);
  const ModelConfig slides = Config(kText, R"({"use_sliding_window": true})");
  EXPECT_EQ(slides.layers[20].sliding_window, 0);
  EXPECT_EQ(slides.layers[21].sliding_window, 131072);
  EXPECT_EQ(slides.layers[27].sliding_window, 131072);
  const ModelConfig yarn = Config(kText, R"({"rope_scaling": {"factor": 4.0,
      "original_max_position_embeddings": 32768, "type": "yarn"}})");
  EXPECT_EQ(yarn.ropes[0].scaling, RopeScaling::kYarn);
  EXPECT_DOUBLE_EQ(yarn.ropes[0].attention_factor, 0.1 * std::log(4.0) + 1);
}

TEST(DenseConfigsTest, Qwen3NormalisesHeads) {
  const ModelConfig config = Config(R"({"architectures": ["Qwen3ForCausalLM"],
      "model_type": "qwen3", "attention_bias": false, "head_dim": 128, "hidden_size": 1024,
      "intermediate_size": 3072, "max_position_embeddings": 40960, "num_attention_heads": 16,
      "num_hidden_layers": 28, "num_key_value_heads": 8, "rms_norm_eps": 1e-06,
      "rope_theta": 1000000, "tie_word_embeddings": true, "vocab_size": 151936})",
                                    R"({"layer_types": null, "dtype": "bfloat16"})");
  EXPECT_EQ(config.qk_norm, QkNorm::kHead);
  EXPECT_EQ(CountParameters(config), 596'049'920);
}

TEST(DenseConfigsTest, GemmaScalesEmbeddings) {
  const ModelConfig config = Config(R"({"architectures": ["GemmaForCausalLM"],
      "model_type": "gemma", "attention_bias": false, "head_dim": 256, "hidden_act": "gelu",
      "hidden_activation": null, "hidden_size": 2048, "intermediate_size": 16384,
      "max_position_embeddings": 8192, "num_attention_heads": 8, "num_hidden_layers": 18,
      "num_key_value_heads": 1, "rms_norm_eps": 1e-06, "rope_theta": 10000.0,
      "torch_dtype": "bfloat16", "vocab_size": 256000})");
  EXPECT_TRUE(config.tie_word_embeddings && config.norm_plus_one);
  EXPECT_EQ(config.activation, Activation::kGeluTanh);
  // Rounded to the type that runs, not to the files' type.
  EXPECT_EQ(config.embedding_scale, std::sqrt(2048.0));
  EXPECT_TRUE(config.rounds_embedding_scales);
  EXPECT_EQ(CountParameters(config), 2'506'172'416);
}

TEST(DenseConfigsTest, Gemma2SlidesInEachSecondLayer) {
  constexpr const char* kText = R"({"architectures": ["Gemma2ForCausalLM"],
      "model_type": "gemma2", "attention_bias": false, "attn_logit_softcapping": 50.0,
      "final_logit_softcapping": 30.0, "head_dim": 128, "hidden_act": "gelu_pytorch_tanh",
      "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 4608, "intermediate_size": 36864,
      "max_position_embeddings": 8192, "num_attention_heads": 32, "num_hidden_layers": 46,
      "num_key_value_heads": 16, "query_pre_attn_scalar": 144, "rms_norm_eps": 1e-06,
      "rope_theta": 10000.0, "sliding_window": 4096, "torch_dtype": "bfloat16",
      "vocab_size": 256000})";
  const ModelConfig config = Config(kText);
  EXPECT_EQ(config.norm_placement, NormPlacement::kAround);
  EXPECT_DOUBLE_EQ(config.attention_scale, 1.0 / 12);
  EXPECT_EQ(config.attention_softcap, 50);
  EXPECT_EQ(config.logit_softcap, 30);
  EXPECT_EQ(config.embedding_scale, std::sqrt(4608.0));
  EXPECT_EQ(config.layers[0].sliding_window, 4096);
  EXPECT_EQ(config.layers[1].sliding_window, 0);
  EXPECT_EQ(CountParameters(config), 27'227'128'320);
  const ModelConfig uncapped =
      Config(kText, R"({"attn_logit_softcapping": null, "final_logit_softcapping": null})");
  EXPECT_EQ(uncapped.attention_softcap, 0);
  EXPECT_EQ(uncapped.logit_softcap, 0);
}

constexpr const char* kGemma3 = R"({"architectures": ["Gemma3ForCausalLM"],
      "model_type": "gemma3_text", "attention_bias": false, "attn_logit_softcapping": null,
      "final_logit_softcapping": null, "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh",
      "hidden_size": 1152, "intermediate_size": 6912, "max_position_embeddings": 32768,
      "num_attention_heads": 4, "num_hidden_layers": 26, "num_key_value_heads": 1,
      "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-06, "rope_local_base_freq": 10000,
      "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "rope_theta": 1000000,
      "sliding_window": 512, "sliding_window_pattern": 6, "torch_dtype": "bfloat16",
      "vocab_size": 262144})";

TEST(DenseConfigsTest, Gemma3HasARotaryForEachKindOfLayer) {
  const ModelConfig config = Config(kGemma3);
  const RopeConfig full = {.theta = 1e6, .dim = 256, .scaling = RopeScaling::kLinear, .factor = 8};
  EXPECT_EQ(config.ropes, (std::vector{full, RopeConfig{.theta = 10000, .dim = 256}}));
  EXPECT_EQ(config.layers[4], (LayerConfig{.sliding_window = 512, .rope = 1}));
  EXPECT_EQ(config.layers[5], (LayerConfig{.sliding_window = 0, .rope = 0}));
  EXPECT_EQ(config.attention_scale, 1.0 / 16);
  EXPECT_EQ(config.qk_norm, QkNorm::kHead);
  EXPECT_EQ(CountParameters(config), 999'885'952);
  // As transformers 5 writes the same.
  const ModelConfig nested = Config(kGemma3, R"({"rope_scaling": null, "rope_theta": null,
      "rope_local_base_freq": null, "sliding_window_pattern": null, "rope_parameters": {
        "full_attention": {"factor": 8.0, "rope_theta": 1000000, "rope_type": "linear"},
        "sliding_attention": {"rope_theta": 10000, "rope_type": "default"}}})");
  EXPECT_EQ(nested.ropes, config.ropes);
  EXPECT_EQ(nested.layers, config.layers);
}

std::string Numbers(size_t count, double value) {
  std::string text = "[";
  for (size_t i = 0; i < count; ++i) text += fmt::format("{}{}", i == 0 ? "" : ", ", value);
  return text + "]";
}

TEST(DenseConfigsTest, Phi3IsFusedAndLong) {
  const std::string text = R"({"architectures": ["Phi3ForCausalLM"], "model_type": "phi3",
      "attention_bias": false, "hidden_act": "silu", "hidden_size": 3072,
      "intermediate_size": 8192, "max_position_embeddings": 131072, "num_attention_heads": 32,
      "num_hidden_layers": 32, "num_key_value_heads": 32, "original_max_position_embeddings": 4096,
      "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "sliding_window": 262144,
      "tie_word_embeddings": false, "torch_dtype": "bfloat16", "vocab_size": 32064})";
  for (const char* type : {"longrope", "su", "yarn"}) {
    const ModelConfig config = Config(
        text, fmt::format(
                  R"({{"rope_scaling": {{"type": "{}", "short_factor": {}, "long_factor": {}}}}})",
                  type, Numbers(48, 1.5), Numbers(48, 64)));
    const RopeConfig& rope = config.ropes[0];
    EXPECT_EQ(rope.scaling, RopeScaling::kLongRope);
    EXPECT_EQ(rope.original_max_seq_len, 4096);
    EXPECT_EQ(rope.short_factors, std::vector<double>(48, 1.5));
    EXPECT_EQ(rope.long_factors, std::vector<double>(48, 64));
    EXPECT_DOUBLE_EQ(rope.attention_factor, std::sqrt(1 + 5.0 / 12));  // ln 32 / ln 4096
    EXPECT_EQ(CountParameters(config), 3'821'079'552);
  }
  const ModelConfig four = Config(text, R"({"hidden_size": 5120, "intermediate_size": 17920,
      "num_attention_heads": 40, "num_hidden_layers": 40, "num_key_value_heads": 10,
      "rope_scaling": null, "rope_theta": 250000, "sliding_window": null, "vocab_size": 100352})");
  EXPECT_EQ(four.ropes, std::vector{(RopeConfig{.theta = 250000, .dim = 128})});
  EXPECT_EQ(CountParameters(four), 14'659'507'200);
  const ModelConfig mini = Config(text, R"({"num_attention_heads": 24, "num_key_value_heads": 8,
      "partial_rotary_factor": 0.75, "tie_word_embeddings": true, "vocab_size": 200064})");
  EXPECT_EQ(mini.ropes, std::vector{(RopeConfig{.theta = 10000, .dim = 96})});
  EXPECT_EQ(CountParameters(mini), 3'836'021'760);
}

TEST(DenseConfigsTest, OlmoNormalisesBehindItsBlocks) {
  constexpr const char* kText = R"({"architectures": ["Olmo2ForCausalLM"], "model_type": "olmo2",
      "attention_bias": false, "hidden_act": "silu", "hidden_size": 4096,
      "intermediate_size": 11008, "max_position_embeddings": 4096, "num_attention_heads": 32,
      "num_hidden_layers": 32, "num_key_value_heads": 32, "rms_norm_eps": 1e-06,
      "rope_scaling": null, "rope_theta": 500000, "tie_word_embeddings": false,
      "torch_dtype": "bfloat16", "vocab_size": 100352})";
  const ModelConfig two = Config(kText);
  EXPECT_EQ(two.norm_placement, NormPlacement::kAfter);
  EXPECT_EQ(two.qk_norm, QkNorm::kWhole);
  EXPECT_EQ(CountParameters(two), 7'298'617'344);
  const ModelConfig three = Config(kText, R"({"architectures": ["Olmo3ForCausalLM"],
      "model_type": "olmo3", "max_position_embeddings": 65536, "sliding_window": 4096,
      "rope_scaling": {"attention_factor": 1.2079441541679836, "beta_fast": 32, "beta_slow": 1,
        "factor": 8.0, "original_max_position_embeddings": 8192, "rope_type": "yarn"}})");
  ASSERT_EQ(three.ropes.size(), 2u);
  EXPECT_EQ(three.ropes[0].scaling, RopeScaling::kYarn);
  EXPECT_EQ(three.ropes[0].attention_factor, 1.2079441541679836);
  EXPECT_EQ(three.ropes[1], (RopeConfig{.theta = 500000, .dim = 128}));
  EXPECT_EQ(three.layers[2], (LayerConfig{.sliding_window = 4096, .rope = 1}));
  EXPECT_EQ(three.layers[3], (LayerConfig{.sliding_window = 0, .rope = 0}));
}

TEST(DenseConfigsTest, SmolLm3LeavesLayersUnrotated) {
  constexpr const char* kText = R"({"architectures": ["SmolLM3ForCausalLM"],
      "model_type": "smollm3", "attention_bias": false, "hidden_size": 2048,
      "intermediate_size": 11008, "max_position_embeddings": 65536, "mlp_bias": false,
      "no_rope_layer_interval": 4, "num_attention_heads": 16, "num_hidden_layers": 36,
      "num_key_value_heads": 4, "rms_norm_eps": 1e-06, "rope_theta": 5000000.0,
      "sliding_window": null, "torch_dtype": "bfloat16", "use_sliding_window": false,
      "vocab_size": 128256})";
  const ModelConfig config = Config(kText);
  EXPECT_TRUE(config.tie_word_embeddings);
  EXPECT_EQ(config.layers[2].rope, 0);
  EXPECT_EQ(config.layers[3].rope, -1);
  EXPECT_EQ(config.layers[35].rope, -1);
  EXPECT_EQ(CountParameters(config), 3'075'098'624);
  const ModelConfig listed = Config(kText, R"({"num_hidden_layers": 3, "no_rope_layers": [0, 1, 0],
      "use_sliding_window": true, "sliding_window": 64})");
  EXPECT_EQ(listed.layers,
            (std::vector<LayerConfig>{
                {.sliding_window = 64, .rope = -1}, {}, {.sliding_window = 64, .rope = -1}}));
  EXPECT_EQ(RefusedKey(kText, R"({"no_rope_layers": [1, 0]})"), "no_rope_layers");
  EXPECT_EQ(RefusedKey(kText, R"({"num_hidden_layers": 2, "no_rope_layers": [1, 2]})"),
            "no_rope_layers");
}

TEST(DenseConfigsTest, GraniteMultiplies) {
  constexpr const char* kText = R"({"architectures": ["GraniteForCausalLM"],
      "model_type": "granite", "attention_bias": false, "attention_multiplier": 0.0078125,
      "embedding_multiplier": 12.0, "hidden_act": "silu", "hidden_size": 4096,
      "intermediate_size": 12800, "logits_scaling": 16.0, "max_position_embeddings": 131072,
      "mlp_bias": false, "num_attention_heads": 32, "num_hidden_layers": 40,
      "num_key_value_heads": 8, "residual_multiplier": 0.22, "rms_norm_eps": 1e-05,
      "rope_scaling": null, "rope_theta": 10000000.0, "tie_word_embeddings": true,
      "torch_dtype": "bfloat16", "vocab_size": 49155})";
  const ModelConfig config = Config(kText);
  EXPECT_EQ(config.attention_scale, 0.0078125);
  EXPECT_EQ(config.embedding_scale, 12);
  EXPECT_EQ(config.residual_scale, 0.22);
  EXPECT_EQ(config.logit_scale, 1.0 / 16);
  EXPECT_EQ(CountParameters(config), 8'170'848'256);
  EXPECT_EQ(RefusedKey(kText, R"({"logits_scaling": 0})"), "logits_scaling");
}

TEST(DenseConfigsTest, Cohere2RotatesOnlyWhereItSlides) {
  constexpr const char* kText = R"({"architectures": ["Cohere2ForCausalLM"],
      "model_type": "cohere2", "attention_bias": false, "head_dim": 128, "hidden_act": "silu",
      "hidden_size": 4096, "intermediate_size": 14336, "layer_norm_eps": 1e-05,
      "logit_scale": 0.25, "max_position_embeddings": 8192, "num_attention_heads": 32,
      "num_hidden_layers": 32, "num_key_value_heads": 8, "order_of_interleaved_layers":
      "local_attn_first", "position_embedding_type": "rope_gptj", "rope_scaling": null,
      "rope_theta": 50000, "rotary_pct": 1.0, "sliding_window": 4096, "sliding_window_pattern": 4,
      "torch_dtype": "bfloat16", "use_embedding_sharing": true, "use_gated_activation": true,
      "use_parallel_block": true, "use_qk_norm": false, "vocab_size": 256000})";
  const ModelConfig config = Config(kText);
  EXPECT_EQ(config.norm_kind, NormKind::kLayer);
  EXPECT_EQ(config.norm_placement, NormPlacement::kParallel);
  EXPECT_TRUE(config.rotary_interleaved);
  EXPECT_EQ(config.logit_scale, 0.25);
  EXPECT_EQ(config.layers[0], (LayerConfig{.sliding_window = 4096, .rope = 0}));
  EXPECT_EQ(config.layers[3], (LayerConfig{.sliding_window = 0, .rope = -1}));
  EXPECT_EQ(CountParameters(config), 8'028'033'024);
  EXPECT_EQ(RefusedKey(kText, R"({"use_qk_norm": true})"), "use_qk_norm");
  EXPECT_EQ(RefusedKey(kText, R"({"head_dim": 64})"), "head_dim");
}

TEST(DenseConfigsTest, Glm4RotatesHalfOfAHead) {
  const ModelConfig config = Config(R"({"architectures": ["Glm4ForCausalLM"],
      "model_type": "glm4", "attention_bias": true, "head_dim": 128, "hidden_act": "silu",
      "hidden_size": 4096, "intermediate_size": 13696, "max_position_embeddings": 32768,
      "num_attention_heads": 32, "num_hidden_layers": 40, "num_key_value_heads": 2,
      "partial_rotary_factor": 0.5, "rms_norm_eps": 1e-05, "rope_theta": 10000.0,
      "tie_word_embeddings": false, "torch_dtype": "bfloat16", "vocab_size": 151552})");
  EXPECT_EQ(config.ropes, std::vector{(RopeConfig{.theta = 10000, .dim = 64})});
  EXPECT_TRUE(config.rotary_interleaved && config.qkv_bias && !config.attention_output_bias);
  EXPECT_EQ(config.norm_placement, NormPlacement::kAround);
  EXPECT_EQ(CountParameters(config), 9'400'279'040);
}

TEST(DenseConfigsTest, Exaone4RotatesAllLayersWhereNoneSlides) {
  constexpr const char* kText = R"({"architectures": ["Exaone4ForCausalLM"],
      "model_type": "exaone4", "head_dim": 64, "hidden_act": "silu", "hidden_size": 2048,
      "intermediate_size": 4096, "max_position_embeddings": 65536, "num_attention_heads": 32,
      "num_hidden_layers": 30, "num_key_value_heads": 8, "rms_norm_eps": 1e-05,
      "rope_scaling": {"factor": 16.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
        "original_max_position_embeddings": 8192, "rope_type": "llama3"}, "rope_theta": 1000000,
      "sliding_window": null, "sliding_window_pattern": null, "tie_word_embeddings": true,
      "torch_dtype": "bfloat16", "vocab_size": 102400})";
  const ModelConfig config = Config(kText);
  EXPECT_EQ(config.ropes[0].scaling, RopeScaling::kLlama3);
  EXPECT_EQ(config.layers, std::vector<LayerConfig>(30));
  EXPECT_EQ(CountParameters(config), 1'279'391'488);
  const ModelConfig slides = Config(kText, R"({"num_hidden_layers": 4, "sliding_window": 4096,
      "sliding_window_pattern": "LLLG", "layer_types": ["sliding_attention", "sliding_attention",
      "sliding_attention", "full_attention"]})");
  EXPECT_EQ(slides.layers[2], (LayerConfig{.sliding_window = 4096, .rope = 0}));
  EXPECT_EQ(slides.layers[3], (LayerConfig{.sliding_window = 0, .rope = -1}));
  EXPECT_EQ(RefusedKey(kText, R"({"sliding_window": 64, "sliding_window_pattern": "LLLG"})"),
            "sliding_window_pattern");
}

TEST(DenseConfigsTest, Starcoder2HasBiasesAndNoGate) {
  const ModelConfig config = Config(R"({"architectures": ["Starcoder2ForCausalLM"],
      "model_type": "starcoder2", "activation_function": "gelu",
      "hidden_act": "gelu_pytorch_tanh", "hidden_size": 3072, "intermediate_size": 12288,
      "max_position_embeddings": 16384, "mlp_type": "default", "norm_epsilon": 1e-05,
      "norm_type": "layer_norm", "num_attention_heads": 24, "num_hidden_layers": 30,
      "num_key_value_heads": 2, "rope_theta": 999999.4420358813, "sliding_window": 4096,
      "torch_dtype": "bfloat16", "use_bias": true, "vocab_size": 49152})");
  EXPECT_TRUE(config.norm_bias && config.qkv_bias && config.attention_output_bias);
  EXPECT_TRUE(config.feed_forward_bias && !config.gated && config.tie_word_embeddings);
  EXPECT_EQ(config.activation, Activation::kGeluTanh);
  EXPECT_EQ(config.norm_kind, NormKind::kLayer);
  EXPECT_EQ(config.layers, std::vector<LayerConfig>(30, {.sliding_window = 4096}));
  EXPECT_EQ(CountParameters(config), 3'030'371'328);
}

TEST(DenseConfigsTest, StableLmComesInTwoBuilds) {
  constexpr const char* kText = R"({"architectures": ["StableLmForCausalLM"],
      "model_type": "stablelm", "hidden_act": "silu", "hidden_size": 2048,
      "intermediate_size": 5632, "layer_norm_eps": 1e-05, "max_position_embeddings": 4096,
      "num_attention_heads": 32, "num_hidden_layers": 24, "num_key_value_heads": 32,
      "partial_rotary_factor": 0.25, "qk_layernorm": false, "rope_theta": 10000,
      "tie_word_embeddings": false, "torch_dtype": "float16", "use_parallel_residual": false,
      "use_qkv_bias": true, "vocab_size": 100352})";
  const ModelConfig small = Config(kText);
  EXPECT_EQ(small.ropes[0].dim, 16);
  EXPECT_TRUE(small.qkv_bias && !small.attention_output_bias && small.norm_bias);
  EXPECT_EQ(CountParameters(small), 1'644'515'328);
  const ModelConfig large = Config(kText, R"({"hidden_size": 5120, "intermediate_size": 13824,
      "num_hidden_layers": 40, "num_key_value_heads": 8, "qk_layernorm": true,
      "use_parallel_residual": true, "use_qkv_bias": false})");
  EXPECT_EQ(large.norm_placement, NormPlacement::kParallel);
  EXPECT_EQ(large.qk_norm, QkNorm::kHeadOwn);
  EXPECT_EQ(CountParameters(large), 12'143'185'920);
}

TEST(DenseConfigsTest, SeedOssBiasesOnlyWhatGoesIn) {
  const ModelConfig config = Config(R"({"architectures": ["SeedOssForCausalLM"],
      "model_type": "seed_oss", "attention_bias": true, "attention_out_bias": false,
      "head_dim": 128, "hidden_act": "silu", "hidden_size": 5120, "intermediate_size": 27648,
      "max_position_embeddings": 524288, "mlp_bias": false, "num_attention_heads": 80,
      "num_hidden_layers": 64, "num_key_value_heads": 8, "rms_norm_eps": 1e-06,
      "rope_scaling": {"rope_type": "default"}, "rope_theta": 10000000.0,
      "tie_word_embeddings": false, "torch_dtype": "bfloat16", "vocab_size": 155136})");
  EXPECT_TRUE(config.qkv_bias && !config.attention_output_bias && !config.feed_forward_bias);
  EXPECT_EQ(CountParameters(config), 36'151'104'512);
}

TEST(DenseConfigsTest, ErnieTurnsNeighbours) {
  const ModelConfig config = Config(R"({"architectures": ["Ernie4_5_ForCausalLM"],
      "model_type": "ernie4_5", "head_dim": 128, "hidden_act": "silu", "hidden_size": 1024,
      "intermediate_size": 3072, "max_position_embeddings": 131072, "num_attention_heads": 16,
      "num_hidden_layers": 18, "num_key_value_heads": 2, "rms_norm_eps": 1e-05,
      "rope_scaling": null, "rope_theta": 500000.0, "tie_word_embeddings": true,
      "torch_dtype": "bfloat16", "use_bias": false, "vocab_size": 103424})");
  EXPECT_EQ(config.architecture, "Ernie4_5ForCausalLM");
  EXPECT_TRUE(config.rotary_interleaved);
  EXPECT_EQ(CountParameters(config), 360'748'032);
}

TEST(DenseConfigsTest, HunyuanWidensItsBaseOnce) {
  constexpr const char* kText = R"({"architectures": ["HunYuanDenseV1ForCausalLM"],
      "model_type": "hunyuan_v1_dense", "attention_bias": false, "head_dim": 128,
      "hidden_act": "silu", "hidden_size": 4096, "intermediate_size": 14336,
      "max_position_embeddings": 32768, "num_attention_heads": 32, "num_hidden_layers": 32,
      "num_key_value_heads": 8, "rms_norm_eps": 1e-05, "rope_scaling": {"alpha": 1000.0,
        "beta_fast": 32, "beta_slow": 1, "factor": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0,
        "type": "dynamic"}, "rope_theta": 10000.0, "tie_word_embeddings": true,
      "torch_dtype": "bfloat16", "use_cla": false, "use_qk_norm": true, "vocab_size": 128167})";
  const ModelConfig config = Config(kText);
  EXPECT_EQ(config.qk_norm, QkNorm::kHeadAfterRotary);
  EXPECT_EQ(config.ropes[0].scaling, RopeScaling::kNone);
  EXPECT_DOUBLE_EQ(config.ropes[0].theta, 10000 * std::pow(1000.0, 128.0 / 126));
  const ModelConfig plain =
      Config(kText, R"({"rope_scaling": {"factor": 2.0, "type": "dynamic"}})");
  EXPECT_EQ(plain.ropes, std::vector{(RopeConfig{.theta = 10000,
                                                 .dim = 128,
                                                 .scaling = RopeScaling::kDynamic,
                                                 .factor = 2,
                                                 .original_max_seq_len = 32768})});
}

TEST(DenseConfigsTest, NemotronSquares) {
  constexpr const char* kText = R"({"architectures": ["NemotronForCausalLM"],
      "model_type": "nemotron", "attention_bias": false, "head_dim": 128, "hidden_act": "relu2",
      "hidden_size": 3072, "intermediate_size": 9216, "max_position_embeddings": 4096,
      "mlp_bias": false, "norm_eps": 1e-05, "num_attention_heads": 24, "num_hidden_layers": 32,
      "num_key_value_heads": 8, "partial_rotary_factor": 0.5, "rope_theta": 10000,
      "tie_word_embeddings": false, "torch_dtype": "bfloat16", "vocab_size": 256000})";
  const ModelConfig config = Config(kText);
  EXPECT_EQ(config.activation, Activation::kRelu2);
  EXPECT_TRUE(config.norm_plus_one && config.norm_bias && !config.gated);
  EXPECT_EQ(config.norm_kind, NormKind::kLayer);
  EXPECT_EQ(config.ropes[0].dim, 64);
  EXPECT_EQ(CountParameters(config), 4'190'509'056);
  EXPECT_EQ(Config(kText, R"({"partial_rotary_factor": 0.515625})").ropes[0].dim, 66);
  EXPECT_EQ(Config(kText, R"({"partial_rotary_factor": null})").ropes[0].dim, 64);
  EXPECT_EQ(Config(kText, R"({"rope_parameters": {"partial_rotary_factor": 0.25}})").ropes[0].dim,
            32);
  for (const char* bad : {"0", "0.001", "0.103", "1.5", "\"0.5\""}) {
    EXPECT_EQ(RefusedKey(kText, fmt::format(R"({{"partial_rotary_factor": {}}})", bad)),
              "partial_rotary_factor");
  }
}

}  // namespace
}  // namespace minisgl
