// Families with experts.
#include <fmt/core.h>

#include <iterator>
#include <vector>

#include "weights/config_keys.h"
#include "weights/gguf_families.h"
#include "weights/gguf_family_parts.h"

namespace minisgl::weights {

void WriteQwen2Moe(GgufMetadata* metadata, Json* config) {
  const int64_t count = metadata->Int("expert_count", kExpertsRange);
  config->Set("num_experts", count);
  config->Set("num_experts_per_tok", metadata->Int("expert_used_count", {1, count}));
  config->Set("moe_intermediate_size",
              WidthOf(metadata, "expert_feed_forward_length", "blk.0.ffn_gate_exps.weight"));
  config->Set(
      "shared_expert_intermediate_size",
      WidthOf(metadata, "expert_shared_feed_forward_length", "blk.0.ffn_gate_shexp.weight"));
  config->Set("norm_topk_prob", false);
}

void WriteQwen3Moe(GgufMetadata* metadata, Json* config) {
  WriteExperts(metadata, config);
  config->Set("norm_topk_prob", true);
}

void WriteOlmoe(GgufMetadata* metadata, Json* config) {
  const int64_t count = metadata->Int("expert_count", kExpertsRange);
  config->Set("num_experts", count);
  config->Set("num_experts_per_tok", metadata->Int("expert_used_count", {1, count}));
  config->Set("norm_topk_prob", false);
}

// With a shared expert it is Granite 4 without recurrent layers.
void WriteGraniteMoe(GgufMetadata* metadata, Json* config) {
  WriteGranite(metadata, config);
  WriteLocalExperts(metadata, config);
  const int64_t shared =
      metadata->Int("expert_shared_feed_forward_length", {0, kWidthRange.max}, 0);
  if (shared == 0) return;
  SetArchitecture("GraniteMoeHybridForCausalLM", "granitemoehybrid", config);
  const int64_t num_layers = config->Find("num_hidden_layers")->as_int();
  config->Set("layer_types", Json(Json::Array(static_cast<size_t>(num_layers), Json("attention"))));
  config->Set("position_embedding_type", "rope").Set("shared_intermediate_size", shared);
}

// Only norms of queries and keys say whether a model has them.
void WriteGlm4Moe(GgufMetadata* metadata, Json* config) {
  WriteRoutedExperts(metadata, config);
  config->Set("first_k_dense_replace",
              metadata->Int("leading_dense_block_count", {0, kLayersRange.max}, 0));
  const bool has_norms = metadata->Tensor("blk.0.attn_q_norm.weight") != nullptr;
  config->Set("use_qk_norm", has_norms);
}

// Files do not state the last layer with experts.
void WriteErnie45Moe(GgufMetadata* metadata, Json* config) {
  const int64_t count = metadata->Int("expert_count", kExpertsRange);
  config->Set("moe_num_experts", count);
  config->Set("moe_k", metadata->Int("expert_used_count", {1, count}));
  config->Set("moe_intermediate_size", metadata->Int("expert_feed_forward_length", kWidthRange));
  config->Set("moe_num_shared_experts",
              metadata->Int("expert_shared_count", {0, kExpertsRange.max}, 0));
  config->Set("moe_layer_start_index",
              metadata->Int("leading_dense_block_count", {0, kLayersRange.max}, 0));
  config->Set("moe_layer_interval", metadata->Int("interleave_moe_layer_step", kLayersRange, 1));
  const std::vector<bool> has = LayersWith(*metadata, *config, "ffn_gate_inp.weight");
  int64_t last = std::ssize(has) - 1;
  while (last > 0 && !has[static_cast<size_t>(last)]) --last;
  config->Set("moe_layer_end_index", last);
}

void WriteExaoneMoe(GgufMetadata* metadata, Json* config) {
  WriteWindows(metadata, 4, config);
  WriteRoutedExperts(metadata, config);
  config->Set("num_experts", *config->Find("n_routed_experts"));
  config->Set("num_shared_experts", *config->Find("n_shared_experts"));
  config->Set("first_k_dense_replace",
              metadata->Int("leading_dense_block_count", {0, kLayersRange.max}, 0));
}

// Shared experts are averaged with the others.
void WriteCohere2Moe(GgufMetadata* metadata, Json* config) {
  constexpr int64_t kSoftmax = 1, kSigmoid = 2;
  WriteCohere2(metadata, config);
  const int64_t count = metadata->Int("expert_count", kExpertsRange);
  const int64_t num_dense = metadata->Int("leading_dense_block_count", {0, kLayersRange.max}, 0);
  const int64_t dense_width = metadata->Int("feed_forward_length", kWidthRange);
  config->Set("num_experts", count);
  config->Set("num_experts_per_tok", metadata->Int("expert_used_count", {1, count}));
  config->Set("intermediate_size", metadata->Int("expert_feed_forward_length", kWidthRange));
  config->Set("first_k_dense_replace", num_dense);
  config->Set("prefix_dense_intermediate_size", dense_width);
  config->Set("num_shared_experts",
              metadata->Int("expert_shared_count", {0, kExpertsRange.max}, 0));
  config->Set("norm_topk_prob", metadata->Bool("expert_weights_norm", false));
  const bool is_sigmoid =
      metadata->Int("expert_gating_func", {kSoftmax, kSigmoid}, kSigmoid) == kSigmoid;
  config->Set("expert_selection_fn", is_sigmoid ? "sigmoid" : "softmax");
  // With this number norms are no LayerNorms.
  metadata->Copy("attention.layer_norm_rms_epsilon", "rms_norm_eps", config);
}

void WriteHunYuanMoe(GgufMetadata* metadata, Json* config) {
  const int64_t count = metadata->Int("expert_count", kExpertsRange);
  const int64_t width = metadata->Int("expert_feed_forward_length", kWidthRange);
  config->Set("num_experts", count);
  config->Set("moe_topk", metadata->Int("expert_used_count", {1, count}));
  config->Set("moe_intermediate_size", width).Set("intermediate_size", width);
  config->Set("num_shared_expert", metadata->Int("expert_shared_count", kExpertsRange, 1));
  constexpr const char* kShared = "expert_shared_feed_forward_length";
  if (metadata->Int(kShared, kWidthRange, width) != width) {
    metadata->Fail(kShared, fmt::format("{} is needed, as of other experts", width));
  }
}

void WriteMiniMaxM2(GgufMetadata* metadata, Json* config) {
  WriteLocalExperts(metadata, config);
  config->Set("intermediate_size", metadata->Int("expert_feed_forward_length", kWidthRange));
}

void WriteGptOss(GgufMetadata* metadata, Json* config) {
  WriteWindows(metadata, 2, config);
  WriteLocalExperts(metadata, config);
  config->Set("intermediate_size", metadata->Int("expert_feed_forward_length", kWidthRange));
  if (Json* rope = config->Find("rope_scaling"); rope != nullptr) rope->Set("truncate", false);
}

}  // namespace minisgl::weights
