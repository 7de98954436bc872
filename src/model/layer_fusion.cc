// See layer_fusion.h.
#include "model/layer_fusion.h"

namespace minisgl::model {

LayerFusion FusionOf(const ModelConfig& config, const LayerWeights& layer, size_t index) {
  const LayerConfig& kinds = config.layers[index];
  if (config.norm_placement == NormPlacement::kParallel || config.per_layer_width > 0) return {};
  if (config.norm_placement == NormPlacement::kAfterSum) return {};
  const bool is_plain = kinds.mixer == Mixer::kAttention && config.latent.rank == 0;
  const bool is_dense = kinds.has_feed_forward && !kinds.has_experts;
  // The final norm adds what the last layer leaves: it is not captured with the layers, and may
  // follow a step of another number of tokens.
  const bool is_last = index + 1 == config.layers.size();
  return {.attention_norm =
              is_plain && !config.attention_gate && layer.attention_norm.weight.data() != nullptr,
          .attention_addition = is_plain && kinds.has_feed_forward &&
                                layer.attention_post_norm.weight.data() == nullptr,
          .feed_forward_norm = is_dense && layer.feed_forward_norm.weight.data() != nullptr,
          .feed_forward_addition =
              is_dense && !is_last && layer.feed_forward_post_norm.weight.data() == nullptr};
}

}  // namespace minisgl::model
