// One token for every running request whose answer goes on.
#include "sched/scheduler_impl.h"

namespace minisgl {

void DecodeManager::Schedule() {
  const std::vector<RequestState*> running =
      context_->running;  // preemption takes out of the real one
  for (RequestState* state : running) {
    // A row whose token in flight completes its length is never launched again. A row whose next
    // page waits behind a fence sits this step out; so does one that was preempted for an earlier
    // row.
    if (state->CanLaunchDecode() && context_->TakePagesFor(state, 1)) {
      context_->draft.decode.push_back({state, 1});
    }
  }
}

}  // namespace minisgl
