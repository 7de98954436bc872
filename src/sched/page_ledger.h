// What admitted requests hold: pages, a lock in the prefix cache, claims on window pages, state
// slots, and a row of the page table.
//
// This is the only place that takes or returns any of them; others read. A request holds them from
// Admit to Release, and is in running() for exactly that time. Two more owners of pages work beside
// it: KvLoader (pages of a load whose request was released), SessionTable (locks between turns) and
// KvSaver (locks until a prefix is saved, which this drops where pages are short). One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "minisgl/base/checked_math.h"
#include "minisgl/engine/engine.h"
#include "minisgl/kv/cache_manager.h"
#include "minisgl/sched/scheduler.h"
#include "sched/kv_loader.h"
#include "sched/kv_saver.h"
#include "sched/request_state.h"
#include "sched/request_table.h"
#include "sched/state_ledger.h"
#include "sched/window_ledger.h"

namespace minisgl::sched {

// What InsertComputed moved into the prefix cache.
struct InsertedPages {
  int32_t first = 0, end = 0;  // page indices of the request; empty: nothing changed
  int32_t num_remapped = 0;    // of those, pages that the cache had already
};

class PageLedger {
 public:
  PageLedger(const EngineLimits& limits, const SchedulerOptions& options);

  const CacheManager& cache() const { return cache_; }
  const RequestTable& table() const { return table_; }
  const WindowLedger& windows() const { return windows_; }
  const StateLedger& states() const { return states_; }
  StateLedger& states() { return states_; }
  const KvLoader& loader() const { return loader_; }
  KvLoader& loader() { return loader_; }
  const KvSaver& saver() const { return saver_; }
  KvSaver& saver() { return saver_; }
  // For the locks of sessions.
  PrefixCache* prefix_cache() { return &cache_.cache(); }
  // Admitted requests that have not ended, in order of admission.
  const std::vector<RequestState*>& running() const { return running_; }
  // Largest number of pages in use at any time so far.
  int64_t pages_peak() const { return pages_peak_; }

  int32_t num_available() const { return cache_.num_available(); }
  // Pages that steps in flight and abandoned loads will free without any preemption.
  int32_t num_pending_free() const { return cache_.num_deferred() + loader_.num_abandoned_pages(); }
  // Pages that can be taken now or later without any preemption.
  int64_t num_attainable() const { return int64_t{num_available()} + num_pending_free(); }
  // Pages still to be taken by running requests, as promised (I8), and at least one for each
  // request that may grow beyond its promise.
  int64_t OwedPages() const;
  // Pages that `count` more tokens of `state` need beyond those it holds; <= 0: none.
  int32_t MissingPages(const RequestState& state, int64_t count) const {
    const int64_t needed = CeilDiv<int64_t>(state.launched_len + count, page_size_);
    return static_cast<int32_t>(needed - static_cast<int64_t>(state.pages.size()));
  }
  // True if `count` pages can be taken neither now nor after what is pending is free. Drops saves.
  bool IsShortOf(int32_t count);
  // Drops saves until `count` pages are available, or no save is left to drop.
  void MakeAvailable(int64_t count);
  // Upper bound on the tokens that `state` can take pages for without preempting another request.
  int64_t AvailableTokens(const RequestState& state) const;
  // True if a load of `load_len` tokens may begin: its pages are available, and no step in flight
  // may still read them for a request released meanwhile. Drops saves.
  bool MayLoad(int64_t load_len);
  // True if another request can have its state slots. Drops saves if that is enough.
  bool HasStateSlots();

  // The longest cached prefix of `key` that a request can go on from. Not locked.
  PrefixMatch Match(const PrefixKey& key);
  // Locks `match` if `wanted` pages stay attainable with it locked; else returns false. Drops
  // saves.
  bool LockIfRoom(const PrefixMatch& match, int64_t wanted);
  void Unlock(const PrefixMatch& match);

  // Admits `state` with a locked `match`: sets its lengths to what is cached. REQUIRES a free row.
  void Admit(RequestState* state, PrefixMatch match);
  // Takes `count` pages for `state`; false if some come only after steps in flight are collected.
  // REQUIRES !IsShortOf(count).
  bool Take(RequestState* state, int32_t count);
  // Pages of `state` that are computed and whole.
  int32_t WholePages(const RequestState& state) const {
    return static_cast<int32_t>(state.computed_len / page_size_);
  }
  // The longest part of `length` that ends with a page and cuts no input of `state` which attends
  // both ways.
  int64_t WholeLength(const RequestState& state, int64_t length) const {
    int64_t whole = length;
    do {
      length = whole / page_size_ * page_size_;
      whole = state.BeforeInput(length);
    } while (whole != length);
    return whole;
  }
  // Moves whole computed pages of `state` into the prefix cache. If the cache had a page already,
  // the request maps that page, and its own is freed: after step `fence`, or now without one.
  InsertedPages InsertComputed(RequestState* state, std::optional<StepId> fence);
  // computed_len of `state` has grown, and its whole pages are in the prefix cache: gives up the
  // window pages that its window moved past, and leaves the snapshots that were planned.
  void Advance(RequestState* state) {
    windows_.Advance(state);
    states_.Advance(state);
  }
  // Sets launched_len and frees the pages past it. REQUIRES that no step in flight uses them.
  void SetLaunched(RequestState* state, int64_t launched_len);
  // Returns everything that `state` holds. The only way in which an admitted request does.
  void Release(RequestState* state);

  void Launched(StepId step) { last_launched_ = step; }
  void Collected(StepId step);
  StepId last_launched() const { return last_launched_; }

  // Drops every cached page without a lock; returns the number of pages still cached.
  int64_t ResetCache() { return cache_.Reset(); }
  // Unlocks what running requests and saves lock, before destruction.
  void UnlockAll();

 private:
  int32_t page_size_;
  std::vector<RequestState*> running_;
  StateLedger states_;
  CacheManager cache_;
  RequestTable table_;
  WindowLedger windows_;
  KvLoader loader_;
  KvSaver saver_;
  int64_t pages_peak_ = 0;
  StepId last_launched_ = 0, last_collected_ = 0;
  // The last step in flight at the latest Release of a request with a row in a step in flight. The
  // cached pages that such a row reads may be evicted at once: later steps write them only after,
  // because steps run in order. A load would not wait for them (MayLoad).
  StepId released_in_ = 0;
};

}  // namespace minisgl::sched
