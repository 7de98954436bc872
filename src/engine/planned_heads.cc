// See planned_heads.h.
#include "engine/planned_heads.h"

#include <algorithm>

#include "engine/kv_storage.h"
#include "minisgl/base/check.h"

namespace minisgl::engine {

std::vector<PlannedHeads> HeadsOfLayers(const ModelConfig& config, KvKind kv_kind) {
  std::vector<PlannedHeads> all;
  for (int32_t i = 0; i < config.num_layers; ++i) {
    const LayerConfig& layer = config.layers[static_cast<size_t>(i)];
    if (!HasAttention(layer.mixer)) continue;
    const LayerShape shape = LayerShapeOf(config, i);
    const AttentionHeads heads = {
        shape.num_heads,      shape.num_kv_heads,
        shape.head_dim,       shape.value_dim,
        shape.values_in_keys, kv_kind == KvKind::kFp8 && IsCodedLayer(layer, shape)};
    auto found = std::find_if(all.begin(), all.end(),
                              [&](const PlannedHeads& planned) { return planned.heads == heads; });
    if (found == all.end()) found = all.insert(all.end(), {.heads = heads});
    found->window = std::max(found->window, layer.sliding_window);
  }
  return all;
}

DeviceLimits DeviceLimitsOf(const ModelList& models, const Rank& rank, const EngineLimits& limits,
                            KvKind kv_kind, int32_t num_host_layers) {
  DeviceLimits device = {.max_rows = limits.max_running_requests + 1,  // one of padding
                         .max_tokens = limits.max_step_tokens,
                         .max_seq_len = limits.max_seq_len};
  std::vector<AttentionHeads> all;  // each kind once, the target's first
  for (size_t i = 0; i < models.size(); ++i) {
    if (models[i].layers() == nullptr) continue;
    const ModelConfig own = RankConfig(*models[i].layers(), models[i].RankOf(rank));
    device.num_experts = std::max(device.num_experts, own.experts.num_experts);
    device.num_chosen = std::max(device.num_chosen, own.experts.num_chosen);
    for (const PlannedHeads& planned : HeadsOfLayers(own, kv_kind)) {
      if (std::find(all.begin(), all.end(), planned.heads) == all.end()) {
        all.push_back(planned.heads);
      }
    }
  }
  MINISGL_CHECK(!all.empty(), "a model without attention");
  if (num_host_layers > 0) {
    const ModelConfig& target = models.target();
    const int64_t latent = target.experts.latent_size;
    device.host_expert_width = latent > 0 ? latent : target.hidden_size;
  }
  device.num_heads = all[0].num_heads;
  device.num_kv_heads = all[0].num_kv_heads;
  device.head_dim = all[0].head_dim;
  device.v_head_dim = all[0].v_head_dim;
  device.values_in_keys = all[0].values_in_keys;
  device.has_codes = all[0].has_codes;
  device.other_heads.assign(all.begin() + 1, all.end());
  return device;
}

}  // namespace minisgl::engine
