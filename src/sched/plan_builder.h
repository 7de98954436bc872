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

namespace minisgl::sched {

class PlanBuilder {
 public:
  // `windows`: null where there are no window pages.
  PlanBuilder(StepId step, int32_t page_size, const WindowPool* windows = nullptr);

  // Adds a row for the next `count` tokens of `state` (whose pages cover them), the last of them
  // `drafts`, samples if `wants_token`, and moves the state's launched_len, device_len and
  // device-side marks on.
  void AddRow(RequestState* state, int64_t count, bool wants_token,
              std::span<const TokenId> drafts = {});

  int num_rows() const { return plan_->num_rows(); }
  // Whose rows they are, in order.
  std::vector<RequestState*> TakeRows() { return std::move(rows_); }
  std::shared_ptr<const BatchPlan> Finish() { return std::move(plan_); }

 private:
  void WritePageTable(RequestState* state);
  int64_t WindowSlot(PageId page, int64_t position) const;

  int32_t page_size_;
  const WindowPool* windows_;
  std::shared_ptr<BatchPlan> plan_;
  std::vector<RequestState*> rows_;
};

}  // namespace minisgl::sched
