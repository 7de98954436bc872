// Layout of a step's input and results in device memory. Each is one block, copied at once.
//
// The front of the input has fixed offsets, sized for the largest step. It is copied within the
// device to where captured graphs read it. The tail after it holds the step's table writes, in
// their actual size. Offsets are in bytes and 16-byte aligned.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "minisgl/batch_plan.h"
#include "minisgl/device_ops.h"
#include "minisgl/engine/engine.h"
#include "minisgl/row_result.h"

namespace minisgl::engine {

// Upper bound on the most likely tokens that a place may ask for.
inline constexpr int32_t kTopLogprobsMax = 32;
// Biased and banned tokens of one step that fit the front: 4 KiB of each. A step with more of
// either keeps both in its tail and runs without a graph.
inline constexpr int32_t kBiasMax = 1024;

// The front: fixed offsets.
struct StepLayout {
  explicit StepLayout(const EngineLimits& limits);

  int32_t max_rows = 0;      // of requests, and one of padding
  int32_t max_places = 0;    // one for each row and each draft
  size_t table_row = 0;      // i32 [max_rows]
  size_t row_begin = 0;      // i32 [max_rows + 1]
  size_t kv_len = 0;         // i32 [max_rows]
  size_t decode_rows = 0;    // i32 [1]
  size_t num_tokens = 0;     // i32 [1] without padding
  size_t host_results = 0;   // HostResults [1]
  size_t place_begin = 0;    // i32 [max_rows + 1]
  size_t num_groups = 0;     // i32 [1]
  size_t group_begin = 0;    // i32 [max_rows + 1]
  size_t group_rows = 0;     // i32 [max_rows]
  size_t shared_splits = 0;  // i32 [max_rows]
  size_t logit_tokens = 0;   // i32 [max_places]
  size_t places = 0;         // DeviceSampling [max_places]
  size_t bias_ids = 0;       // i32 [kBiasMax]
  size_t bias_values = 0;    // f32 [kBiasMax]
  size_t banned_ids = 0;     // i32 [kBiasMax]
  size_t span_of_row = 0;    // i32 [max_rows + 1] if there are states
  // StateSpan [MaxStateSpans + 1]. Near the end, because a step needs few of them: what is after
  // its own is not copied.
  size_t spans = 0;
  size_t token_slots = 0;  // i32 [max_step_tokens] if there are adapters
  size_t front_bytes = 0;  // size of all above
};

// Bytes of the front that a step with `num_spans` state segments uses. `slot_tokens`: its tokens,
// if there are rows with adapters.
inline size_t UsedFrontBytes(const StepLayout& layout, size_t num_spans, int32_t slot_tokens = 0) {
  if (slot_tokens > 0) {
    const size_t bytes = static_cast<size_t>(slot_tokens) * sizeof(int32_t);
    return layout.token_slots + (bytes + 15) / 16 * 16;
  }
  return std::min(layout.front_bytes, layout.spans + (num_spans + 1) * sizeof(StateSpan));
}

// The tail: table writes, biased and banned tokens if they do not fit the front, what pictures
// change, and what is scored (BatchPlan::num_scored), with its results.
struct StepTail {
  // `ranks`: the most likely tokens that any scored place asks for. `num_positions`,
  // `num_key_ends`: tokens of the step that have them.
  StepTail(const BatchPlan& plan, size_t begin, int64_t num_biased, int64_t num_banned,
           int32_t ranks = 0, int32_t num_positions = 0, int32_t num_key_ends = 0);

  size_t page_table_writes = 0;
  size_t pages = 0;
  size_t window_pages = 0;
  size_t token_pool_writes = 0;
  size_t tokens = 0;
  size_t bias_ids = 0;
  size_t bias_values = 0;
  size_t banned_ids = 0;
  int32_t num_positions = 0;
  size_t rope_positions = 0;   // RopePosition [num_positions], with padding
  int32_t num_key_ends = 0;    // 0: attention is causal
  size_t key_ends = 0;         // i32 [num_key_ends]
  int32_t num_scored = 0;      // M
  int32_t num_ranks = 0;       // K
  size_t scored_tokens = 0;    // i32 [M] of the step
  size_t scored_places = 0;    // DeviceSampling [M]
  size_t scored_ids = 0;       // i32 [M]
  size_t scored_bias = 0;      // f32 [M]
  size_t end = 0;              // of what is copied to the device
  size_t scored_sampled = 0;   // DeviceToken [M]
  size_t scored_logprobs = 0;  // TokenLogprob [M, K]
  size_t results_end = 0;
};

// The results of a step. The first two are written by the device's operations on both sides; only
// the likely tokens are copied, if a step asks for them.
struct ResultLayout {
  explicit ResultLayout(const StepLayout& step);

  size_t sampled = 0;             // DeviceToken [max_places]
  size_t num_accepted = 0;        // i32 [max_rows]
  size_t top_logprobs = 0;        // TokenLogprob [max_places, kTopLogprobsMax]
  size_t top_logprobs_bytes = 0;  // size of the last
  size_t bytes = 0;
};

}  // namespace minisgl::engine
