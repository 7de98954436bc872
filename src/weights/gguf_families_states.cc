// Families whose layers, some or all, have a state.
#include <fmt/core.h>

#include <utility>
#include <vector>

#include "weights/config_keys.h"
#include "weights/gguf_families.h"
#include "weights/gguf_family_parts.h"

namespace minisgl::weights {
namespace {

// Layers without keys have a state: `state_type`, and "full_attention" or `full_type` those with
// keys.
std::vector<int64_t> WriteLayersByKeys(GgufMetadata* metadata, const char* state_type,
                                       const char* full_type, Json* config) {
  const int64_t num_layers = metadata->Int("block_count", kLayersRange);
  int64_t num_kv_heads = 1;
  Json types = Json(Json::Array());
  std::vector<int64_t> layers_with_keys;
  for (const int64_t heads :
       metadata->IntOfLayers("attention.head_count_kv", num_layers, {0, kHeadsRange.max})) {
    if (heads > 0) {
      num_kv_heads = heads;
      layers_with_keys.push_back(std::ssize(types.as_array()));
    }
    types.Append(heads > 0 ? full_type : state_type);
  }
  config->Set("num_key_value_heads", num_kv_heads);
  config->Set("layer_types", std::move(types));
  return layers_with_keys;
}

}  // namespace

void WriteLfm2(GgufMetadata* metadata, Json* config) {
  WriteLayersByKeys(metadata, "conv", "full_attention", config);
  config->Set("block_auto_adjust_ff_dim", false);
  config->Set("conv_L_cache", metadata->Int("shortconv.l_cache", kWidthRange));
  metadata->Copy("attention.layer_norm_rms_epsilon", "norm_eps", config);
  config->Set("tie_embedding", *config->Find("tie_word_embeddings"));
  const bool has_bias = AnyLayerHas(*metadata, *config, "shortconv.conv.bias");
  config->Set("conv_bias", has_bias);
}

void WriteLfm2Moe(GgufMetadata* metadata, Json* config) {
  WriteLfm2(metadata, config);
  WriteExperts(metadata, config);
  config->Set("num_dense_layers",
              metadata->Int("leading_dense_block_count", {0, kLayersRange.max}, 0));
  const bool has_bias = AnyLayerHas(*metadata, *config, "exp_probs_b.bias");
  config->Set("use_expert_bias", has_bias);
}

void WriteQwen35(GgufMetadata* metadata, Json* config) { WriteDeltaNet(metadata, config); }

void WriteQwen35Moe(GgufMetadata* metadata, Json* config) {
  WriteDeltaNet(metadata, config);
  WriteExperts(metadata, config);
  config->Set(
      "shared_expert_intermediate_size",
      WidthOf(metadata, "expert_shared_feed_forward_length", "blk.0.ffn_gate_shexp.weight"));
}

void WriteQwen3Next(GgufMetadata* metadata, Json* config) {
  WriteQwen35Moe(metadata, config);
  config->Set("norm_topk_prob", true);
}

// Files of Granite turn the rotary embedding off.
void WriteGraniteHybrid(GgufMetadata* metadata, Json* config) {
  const std::vector<int64_t> layers_with_keys =
      WriteLayersByKeys(metadata, "mamba", "attention", config);
  if (!metadata->ok()) return;
  WriteMamba2(metadata, config);
  if (metadata->Bool("rope.scaling.finetuned", true)) {
    SetArchitecture("BambaForCausalLM", "bamba", config);
    config->Set("attn_layer_indices",
                Json(Json::Array(layers_with_keys.begin(), layers_with_keys.end())));
    const bool has_bias = metadata->Tensor("blk.0.ffn_down.bias") != nullptr;
    config->Set("mlp_bias", has_bias);
    return;
  }
  WriteGranite(metadata, config);
  const int64_t count = metadata->Int("expert_count", {0, kExpertsRange.max}, 0);
  config->Set("num_local_experts", count);
  config->Set("position_embedding_type", "nope");
  constexpr const char* kShared = "expert_shared_feed_forward_length";
  if (count == 0) {  // the shared part is the only one
    config->Set("shared_intermediate_size", WidthOf(metadata, kShared, "blk.0.ffn_gate.weight"));
    return;
  }
  config->Set("num_experts_per_tok", metadata->Int("expert_used_count", {1, count}));
  config->Set("shared_intermediate_size",
              WidthOf(metadata, kShared, "blk.0.ffn_gate_shexp.weight"));
}

// All multipliers are in the weights.
void WriteFalconH1(GgufMetadata* metadata, Json* config) {
  WriteMamba2(metadata, config);
  const auto has = [&](const char* name) { return metadata->Tensor(name) != nullptr; };
  config->Set("projectors_bias", has("blk.0.ssm_out.bias"));
  config->Set("mamba_rms_norm", has("blk.0.ssm_norm.weight"));
  config->Set("mamba_norm_before_gate", false);
}

}  // namespace minisgl::weights
