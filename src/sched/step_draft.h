// The rows of the step that is being planned.
#pragma once

#include <cstdint>
#include <vector>

#include "sched/request_state.h"

namespace minisgl::sched {

// Pages are taken as rows are added, but the lengths of a request stay as they are until the whole
// step is decided: if a request is preempted meanwhile, its rows are taken out again.
struct StepDraft {
  struct Row {
    RequestState* state;
    int64_t count;
    std::vector<TokenId> drafts;  // the last of the count
  };
  std::vector<Row> decode, prefill;
  int64_t budget = 0;        // prefill and drafted tokens left
  int64_t batch_budget = 0;  // of those, what prompts below the chat's class may take
  bool preempted = false;    // a step that preempts admits nothing

  bool empty() const { return decode.empty() && prefill.empty(); }
  // Takes out the rows of `state`, and returns their tokens to the budget.
  void Withdraw(const RequestState* state);
};

}  // namespace minisgl::sched
