#include "minisgl/model/token_weights.h"

#include <cstdint>
#include <iterator>

namespace minisgl {
namespace {

double ChosenExpertWeights(const ModelConfig& config) {
  const double matrices = config.gated ? 3 : 2;
  return matrices * static_cast<double>(config.hidden_size) * config.experts.num_chosen *
         static_cast<double>(config.experts.intermediate_size);
}

// Weights of a layer's feed-forward part without the experts that are chosen.
double FeedForwardWeights(const ModelConfig& config, const LayerConfig& layer,
                          const LayerShape& shape) {
  const auto d = static_cast<double>(config.hidden_size);
  const double matrices = config.gated ? 3 : 2;
  if (!layer.has_experts) return matrices * d * static_cast<double>(shape.intermediate_size);
  const ExpertsConfig& experts = config.experts;
  return matrices * d * static_cast<double>(experts.shared_intermediate_size) +
         d * experts.num_experts;
}

// Weights of a layer's latent attention.
double LatentWeights(const ModelConfig& config) {
  const LatentConfig& latent = config.latent;
  const auto d = static_cast<double>(config.hidden_size);
  const double plain = latent.plain_dim, rotary = latent.rotary_dim, value = latent.value_dim;
  const double rank = latent.rank, query_rank = latent.query_rank, heads = config.num_heads;
  const double queries =
      query_rank > 0 ? query_rank * (d + heads * (plain + rotary)) : d * heads * (plain + rotary);
  return queries + d * (rank + rotary) + heads * (rank * (plain + value) + d * value);
}

// Weights of a layer's mixer with a state, without its convolution and its gains.
double StateMixerWeights(const ModelConfig& config) {
  const StateConfig& states = config.states;
  const auto d = static_cast<double>(config.hidden_size);
  const auto channels = static_cast<double>(states.conv_width);
  if (states.num_heads == 0) return 4 * d * channels;  // two gates, the input, the output
  return d * (channels + 2 * static_cast<double>(states.inner_width()));
}

}  // namespace

TokenWeights CountTokenWeights(const ModelConfig& config) {
  const auto d = static_cast<double>(config.hidden_size);
  TokenWeights weights;
  for (int32_t i = 0; i < std::ssize(config.layers); ++i) {
    const LayerConfig& layer = config.layers[static_cast<size_t>(i)];
    const LayerShape shape = LayerShapeOf(config, i);
    const double widths = static_cast<double>(shape.head_dim) + shape.value_dim;
    if (layer.has_feed_forward) {
      weights.layers += FeedForwardWeights(config, layer, shape);
      if (layer.has_experts) weights.chosen_experts += ChosenExpertWeights(config);
    }
    if (HasState(layer.mixer)) weights.layers += StateMixerWeights(config);
    if (!HasAttention(layer.mixer)) continue;
    weights.pair_flops += 2 * widths * shape.num_heads;
    if (shape.values_in_keys) {
      weights.layers += LatentWeights(config);
      continue;
    }
    const int32_t own_kv_heads = layer.kv_layer < 0 ? shape.num_kv_heads : 0;
    weights.layers += d * widths * (static_cast<double>(shape.num_heads) + own_kv_heads);
  }
  weights.layers += weights.chosen_experts;
  weights.head = d * static_cast<double>(config.vocab_size);
  return weights;
}

double BytesPerWeight(const WeightFormat& format) {
  constexpr uint64_t kInputs = 128;
  return static_cast<double>(*WeightBytes(format, 1, kInputs)) / kInputs;
}

double StepWeightBytes(const TokenWeights& weights, const WeightFormat& format) {
  return weights.layers * BytesPerWeight(format) +
         weights.head * BytesPerWeight(TableFormat(format));
}

}  // namespace minisgl
