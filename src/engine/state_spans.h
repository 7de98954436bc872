// The segments of a plan as operations read them.
#pragma once

#include <cstdint>

#include "minisgl/batch_plan.h"
#include "minisgl/engine/engine.h"
#include "minisgl/ops_params.h"

namespace minisgl::engine {

// The most segments of a step, each of at least one token; 0 if the model has no states.
inline int32_t MaxStateSpans(const EngineLimits& limits) {
  return limits.num_state_slots == 0 ? 0 : limits.max_step_tokens;
}

// Writes the spans of `plan` to [state_segments + 1] (StateSegments::spans).
inline void ListStateSpans(const BatchPlan& plan, StateSpan* spans) {
  int32_t begin = 0, row = -1, row_first = 0, index = 0;
  for (const StateSegment& segment : plan.state_segments) {
    if (segment.row != row) row_first = index;
    row = segment.row;
    spans[index++] = {begin, row_first, segment.read, segment.write};
    begin += segment.num_tokens;
  }
  spans[index] = {begin, index, kZeroState, kZeroState};
}

// Writes the first span of each row to [max_rows + 1] (StateSegments::of_row): rows past the plan's
// last have none.
inline void ListSpansOfRows(const BatchPlan& plan, int32_t max_rows, int32_t* of_row) {
  size_t next = 0;
  for (int32_t row = 0; row <= max_rows; ++row) {
    while (next < plan.state_segments.size() && plan.state_segments[next].row < row) ++next;
    of_row[row] = static_cast<int32_t>(next);
  }
}

}  // namespace minisgl::engine
