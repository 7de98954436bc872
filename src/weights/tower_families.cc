// The table of towers, and readers that families share. See tower_families.h.
#include "weights/tower_families.h"

#include <fmt/core.h>

#include <array>
#include <cmath>
#include <limits>

#include "minisgl/base/utf8.h"
#include "weights/config_keys.h"

namespace minisgl::weights {
namespace {

constexpr TowerFamily kFamilies[] = {
    {"qwen2_vl", "", ReadQwen2Vl},
    {"qwen2_5_vl", "", ReadQwen25Vl},
    {"qwen3_vl", "", ReadQwen3Vl},
    {"qwen3_vl_moe", "", ReadQwen3Vl},
    {"qwen3_5", "", ReadQwen3Vl},
    {"qwen3_5_moe", "", ReadQwen3Vl},
    {"glm4v", "", ReadGlm4v},
    {"glm4v_moe", "", ReadGlm4v},
    {"gemma3", "siglip_vision_model", ReadGemma3, "siglip_vision_model"},
    {"gemma4", "gemma4_vision", ReadGemma4, "gemma4_vision"},
    {"llava", "clip_vision_model", ReadLlavaClip, "clip_vision_model"},
    {"llava", "siglip_vision_model", ReadLlavaSiglip},
    {"llava", "pixtral", ReadLlavaPixtral},
    {"llava_onevision", "siglip_vision_model", ReadLlavaOneVision, "siglip_vision_model"},
    {"mistral3", "pixtral", ReadMistral3, "pixtral"},
    {"idefics3", "", ReadIdefics3},
    {"smolvlm", "", ReadIdefics3},
    {"internvl", "", ReadInternVl},
    {"llama4", "", ReadLlama4},
};

struct NamedActivation {
  std::string_view name;
  Activation activation;
};
constexpr NamedActivation kActivations[] = {
    {"gelu", Activation::kGelu},
    {"gelu_pytorch_tanh", Activation::kGeluTanh},
    {"gelu_new", Activation::kGeluTanh},
    {"silu", Activation::kSilu},
    {"swish", Activation::kSilu},
    // x sigmoid(1.702 x) is the clamped one without a bound.
    {"quick_gelu", Activation::kClampedSwiglu},
};
constexpr const char* kActivationNames =
    "\"gelu\", \"gelu_pytorch_tanh\", \"quick_gelu\" and \"silu\" are supported";

}  // namespace

const TowerFamily* FindTowerFamily(std::string_view model_type, std::string_view vision_type) {
  for (const TowerFamily& family : kFamilies) {
    if (model_type != family.model_type) continue;
    const std::string_view wanted = family.vision_type;
    if (wanted.empty() || vision_type == wanted) return &family;
    if (vision_type.empty() && wanted == family.vision_default) return &family;
  }
  return nullptr;
}

bool HasTowerFamily(std::string_view model_type) {
  for (const TowerFamily& family : kFamilies) {
    if (model_type == family.model_type) return true;
  }
  return false;
}

int32_t ReadSide(std::string_view key, IntRange range, int64_t absent, FieldReader* vision) {
  const Json* const value = vision->Find(key);
  if (value == nullptr || !value->is_array()) {
    return static_cast<int32_t>(vision->Int(key, range, absent));
  }
  const Json::Array& sides = value->as_array();
  const bool is_square = sides.size() == 2 && sides[0].is_int() && sides[1].is_int() &&
                         sides[0].as_int() == sides[1].as_int();
  if (!is_square || !range.Holds(sides[0].as_int())) {
    vision->Fail(key, "two equal numbers are supported, " + Describe(range));
    return static_cast<int32_t>(range.min);
  }
  return static_cast<int32_t>(sides[0].as_int());
}

void ReadTowerSizes(const TowerSizes& absent, FieldReader* vision, TowerConfig* config) {
  config->hidden_size = vision->Int("hidden_size", kTowerWidthRange, absent.hidden);
  config->intermediate_size =
      vision->Int("intermediate_size", kTowerWidthRange, absent.intermediate);
  config->num_layers =
      static_cast<int32_t>(vision->Int("num_hidden_layers", kTowerLayersRange, absent.layers));
  config->num_heads =
      static_cast<int32_t>(vision->Int("num_attention_heads", kTowerHeadsRange, absent.heads));
  config->patch_size = ReadSide("patch_size", kPatchSizeRange, absent.patch, vision);
  const int32_t image = ReadSide("image_size", kImageSizeRange, absent.image, vision);
  vision->Int("num_channels", {3, 3}, 3);
  config->tile_side = image / config->patch_size;
  if (vision->ok() && config->tile_side == 0) {
    vision->Fail("image_size", "at least patch_size is needed");
  }
  SetTowerHeads("num_attention_heads", vision, config);
}

void SetTowerHeads(std::string_view heads_key, FieldReader* vision, TowerConfig* config) {
  if (!vision->ok()) return;
  if (config->hidden_size % config->num_heads != 0) {
    return vision->Fail(
        heads_key, fmt::format("a divisor of the hidden size ({}) is needed", config->hidden_size));
  }
  const int64_t head_dim = config->hidden_size / config->num_heads;
  if (!kHeadDimRange.Holds(head_dim) ||
      (config->rotation != TowerRotation::kNone && head_dim % 4 != 0)) {
    return vision->Fail(heads_key, fmt::format("heads of {} features are not supported", head_dim));
  }
  config->head_dim = static_cast<int32_t>(head_dim);
  config->attention_scale = 1 / std::sqrt(static_cast<double>(head_dim));
}

void ReadTowerActivation(std::string_view key, std::string_view absent, FieldReader* vision,
                         TowerConfig* config) {
  const std::string name =
      vision->OptionalString(key, kActivationNames).value_or(std::string(absent));
  for (const NamedActivation& known : kActivations) {
    if (name != known.name) continue;
    config->activation = known.activation;
    config->activation_limit = std::numeric_limits<float>::infinity();
    return;
  }
  vision->Fail(key, kActivationNames);
}

void CheckProjectorActivation(FieldReader* model) {
  CheckNeutral(model, "projector_hidden_act", Json("gelu"), "\"gelu\" is supported");
}

void ReadFeatureLayer(int64_t absent, FieldReader* model, TowerConfig* config) {
  constexpr const char* kKey = "vision_feature_layer";
  const int64_t layers = config->num_layers;
  const int64_t layer = model->Int(kKey, {-layers, layers}, absent);
  if (!model->ok()) return;
  const int64_t count = layer < 0 ? layers + 1 + layer : layer;
  if (count < 1) return model->Fail(kKey, "a layer's output is supported");
  config->num_layers = static_cast<int32_t>(count);
}

double ReadTowerTheta(double absent, FieldReader* vision) {
  const double theta = vision->Number("rope_theta", kThetaRange, absent);
  if (vision->Find("rope_parameters") == nullptr) return theta;
  std::optional<FieldReader> rope = vision->Object("rope_parameters");
  if (!rope) return theta;
  const double inner = rope->Number("rope_theta", kThetaRange, theta);
  CheckNeutral(&*rope, "rope_type", Json("default"), "\"default\" is supported");
  vision->Absorb(*rope);
  return inner;
}

}  // namespace minisgl::weights
