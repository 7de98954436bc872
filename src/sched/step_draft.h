// The rows of the step that is being planned.
#pragma once

#include <cstdint>
#include <vector>

#include "sched/request_state.h"

namespace minisgl {

// The rows of the step being planned. Pages are taken as rows are decided, but nothing of a request
// moves on until all are: a request preempted meanwhile is simply taken out again.
struct StepDraft {
  struct Row {
    RequestState* state;
    int64_t count;
    std::vector<TokenId> drafts;  // the last of the count
  };
  std::vector<Row> decode, prefill;
  int64_t budget = 0;  // prefill and drafted tokens left
  // Of those, what prompts below the chat's class may take.
  int64_t batch_budget = 0;
  bool preempted = false;  // a step that preempts admits nothing

  bool empty() const { return decode.empty() && prefill.empty(); }
  void Withdraw(const RequestState* state);
};

}  // namespace minisgl
