#include "sched/step_draft.h"

namespace minisgl::sched {

void StepDraft::Withdraw(const RequestState* state) {
  const auto is_its = [state](const Row& row) { return row.state == state; };
  for (const Row& row : prefill) {
    if (!is_its(row)) continue;
    budget += row.count;
    if (!row.state->is_chat()) batch_budget += row.count;
  }
  std::erase_if(decode, is_its);
  std::erase_if(prefill, is_its);
}

}  // namespace minisgl::sched
