// The requests that wait for admission, in the order in which they are tried.
//
// Order: by class (smaller first; one class under fcfs), then preempted requests, then by arrival.
// The oldest request goes before all classes after kAgeingAdmissions admissions since its arrival.
// The wait of a request is therefore bounded: by that many admissions for itself and for each
// request that was ahead of it when it arrived.
//
// A held request (state->holds) is skipped at no cost and keeps its place. Every operation costs
// O(log n) of the length of the queue.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "minisgl/sched/scheduler.h"
#include "sched/request_state.h"

namespace minisgl::sched {

class WaitingQueue {
 public:
  explicit WaitingQueue(QueuePolicy policy) : policy_(policy) {}

  void Add(RequestState* state);
  void Remove(RequestState* state);  // REQUIRES that it waits
  bool Contains(RequestState* state) const {
    return by_arrival_.contains(state) || held_.contains(state);
  }
  size_t size() const { return by_arrival_.size() + held_.size(); }
  size_t num_ready() const { return by_arrival_.size(); }

  // Sets or clears a reason why `state` may not be tried. REQUIRES that it waits.
  void Hold(RequestState* state, HoldReason reason);
  void Unhold(RequestState* state, HoldReason reason);
  // Returns at most `count` requests held by `reason`, in order of arrival, beginning after the
  // arrival `after` and wrapping around.
  std::vector<RequestState*> Held(HoldReason reason, size_t count, uint64_t after) const;

  // A request of the queue was admitted: the others age by one admission.
  void CountAdmission() { ++num_admissions_; }

  int64_t num_admissions() const { return num_admissions_; }

  // True if so many were admitted since its arrival that it goes before all classes.
  bool IsAged(const RequestState& state) const {
    return num_admissions_ - state.admissions_at_arrival >= kAgeingAdmissions;
  }
  // True if a chat's turn may be tried.
  bool HasChat() const { return !by_class_.empty() && (*by_class_.begin())->is_chat(); }

  // Returns the first `count` requests in the order of trying, or all if fewer wait.
  std::vector<RequestState*> Front(size_t count) const;

 private:
  struct ByClass {
    bool operator()(const RequestState* a, const RequestState* b) const;
  };
  struct ByArrival {
    bool operator()(const RequestState* a, const RequestState* b) const {
      return a->arrival < b->arrival;
    }
  };
  QueuePolicy policy_;
  std::set<RequestState*, ByClass> by_class_;
  std::set<RequestState*, ByArrival> by_arrival_;
  std::set<RequestState*, ByArrival> held_;
  int64_t num_admissions_ = 0;
};

}  // namespace minisgl::sched
