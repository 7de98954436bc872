// Pages and table rows of requests: taken, promised, given back.
#include "sched/context.h"

#include <algorithm>

#include "minisgl/base/check.h"

namespace minisgl {
namespace {

std::unique_ptr<PrefixCache> MakeCache(const EngineLimits& limits,
                                       const SchedulerOptions& options) {
  return options.cache == CacheKind::kRadix ? MakeRadixCache(limits.page_size) : MakeNaiveCache();
}

// What is kept free for the coming turn of a session: a question and the beginning of an answer.
constexpr int64_t kTurnTokens = 512;

}  // namespace

SchedulerContext::SchedulerContext(const EngineLimits& engine_limits,
                                   const SchedulerOptions& scheduler_options)
    : limits(engine_limits),
      options(scheduler_options),
      window{engine_limits.page_size, std::max(engine_limits.sliding_window, 1)},
      cache(engine_limits.num_pages, MakeCache(engine_limits, scheduler_options),
            engine_limits.num_window_pages),
      table(engine_limits.max_running_requests),
      waiting(scheduler_options.queue),
      sessions(&cache.cache()),
      // A source writes whole pages and knows of no window pages: it is not asked where there are.
      loader(engine_limits.num_window_pages > 0 ? nullptr : scheduler_options.kv_source, &cache,
             engine_limits.page_size) {
  MINISGL_CHECK(options.max_prefill_tokens >= 1 && limits.max_running_requests >= 1 &&
                    limits.num_pages >= 1 && limits.max_seq_len >= 2,
                "limits that nothing can run within");
  if (limits.num_window_pages > 0) {
    // Else a request that runs alone could not go on.
    const int64_t longest = CeilDiv<int64_t>(limits.max_seq_len - 1, limits.page_size);
    const int64_t most = std::min<int64_t>(longest, limits.num_pages);
    MINISGL_CHECK(
        limits.sliding_window >= 1 &&
            limits.num_window_pages >= std::min(most, window.PagesOf(limits.max_in_flight)),
        "{} window pages for a window of {} keys", limits.num_window_pages, limits.sliding_window);
    const int64_t chunks = CeilDiv<int64_t>(
        int64_t{limits.max_in_flight} * options.max_prefill_tokens, limits.page_size);
    // A quarter where there are few: slower prompts rather than fewer requests.
    windows_of_chunks =
        static_cast<int32_t>(std::min<int64_t>(chunks, limits.num_window_pages / 4));
  }
  MINISGL_CHECK(options.max_drafts == 0 || options.drafter != nullptr, "drafts of nobody");
}

int32_t SchedulerContext::RowsKeptForSessions() const {
  if (sessions.size() == 0) return 0;
  // One where rows are few, and never so many that the turns of some sessions and the rows kept for
  // others are all.
  const int32_t most = std::min(std::max((table.num_rows() - 1) / 2, 1), table.num_rows() - 1);
  return std::min(sessions.num_without_place(), most);
}

int64_t SchedulerContext::PagesKeptForSessions() const {
  if (sessions.size() == 0) return 0;
  const int64_t of_a_turn = CeilDiv<int64_t>(kTurnTokens, limits.page_size);
  return std::min<int64_t>(sessions.num_without_place() * of_a_turn, limits.num_pages / 4);
}

bool SchedulerContext::IsChatIn(Phase phase) const {
  return std::any_of(running.begin(), running.end(), [phase](const RequestState* state) {
    return state->phase == phase && state->is_chat();
  });
}

int64_t SchedulerContext::PromisedPages(const RequestState& state) const {
  const int32_t longest = state.max_pages(limits.page_size);
  if (state.is_guaranteed) return longest;
  return std::min(longest, state.prefill_pages(limits.page_size) + 1);
}

int64_t SchedulerContext::OwedPages() const {
  int64_t owed = 0;
  for (const RequestState* state : running) {
    const auto held = static_cast<int64_t>(state->pages.size());
    const int64_t grows =
        state->is_guaranteed || held == state->max_pages(limits.page_size) ? 0 : 1;
    owed += std::max(PromisedPages(*state) - held, grows);
  }
  return owed;
}

bool SchedulerContext::TakePagesFor(RequestState* state, int64_t count) {
  const int64_t needed = CeilDiv<int64_t>(state->launched_len + count, limits.page_size);
  const auto missing = static_cast<int32_t>(needed - static_cast<int64_t>(state->pages.size()));
  if (missing <= 0) return true;
  if (cache.windows() != nullptr && !MayTakeWindows(*state, missing)) return false;
  // Pages behind a fence count as coming: else every retry would preempt one more.
  while (missing > cache.num_available() + num_coming() || WindowsAreShort(missing, true)) {
    // Sessions claim no window pages.
    if (!WindowsAreShort(missing, true) && sessions.LetOldestGo()) continue;
    RequestState* victim = PickVictim();
    MINISGL_CHECK(victim != nullptr, "I8: request {} was promised pages that are not there",
                  state->request.id);
    Preempt(victim);
    if (victim == state) return false;
  }
  if (missing > cache.num_available() || WindowsAreShort(missing, false)) return false;
  cache.Take(missing, &state->pages);
  ClaimWindows(state, state->pages.size() - static_cast<size_t>(missing));
  const int64_t used = cache.pool().num_pages() - cache.num_available();
  stats.pages_peak = std::max(stats.pages_peak, used);
  return true;
}

RequestState* SchedulerContext::PickVictim() const {
  RequestState* victim = nullptr;
  for (RequestState* state : running) {  // in order of admission: the last of the lowest class wins
    if (state->is_guaranteed) continue;
    if (victim != nullptr && state->is_loading != victim->is_loading) {
      if (victim->is_loading) victim = state;
      continue;
    }
    if (victim == nullptr || state->queue_class >= victim->queue_class) victim = state;
  }
  return victim;
}

void SchedulerContext::Preempt(RequestState* state) {
  MINISGL_CHECK(!state->is_guaranteed && state->preemptions < kPreemptionsMax,
                "request {} may not be preempted", state->request.id);
  draft.Withdraw(state);
  draft.preempted = true;
  Release(state);
  ++state->preemptions;
  ++stats.preemptions;
  state->phase = Phase::kWaiting;
  state->in_token_pool = false;
  state->clean_pages = 0;
  waiting.Add(state);
  Note(SchedNote::Kind::kPreempted, state->request.id, state->preemptions);
}

void SchedulerContext::Unregister(RequestState* state, int32_t up_to_page) {
  const int32_t end = std::min(up_to_page, state->registered_pages);
  std::vector<RequestState*> freed;
  for (int32_t page = state->tree_pages; page < end; ++page) {
    computing.Remove(state->page_hashes[static_cast<size_t>(page)], &freed);
  }
  for (RequestState* waiter : freed) waiting.Free(waiter, kHeldByPrefix);
}

// The request's own pages and its table row wait until the last step launched is collected where
// one in flight names them. Pages of the cache are only unlocked: steps run in the order they were
// launched, so whoever takes such a page writes it after the steps in flight have read it.
void SchedulerContext::Release(RequestState* state) {
  Unregister(state, state->registered_pages);
  UnclaimWindows(state, static_cast<size_t>(state->window_begin), state->pages.size());
  cache.cache().Unlock(state->node);
  state->holds_lock = false;
  const auto own =
      std::span<const PageId>(state->pages).subspan(static_cast<size_t>(state->tree_pages));
  if (state->is_loading) {  // no step has named it
    loader.Abandon(state, state->tree_pages);
    table.Give(state->table_row);
  } else if (state->in_flight > 0) {
    released_in = last_launched;
    cache.GiveAfter(last_launched, own);
    table.GiveAfter(last_launched, state->table_row);
  } else {
    cache.Give(own);
    table.Give(state->table_row);
  }
  state->pages.clear();
  state->load_len = 0;
  state->tree_pages = state->registered_pages = state->window_begin = 0;
  state->table_row = -1;
  std::erase(running, state);
}

}  // namespace minisgl
