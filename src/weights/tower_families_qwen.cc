// Towers of Qwen2-VL to Qwen3.5, and GLM-4.1V, which reads patches in the same order.
#include <fmt/core.h>

#include <cmath>

#include "weights/config_keys.h"
#include "weights/tower_families.h"
#include "weights/tower_steps.h"

namespace minisgl::weights {
namespace {

TowerNames QwenNames() {
  TowerNames names;
  names.prefix = "visual.";
  names.patch = "patch_embed.proj";
  names.layers = "blocks.";
  names.norm1 = "norm1";
  names.qkv = "attn.qkv";
  names.output = "attn.proj";
  names.norm2 = "norm2";
  return names;
}

void SetGatedNames(TowerNames* names) {
  names->gate = "mlp.gate_proj";
  names->up = "mlp.up_proj";
  names->down = "mlp.down_proj";
}

// The keys of all of these families. `width_key`: of the tower's hidden size.
void ReadQwenSizes(const char* width_key, const TowerSizes& absent, FieldReader* vision,
                   TowerConfig* config) {
  config->patches = TowerPatches::kBlocks;
  config->rotation = TowerRotation::kRowsFirst;
  config->hidden_size = vision->Int(width_key, kTowerWidthRange, absent.hidden);
  config->num_layers = static_cast<int32_t>(vision->Int("depth", kTowerLayersRange, absent.layers));
  config->num_heads =
      static_cast<int32_t>(vision->Int("num_heads", kTowerHeadsRange, absent.heads));
  config->patch_size =
      static_cast<int32_t>(vision->Int("patch_size", kPatchSizeRange, absent.patch));
  config->num_frames = static_cast<int32_t>(vision->Int("temporal_patch_size", kFramesRange, 2));
  config->unit_side = static_cast<int32_t>(vision->Int("spatial_merge_size", kUnitSideRange, 2));
  vision->Int("in_channels", {3, 3}, 3);
  vision->Int("in_chans", {3, 3}, 3);
  SetTowerHeads("num_heads", vision, config);
}

// The tower's last features are the text's.
void CheckOutputs(const char* key, FieldReader* vision, const TowerConfig& config) {
  const int64_t text = config.text_hidden_size;
  const int64_t found = vision->Int(key, kTowerWidthRange, text);
  if (vision->ok() && found != text) {
    vision->Fail(key, fmt::format("the hidden size of the text ({}) is needed", text));
  }
}

void SetQwen2Steps(TowerConfig* config) {
  config->steps = {NormStep("merger.ln_q", config->norm, 1e-6, config->norm == NormKind::kLayer),
                   JoinStep(), ProductStep("merger.mlp.0", JoinedWidth(*config), true), GeluStep(),
                   ProductStep("merger.mlp.2", config->text_hidden_size, true)};
}

// `joins_first`: the norm is of joined patches.
std::vector<TowerStep> Qwen3Steps(const TowerConfig& config, const std::string& name,
                                  bool joins_first) {
  std::vector<TowerStep> steps = {
      NormStep((name + "norm").c_str(), NormKind::kLayer, 1e-6, true), JoinStep(),
      ProductStep(name + "linear_fc1", JoinedWidth(config), true), GeluStep(),
      ProductStep(name + "linear_fc2", config.text_hidden_size, true)};
  if (joins_first) std::swap(steps[0], steps[1]);
  return steps;
}

void ReadWindows(FieldReader* vision, TowerConfig* config) {
  const auto pixels = static_cast<int32_t>(vision->Int("window_size", kImageSizeRange, 112));
  config->window_units = pixels / config->unit_side / config->patch_size;
  if (config->window_units < 1) vision->Fail("window_size", "at least a unit is needed");
  config->whole_layers = {7, 15, 23, 31};
  const Json* const listed = vision->Find("fullatt_block_indexes");
  if (listed == nullptr) return;
  config->whole_layers.clear();
  bool holds = listed->is_array();
  for (size_t i = 0; holds && i < listed->as_array().size(); ++i) {
    const Json& layer = listed->as_array()[i];
    holds = layer.is_int() && IntRange{0, kTowerLayersRange.max}.Holds(layer.as_int());
    if (holds) config->whole_layers.push_back(static_cast<int32_t>(layer.as_int()));
  }
  if (!holds) vision->Fail("fullatt_block_indexes", "a list of layers is supported");
}

void ReadDeepstack(FieldReader* vision, TowerConfig* config) {
  constexpr const char* kKey = "deepstack_visual_indexes";
  const Json* const listed = vision->Find(kKey);
  std::vector<int32_t> layers;
  if (listed == nullptr) {
    layers = {8, 16, 24};
  } else if (!listed->is_array()) {
    return vision->Fail(kKey, "a list of layers is supported");
  } else {
    for (const Json& layer : listed->as_array()) {
      if (!layer.is_int() || !IntRange{0, kTowerLayersRange.max}.Holds(layer.as_int())) {
        return vision->Fail(kKey, "a list of layers is supported");
      }
      layers.push_back(static_cast<int32_t>(layer.as_int()));
    }
  }
  for (size_t i = 0; i < layers.size(); ++i) {
    if (layers[i] >= config->num_layers || (i > 0 && layers[i] <= layers[i - 1])) {
      return vision->Fail(
          kKey, fmt::format("ascending layers below {} are supported", config->num_layers));
    }
    config->deepstack_steps.push_back(
        Qwen3Steps(*config, fmt::format("deepstack_merger_list.{}.", i), /*joins_first=*/true));
  }
  config->deepstack_layers = std::move(layers);
}

}  // namespace

void ReadQwen2Vl(const TowerKeys& keys, TowerConfig* config) {
  FieldReader* const vision = keys.vision;
  config->names = QwenNames();
  config->names.up = "mlp.fc1";
  config->names.down = "mlp.fc2";
  ReadQwenSizes("embed_dim", {1280, 0, 32, 16, 0, 14}, vision, config);
  const double ratio = vision->Number("mlp_ratio", {0.001, 1000}, 4);
  config->intermediate_size =
      static_cast<int64_t>(std::floor(static_cast<double>(config->hidden_size) * ratio));
  if (vision->ok() && !kTowerWidthRange.Holds(config->intermediate_size)) {
    vision->Fail("mlp_ratio", "at least one feature is needed");
  }
  ReadTowerActivation("hidden_act", "quick_gelu", vision, config);
  CheckOutputs("hidden_size", vision, *config);
  SetQwen2Steps(config);
}

void ReadQwen25Vl(const TowerKeys& keys, TowerConfig* config) {
  FieldReader* const vision = keys.vision;
  config->names = QwenNames();
  SetGatedNames(&config->names);
  config->norm = NormKind::kRms;
  config->gated = true;
  ReadQwenSizes("hidden_size", {1280, 0, 32, 16, 0, 14}, vision, config);
  config->intermediate_size = vision->Int("intermediate_size", kTowerWidthRange, 3420);
  ReadTowerActivation("hidden_act", "silu", vision, config);
  CheckOutputs("out_hidden_size", vision, *config);
  if (vision->ok()) ReadWindows(vision, config);
  SetQwen2Steps(config);
}

void ReadQwen3Vl(const TowerKeys& keys, TowerConfig* config) {
  FieldReader* const vision = keys.vision;
  config->names = QwenNames();
  config->names.places = "pos_embed.weight";
  config->names.up = "mlp.linear_fc1";
  config->names.down = "mlp.linear_fc2";
  config->patch_bias = true;
  config->places = TowerPlaces::kBilinear;
  ReadQwenSizes("hidden_size", {1152, 0, 27, 16, 0, 16}, vision, config);
  config->intermediate_size = vision->Int("intermediate_size", kTowerWidthRange, 4304);
  ReadTowerActivation("hidden_act", "gelu_pytorch_tanh", vision, config);
  CheckOutputs("out_hidden_size", vision, *config);
  const int64_t places = vision->Int("num_position_embeddings", {1, 1 << 24}, 2304);
  config->places_side = static_cast<int32_t>(std::lround(std::sqrt(static_cast<double>(places))));
  if (int64_t{config->places_side} * config->places_side != places) {
    vision->Fail("num_position_embeddings", "a square number is supported");
  }
  config->steps = Qwen3Steps(*config, "merger.", /*joins_first=*/false);
  const bool has_deepstack = config->name.starts_with("qwen3_vl");
  if (has_deepstack && vision->ok()) ReadDeepstack(vision, config);
}

void ReadGlm4v(const TowerKeys& keys, TowerConfig* config) {
  FieldReader* const vision = keys.vision;
  TowerNames& names = config->names = QwenNames();
  SetGatedNames(&names);
  names.patch_norm = "post_conv_layernorm";
  names.places = "embeddings.position_embedding.weight";
  names.last_norm = "post_layernorm";
  config->patch_bias = true;
  config->places = TowerPlaces::kBicubic;
  config->norm = NormKind::kRms;
  config->gated = true;
  ReadQwenSizes("hidden_size", {1536, 0, 24, 12, 0, 14}, vision, config);
  config->norm_eps = vision->Number("rms_norm_eps", kEpsRange, 1e-5);
  config->qkv_bias = vision->Bool("attention_bias", false);
  config->output_bias = config->feed_forward_bias = false;
  ReadTowerActivation("hidden_act", "silu", vision, config);
  CheckOutputs("out_hidden_size", vision, *config);
  config->intermediate_size = config->text_hidden_size;
  config->places_side = ReadSide("image_size", kImageSizeRange, 336, vision) / config->patch_size;
  if (vision->ok() && config->places_side < 1) {
    vision->Fail("image_size", "at least patch_size is needed");
  }
  TowerStep downsample = ProductStep("downsample", config->text_hidden_size, true);
  downsample.by_channel = true;
  TowerStep gated =
      ProductStep("merger.", vision->Int("intermediate_size", kTowerWidthRange, 13696), false);
  gated.kind = TowerStepKind::kGated;
  gated.has_bias = false;
  gated.activation = config->activation;
  config->steps = {JoinStep(),
                   downsample,
                   ProductStep("merger.proj", config->text_hidden_size, false),
                   NormStep("merger.post_projection_norm", NormKind::kLayer, 1e-5, true),
                   GeluStep(),
                   gated};
}

}  // namespace minisgl::weights
