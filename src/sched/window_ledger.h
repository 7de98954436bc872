// Window pages of running requests: claimed, promised and given back.
//
// Owns the claims of running requests on the window pages of CacheManager::windows().
// window_ledger.cc shows why the claims cover all that a request may read, and why promises can be
// kept. If the engine has no window pages, every bound holds and every change does nothing. One
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "minisgl/base/window_math.h"
#include "minisgl/engine/engine.h"
#include "minisgl/kv/cache_manager.h"
#include "sched/request_state.h"

namespace minisgl::sched {

class WindowLedger {
 public:
  // `cache` and `running` (the admitted requests) outlive this. REQUIRES, if there are window
  // pages, enough of them for a request that runs alone.
  WindowLedger(const EngineLimits& limits, int32_t max_prefill_tokens, CacheManager* cache,
               const std::vector<RequestState*>* running);

  const WindowMath& math() const { return math_; }

  // Upper bound on the window pages that `state` may claim whatever other requests do.
  int64_t Entitled(const RequestState& state) const;
  // The part of Entitled that is promised to `state` now.
  int64_t Promised(const RequestState& state) const;
  // Window pages that running requests hold or are promised.
  int64_t Pledged() const;

  // True if there are enough for `state` when it runs alone.
  bool HasRoomAlone(const RequestState& state) const {
    return pool_ == nullptr || Entitled(state) <= limits_.num_window_pages;
  }
  // True if the promises leave room to admit `state` and `kept_for_sessions` more.
  bool CanAdmit(const RequestState& state, int64_t kept_for_sessions) const;
  // True if `count` more window pages are reserved for `state` or unreserved. If false, a step in
  // flight will return some.
  bool MayTake(const RequestState& state, int64_t count) const;
  // Upper bound on the window pages that `state` can take now without preempting another request.
  int64_t Available(const RequestState& state) const;
  // True if `count` can be taken now.
  bool CanTakeNow(int32_t count) const;
  // True if `count` can be taken neither now nor after the steps in flight are collected.
  bool IsShortOf(int32_t count) const;

  // Length of the longest prefix of `matched` that has no hole within reach of the tokens computed
  // after it.
  size_t UsablePages(std::span<const PageId> matched) const;

  // Claims what the window of `state` reaches of its pages. Called at admission.
  void Begin(RequestState* state);
  // Claims pages[first, ...).
  void Claim(RequestState* state, size_t first);
  // Gives up the claims on pages[first, end).
  void Unclaim(RequestState* state, size_t first, size_t end);
  // Gives up what the window moved past. Called when computed_len has grown.
  void Advance(RequestState* state);
  // Page `index` of `state` is about to change from its own page `from` to the cache's page `to`,
  // which has the same content.
  void Move(const RequestState& state, int32_t index, PageId from, PageId to);

 private:
  EngineLimits limits_;
  WindowMath math_;
  CacheManager* cache_;
  WindowPool* pool_;  // null if there are no window pages
  const std::vector<RequestState*>* running_;
  // Window pages that admission leaves unpromised, for long chunks of prompts to borrow.
  int64_t kept_for_chunks_ = 0;
};

}  // namespace minisgl::sched
