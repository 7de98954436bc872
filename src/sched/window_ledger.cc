// Window pages of requests: claimed, promised, let go. All of it is off, and costs nothing, where
// there are none.
//
// The rule. A running request claims the window page of each of its pages from the first that its
// window reaches: pages[window_begin, end), window_begin = FirstPage(computed_len). Why that is all
// it needs, and why what it lets go of may be given away at once:
//  - Whatever step is planned next for it begins at launched_len >= computed_len, and a roll-back
//    of drafts does not go below computed_len either. The query at position p sees keys from
//    p - window + 1 on, so none of its queries to come sees a key before
//    computed_len - window + 1.
//  - Its steps in flight were launched at lengths >= computed_len, by the same argument: the pages
//    it lets go of when a step is collected are read by nothing in flight of its own. (Counted by
//    launched_len instead, a step in flight would reach further back, and a roll-back would ask for
//    keys that are gone.)
//  - Whoever shares a page has a claim of his own.
//  - A request that ends or is preempted with a step in flight keeps the window pages of its own
//    pages until the fence, by claims of the deferred pages. Those of pages in the cache are only
//    unclaimed: steps run in the order they were launched, so whoever reclaims one writes it after
//    the steps in flight have read it.
// A page that nobody claims may lose its window page and stays in the cache as a hole; a match is
// shortened to where no hole is within reach (MatchPrefix).
//
// The promise. One token a step takes at most PagesOf(max_in_flight) window pages of a request at
// once: from the first that its window reaches to the last that a step in flight, or the one being
// planned, writes. A request is entitled to as many of them as its longest length has pages. Pages
// in the cache are shared but the entitlement is not: a shared page that one request moves past
// stays with the other. So the entitlements of all who were promised their whole length sum to at
// most the number of window pages (I8), and each can have its own by preempting the rest. What a
// longer chunk takes beyond that is borrowed from what nobody is promised, and comes back when the
// chunk is collected; until then its next step may have to wait, and nobody is preempted for it.
// Admission leaves some for that (windows_of_chunks).
#include "sched/context.h"

#include <algorithm>

#include "minisgl/base/check.h"

namespace minisgl {

PrefixMatch SchedulerContext::MatchPrefix(std::span<const TokenId> tokens) {
  PrefixMatch match = cache.cache().Match(tokens);
  if (cache.windows() == nullptr) return match;
  // The longest m such that none of the last min(m, reach) of m pages is a hole.
  const auto reach = static_cast<size_t>(window.PagesBefore());
  size_t usable = match.pages.size(), first = usable;  // [first, usable) has no hole
  while (first > 0 && usable - first < reach) {
    --first;
    if (!cache.windows()->Has(match.pages[first])) usable = first;
  }
  if (usable == match.pages.size()) return match;
  // Again, for the node that ends there.
  return cache.cache().Match(tokens.first(usable * static_cast<size_t>(limits.page_size)));
}

int64_t SchedulerContext::EntitledWindows(const RequestState& state) const {
  return std::min<int64_t>(state.max_pages(limits.page_size), window.PagesOf(limits.max_in_flight));
}

int64_t SchedulerContext::PromisedWindows(const RequestState& state) const {
  return std::min(PromisedPages(state), EntitledWindows(state));
}

int64_t SchedulerContext::PledgedWindows() const {
  int64_t pledged = 0;
  for (const RequestState* state : running) {
    const int64_t claimed = state->claimed_windows();
    const int64_t grows = state->is_guaranteed || claimed >= EntitledWindows(*state) ? 0 : 1;
    pledged += std::max(PromisedWindows(*state), claimed + grows);
  }
  return pledged;
}

bool SchedulerContext::WindowsFit(const RequestState& state) const {
  if (cache.windows() == nullptr) return true;
  if (running.empty()) return true;  // its entitlement is there
  // Where all were promised to somebody, a prompt longer than the window would go on by the few
  // tokens that its own entitlement has room for.
  int64_t wanted = PromisedWindows(state) + PledgedWindows() + windows_of_chunks;
  if (state.request.session == 0) {
    wanted += std::min<int64_t>(PagesKeptForSessions(), limits.num_window_pages / 4);
  }
  return wanted <= limits.num_window_pages;
}

bool SchedulerContext::MayTakeWindows(const RequestState& state, int64_t count) const {
  const int64_t beyond =
      state.claimed_windows() + count - std::max(EntitledWindows(state), state.claimed_windows());
  return beyond <= 0 || beyond <= limits.num_window_pages - PledgedWindows();
}

int64_t SchedulerContext::WindowsWithinReach(const RequestState& state) const {
  const int64_t spare = std::max<int64_t>(limits.num_window_pages - PledgedWindows(), 0);
  const int64_t entitled = std::max<int64_t>(EntitledWindows(state) - state.claimed_windows(), 0);
  return std::min<int64_t>(entitled + spare, cache.windows()->num_available());
}

int64_t SchedulerContext::TokensWithinReach(const RequestState& state) const {
  int64_t pages = cache.num_available();
  if (cache.windows() != nullptr) pages = std::min(pages, WindowsWithinReach(state));
  return (static_cast<int64_t>(state.pages.size()) + pages) * limits.page_size - state.launched_len;
}

bool SchedulerContext::WindowsAreShort(int32_t count, bool with_coming) const {
  if (cache.windows() == nullptr) return false;
  const int32_t coming = with_coming ? cache.num_deferred_windows() : 0;
  return count > cache.windows()->num_available() + coming;
}

void SchedulerContext::ClaimWindows(RequestState* state, size_t first) {
  if (cache.windows() == nullptr) return;
  for (size_t page = first; page < state->pages.size(); ++page) {
    cache.windows()->Claim(state->pages[page]);
  }
}

void SchedulerContext::UnclaimWindows(RequestState* state, size_t first, size_t end) {
  if (cache.windows() == nullptr) return;
  for (size_t page = first; page < end; ++page) cache.windows()->Unclaim(state->pages[page]);
}

void SchedulerContext::AdvanceWindow(RequestState* state) {
  if (cache.windows() == nullptr) return;
  const int32_t begin = window.FirstPage(state->computed_len);
  UnclaimWindows(state, static_cast<size_t>(state->window_begin), static_cast<size_t>(begin));
  state->window_begin = begin;
}

// The content is the same, so steps in flight may go on reading the window page they were told of:
// it is moved where `to` is a hole, and waits behind the fence with `from` where it is not.
void SchedulerContext::MoveWindow(const RequestState& state, int32_t index, PageId from,
                                  PageId to) {
  WindowPool* windows = cache.windows();
  if (windows == nullptr) return;
  const bool is_claimed = index >= state.window_begin;
  if (is_claimed) windows->Unclaim(from);
  if (!windows->Has(to)) windows->Move(from, to);
  if (is_claimed) windows->Claim(to);
}

}  // namespace minisgl
