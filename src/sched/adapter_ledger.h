// Which adapters are loaded, for requests that go through one (RowExtras::adapter).
//
// A request whose adapter is not loaded is held and keeps its place; others go on. Adapters are
// loaded in the order in which the first request of each would be tried. For room an adapter
// without requests that may run is dropped, the one that was used longest ago first. If there is
// none, and so many requests were admitted since the wait began as may be admitted past a request
// that does not fit, a loaded adapter is closed: its waiting requests are held, and it is dropped
// when its running ones have ended. So no adapter keeps others away by requests that come later.
//
// Without a source all adapters are always loaded. One thread.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "minisgl/plan/adapter_source.h"
#include "sched/request_state.h"
#include "sched/waiting_queue.h"

namespace minisgl::sched {

// Requests that are admitted while an adapter waits for room, before another is closed for it.
inline constexpr int64_t kAdapterBypassMax = 16;

class AdapterLedger {
 public:
  // `source` may be null.
  explicit AdapterLedger(AdapterSource* source);

  // The request, new or preempted, waits in the queue: it is held there if its adapter is not open.
  void Wait(RequestState* state, WaitingQueue* queue);
  // It was admitted, and has left the queue.
  void Run(RequestState* state);
  // It ends, or is preempted. No change if it does neither wait nor run here.
  void Leave(RequestState* state);

  // Ends, begins and drops loads, before a step is planned. Returns the loads that failed: their
  // requests wait.
  std::vector<AdapterLoad> Update(WaitingQueue* queue);
  // The requests that wait for `adapter`.
  std::vector<RequestState*> WaitingFor(AdapterSlot adapter) const;

  // Loaded adapters and loads.
  int32_t num_held() const { return num_held_; }
  // Fails on a request that is not held, or runs, though its adapter is not loaded, and the like.
  void CheckInvariants(const std::vector<const RequestState*>& requests) const;

 private:
  enum class Status : uint8_t { kAbsent, kLoading, kOpen, kClosed };
  struct Goes {
    bool operator()(const RequestState* a, const RequestState* b) const {
      if (a->queue_class != b->queue_class) return a->queue_class < b->queue_class;
      return a->arrival < b->arrival;
    }
  };
  struct Entry {
    Status status = Status::kAbsent;
    std::set<RequestState*, Goes> waiting;
    int64_t num_running = 0;
    uint64_t last_used = 0;    // number of the last change of its requests
    int64_t wanted_since = 0;  // admissions when it was first wanted, not loaded
  };

  Entry* EntryOf(const RequestState& state);
  Entry& At(AdapterSlot adapter) { return entries_[static_cast<size_t>(adapter)]; }
  void Open(AdapterSlot adapter, WaitingQueue* queue);
  void Close(AdapterSlot adapter, WaitingQueue* queue);
  void Drop(AdapterSlot adapter, WaitingQueue* queue);
  // The first of its requests that waits for no gate and no turn: others need no adapter yet. Null:
  // there is none.
  static const RequestState* FirstReady(const Entry& entry);
  // So many were admitted since it was wanted that another is closed for it.
  static bool IsPassed(const Entry& entry, const WaitingQueue& queue) {
    return queue.num_admissions() - entry.wanted_since >= kAdapterBypassMax;
  }
  // The absent adapter to load next: of those that were passed the one that waits longest, else the
  // one whose first request goes first; kNoAdapter: none is wanted.
  AdapterSlot FirstWanted(const WaitingQueue& queue) const;
  // The adapter to drop, or to close, for room; kNoAdapter: none.
  AdapterSlot PickIdle() const;
  AdapterSlot PickToClose() const;
  bool MakeRoom(const Entry& wanted, WaitingQueue* queue);

  AdapterSource* const source_;
  std::vector<Entry> entries_;
  std::set<AdapterSlot> wanted_;  // absent, with requests
  std::set<AdapterSlot> loaded_;  // open or closed
  int32_t num_held_ = 0, num_closed_ = 0;
  uint64_t num_changes_ = 0;
};

}  // namespace minisgl::sched
