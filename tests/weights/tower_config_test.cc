// Towers read from config.json: published configurations, defaults of absent keys, hostile values.
#include "minisgl/weights/tower_config.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "minisgl/base/json.h"

namespace minisgl {
namespace {

Json ParseTower(const std::string& text) {
  auto json = ParseJson(text);
  EXPECT_TRUE(json.ok()) << json.status().message() << text;
  return json.ok() ? *std::move(json) : Json();
}

TowerConfig Tower(const std::string& text) {
  auto config = ReadTowerConfig(ParseTower(text));
  EXPECT_TRUE(config.ok()) << config.status().message();
  EXPECT_TRUE(config.ok() && config->has_value()) << text;
  return config.ok() ? config->value_or(TowerConfig()) : TowerConfig();
}

Status Refused(const std::string& text) {
  const auto config = ReadTowerConfig(ParseTower(text));
  EXPECT_FALSE(config.ok()) << text;
  return config.status();
}

// `text` with `key` of vision_config, or of the whole with a leading '/', set to `value`.
std::string With(const std::string& text, const std::string& key, const std::string& value) {
  Json json = ParseTower(text);
  if (key.starts_with('/')) return json.Set(key.substr(1), ParseTower(value)).Dump();
  Json vision = *json.Find("vision_config");
  vision.Set(key, ParseTower(value));
  return json.Set("vision_config", std::move(vision)).Dump();
}

constexpr const char* kQwen2Tower = R"({"model_type": "qwen2_vl", "hidden_size": 1536,
    "torch_dtype": "bfloat16",
    "vision_config": {"depth": 32, "embed_dim": 1280, "mlp_ratio": 4, "num_heads": 16,
        "in_chans": 3, "hidden_size": 1536, "patch_size": 14, "spatial_merge_size": 2,
        "temporal_patch_size": 2}})";
constexpr const char* kQwen25Tower = R"({"model_type": "qwen2_5_vl", "hidden_size": 2048,
    "torch_dtype": "bfloat16",
    "vision_config": {"depth": 32, "hidden_act": "silu", "hidden_size": 1280,
        "intermediate_size": 3420, "num_heads": 16, "in_chans": 3, "out_hidden_size": 2048,
        "patch_size": 14, "spatial_merge_size": 2, "window_size": 112,
        "fullatt_block_indexes": [7, 15, 23, 31], "temporal_patch_size": 2}})";
constexpr const char* kQwen3Tower = R"({"model_type": "qwen3_vl",
    "text_config": {"hidden_size": 2048, "model_type": "qwen3_vl_text"},
    "vision_config": {"deepstack_visual_indexes": [5, 11, 17], "depth": 24, "hidden_size": 1024,
        "intermediate_size": 4096, "num_heads": 16, "out_hidden_size": 2048, "patch_size": 16,
        "num_position_embeddings": 2304}})";
constexpr const char* kGemma3Tower = R"({"architectures": ["Gemma3ForConditionalGeneration"],
    "mm_tokens_per_image": 256, "model_type": "gemma3", "text_config": {"hidden_size": 2560},
    "vision_config": {"hidden_size": 1152, "image_size": 896, "intermediate_size": 4304,
        "model_type": "siglip_vision_model", "num_attention_heads": 16, "num_hidden_layers": 27,
        "patch_size": 14}})";
constexpr const char* kLlavaTower = R"({"model_type": "llava", "image_token_index": 32000,
    "torch_dtype": "float16", "text_config": {"model_type": "llama", "vocab_size": 32064},
    "vision_config": {"hidden_size": 1024, "image_size": 336, "intermediate_size": 4096,
        "model_type": "clip_vision_model", "num_attention_heads": 16, "num_hidden_layers": 24,
        "patch_size": 14, "projection_dim": 768, "vocab_size": 32000},
    "vision_feature_layer": -2, "vision_feature_select_strategy": "default"})";

TEST(TowerConfigTest, PublishedConfigurations) {
  const TowerConfig qwen2 = Tower(kQwen2Tower);
  EXPECT_EQ(qwen2.name, "qwen2_vl");
  EXPECT_EQ(qwen2.text_hidden_size, 1536);
  EXPECT_EQ(qwen2.intermediate_size, 5120);
  EXPECT_EQ(qwen2.head_dim, 80);
  EXPECT_EQ(qwen2.dtype, DType::kBF16);
  EXPECT_EQ(qwen2.window_units, 0);
  const TowerConfig qwen25 = Tower(kQwen25Tower);
  EXPECT_EQ(qwen25.window_units, 4);
  EXPECT_EQ(qwen25.whole_layers, (std::vector<int32_t>{7, 15, 23, 31}));
  const TowerConfig qwen3 = Tower(kQwen3Tower);
  EXPECT_EQ(qwen3.num_deepstack, 3);
  EXPECT_EQ(qwen3.places_side, 48);
  EXPECT_EQ(qwen3.text_hidden_size, 2048);
  const TowerConfig gemma = Tower(kGemma3Tower);
  EXPECT_EQ(gemma.unit_side, 4);
  EXPECT_EQ(gemma.tile_side, 64);
  EXPECT_EQ(gemma.head_dim, 72);
  const TowerConfig llava = Tower(kLlavaTower);
  EXPECT_EQ(llava.num_layers, 23);
  EXPECT_EQ(llava.text_hidden_size, 4096) << "the default of its class";
  EXPECT_EQ(llava.class_token, TowerClassToken::kFirst);
  EXPECT_EQ(llava.activation, Activation::kClampedSwiglu);
  EXPECT_EQ(llava.norm_eps, 1e-5);
}

TEST(TowerConfigTest, ModelsWithoutTowers) {
  for (const char* text : {R"({"model_type": "llama", "hidden_size": 64})",
                           R"({"model_type": "gemma3", "vision_config": null})"}) {
    const auto config = ReadTowerConfig(ParseTower(text));
    ASSERT_TRUE(config.ok()) << config.status().message();
    EXPECT_FALSE(config->has_value());
  }
}

TEST(TowerConfigTest, UnknownTowersAreNamed) {
  const Status unknown =
      Refused(R"({"model_type": "kimi_vl", "hidden_size": 8, "vision_config": {}})");
  EXPECT_EQ(unknown.code(), StatusCode::kUnavailable);
  EXPECT_NE(unknown.message().find("kimi_vl"), std::string::npos);
  const Status other = Refused(With(kLlavaTower, "model_type", "\"vit\""));
  EXPECT_EQ(other.code(), StatusCode::kUnavailable);
  EXPECT_NE(other.message().find("\"vit\""), std::string::npos);
}

TEST(TowerConfigTest, HostileValuesAreRefusedByKey) {
  struct Case {
    const char* text;
    const char* key;
    const char* value;
    const char* named;  // in the message; null: the key
  };
  const Case kCases[] = {
      {kQwen2Tower, "depth", "0", nullptr},
      {kQwen2Tower, "depth", "1e99", nullptr},
      {kQwen2Tower, "num_heads", "-4", nullptr},
      {kQwen2Tower, "num_heads", "7", nullptr},
      {kQwen2Tower, "num_heads", "1280", "num_heads"},
      {kQwen2Tower, "mlp_ratio", "1e-4", nullptr},
      {kQwen2Tower, "mlp_ratio", "\"4\"", nullptr},
      {kQwen2Tower, "embed_dim", "9223372036854775807", nullptr},
      {kQwen2Tower, "in_chans", "4", nullptr},
      {kQwen2Tower, "patch_size", "[14, 14]", nullptr},
      {kQwen2Tower, "hidden_size", "1535", nullptr},
      {kQwen2Tower, "hidden_act", "\"tanh\"", nullptr},
      {kQwen2Tower, "/hidden_size", "[]", nullptr},
      {kQwen2Tower, "/vision_config", "7", nullptr},
      {kQwen2Tower, "spatial_merge_size", "1000000", nullptr},
      {kQwen25Tower, "window_size", "27", nullptr},
      {kQwen25Tower, "fullatt_block_indexes", "7", nullptr},
      {kQwen25Tower, "fullatt_block_indexes", "[7, -1]", nullptr},
      {kQwen25Tower, "out_hidden_size", "2047", nullptr},
      {kQwen3Tower, "num_position_embeddings", "2303", nullptr},
      {kQwen3Tower, "deepstack_visual_indexes", "[24]", nullptr},
      {kQwen3Tower, "deepstack_visual_indexes", "[5, 5]", nullptr},
      {kQwen3Tower, "deepstack_visual_indexes", "{}", nullptr},
      {kGemma3Tower, "image_size", "13", nullptr},
      {kGemma3Tower, "image_size", "[896, 448]", nullptr},
      {kGemma3Tower, "/mm_tokens_per_image", "255", nullptr},
      {kGemma3Tower, "/mm_tokens_per_image", "9", nullptr},
      {kGemma3Tower, "layer_norm_eps", "0", nullptr},
      {kLlavaTower, "/vision_feature_layer", "-25", nullptr},
      {kLlavaTower, "/vision_feature_layer", "[-2, -5]", nullptr},
      {kLlavaTower, "/vision_feature_select_strategy", "\"full\"", nullptr},
      {kLlavaTower, "/projector_hidden_act", "\"relu\"", nullptr},
      {kLlavaTower, "/multimodal_projector_bias", "1", nullptr},
  };
  for (const Case& c : kCases) {
    const Status status = Refused(With(c.text, c.key, c.value));
    EXPECT_EQ(status.code(), StatusCode::kBadInput) << c.key << " " << c.value;
    const std::string key = c.key[0] == '/' ? c.key + 1 : c.key;
    EXPECT_NE(status.message().find(c.named == nullptr ? key : c.named), std::string::npos)
        << status.message();
  }
}

// The largest values that the ranges allow are read, or refused, without an overflow.
TEST(TowerConfigTest, LargestValues) {
  EXPECT_EQ(Refused(R"({"model_type": "qwen2_vl", "hidden_size": 1048576, "vision_config":
      {"depth": 1000, "embed_dim": 1048576, "num_heads": 4096, "hidden_size": 1048576,
       "patch_size": 256, "spatial_merge_size": 16, "temporal_patch_size": 16}})")
                .code(),
            StatusCode::kBadInput);
  const TowerConfig config = Tower(R"({"model_type": "llama4", "text_config":
      {"hidden_size": 1048576}, "vision_config": {"hidden_size": 1048576,
       "num_attention_heads": 4096, "intermediate_size": 1048576, "num_hidden_layers": 1000,
       "image_size": 65536, "patch_size": 1, "projector_input_dim": 1048576,
       "projector_output_dim": 1048576}})");
  EXPECT_EQ(config.tile_side, 65536);
}

}  // namespace
}  // namespace minisgl
