// Where everything that a step tells the device stands: one block of memory, copied at once.
//
// The front has fixed places, sized for the largest step, because captured graphs hold their
// addresses; behind it stand the step's table writes, as long as they are. Offsets are in bytes and
// 16-byte aligned.
#pragma once

#include <cstddef>
#include <cstdint>

#include "minisgl/batch_plan.h"
#include "minisgl/device_ops.h"
#include "minisgl/engine/engine.h"
#include "minisgl/row_result.h"

namespace minisgl::engine {

// The longest list of most likely tokens that a place may ask for.
inline constexpr int32_t kTopLogprobsMax = 32;
// Biased and banned tokens of one step that have fixed places: 4 KiB of each. A step with more of
// either is an error of the plan's maker where graphs are concerned: it runs without one.
inline constexpr int32_t kBiasMax = 1024;

// The fixed front.
struct StepLayout {
  explicit StepLayout(const EngineLimits& limits);

  int32_t max_rows = 0;      // running requests, or the graph's padding
  int32_t max_places = 0;    // rows and drafts
  size_t table_row = 0;      // i32 [max_rows]
  size_t row_begin = 0;      // i32 [max_rows + 1]
  size_t kv_len = 0;         // i32 [max_rows]
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
  size_t front_bytes = 0;    // of all above
};

// The writes behind the front (and bias and bans, where they are too many for it).
struct StepTail {
  StepTail(const BatchPlan& plan, size_t begin, int64_t num_biased, int64_t num_banned);

  size_t page_table_writes = 0;
  size_t pages = 0;
  size_t window_pages = 0;
  size_t token_pool_writes = 0;
  size_t tokens = 0;
  size_t bias_ids = 0;
  size_t bias_values = 0;
  size_t banned_ids = 0;
  size_t end = 0;
};

// What a step tells the host: one block of memory as well.
struct ResultLayout {
  explicit ResultLayout(const StepLayout& step);

  size_t sampled = 0;       // DeviceToken [max_places]
  size_t num_accepted = 0;  // i32 [max_rows]
  size_t front_bytes = 0;   // of the two: what most steps copy
  size_t top_logprobs = 0;  // TokenLogprob [max_places, kTopLogprobsMax]
  size_t bytes = 0;
};

}  // namespace minisgl::engine
