#include "bench/bench_limits.h"

#include <algorithm>
#include <vector>

#include "minisgl/model/token_weights.h"

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

}  // namespace

ModelCost CostOf(const ModelConfig& config, const WeightFormat& format, double kv_bytes_per_token) {
  const TokenWeights weights = CountTokenWeights(config);
  ModelCost cost;
  cost.layer_weights = weights.layers;
  cost.head_weights = weights.head;
  cost.step_bytes = StepWeightBytes(weights, format);
  cost.kv_bytes_per_token = kv_bytes_per_token;
  cost.pair_flops = weights.pair_flops;
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
