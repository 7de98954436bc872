// The bookkeeping that both managers and the scheduler work on.
#pragma once

#include <vector>

#include "minisgl/base/window_math.h"
#include "minisgl/kv/cache_manager.h"
#include "minisgl/sched/scheduler.h"
#include "sched/computing_index.h"
#include "sched/kv_loader.h"
#include "sched/request_state.h"
#include "sched/request_table.h"
#include "sched/session_table.h"
#include "sched/step_draft.h"
#include "sched/waiting_queue.h"

namespace minisgl {

// The bookkeeping that both managers and the scheduler itself work on.
struct SchedulerContext {
  EngineLimits limits;
  SchedulerOptions options;
  WindowMath window;  // where there are window pages
  // Window pages that admission leaves for the chunks of prompts to borrow.
  int32_t windows_of_chunks = 0;
  CacheManager cache;
  RequestTable table;
  ComputingIndex computing;
  WaitingQueue waiting;
  SessionTable sessions;
  KvLoader loader;
  std::vector<RequestState*> running;  // admitted and not ended, in order of admission
  StepDraft draft;
  SchedulerStats stats;
  StepId last_launched = 0, last_collected = 0;
  // The last step in flight when a request with a row in one let go of its pages. What such a row
  // reads of the cache may be evicted: steps write it later, because they run in order, but a load
  // would not wait.
  StepId released_in = 0;
  std::vector<SchedNote> notes;

  SchedulerContext(const EngineLimits& engine_limits, const SchedulerOptions& scheduler_options);

  void Note(SchedNote::Kind kind, RequestId id, int64_t value) {
    if (options.record_notes) notes.push_back({kind, id, value});
  }
  // Pages that will be free without anybody being preempted, and are not yet.
  int32_t num_coming() const { return cache.num_deferred() + loader.num_abandoned_pages(); }
  // Table rows and pages that nobody else is admitted into, because a session's turn may come.
  int32_t RowsKeptForSessions() const;
  int64_t PagesKeptForSessions() const;
  // Whether a chat's turn runs and is in this phase.
  bool IsChatIn(Phase phase) const;

  // Pages that admitted requests are to have (I8): to their longest end where that was promised,
  // else to the end of what is known, and one for each that may grow.
  int64_t OwedPages() const;
  int64_t PromisedPages(const RequestState& state) const;
  // Window pages (window_claims.cc). The longest cached prefix of `tokens` with no hole within
  // reach of what is computed after it.
  PrefixMatch MatchPrefix(std::span<const TokenId> tokens);
  // How many `state` may claim at once whatever others do; of those, how many it is promised now;
  // how many all that run hold or are promised.
  int64_t EntitledWindows(const RequestState& state) const;
  int64_t PromisedWindows(const RequestState& state) const;
  int64_t PledgedWindows() const;
  // Whether the promises leave room for `state` to be admitted.
  bool WindowsFit(const RequestState& state) const;
  // Whether `count` more are its own, or nobody's. Where not, it has steps in flight, whose end
  // will give some back.
  bool MayTakeWindows(const RequestState& state, int64_t count) const;
  int64_t WindowsWithinReach(const RequestState& state) const;
  // Tokens that `state` can take pages for without anybody being preempted.
  int64_t TokensWithinReach(const RequestState& state) const;
  // Whether fewer than `count` can be had now, or with those that wait behind a fence.
  bool WindowsAreShort(int32_t count, bool with_coming) const;
  // Claims of `state` on pages from index `first` on; given up for [first, end).
  void ClaimWindows(RequestState* state, size_t first);
  void UnclaimWindows(RequestState* state, size_t first, size_t end);
  // computed_len moved on: what its window moved past is let go.
  void AdvanceWindow(RequestState* state);
  // Page `index` of `state` is to be `to`, which the cache has, instead of its own `from`.
  void MoveWindow(const RequestState& state, int32_t index, PageId from, PageId to);

  // Takes the pages that `count` more tokens of `state` need. Where there are none, sessions let
  // their prefixes go, then others are preempted. False where they are not to be had before steps
  // in flight are collected, or where `state` itself had to go.
  bool TakePagesFor(RequestState* state, int64_t count);
  // Who goes first when pages run out: the lowest class, youngest first; nobody whose length is
  // promised, and one whose pages a load writes only where there is no other. Null: nobody.
  RequestState* PickVictim() const;
  // Back to the head of its class. What the cache holds of it stays there until it is needed.
  void Preempt(RequestState* state);
  // The one way in which pages, lock and table row of an admitted request are given back.
  void Release(RequestState* state);
  // Takes the pages below `up_to_page`, which the cache holds now, out of the index of pages being
  // computed.
  void Unregister(RequestState* state, int32_t up_to_page);
};

}  // namespace minisgl
