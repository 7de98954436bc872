// Towers of families that share their tensors' names with few others: Pixtral and Mistral 3, Gemma
// 4, InternVL, Llama 4.
#include <fmt/core.h>

#include <cmath>

#include "weights/config_keys.h"
#include "weights/tower_families.h"
#include "weights/tower_steps.h"

namespace minisgl::weights {
namespace {

void ReadPixtral(FieldReader* vision, TowerConfig* config) {
  TowerNames& names = config->names;
  names.prefix = "vision_tower.";
  names.patch = "patch_conv";
  names.first_norm = "ln_pre";
  names.layers = "transformer.layers.";
  names.norm1 = "attention_norm";
  names.query = "attention.q_proj";
  names.key = "attention.k_proj";
  names.value = "attention.v_proj";
  names.output = "attention.o_proj";
  names.norm2 = "ffn_norm";
  names.gate = "feed_forward.gate_proj";
  names.up = "feed_forward.up_proj";
  names.down = "feed_forward.down_proj";
  config->norm = NormKind::kRms;
  config->norm_eps = 1e-5;
  config->rotation = TowerRotation::kAlternating;
  config->qkv_bias = config->output_bias = config->feed_forward_bias = false;
  config->gated = true;
  ReadTowerSizes({1024, 4096, 24, 16, 1024, 16}, vision, config);
  config->tile_side = 0;
  ReadTowerActivation("hidden_act", "gelu", vision, config);
  config->rope_theta = ReadTowerTheta(10000, vision);
}

TowerNames Gemma4Names() {
  TowerNames names;
  names.prefix = "vision_tower.";
  names.patch = "patch_embedder.input_proj";
  names.places = "patch_embedder.position_embedding_table";
  names.layers = "encoder.layers.";
  names.norm1 = "input_layernorm";
  names.query = "self_attn.q_proj.linear";
  names.key = "self_attn.k_proj.linear";
  names.value = "self_attn.v_proj.linear";
  names.query_norm = "self_attn.q_norm";
  names.key_norm = "self_attn.k_norm";
  names.output = "self_attn.o_proj.linear";
  names.post_norm1 = "post_attention_layernorm";
  names.norm2 = "pre_feedforward_layernorm";
  names.gate = "mlp.gate_proj.linear";
  names.up = "mlp.up_proj.linear";
  names.down = "mlp.down_proj.linear";
  names.post_norm2 = "post_feedforward_layernorm";
  return names;
}

void ReadGemma4Heads(FieldReader* vision, TowerConfig* config) {
  config->num_heads =
      static_cast<int32_t>(vision->Int("num_attention_heads", kTowerHeadsRange, 12));
  const int64_t kv_heads = vision->Int("num_key_value_heads", kTowerHeadsRange, config->num_heads);
  if (vision->ok() && kv_heads != config->num_heads) {
    vision->Fail("num_key_value_heads",
                 fmt::format("num_attention_heads ({}) is supported", config->num_heads));
  }
  config->head_dim = static_cast<int32_t>(vision->Int("head_dim", kHeadDimRange, 64));
  if (config->head_dim % 4 != 0) vision->Fail("head_dim", "a multiple of 4 is supported");
  config->attention_scale = 1;
}

TowerNames InternVlNames() {
  TowerNames names;
  names.prefix = "vision_tower.";
  names.patch = "embeddings.patch_embeddings.projection";
  names.class_token = "embeddings.cls_token";
  names.places = "embeddings.position_embeddings";
  names.layers = "encoder.layer.";
  names.norm1 = "layernorm_before";
  names.query = "attention.q_proj";
  names.key = "attention.k_proj";
  names.value = "attention.v_proj";
  names.output = "attention.projection_layer";
  names.norm2 = "layernorm_after";
  names.up = "mlp.fc1";
  names.down = "mlp.fc2";
  names.factor1 = "lambda_1";
  names.factor2 = "lambda_2";
  return names;
}

TowerNames Llama4Names() {
  TowerNames names;
  names.prefix = "vision_model.";
  names.patch = "patch_embedding.linear";
  names.class_token = "class_embedding";
  names.places = "positional_embedding_vlm";
  names.first_norm = "layernorm_pre";
  names.layers = "model.layers.";
  names.norm1 = "input_layernorm";
  names.query = "self_attn.q_proj";
  names.key = "self_attn.k_proj";
  names.value = "self_attn.v_proj";
  names.output = "self_attn.o_proj";
  names.norm2 = "post_attention_layernorm";
  names.up = "mlp.fc1";
  names.down = "mlp.fc2";
  names.last_norm = "layernorm_post";
  return names;
}

// The inverse of a ratio below 1: patches a side of a unit.
void ReadUnitRatio(const char* key, FieldReader* reader, TowerConfig* config) {
  const double ratio = reader->Number(key, {1.0 / 16, 1}, 0.5);
  config->unit_side = static_cast<int32_t>(std::lround(1 / ratio));
  if (1 / static_cast<double>(config->unit_side) != ratio) {
    reader->Fail(key, "1 divided by an integer is supported");
  }
}

}  // namespace

void SetLlavaSteps(FieldReader* model, TowerConfig* config) {
  CheckProjectorActivation(model);
  const bool has_bias = model->Bool("multimodal_projector_bias", true);
  const int64_t text = config->text_hidden_size;
  config->steps = {ProductStep("/multi_modal_projector.linear_1", text, has_bias), GeluStep(),
                   ProductStep("/multi_modal_projector.linear_2", text, has_bias)};
}

void ReadLlavaPixtral(const TowerKeys& keys, TowerConfig* config) {
  ReadPixtral(keys.vision, config);
  ReadFeatureLayer(-2, keys.model, config);
  SetLlavaSteps(keys.model, config);
}

void ReadMistral3(const TowerKeys& keys, TowerConfig* config) {
  FieldReader* const model = keys.model;
  ReadPixtral(keys.vision, config);
  ReadFeatureLayer(-1, model, config);
  CheckProjectorActivation(model);
  config->unit_side = static_cast<int32_t>(model->Int("spatial_merge_size", kUnitSideRange, 2));
  const bool has_bias = model->Bool("multimodal_projector_bias", false);
  const double eps = keys.text->Number("rms_norm_eps", kEpsRange, 1e-6);
  const int64_t text = config->text_hidden_size;
  TowerStep merging = ProductStep("/multi_modal_projector.patch_merger.merging_layer",
                                  config->hidden_size, /*has_bias=*/false);
  merging.by_channel = true;
  config->steps = {NormStep("/multi_modal_projector.norm", NormKind::kRms, eps, /*has_bias=*/false),
                   JoinStep(),
                   merging,
                   ProductStep("/multi_modal_projector.linear_1", text, has_bias),
                   GeluStep(),
                   ProductStep("/multi_modal_projector.linear_2", text, has_bias)};
}

void ReadGemma4(const TowerKeys& keys, TowerConfig* config) {
  FieldReader* const vision = keys.vision;
  config->names = Gemma4Names();
  config->patches = TowerPatches::kRows;
  config->doubles_values = true;
  config->places = TowerPlaces::kTwoTables;
  config->norm = NormKind::kRms;
  config->rotation = TowerRotation::kHalves;
  config->qkv_bias = config->output_bias = vision->Bool("attention_bias", false);
  config->feed_forward_bias = false;
  config->head_norms = config->value_norm = config->gated = true;
  config->hidden_size = vision->Int("hidden_size", kTowerWidthRange, 768);
  config->intermediate_size = vision->Int("intermediate_size", kTowerWidthRange, 3072);
  config->num_layers =
      static_cast<int32_t>(vision->Int("num_hidden_layers", kTowerLayersRange, 16));
  ReadGemma4Heads(vision, config);
  config->patch_size = static_cast<int32_t>(vision->Int("patch_size", kPatchSizeRange, 16));
  config->unit_side = static_cast<int32_t>(vision->Int("pooling_kernel_size", kUnitSideRange, 3));
  config->places_side =
      static_cast<int32_t>(vision->Int("position_embedding_size", {1, 1 << 20}, 10240));
  ReadTowerActivation("hidden_activation", "gelu_pytorch_tanh", vision, config);
  config->norm_eps = vision->Number("rms_norm_eps", kEpsRange, 1e-6);
  config->rope_theta = ReadTowerTheta(100, vision);
  config->clips = vision->Bool("use_clipped_linears", false);
  config->steps = {PoolStep(std::sqrt(static_cast<double>(config->hidden_size)))};
  if (vision->Bool("standardize", false)) {
    TowerStep scale = StepOf(TowerStepKind::kScale);
    scale.name = "std";
    config->steps.push_back(scale);
  }
  config->steps.push_back(NormStep("", NormKind::kRms, config->norm_eps, /*has_bias=*/false));
  config->steps.push_back(ProductStep("/embed_vision.embedding_projection",
                                      config->text_hidden_size, /*has_bias=*/false));
}

void ReadInternVl(const TowerKeys& keys, TowerConfig* config) {
  FieldReader* const vision = keys.vision;
  config->names = InternVlNames();
  config->patch_bias = true;
  config->places = TowerPlaces::kTable;
  config->class_token = TowerClassToken::kFirst;
  ReadTowerSizes({1024, 4096, 24, 16, 448, 14}, vision, config);
  ReadTowerActivation("hidden_act", "gelu", vision, config);
  config->norm_eps = vision->Number("layer_norm_eps", kEpsRange, 1e-6);
  config->qkv_bias = vision->Bool("attention_bias", false);
  if (vision->Bool("use_qk_norm", false)) {
    config->names.query_norm = "attention.q_norm";
    config->names.key_norm = "attention.k_norm";
  }
  const std::string norm =
      vision->OptionalString("norm_type", "a name is supported").value_or("layer_norm");
  config->norm = norm == "rms_norm" ? NormKind::kRms : NormKind::kLayer;
  if (norm != "rms_norm" && norm != "layer_norm") {
    vision->Fail("norm_type", "\"layer_norm\" and \"rms_norm\" are supported");
  }
  if (!vision->Bool("use_mean_pooling", true)) config->names.last_norm = "layernorm";
  config->last_norm_is_layer = true;
  CheckNeutral(vision, "use_absolute_position_embeddings", Json(true), "true is supported");
  CheckNeutral(keys.model, "vision_feature_select_strategy", Json("default"),
               "\"default\" is supported");
  ReadFeatureLayer(-1, keys.model, config);
  CheckProjectorActivation(keys.model);
  ReadUnitRatio("downsample_ratio", keys.model, config);
  const int64_t text = config->text_hidden_size;
  config->steps = {
      JoinStep(),
      NormStep("/multi_modal_projector.layer_norm", NormKind::kLayer, 1e-5, /*has_bias=*/true),
      ProductStep("/multi_modal_projector.linear_1", text, /*has_bias=*/true), GeluStep(),
      ProductStep("/multi_modal_projector.linear_2", text, /*has_bias=*/true)};
}

void ReadLlama4(const TowerKeys& keys, TowerConfig* config) {
  FieldReader* const vision = keys.vision;
  config->names = Llama4Names();
  config->places = TowerPlaces::kTable;
  config->class_token = TowerClassToken::kLast;
  config->rotation = TowerRotation::kPairs;
  ReadTowerSizes({768, 5632, 34, 16, 448, 14}, vision, config);
  ReadTowerActivation("hidden_act", "gelu", vision, config);
  config->norm_eps = vision->Number("norm_eps", kEpsRange, 1e-5);
  config->rope_theta = ReadTowerTheta(10000, vision);
  ReadUnitRatio("pixel_shuffle_ratio", vision, config);
  const int64_t inner = vision->Int("projector_input_dim", kTowerWidthRange, 4096);
  const int64_t adapted = vision->Int("projector_output_dim", kTowerWidthRange, 4096);
  if (inner != adapted) {
    vision->Fail("projector_output_dim", fmt::format("projector_input_dim ({}) is needed", inner));
  }
  config->steps = {JoinStep(),
                   ProductStep("vision_adapter.mlp.fc1", inner, /*has_bias=*/false),
                   GeluStep(),
                   ProductStep("vision_adapter.mlp.fc2", adapted, /*has_bias=*/false),
                   GeluStep(),
                   ProductStep("/multi_modal_projector.linear_1", config->text_hidden_size,
                               /*has_bias=*/false)};
}

}  // namespace minisgl::weights
