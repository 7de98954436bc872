#include "sched/request_queues.h"

#include <algorithm>
#include <vector>

namespace minisgl::sched {

int32_t RequestQueues::HoldForPrefix(RequestState* state, int32_t matched_pages) {
  const int64_t shareable = state->shareable_len() / page_size_;
  int64_t end = matched_pages;
  while (end < shareable && computing_.Contains(state->page_hashes[static_cast<size_t>(end)])) {
    ++end;
  }
  if (end == matched_pages) return 0;
  // For all pages that they have in common: one wait, whatever the number of chunks.
  state->awaited_hash = state->page_hashes[static_cast<size_t>(end - 1)];
  computing_.AddWaiter(state->awaited_hash, state);
  waiting_.Hold(state, kHeldByPrefix);
  return static_cast<int32_t>(end);
}

void RequestQueues::StartComputing(RequestState* state) {
  state->registered_pages = static_cast<int32_t>(state->page_hashes.size());
  for (int32_t page = state->tree_pages; page < state->registered_pages; ++page) {
    computing_.Add(state->page_hashes[static_cast<size_t>(page)]);
  }
}

void RequestQueues::StopComputing(const RequestState& state, int32_t first, int32_t end) {
  std::vector<RequestState*> waiters;
  for (int32_t page = first; page < std::min(end, state.registered_pages); ++page) {
    computing_.Remove(state.page_hashes[static_cast<size_t>(page)], &waiters);
  }
  for (RequestState* waiter : waiters) waiting_.Unhold(waiter, kHeldByPrefix);
}

void RequestQueues::Add(RequestState* state) {
  waiting_.Add(state);
  adapters_.Wait(state, &waiting_);
}

void RequestQueues::Remove(RequestState* state) {
  adapters_.Leave(state);
  if ((state->holds & kHeldByPrefix) != 0) computing_.RemoveWaiter(state->awaited_hash, state);
  if (waiting_.Contains(state)) waiting_.Remove(state);
}

}  // namespace minisgl::sched
