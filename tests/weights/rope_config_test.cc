// Rotary settings and windows of layers: defaults, derived values, and every value that is refused.
#include <gtest/gtest.h>

#include <cmath>

#include "config_check.h"

namespace minisgl {
namespace {

constexpr const char* kLlama = R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 512, "vocab_size": 300})";

// kLlama with these rotary settings, under either name.
RopeConfig Rope(const std::string& settings) {
  const ModelConfig newer = Config(kLlama, R"({"rope_parameters": )" + settings + "}");
  const ModelConfig older = Config(kLlama, R"({"rope_scaling": )" + settings + "}");
  EXPECT_EQ(newer.ropes, older.ropes);
  return newer.ropes.size() == 1 ? newer.ropes[0] : RopeConfig();
}

std::string RefusedSetting(const std::string& settings) {
  return RefusedKey(kLlama, R"({"rope_parameters": )" + settings + "}");
}

TEST(RopeConfigTest, YarnFillsInWhatIsUnsaid) {
  RopeConfig wanted = {.theta = 10000,
                       .dim = 16,
                       .scaling = RopeScaling::kYarn,
                       .factor = 4,
                       .original_max_seq_len = 512};
  wanted.attention_factor = 0.1 * std::log(4.0) + 1;
  EXPECT_EQ(Rope(R"({"rope_type": "yarn", "factor": 4})"), wanted);
  EXPECT_EQ(Rope(R"({"type": "yarn", "factor": 4, "beta_fast": null, "beta_slow": 0})"), wanted);
  wanted.original_max_seq_len = 128;  // and the factor is how many times longer the context is
  EXPECT_EQ(Rope(R"({"type": "yarn", "original_max_position_embeddings": 128})"), wanted);
  const ModelConfig above = Config(kLlama, R"({"original_max_position_embeddings": 128,
      "rope_scaling": {"type": "yarn", "factor": 4, "original_max_position_embeddings": 256}})");
  EXPECT_EQ(above.ropes, std::vector{wanted});
}

TEST(RopeConfigTest, YarnSharpensAsItIsTold) {
  const double log = 0.1 * std::log(4.0);
  const auto factor = [](const std::string& more) {
    return Rope(R"({"rope_type": "yarn", "factor": 4)" + more + "}").attention_factor;
  };
  EXPECT_DOUBLE_EQ(factor(""), log + 1);
  EXPECT_DOUBLE_EQ(factor(R"(, "mscale": 2)"), log + 1);
  EXPECT_DOUBLE_EQ(factor(R"(, "mscale": 2, "mscale_all_dim": 0)"), log + 1);
  EXPECT_DOUBLE_EQ(factor(R"(, "mscale": 1, "mscale_all_dim": 1)"), 1);
  EXPECT_DOUBLE_EQ(factor(R"(, "mscale": 2, "mscale_all_dim": 0.5)"),
                   (2 * log + 1) / (0.5 * log + 1));
  EXPECT_EQ(factor(R"(, "mscale": 2, "mscale_all_dim": 0.5, "attention_factor": 1.25)"), 1.25);
  EXPECT_EQ(Rope(R"({"rope_type": "yarn", "factor": 1})").attention_factor, 1);
}

TEST(RopeConfigTest, YarnRefusesWhatHasNoBlend) {
  const std::string path = "rope_parameters.";
  EXPECT_EQ(RefusedSetting(R"({"type": "yarn", "factor": 0.5})"), path + "factor");
  EXPECT_EQ(RefusedSetting(R"({"type": "yarn", "original_max_position_embeddings": 1024})"),
            path + "factor");
  EXPECT_EQ(RefusedSetting(R"({"type": "yarn", "factor": 2, "rope_theta": 1})"),
            path + "rope_theta");
  for (const char* key : {"beta_fast", "beta_slow", "mscale", "mscale_all_dim"}) {
    for (const char* bad : {"-1", "\"1\"", "1e9", "[1]"}) {
      EXPECT_EQ(
          RefusedSetting(fmt::format(R"({{"type": "yarn", "factor": 2, "{}": {}}})", key, bad)),
          path + key);
    }
  }
  for (const char* bad : {"0", "-1", "\"1\"", "1e9", "true"}) {
    EXPECT_EQ(RefusedSetting(
                  fmt::format(R"({{"type": "yarn", "factor": 2, "attention_factor": {}}})", bad)),
              path + "attention_factor");
  }
  EXPECT_EQ(RefusedSetting(R"({"type": "yarn", "factor": 2, "truncate": 0})"), path + "truncate");
}

constexpr const char* kEight = "[1, 1.5, 2, 3, 4, 5, 6, 7]";

TEST(RopeConfigTest, LongRopeHasAFactorForEachPair) {
  const auto settings = [](const char* short_factor, const char* long_factor) {
    return fmt::format(R"({{"rope_type": "longrope", "short_factor": {}, "long_factor": {},
        "original_max_position_embeddings": 128}})",
                       short_factor, long_factor);
  };
  const RopeConfig rope = Rope(settings(kEight, kEight));
  EXPECT_EQ(rope.long_factors, (std::vector<double>{1, 1.5, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(rope.original_max_seq_len, 128);
  EXPECT_DOUBLE_EQ(rope.attention_factor, std::sqrt(1 + std::log(4.0) / std::log(128.0)));
  for (const char* bad : {"null", "[]", "[1, 2]", "8", "\"x\"", "[1, 1, 1, 1, 1, 1, 1, 0]",
                          "[1, 1, 1, 1, 1, 1, 1, null]", "[1, 1, 1, 1, 1, 1, 1, 1, 1]",
                          "[1, 1, 1, 1, 1, 1, 1, 1e9]", "[-1, 1, 1, 1, 1, 1, 1, 1]"}) {
    EXPECT_EQ(RefusedSetting(settings(bad, kEight)), "rope_parameters.short_factor") << bad;
    EXPECT_EQ(RefusedSetting(settings(kEight, bad)), "rope_parameters.long_factor") << bad;
  }
}

TEST(RopeConfigTest, LongRopeSharpensByItsFactor) {
  const auto factor = [](const std::string& more) {
    return Rope(fmt::format(
                    R"({{"rope_type": "longrope", "short_factor": {}, "long_factor": {}{}}})",
                    kEight, kEight, more))
        .attention_factor;
  };
  EXPECT_EQ(factor(""), 1);  // the context is as long as the original
  EXPECT_DOUBLE_EQ(factor(R"(, "factor": 2)"), std::sqrt(1 + std::log(2.0) / std::log(512.0)));
  EXPECT_EQ(factor(R"(, "factor": 2, "attention_factor": 1.5)"), 1.5);
  EXPECT_EQ(factor(R"(, "original_max_position_embeddings": 1024)"), 1);
}

TEST(RopeConfigTest, DynamicScalesFromTheWholeLength) {
  EXPECT_EQ(Rope(R"({"rope_type": "dynamic", "factor": 2, "alpha": 1000})"),
            (RopeConfig{.theta = 10000,
                        .dim = 16,
                        .scaling = RopeScaling::kDynamic,
                        .factor = 2,
                        .original_max_seq_len = 512}));
  EXPECT_EQ(RefusedSetting(R"({"rope_type": "dynamic"})"), "rope_parameters.factor");
  EXPECT_EQ(RefusedKey(kLlama, R"({"head_dim": 2, "rope_scaling": {"rope_type": "dynamic",
      "factor": 2}})"),
            "rope_scaling.rope_type");
}

TEST(RopeConfigTest, AlphaKeepsTheBaseInItsRange) {
  const auto hunyuan = [](const char* alpha) {
    return RefusedKey(kLlama, fmt::format(R"({{"architectures": ["HunYuanDenseV1ForCausalLM"],
        "model_type": "hunyuan_v1_dense",
        "rope_scaling": {{"type": "dynamic", "factor": 1, "alpha": {}}}}})",
                                          alpha));
  };
  EXPECT_EQ(hunyuan("1000"), "");
  for (const char* bad : {"-1", "1e-6", "1e9", "\"x\""}) {
    EXPECT_EQ(hunyuan(bad), "rope_scaling.alpha");
  }
}

TEST(RopeConfigTest, ThetaInsideTheSettingsStandsOverTheOneOutside) {
  const ModelConfig config =
      Config(kLlama, R"({"rope_theta": 5000, "rope_parameters": {"rope_theta": 7000}})");
  EXPECT_EQ(config.ropes[0].theta, 7000);
}

TEST(RopeConfigTest, PartialRotaryIsOnlyWhereItIsKnown) {
  EXPECT_EQ(RefusedKey(kLlama, R"({"partial_rotary_factor": 0.5})"), "partial_rotary_factor");
  EXPECT_EQ(RefusedSetting(R"({"partial_rotary_factor": 0.5})"),
            "rope_parameters.partial_rotary_factor");
}

constexpr const char* kGemma3Ropes = R"({"architectures": ["Gemma3ForCausalLM"],
    "model_type": "gemma3_text"})";

TEST(RopeConfigTest, KindsOfLayersAreReadEachByItself) {
  const std::string gemma = Joined(kLlama, kGemma3Ropes);
  const ModelConfig silent = Config(gemma);
  EXPECT_EQ(silent.ropes, (std::vector{RopeConfig{.theta = 1e6, .dim = 256},
                                       RopeConfig{.theta = 10000, .dim = 256}}));
  const ModelConfig one = Config(gemma, R"({"rope_parameters": {"sliding_attention":
      {"rope_type": "linear", "factor": 2}}})");
  EXPECT_EQ(one.ropes[0], silent.ropes[0]);
  EXPECT_EQ(one.ropes[1].scaling, RopeScaling::kLinear);
  EXPECT_EQ(RefusedKey(gemma, R"({"rope_parameters": {"sliding_attention": {"rope_type": "x"}}})"),
            "rope_parameters.sliding_attention.rope_type");
  EXPECT_EQ(RefusedKey(gemma, R"({"rope_parameters": {"full_attention": 3}})"),
            "rope_parameters.full_attention");
  // The newer name without kinds means nothing to the reference; the older is of full attention.
  EXPECT_EQ(RefusedKey(gemma, R"({"rope_parameters": {"rope_type": "linear", "factor": 2}})"),
            "rope_parameters.full_attention");
  const ModelConfig older =
      Config(gemma, R"({"rope_scaling": {"rope_type": "linear", "factor": 2}})");
  EXPECT_EQ(older.ropes[0].factor, 2);
  EXPECT_EQ(older.ropes[1], silent.ropes[1]);
}

// The reference reads the length outside for settings of all layers alone.
TEST(RopeConfigTest, AKindsOriginalLengthIsItsOwn) {
  const std::string gemma = Joined(kLlama, kGemma3Ropes);
  const ModelConfig config =
      Config(gemma, R"({"original_max_position_embeddings": 2048, "rope_parameters": {
      "full_attention": {"rope_type": "yarn", "factor": 2,
                         "original_max_position_embeddings": 1024}}})");
  EXPECT_EQ(config.ropes[0].original_max_seq_len, 1024);
}

TEST(RopeConfigTest, OtherLayersThanTheWindowedNeedAPatternThatHolds) {
  const std::string gemma = Joined(kLlama, kGemma3Ropes);
  const ModelConfig pattern = Config(gemma, R"({"sliding_window_pattern": 2})");
  EXPECT_EQ(pattern.layers[0].sliding_window, 4096);
  EXPECT_EQ(pattern.layers[1].sliding_window, 0);
  // layer_types decides if both are given.
  const ModelConfig types = Config(gemma, R"({"sliding_window_pattern": 2, "layer_types":
      ["full_attention", "sliding_attention", "full_attention", "full_attention"]})");
  EXPECT_EQ(types.layers[0].sliding_window, 0);
  EXPECT_EQ(types.layers[1].sliding_window, 4096);
  EXPECT_EQ(RefusedKey(gemma, R"({"sliding_window": null})"), "sliding_window");
  for (const char* bad : {"0", "-1", "\"LLLG\"", "1.5"}) {
    EXPECT_EQ(RefusedKey(gemma, fmt::format(R"({{"sliding_window_pattern": {}}})", bad)),
              "sliding_window_pattern");
  }
  for (const char* bad : {R"(["full_attention"])", R"("full_attention")",
                          R"(["full_attention", "full_attention", "full_attention", "linear"])"}) {
    EXPECT_EQ(RefusedKey(gemma, fmt::format(R"({{"layer_types": {}}})", bad)), "layer_types");
  }
}

TEST(RopeConfigTest, LayerTypesMayNotContradictWindowsOfEveryLayer) {
  const std::string mistral =
      Joined(kLlama, R"({"architectures": ["MistralForCausalLM"], "model_type": "mistral",
          "num_hidden_layers": 1})");
  EXPECT_EQ(RefusedKey(mistral, R"({"layer_types": ["full_attention"]})"), "layer_types");
  EXPECT_EQ(RefusedKey(mistral, R"({"layer_types": ["sliding_attention"]})"), "");
  EXPECT_EQ(RefusedKey(mistral, R"({"layer_types": ["sliding_attention"],
      "sliding_window": null})"),
            "layer_types");
}

TEST(RopeConfigTest, BiasesAreSwitchedByTheirKeys) {
  const ModelConfig config = Config(kLlama, R"({"attention_bias": true})");
  EXPECT_TRUE(config.qkv_bias && config.attention_output_bias);
  EXPECT_FALSE(config.feed_forward_bias);
  EXPECT_TRUE(Config(kLlama, R"({"mlp_bias": true})").feed_forward_bias);
  EXPECT_EQ(CountParameters(config) - CountParameters(Config(kLlama)), 4 * (64 + 2 * 32 + 64));
}

}  // namespace
}  // namespace minisgl
