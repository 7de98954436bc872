// Requests that wait: for room, for a prefix that another request is computing, for the turn before
// theirs, or for their adapter.
//
// A waiting request is in waiting(). If it waits for anything but room, it is held there
// (RequestState::holds) and keeps its place. One thread.
#pragma once

#include <cstdint>

#include "minisgl/engine/engine.h"
#include "minisgl/sched/scheduler.h"
#include "sched/adapter_ledger.h"
#include "sched/computing_index.h"
#include "sched/request_state.h"
#include "sched/session_table.h"
#include "sched/waiting_queue.h"

namespace minisgl::sched {

class RequestQueues {
 public:
  // `cache`: where sessions lock prefixes.
  RequestQueues(const EngineLimits& limits, QueuePolicy policy, PrefixCache* cache,
                AdapterSource* adapters)
      : page_size_(limits.page_size),
        waiting_(policy),
        adapters_(adapters),
        sessions_(limits, cache) {}

  WaitingQueue& waiting() { return waiting_; }
  const WaitingQueue& waiting() const { return waiting_; }
  AdapterLedger& adapters() { return adapters_; }
  const AdapterLedger& adapters() const { return adapters_; }
  SessionTable& sessions() { return sessions_; }
  const SessionTable& sessions() const { return sessions_; }
  const ComputingIndex& computing() const { return computing_; }

  // Holds `state`, of which `matched_pages` pages are cached, if an admitted request is computing
  // the pages after those. Returns the end of the pages that it waits for; 0: it is not held.
  int32_t HoldForPrefix(RequestState* state, int32_t matched_pages);
  // `state` was admitted and computes its whole pages past tree_pages: others may wait for them.
  void StartComputing(RequestState* state);
  // `state` computes pages [first, end) no longer: they are in the cache, or it was released.
  // Requests that wait for them may be tried again.
  void StopComputing(const RequestState& state, int32_t first, int32_t end);
  // `state` waits from now on, new or preempted.
  void Add(RequestState* state);
  // `state` ended: takes it out of all queues except its session's.
  void Remove(RequestState* state);

 private:
  int32_t page_size_;
  WaitingQueue waiting_;
  AdapterLedger adapters_;
  ComputingIndex computing_;
  SessionTable sessions_;
};

}  // namespace minisgl::sched
