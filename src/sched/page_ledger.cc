#include "sched/page_ledger.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "minisgl/base/check.h"
#include "minisgl/base/checked_math.h"

namespace minisgl::sched {
namespace {

std::unique_ptr<PrefixCache> MakeCache(const SchedulerOptions& options, int32_t page_size,
                                       StatePool* states) {
  if (options.cache == CacheKind::kNaive) return MakeNaiveCache();
  return MakeRadixCache(page_size, options.cache_observer, states);
}

// A source writes whole pages. It knows of no window pages: with those it is not asked.
KvSource* SourceOf(const EngineLimits& limits, const SchedulerOptions& options) {
  KvSource* const source = options.kv_source;
  if (source == nullptr || limits.num_window_pages > 0) return nullptr;
  return limits.num_state_slots == 0 || source->keeps_states() ? source : nullptr;
}

}  // namespace

PageLedger::PageLedger(const EngineLimits& limits, const SchedulerOptions& options)
    : page_size_(limits.page_size),
      states_(limits, &running_),
      cache_(limits.num_pages, MakeCache(options, limits.page_size, states_.pool()),
             limits.num_window_pages),
      table_(limits.max_running_requests),
      windows_(limits, options.max_prefill_tokens, &cache_, &running_),
      loader_(SourceOf(limits, options), &cache_, limits.page_size, limits.num_state_slots > 0),
      saver_(SourceOf(limits, options), &cache_.cache(), &states_, limits.page_size) {
  const KvSource* const source = SourceOf(limits, options);
  states_.SetCache(&cache_.cache(), source == nullptr ? 0 : source->block_tokens());
}

int64_t PageLedger::OwedPages() const {
  int64_t owed = 0;
  for (const RequestState* state : running_) {
    const auto held = static_cast<int64_t>(state->pages.size());
    const int64_t grows = state->is_guaranteed || held == state->max_pages(page_size_) ? 0 : 1;
    owed += std::max(state->promised_pages(page_size_) - held, grows);
  }
  return owed;
}

void PageLedger::MakeAvailable(int64_t count) {
  while (count > num_available() && saver_.DropOne()) {
  }
}

bool PageLedger::IsShortOf(int32_t count) {
  MakeAvailable(count - num_pending_free());
  return count > num_available() + num_pending_free() || windows_.IsShortOf(count);
}

int64_t PageLedger::AvailableTokens(const RequestState& state) const {
  const int64_t pages = std::min<int64_t>(num_available(), windows_.Available(state));
  return (static_cast<int64_t>(state.pages.size()) + pages) * page_size_ - state.launched_len;
}

bool PageLedger::MayLoad(int64_t load_len) {
  MakeAvailable(load_len / page_size_);
  return load_len / page_size_ <= num_available() && released_in_ <= last_collected_;
}

bool PageLedger::HasStateSlots() {
  while (!states_.CanAdmit()) {
    if (!states_.CouldAdmit() || !saver_.DropOne()) return false;
  }
  return true;
}

PrefixMatch PageLedger::Match(const PrefixKey& key) {
  PrefixMatch match = cache_.cache().Match(key);
  const size_t usable = windows_.UsablePages(match.pages);
  if (usable == match.pages.size()) return match;
  // Again, for the node that ends there.
  return cache_.cache().Match(key.first(usable * static_cast<size_t>(page_size_)));
}

bool PageLedger::LockIfRoom(const PrefixMatch& match, int64_t wanted) {
  MakeAvailable(wanted - num_pending_free());
  if (wanted > num_attainable()) return false;
  cache_.cache().Lock(match.node);
  MakeAvailable(wanted - num_pending_free());
  if (wanted <= num_attainable()) return true;
  cache_.cache().Unlock(match.node);  // the match itself was counted as evictable
  return false;
}

void PageLedger::Unlock(const PrefixMatch& match) { cache_.cache().Unlock(match.node); }

void PageLedger::Admit(RequestState* state, PrefixMatch match) {
  states_.Begin(state, match);
  state->tree_pages = static_cast<int32_t>(match.pages.size());
  state->node = match.node;
  state->holds_lock = true;
  state->pages = std::move(match.pages);
  state->cached_len = int64_t{state->tree_pages} * page_size_;
  state->computed_len = state->launched_len = state->cached_len;
  windows_.Begin(state);
  state->table_row = table_.Take();
  running_.push_back(state);
}

bool PageLedger::Take(RequestState* state, int32_t count) {
  MakeAvailable(count);
  if (count > num_available() || !windows_.CanTakeNow(count)) return false;
  cache_.Take(count, &state->pages);
  windows_.Claim(state, state->pages.size() - static_cast<size_t>(count));
  const int64_t used = cache_.pool().num_pages() - num_available();
  pages_peak_ = std::max(pages_peak_, used);
  return true;
}

// Who owns what, in page indices:
//   before  [0, tree)      the cache, locked
//           [tree, whole)  the request, computed and whole
//           [whole, end)   the request
//   after   [0, whole)     the cache, locked
//           [whole, end)   the request
// If the cache had a page of [tree, whole) already, the request's entry becomes the cache's page,
// and its own page is freed after the last launched step, which may still read it. Keys of a text
// that is computed whole depend on all of it, so that the cache has none of them.
InsertedPages PageLedger::InsertComputed(RequestState* state, std::optional<StepId> fence) {
  InsertedPages inserted;
  const int32_t whole = WholePages(*state);
  PrefixCache& cache = cache_.cache();
  if (whole <= state->tree_pages || !cache.keeps_pages() || state->is_whole) return inserted;
  inserted.first = state->tree_pages;
  inserted.end = whole;
  const auto num_tokens = static_cast<size_t>(whole) * static_cast<size_t>(page_size_);
  const auto num_pages = static_cast<size_t>(whole);
  const PrefixInsertion insertion =
      cache.Insert(state->node, state->tree_pages, state->key().first(num_tokens),
                   std::span<const PageId>(state->pages).first(num_pages));
  std::vector<PageId> duplicates;
  for (int32_t page = state->tree_pages; page < whole; ++page) {
    const PageId held = insertion.pages[static_cast<size_t>(page - state->tree_pages)];
    PageId& mine = state->pages[static_cast<size_t>(page)];
    if (mine == held) continue;
    windows_.Move(*state, page, mine, held);
    duplicates.push_back(mine);
    mine = held;
    state->clean_pages = std::min(state->clean_pages, page);
  }
  cache.Lock(insertion.node);
  cache.Unlock(state->node);
  state->node = insertion.node;
  state->tree_pages = whole;
  inserted.num_remapped = static_cast<int32_t>(duplicates.size());
  if (fence) {
    cache_.GiveAfter(*fence, duplicates);
  } else {
    cache_.Give(duplicates);
  }
  return inserted;
}

void PageLedger::SetLaunched(RequestState* state, int64_t launched_len) {
  state->launched_len = launched_len;
  const auto kept = static_cast<size_t>(CeilDiv<int64_t>(launched_len, page_size_));
  windows_.Unclaim(state, kept, state->pages.size());
  cache_.Give(std::span<const PageId>(state->pages).subspan(kept));
  state->pages.resize(kept);
  state->clean_pages = std::min(state->clean_pages, static_cast<int32_t>(kept));
}

// If a step in flight names the request, its own pages and its table row are returned after the
// last launched step is collected. Pages of the cache are only unlocked: steps run in the order
// they were launched, so a step that takes such a page writes it after the steps in flight have
// read it.
void PageLedger::Release(RequestState* state) {
  windows_.Unclaim(state, static_cast<size_t>(state->window_begin), state->pages.size());
  states_.Release(state);
  cache_.cache().Unlock(state->node);
  state->holds_lock = false;
  const auto own =
      std::span<const PageId>(state->pages).subspan(static_cast<size_t>(state->tree_pages));
  if (state->is_loading) {  // no step has named it
    loader_.Abandon(state, state->tree_pages);
    table_.Give(state->table_row);
  } else if (state->in_flight > 0) {
    released_in_ = last_launched_;
    cache_.GiveAfter(last_launched_, own);
    table_.GiveAfter(last_launched_, state->table_row);
  } else {
    cache_.Give(own);
    table_.Give(state->table_row);
  }
  state->pages.clear();
  state->load_len = 0;
  state->tree_pages = state->window_begin = 0;
  state->table_row = -1;
  std::erase(running_, state);
}

void PageLedger::Collected(StepId step) {
  last_collected_ = step;
  cache_.Collected(step);
  table_.Collected(step);
}

void PageLedger::UnlockAll() {
  for (const RequestState* state : running_) {
    if (state->holds_lock) cache_.cache().Unlock(state->node);
  }
  for (PrefixNode* node : saver_.Locks()) cache_.cache().Unlock(node);
}

}  // namespace minisgl::sched
