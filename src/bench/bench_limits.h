// What a machine allows: the time that a workload must take at least, from the bytes that it has to
// move and the operations that it has to compute.
//
// Rules: a prefill token costs 2 operations a weight of the layers, and 4 L H E for each key that
// it attends to (L layers, H query heads of E). A decode step reads every matrix, head included,
// once, or computes 2 operations a weight and row, whichever takes longer. Each decode row reads
// its keys and values once. Nothing overlaps; activations, logits and sampling cost nothing. All
// prompts are there at the start and decode together, `max_running` at most.
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
  double layer_weights = 0;  // elements of the matrices of all layers
  double head_weights = 0;   // elements of the output head
  double step_bytes = 0;     // of both
  double kv_bytes_per_token = 0;
  double pair_flops = 0;  // one token against one key, in all layers
};
ModelCost CostOf(const ModelConfig& config, const WeightFormat& format, double kv_bytes_per_token);

struct Lengths {
  int32_t prompt = 0;
  int32_t output = 0;  // >= 1; the first of them comes with the prompt's last step
};

struct WorkloadLimit {
  int64_t prompt_tokens = 0;
  int64_t output_tokens = 0;
  int64_t prompt_pairs = 0;  // (token, key) of all prompts
  int64_t decode_steps = 0;
  int64_t decode_rows = 0;   // summed over the steps
  int64_t kv_positions = 0;  // that decode steps read
  double prefill_s = 0;
  double weights_s = 0;
  double kv_s = 0;

  double total_s() const { return prefill_s + weights_s + kv_s; }
  double output_tokens_per_s() const { return static_cast<double>(output_tokens) / total_s(); }
};
// REQUIRES max_running >= 1.
WorkloadLimit LimitOf(std::span<const Lengths> rows, int64_t max_running, const ModelCost& cost,
                      const Ceilings& ceilings);

// `count` prompts that begin with the same `prefix` tokens: those are computed once, and a decode
// step reads their keys once for all rows. `own`: what each has besides. All decode together.
WorkloadLimit LimitOfShared(int64_t count, int64_t prefix, const Lengths& own,
                            const ModelCost& cost, const Ceilings& ceilings);

// Seconds of one decode step of `rows` rows that read `kv_positions` keys in all.
double StepLimit(int64_t rows, int64_t kv_positions, const ModelCost& cost,
                 const Ceilings& ceilings);

// Seconds of computing `tokens` tokens behind `cached` ones.
double PrefillLimit(int64_t cached, int64_t tokens, const ModelCost& cost,
                    const Ceilings& ceilings);

// (token, key) of `tokens` tokens behind `cached` ones: each sees all before it and itself.
int64_t CausalPairs(int64_t cached, int64_t tokens);

}  // namespace minisgl::bench
