// Builds a BatchPlan row by row from request states.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "minisgl/batch_plan.h"
#include "minisgl/kv/window_pool.h"
#include "sched/request_state.h"
#include "sched/state_ledger.h"

namespace minisgl::sched {

class PlanBuilder {
 public:
  // `windows`: null if there are no window pages.
  PlanBuilder(StepId step, int32_t page_size, StateLedger* states,
              const WindowPool* windows = nullptr);

  // Adds a row for the next `count` tokens of `state`, the last of them `drafts`, that samples if
  // `wants_token`, and scores the tokens that follow and are wanted. `is_made`: the engine will
  // know what the drafts are. Advances launched_len, device_len and the device-side marks of
  // `state`. REQUIRES that its pages cover the tokens.
  void AddRow(RequestState* state, int64_t count, bool wants_token,
              std::span<const TokenId> drafts = {}, bool is_made = false);
  // The engine's drafter reads the tokens of the last row, and makes its drafts if `makes_drafts`.
  void FeedDrafter(bool makes_drafts);

  PlanExtras* extras() { return &plan_->extras; }
  int num_rows() const { return plan_->num_rows(); }
  // Returns the requests of the rows, in order.
  std::vector<RequestState*> TakeRows() { return std::move(rows_); }
  std::shared_ptr<const BatchPlan> Finish() { return std::move(plan_); }

 private:
  void WritePageTable(RequestState* state);
  // The next `count` tokens of `state` are added to the plan from token `token` on.
  void AddExtras(const RequestState& state, int64_t count, int32_t token);
  void AddPositions(const RequestState& state, int64_t count, int32_t token);
  void AddPooling(const RequestState& state, int64_t count, int32_t token);
  void AddScored(const RequestState& state, int32_t count, int64_t end);
  int64_t WindowSlot(PageId page, int64_t position) const;

  int32_t page_size_;
  StateLedger* states_;
  const WindowPool* windows_;
  std::shared_ptr<BatchPlan> plan_;
  std::vector<RequestState*> rows_;
};

}  // namespace minisgl::sched
