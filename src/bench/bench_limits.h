// Limits of a machine: lower bound on the time of a workload, from the bytes that it must move and
// the operations that it must compute.
//
// Rules:
// - A prefill token costs 2 operations for each weight of the layers, and 4 L H E for each key that
//   it attends to (L layers, H query heads of size E).
// - A decode step reads every matrix once, including the head, or computes 2 operations for each
//   weight and row, whichever takes longer.
// - Each decode row reads its keys and values once.
// - Nothing overlaps. Activations, logits and sampling cost nothing.
// - All prompts are present at the start and decode together, at most `max_running` at a time.
#pragma once

#include <cstdint>
#include <span>

#include "minisgl/tensor/weight_format.h"
#include "minisgl/weights/model_config.h"

namespace minisgl::bench {

struct Ceilings {
  double bytes_per_s = 0;
  double flops_per_s = 0;
};

struct ModelCost {
  double layer_weights = 0;  // elements of the matrices in all layers
  double head_weights = 0;   // elements of the output head
  double step_bytes = 0;     // bytes of both
  double kv_bytes_per_token = 0;
  double pair_flops = 0;  // for one token and one key, in all layers
};
ModelCost CostOf(const ModelConfig& config, const WeightFormat& format, double kv_bytes_per_token);

struct Lengths {
  int32_t prompt = 0;
  int32_t output = 0;  // >= 1; the last prefill step produces the first token
};

struct WorkloadLimit {
  int64_t prompt_tokens = 0;
  int64_t output_tokens = 0;
  int64_t prompt_pairs = 0;  // (token, key) pairs of all prompts
  int64_t decode_steps = 0;
  int64_t decode_rows = 0;   // summed over the steps
  int64_t kv_positions = 0;  // read by decode steps
  double prefill_s = 0;
  double weights_s = 0;
  double kv_s = 0;

  double total_s() const { return prefill_s + weights_s + kv_s; }
  double output_tokens_per_s() const { return static_cast<double>(output_tokens) / total_s(); }
};
// Simulates the workload by the rules above. REQUIRES max_running >= 1.
WorkloadLimit LimitOf(std::span<const Lengths> rows, int64_t max_running, const ModelCost& cost,
                      const Ceilings& ceilings);

// Limit for `count` prompts with a common prefix of `prefix` tokens, which is computed once; a
// decode step reads its keys once for all rows. `own`: further lengths of each prompt. All decode
// together.
WorkloadLimit LimitOfShared(int64_t count, int64_t prefix, const Lengths& own,
                            const ModelCost& cost, const Ceilings& ceilings);

// Seconds of one decode step of `rows` rows that read `kv_positions` keys in total.
double StepLimit(int64_t rows, int64_t kv_positions, const ModelCost& cost,
                 const Ceilings& ceilings);

// Seconds of computing `tokens` tokens after `cached` ones.
double PrefillLimit(int64_t cached, int64_t tokens, const ModelCost& cost,
                    const Ceilings& ceilings);

// Number of (token, key) pairs of `tokens` tokens after `cached` ones: each attends to all before
// it and to itself.
int64_t CausalPairs(int64_t cached, int64_t tokens);

}  // namespace minisgl::bench
