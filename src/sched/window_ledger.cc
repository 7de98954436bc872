// Why the claims suffice, and why the promises can be kept.
//
// The rule. A running request claims the window page of each of its pages from the first that its
// window reaches: pages[window_begin, end), window_begin = FirstPage(computed_len). It needs no
// other, and what it gives up may be reused at once:
//  - A step planned later begins at launched_len >= computed_len, and a roll-back of drafts does
//    not go below computed_len either. The query at position p sees keys from p - window + 1 on, so
//    no later query sees a key before computed_len - window + 1.
//  - Its steps in flight were launched at lengths >= computed_len, by the same argument: none of
//    them reads the pages that it gives up when a step is collected. (Counted by launched_len
//    instead, a step in flight would reach further back, and a roll-back would need keys that are
//    gone.)
//  - Each request that shares a page has its own claim.
//  - A request that ends or is preempted with a step in flight keeps the window pages of its own
//    pages until the fence, by claims of the deferred pages. Those of pages in the cache are only
//    unclaimed: steps run in the order they were launched, so a step that reclaims one writes it
//    after the steps in flight have read it.
// A page without a claim may lose its window page and stays in the cache as a hole. A match is
// shortened until no hole is within reach (UsablePages).
//
// The promise. With one token a step, a request holds at most PagesOf(max_in_flight) window pages
// at once: from the first that its window reaches to the last that a step in flight, or the one
// being planned, writes. A request is entitled to as many of them as its longest length has pages.
// A picture that is computed whole counts as such a step.
// Pages in the cache are shared, entitlements are not: if one request moves past a shared page, the
// page stays with the other. The entitlements of all requests whose whole length was promised sum
// to at most the number of window pages (I8), so each can have its own by preempting the rest.
//
// Chunks. A longer chunk borrows the window pages that it takes beyond the entitlement from those
// that are not promised, and returns them when it is collected. Until then the next step of the
// request may have to wait; no request is preempted for it. Admission keeps some pages for that
// (kept_for_chunks_).
#include "sched/window_ledger.h"

#include <algorithm>
#include <limits>

#include "minisgl/base/check.h"
#include "minisgl/base/checked_math.h"

namespace minisgl::sched {

WindowLedger::WindowLedger(const EngineLimits& limits, int32_t max_prefill_tokens,
                           CacheManager* cache, const std::vector<RequestState*>* running)
    : limits_(limits),
      math_{limits.page_size, std::max(limits.sliding_window, 1)},
      cache_(cache),
      pool_(cache->windows()),
      running_(running) {
  if (pool_ == nullptr) return;
  // With fewer, a request that runs alone could not go on.
  const int64_t longest = CeilDiv<int64_t>(limits.max_seq_len - 1, limits.page_size);
  const int64_t most = std::min<int64_t>(longest, limits.num_pages);
  MINISGL_CHECK(limits.sliding_window >= 1 &&
                    limits.num_window_pages >= std::min(most, math_.PagesOf(limits.max_in_flight)),
                "{} window pages for a window of {} keys", limits.num_window_pages,
                limits.sliding_window);
  const int64_t chunks =
      CeilDiv<int64_t>(int64_t{limits.max_in_flight} * max_prefill_tokens, limits.page_size);
  // At most a quarter: slower prompts rather than fewer requests.
  kept_for_chunks_ = std::min<int64_t>(chunks, limits.num_window_pages / 4);
}

int64_t WindowLedger::Entitled(const RequestState& state) const {
  return std::min<int64_t>(state.max_pages(limits_.page_size),
                           math_.PagesOf(limits_.max_in_flight - 1 + state.longest_whole()));
}

int64_t WindowLedger::Promised(const RequestState& state) const {
  return std::min(state.promised_pages(limits_.page_size), Entitled(state));
}

int64_t WindowLedger::Pledged() const {
  int64_t pledged = 0;
  for (const RequestState* state : *running_) {
    const int64_t claimed = state->claimed_windows();
    const int64_t grows = state->is_guaranteed || claimed >= Entitled(*state) ? 0 : 1;
    pledged += std::max(Promised(*state), claimed + grows);
  }
  return pledged;
}

bool WindowLedger::CanAdmit(const RequestState& state, int64_t kept_for_sessions) const {
  if (pool_ == nullptr) return true;
  if (running_->empty()) return true;  // its entitlement is there
  // If every page were promised, a prompt longer than the window would go on by the few tokens that
  // its own entitlement has room for.
  const int64_t wanted = Promised(state) + Pledged() + kept_for_chunks_ +
                         std::min<int64_t>(kept_for_sessions, limits_.num_window_pages / 4);
  return wanted <= limits_.num_window_pages;
}

bool WindowLedger::MayTake(const RequestState& state, int64_t count) const {
  if (pool_ == nullptr) return true;
  const int64_t beyond =
      state.claimed_windows() + count - std::max(Entitled(state), state.claimed_windows());
  return beyond <= 0 || beyond <= limits_.num_window_pages - Pledged();
}

int64_t WindowLedger::Available(const RequestState& state) const {
  if (pool_ == nullptr) return std::numeric_limits<int64_t>::max();
  const int64_t spare = std::max<int64_t>(limits_.num_window_pages - Pledged(), 0);
  const int64_t entitled = std::max<int64_t>(Entitled(state) - state.claimed_windows(), 0);
  return std::min<int64_t>(entitled + spare, pool_->num_available());
}

bool WindowLedger::CanTakeNow(int32_t count) const {
  return pool_ == nullptr || count <= pool_->num_available();
}

bool WindowLedger::IsShortOf(int32_t count) const {
  return pool_ != nullptr && count > pool_->num_available() + cache_->num_deferred_windows();
}

size_t WindowLedger::UsablePages(std::span<const PageId> matched) const {
  if (pool_ == nullptr) return matched.size();
  // The longest m such that none of the last min(m, reach) of m pages is a hole.
  const auto reach = static_cast<size_t>(math_.PagesBefore());
  size_t usable = matched.size(), first = usable;  // [first, usable) has no hole
  while (first > 0 && usable - first < reach) {
    --first;
    if (!pool_->Has(matched[first])) usable = first;
  }
  return usable;
}

void WindowLedger::Begin(RequestState* state) {
  state->window_begin = math_.FirstPage(state->computed_len);
  Claim(state, static_cast<size_t>(state->window_begin));
}

void WindowLedger::Claim(RequestState* state, size_t first) {
  if (pool_ == nullptr) return;
  for (size_t page = first; page < state->pages.size(); ++page) pool_->Claim(state->pages[page]);
}

void WindowLedger::Unclaim(RequestState* state, size_t first, size_t end) {
  if (pool_ == nullptr) return;
  for (size_t page = first; page < end; ++page) pool_->Unclaim(state->pages[page]);
}

void WindowLedger::Advance(RequestState* state) {
  if (pool_ == nullptr) return;
  const int32_t begin = math_.FirstPage(state->computed_len);
  Unclaim(state, static_cast<size_t>(state->window_begin), static_cast<size_t>(begin));
  state->window_begin = begin;
}

// The content is the same, so steps in flight may go on reading the window page that they were
// given. If `to` is a hole, that window page moves to it; else it is freed with `from`, after the
// fence.
void WindowLedger::Move(const RequestState& state, int32_t index, PageId from, PageId to) {
  if (pool_ == nullptr) return;
  const bool is_claimed = index >= state.window_begin;
  if (is_claimed) pool_->Unclaim(from);
  if (!pool_->Has(to)) pool_->Move(from, to);
  if (is_claimed) pool_->Claim(to);
}

}  // namespace minisgl::sched
