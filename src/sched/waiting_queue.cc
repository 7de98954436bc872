#include "sched/waiting_queue.h"

#include "minisgl/base/check.h"

namespace minisgl::sched {

bool WaitingQueue::ByClass::operator()(const RequestState* a, const RequestState* b) const {
  if (a->queue_class != b->queue_class) return a->queue_class < b->queue_class;
  const bool a_again = a->preemptions > 0, b_again = b->preemptions > 0;
  if (a_again != b_again) return a_again;
  return a->arrival < b->arrival;
}

void WaitingQueue::Add(RequestState* state) {
  state->queue_class = policy_ == QueuePolicy::kPriority ? state->request.priority : 0;
  state->admissions_at_arrival = num_admissions_;
  const bool added = state->holds != 0
                         ? held_.insert(state).second
                         : by_class_.insert(state).second && by_arrival_.insert(state).second;
  MINISGL_CHECK(added, "request {} waits twice", state->request.id);
}

void WaitingQueue::Hold(RequestState* state, HoldReason reason) {
  if (state->holds == 0) {
    by_class_.erase(state);
    by_arrival_.erase(state);
    held_.insert(state);
  }
  state->holds |= reason;
}

void WaitingQueue::Unhold(RequestState* state, HoldReason reason) {
  if ((state->holds & reason) == 0) return;
  state->holds &= static_cast<uint8_t>(~reason);
  if (state->holds != 0) return;
  held_.erase(state);
  by_class_.insert(state);
  by_arrival_.insert(state);
}

std::vector<RequestState*> WaitingQueue::Held(HoldReason reason, size_t count,
                                              uint64_t after) const {
  RequestState mark;
  mark.arrival = after;
  std::vector<RequestState*> found;
  const auto begin = held_.upper_bound(&mark);
  const auto look = [&](auto from, auto to) {
    for (; from != to && found.size() < count; ++from) {
      if (((*from)->holds & reason) != 0) found.push_back(*from);
    }
  };
  look(begin, held_.end());
  look(held_.begin(), begin);
  return found;
}

void WaitingQueue::Remove(RequestState* state) {
  if (held_.erase(state) == 1) {
    state->holds = 0;
    return;
  }
  const bool removed = by_class_.erase(state) == 1 && by_arrival_.erase(state) == 1;
  MINISGL_CHECK(removed, "request {} does not wait", state->request.id);
}

std::vector<RequestState*> WaitingQueue::Front(size_t count) const {
  std::vector<RequestState*> front;
  if (by_arrival_.empty()) return front;
  RequestState* oldest = *by_arrival_.begin();
  if (IsAged(*oldest)) front.push_back(oldest);
  for (RequestState* state : by_class_) {
    if (front.size() >= count) break;
    if (front.empty() || state != front.front()) front.push_back(state);
  }
  return front;
}

}  // namespace minisgl::sched
