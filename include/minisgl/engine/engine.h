// The interface that runs steps: token ids in, token ids out. The scheduler plans for an Engine and
// knows nothing else about it.
//
// Launch returns at once. Steps run in the order of their launches, and each sees what earlier ones
// wrote (keys and values, sampled ids in the token pool). Collect waits. All calls come from one
// thread (the runtime's).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "minisgl/base/status.h"
#include "minisgl/batch_plan.h"
#include "minisgl/row_result.h"

namespace minisgl {

struct EngineLimits {
  int64_t vocab_size = 0;
  int32_t page_size = 16;  // 1, 2, 4, ..., 64
  int32_t num_pages = 0;   // ids 0 .. num_pages - 1
  // Layers with a sliding window may keep their keys and values in window pages 0 ..
  // num_window_pages - 1, as long as a window reaches them. 0: every page holds all layers.
  // Otherwise at least what one request can need at once (the scheduler checks it).
  int32_t num_window_pages = 0;
  int32_t sliding_window = 0;  // the longest of any layer, in keys; 0 without window pages
  // Requests have table rows 0 .. max_running_requests - 1; the row after them serves padding.
  int32_t max_running_requests = 0;
  int32_t max_seq_len = 0;      // longest prompt + answer
  int32_t max_step_tokens = 0;  // T of any plan
  int32_t max_step_drafts = 0;  // drafted tokens of any plan, part of T
  int32_t max_in_flight = 2;    // plans launched and not collected
};

struct StepResult {
  Status status;                // of the whole step; if it failed, `rows` is meaningless
  std::vector<RowResult> rows;  // [R] of the plan
};

class Engine {
 public:
  virtual ~Engine() = default;
  virtual const EngineLimits& limits() const = 0;
  // REQUIRES fewer than limits().max_in_flight plans in flight.
  virtual void Launch(std::shared_ptr<const BatchPlan> plan) = 0;
  // The masks of the plan that was launched last. Its layers do not wait for them, only its
  // sampling. REQUIRES that it has masked rows, and that its masks come before the next Launch and
  // before its Collect.
  virtual void SupplyMasks(StepMasks masks) = 0;
  // Waits for the oldest plan in flight and returns its result. REQUIRES a plan in flight.
  virtual StepResult Collect() = 0;
};

}  // namespace minisgl
