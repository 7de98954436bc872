#include "bench/bench_limits.h"

#include <algorithm>
#include <vector>

namespace minisgl::bench {
namespace {

// A row of the simulated batch.
struct Running {
  int64_t kv_len;
  int64_t steps_left;
};

double WeightsTime(int64_t rows, const ModelCost& cost, const Ceilings& ceilings) {
  const double flops = 2 * static_cast<double>(rows) * (cost.layer_weights + cost.head_weights);
  return std::max(cost.step_bytes / ceilings.bytes_per_s, flops / ceilings.flops_per_s);
}

// Seconds of reading the keys of `positions`, or of computing `pairs` of a row and a key, whichever
// takes longer.
double KvTime(int64_t positions, int64_t pairs, const ModelCost& cost, const Ceilings& ceilings) {
  return std::max(static_cast<double>(positions) * cost.kv_bytes_per_token / ceilings.bytes_per_s,
                  static_cast<double>(pairs) * cost.pair_flops / ceilings.flops_per_s);
}

double KvTime(int64_t positions, const ModelCost& cost, const Ceilings& ceilings) {
  return KvTime(positions, positions, cost, ceilings);
}

// Weights of a layer's feed-forward part that one token uses: with experts, only the chosen ones.
double FeedForwardWeights(const ModelConfig& config, const LayerConfig& layer,
                          const LayerShape& shape) {
  const auto d = static_cast<double>(config.hidden_size);
  const double matrices = config.gated ? 3 : 2;
  if (!layer.has_experts) return matrices * d * static_cast<double>(shape.intermediate_size);
  const ExpertsConfig& experts = config.experts;
  const double width = experts.num_chosen * static_cast<double>(experts.intermediate_size) +
                       static_cast<double>(experts.shared_intermediate_size);
  return matrices * d * width + d * experts.num_experts;
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

// Of a matrix whose rows are whole lines of codes. Routers are too small to matter; they are never
// quantized.
double BytesPerWeight(const WeightFormat& format) {
  constexpr uint64_t kInputs = 128;
  return static_cast<double>(*WeightBytes(format, 1, kInputs)) / kInputs;
}

}  // namespace

ModelCost CostOf(const ModelConfig& config, const WeightFormat& format, double kv_bytes_per_token) {
  const auto d = static_cast<double>(config.hidden_size);
  ModelCost cost;
  for (int32_t i = 0; i < std::ssize(config.layers); ++i) {
    const LayerConfig& layer = config.layers[static_cast<size_t>(i)];
    const LayerShape shape = LayerShapeOf(config, i);
    const double widths = static_cast<double>(shape.head_dim) + shape.value_dim;
    if (layer.has_feed_forward) cost.layer_weights += FeedForwardWeights(config, layer, shape);
    if (HasState(layer.mixer)) cost.layer_weights += StateMixerWeights(config);
    if (!HasAttention(layer.mixer)) continue;
    cost.pair_flops += 2 * widths * shape.num_heads;
    if (shape.values_in_keys) {
      cost.layer_weights += LatentWeights(config);
      continue;
    }
    const int32_t own_kv_heads = layer.kv_layer < 0 ? shape.num_kv_heads : 0;
    cost.layer_weights += d * widths * (static_cast<double>(shape.num_heads) + own_kv_heads);
  }
  cost.head_weights = d * static_cast<double>(config.vocab_size);
  cost.step_bytes = cost.layer_weights * BytesPerWeight(format) +
                    cost.head_weights * BytesPerWeight(TableFormat(format));
  cost.kv_bytes_per_token = kv_bytes_per_token;
  return cost;
}

int64_t CausalPairs(int64_t cached, int64_t tokens) {
  return tokens * cached + tokens * (tokens + 1) / 2;
}

double StepLimit(int64_t rows, int64_t kv_positions, const ModelCost& cost,
                 const Ceilings& ceilings) {
  return WeightsTime(rows, cost, ceilings) + KvTime(kv_positions, cost, ceilings);
}

double PrefillLimit(int64_t cached, int64_t tokens, const ModelCost& cost,
                    const Ceilings& ceilings) {
  const double flops = 2 * static_cast<double>(tokens) * cost.layer_weights +
                       static_cast<double>(CausalPairs(cached, tokens)) * cost.pair_flops;
  return flops / ceilings.flops_per_s;
}

WorkloadLimit LimitOf(std::span<const Lengths> rows, int64_t max_running, const ModelCost& cost,
                      const Ceilings& ceilings) {
  WorkloadLimit limit;
  for (const Lengths& row : rows) {
    limit.prompt_tokens += row.prompt;
    limit.output_tokens += row.output;
    limit.prompt_pairs += CausalPairs(0, row.prompt);
    limit.prefill_s += PrefillLimit(0, row.prompt, cost, ceilings);
  }
  std::vector<Running> running;
  size_t next = 0;
  while (true) {
    std::erase_if(running, [](const Running& row) { return row.steps_left == 0; });
    for (; next < rows.size() && static_cast<int64_t>(running.size()) < max_running; ++next) {
      if (rows[next].output > 1) running.push_back({rows[next].prompt, rows[next].output - 1});
    }
    if (running.empty()) break;
    for (Running& row : running) {
      limit.kv_positions += ++row.kv_len;
      --row.steps_left;
    }
    const auto count = static_cast<int64_t>(running.size());
    ++limit.decode_steps;
    limit.decode_rows += count;
    limit.weights_s += WeightsTime(count, cost, ceilings);
  }
  limit.kv_s = KvTime(limit.kv_positions, cost, ceilings);
  return limit;
}

WorkloadLimit LimitOfShared(int64_t count, int64_t prefix, const Lengths& own,
                            const ModelCost& cost, const Ceilings& ceilings) {
  WorkloadLimit limit;
  limit.prompt_tokens = count * (prefix + own.prompt);
  limit.output_tokens = count * own.output;
  limit.prompt_pairs = CausalPairs(0, prefix) + count * CausalPairs(prefix, own.prompt);
  limit.prefill_s = PrefillLimit(0, prefix, cost, ceilings) +
                    static_cast<double>(count) * PrefillLimit(prefix, own.prompt, cost, ceilings);
  limit.decode_steps = own.output - 1;
  limit.decode_rows = count * limit.decode_steps;
  limit.weights_s = static_cast<double>(limit.decode_steps) * WeightsTime(count, cost, ceilings);
  for (int64_t step = 1; step <= limit.decode_steps; ++step) {
    const int64_t own_keys = own.prompt + step;
    limit.kv_positions += prefix + count * own_keys;
    limit.kv_s += KvTime(prefix + count * own_keys, count * (prefix + own_keys), cost, ceilings);
  }
  return limit;
}

}  // namespace minisgl::bench
