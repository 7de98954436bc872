// The requests that wait for admission, in the order in which they may be tried.
//
// By class (smaller first; one class under fcfs), preempted requests before the others of their
// class, then by arrival. The one that arrived first goes before all once kAgeingAdmissions
// requests were admitted since it came, so the wait of any request is bounded by what was ahead of
// it when it came and that many admissions each. One that is held (state->holds) is passed over at
// no cost and keeps its place. Every operation costs O(log n), whatever the length of the queue.
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

  // Sets or clears a reason why it may not be tried. REQUIRES that it waits.
  void Hold(RequestState* state, HoldReason reason);
  void Unhold(RequestState* state, HoldReason reason);
  // Those held by `reason`, at most `count`, beginning after the arrival `after` and going round.
  std::vector<RequestState*> Held(HoldReason reason, size_t count, uint64_t after) const;

  // One of the queue was admitted: the others are that much older.
  void CountAdmission() { ++num_admissions_; }

  // Whether so many were admitted since it came that it goes before all classes.
  bool IsAged(const RequestState& state) const {
    return num_admissions_ - state.admissions_at_arrival >= kAgeingAdmissions;
  }
  // Whether a chat's turn may be tried.
  bool HasChat() const { return !by_class_.empty() && (*by_class_.begin())->is_chat(); }

  // The first `count` in the order of trying (fewer where fewer wait).
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
