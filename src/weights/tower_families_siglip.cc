// Towers whose tensors have the names of SigLIP or CLIP: Gemma 3, LLaVA, LLaVA-OneVision, Idefics 3
// and SmolVLM.
#include <fmt/core.h>

#include <cmath>

#include "weights/config_keys.h"
#include "weights/tower_families.h"
#include "weights/tower_steps.h"

namespace minisgl::weights {
namespace {

TowerNames SiglipNames() {
  TowerNames names;
  names.prefix = "vision_tower.vision_model.";
  names.patch = "embeddings.patch_embedding";
  names.places = "embeddings.position_embedding.weight";
  names.layers = "encoder.layers.";
  names.norm1 = "layer_norm1";
  names.query = "self_attn.q_proj";
  names.key = "self_attn.k_proj";
  names.value = "self_attn.v_proj";
  names.output = "self_attn.out_proj";
  names.norm2 = "layer_norm2";
  names.up = "mlp.fc1";
  names.down = "mlp.fc2";
  return names;
}

void ReadSiglip(const TowerSizes& absent, FieldReader* vision, TowerConfig* config) {
  config->names = SiglipNames();
  config->patch_bias = true;
  config->places = TowerPlaces::kTable;
  ReadTowerSizes(absent, vision, config);
  ReadTowerActivation("hidden_act", "gelu_pytorch_tanh", vision, config);
  config->norm_eps = vision->Number("layer_norm_eps", kEpsRange, 1e-6);
}

constexpr TowerSizes kSiglip = {768, 3072, 12, 12, 224, 16};
constexpr TowerSizes kIdefics3 = {1152, 3072, 12, 16, 224, 32};

void CheckStrategy(const char* supported, const char* absent, FieldReader* model) {
  constexpr const char* kKey = "vision_feature_select_strategy";
  const std::string words = fmt::format("\"{}\" is supported with this tower", supported);
  if (model->OptionalString(kKey, words).value_or(absent) != supported) model->Fail(kKey, words);
}

}  // namespace

void ReadGemma3(const TowerKeys& keys, TowerConfig* config) {
  ReadSiglip(kSiglip, keys.vision, config);
  config->names.last_norm = "post_layernorm";
  const int64_t tokens = keys.model->Int("mm_tokens_per_image", {1, 1 << 20}, 256);
  const auto side = static_cast<int32_t>(std::lround(std::sqrt(static_cast<double>(tokens))));
  if (int64_t{side} * side != tokens || config->tile_side % side != 0) {
    return keys.model->Fail(
        "mm_tokens_per_image",
        fmt::format("the square of a divisor of {} patches a side is needed", config->tile_side));
  }
  config->unit_side = config->tile_side / side;
  TowerStep norm = NormStep("/multi_modal_projector.mm_soft_emb_norm", NormKind::kRms,
                            config->norm_eps, /*has_bias=*/false);
  norm.plus_one = true;
  TowerStep product = ProductStep("/multi_modal_projector.mm_input_projection_weight",
                                  config->text_hidden_size, /*has_bias=*/false);
  product.is_transposed = true;
  config->steps = {PoolStep(1), norm, product};
}

void ReadLlavaClip(const TowerKeys& keys, TowerConfig* config) {
  FieldReader* const vision = keys.vision;
  config->names = SiglipNames();
  config->names.class_token = "embeddings.class_embedding";
  config->names.first_norm = "pre_layrnorm";  // so spelled
  config->places = TowerPlaces::kTable;
  config->class_token = TowerClassToken::kFirst;
  ReadTowerSizes({768, 3072, 12, 12, 224, 32}, vision, config);
  ReadTowerActivation("hidden_act", "quick_gelu", vision, config);
  config->norm_eps = vision->Number("layer_norm_eps", kEpsRange, 1e-5);
  CheckStrategy("default", "default", keys.model);
  ReadFeatureLayer(-2, keys.model, config);
  SetLlavaSteps(keys.model, config);
}

void ReadLlavaSiglip(const TowerKeys& keys, TowerConfig* config) {
  ReadSiglip(kSiglip, keys.vision, config);
  CheckStrategy("full", "default", keys.model);
  ReadFeatureLayer(-2, keys.model, config);
  SetLlavaSteps(keys.model, config);
}

void ReadLlavaOneVision(const TowerKeys& keys, TowerConfig* config) {
  ReadSiglip(kSiglip, keys.vision, config);
  config->names.newline = "image_newline";
  config->packs_tiles = true;
  CheckStrategy("full", "full", keys.model);
  ReadFeatureLayer(-1, keys.model, config);
  SetLlavaSteps(keys.model, config);
}

void ReadIdefics3(const TowerKeys& keys, TowerConfig* config) {
  ReadSiglip(kIdefics3, keys.vision, config);
  config->names.prefix = "vision_model.";
  config->names.last_norm = "post_layernorm";
  config->unit_side = static_cast<int32_t>(keys.model->Int("scale_factor", kUnitSideRange, 2));
  config->steps = {JoinStep(), ProductStep("/connector.modality_projection.proj",
                                           config->text_hidden_size, /*has_bias=*/false)};
}

}  // namespace minisgl::weights
