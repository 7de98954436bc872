// Admission and chunked prefill.
#include "sched/prefill_manager.h"

#include <algorithm>

#include "minisgl/base/check.h"

namespace minisgl {
namespace {

// How many requests may be admitted past one that does not fit, before all wait for it.
constexpr int32_t kBypassMax = 16;

// How many of the queue are looked at in one step, beyond those that can be admitted: the cost of a
// step must not grow with the queue.
constexpr size_t kLookMax = 64;

}  // namespace

void PrefillManager::Schedule() {
  const std::vector<RequestState*> running =
      context_->running;  // preemption takes out of the real one
  for (const bool is_chat : {true, false}) {
    for (RequestState* state : running) {
      if (context_->draft.budget == 0) return;
      if (state->phase != Phase::kPrefill || state->is_chat() != is_chat) continue;
      if (BudgetFor(*state) > 0) AddChunk(state);
    }
  }
  if (!context_->draft.preempted) AdmitNew();
}

void PrefillManager::AskSource() {
  if (!context_->loader.has_source()) return;
  for (RequestState* state : context_->waiting.Held(kHeldBySource, kLookMax, asked_last_)) {
    asked_last_ = state->arrival;
    // What the cache has may have changed since; the answer for nothing cached says that it knows.
    if (context_->loader.Lookup(*state, 0)) context_->waiting.Free(state, kHeldBySource);
  }
}

void PrefillManager::AdmitNew() {
  size_t num_ready = 0;
  do {  // where all that were looked at are held for something, others may go
    num_ready = context_->waiting.num_ready();
    AdmitFront();
  } while (context_->running.empty() && context_->waiting.num_ready() < num_ready);
}

// Those that wait for their last token to land are passed over and keep their order. One that does
// not fit may be passed too, but not for ever.
void PrefillManager::AdmitFront() {
  WaitingQueue& waiting = context_->waiting;
  if (waiting.num_ready() == 0) return;
  RequestState* blocked = nullptr;
  const int32_t kept_rows = context_->RowsKeptForSessions();
  for (RequestState* state :
       waiting.Front(kLookMax + static_cast<size_t>(context_->table.num_free()))) {
    if (context_->draft.budget == 0) return;
    if (context_->table.num_free() == 0) {
      PreemptFor(*state);
      return;
    }
    if (state->in_flight > 0 || state->is_loading) continue;
    const bool may_take_kept_row = state->request.session != 0 || waiting.IsAged(*state);
    if (!may_take_kept_row && context_->table.num_free() <= kept_rows) continue;
    if (BudgetFor(*state) == 0) continue;
    switch (TryAdmit(state)) {
      case Admission::kWaits:
        break;
      case Admission::kNoRoom:
        if (blocked == nullptr) {
          if (PreemptFor(*state) || state->is_chat() || state->bypassed >= kBypassMax) return;
          blocked = state;
        }
        break;
      case Admission::kAdmitted:
        if (blocked != nullptr) ++blocked->bypassed;
        if (state->phase == Phase::kPrefill) AddChunk(state);
        if (context_->draft.preempted || (blocked != nullptr && blocked->bypassed >= kBypassMax))
          return;
    }
  }
}

bool PrefillManager::PreemptFor(const RequestState& state) {
  if (!state.is_chat() || context_->table.num_deferred() > 0 || context_->num_coming() > 0) {
    return false;
  }
  RequestState* victim = context_->PickVictim();
  if (victim == nullptr || victim->queue_class <= state.queue_class) return false;
  context_->Preempt(victim);
  return true;
}

bool PrefillManager::HoldForPrefix(RequestState* state, int32_t matched_pages) {
  // The last token is always computed, for its logits: only pages before it can be shared.
  const auto shareable =
      (static_cast<int64_t>(state->tokens.size()) - 1) / context_->limits.page_size;
  int64_t end = matched_pages;
  while (end < shareable &&
         context_->computing.Contains(state->page_hashes[static_cast<size_t>(end)])) {
    ++end;
  }
  if (end == matched_pages) return false;
  // For all that they have in common: one wait, whatever the number of chunks.
  state->awaited_hash = state->page_hashes[static_cast<size_t>(end - 1)];
  context_->computing.AddWaiter(state->awaited_hash, state);
  context_->waiting.Hold(state, kHeldByPrefix);
  return true;
}

// All or nothing: a request that is not admitted holds no lock, no row and no page.
PrefillManager::Admission PrefillManager::TryAdmit(RequestState* state) {
  CacheManager& cache = context_->cache;
  const int32_t page_size = context_->limits.page_size;
  const std::span<const TokenId> known(state->tokens);
  if (state->page_hashes.size() != known.size() / static_cast<size_t>(page_size)) {
    state->page_hashes =
        ChainHashes(known, page_size);  // of a new request, or one that came back with an answer
  }
  PrefixMatch match = context_->MatchPrefix(known.first(known.size() - 1));
  const auto matched = static_cast<int32_t>(match.pages.size());
  if (HoldForPrefix(state, matched)) return Admission::kWaits;
  const int64_t cached_len = int64_t{matched} * page_size;
  const std::optional<int64_t> load_len = context_->loader.Lookup(*state, cached_len);
  if (!load_len) {
    context_->waiting.Hold(state, kHeldBySource);
    return Admission::kWaits;
  }
  state->prefill_len = static_cast<int64_t>(known.size());
  state->is_guaranteed = context_->options.admission == AdmissionPolicy::kReserve ||
                         state->preemptions >= kPreemptionsMax;
  if (!context_->WindowsFit(*state)) return Admission::kNoRoom;
  while (!LockWhereItFits(*state, match)) {
    if (!TakePrefixFromSession(*state, match)) return Admission::kNoRoom;
  }
  const bool load_may_begin = *load_len / page_size <= cache.num_available() &&
                              context_->released_in <= context_->last_collected;
  if (*load_len > 0 && !load_may_begin) {
    cache.cache().Unlock(match.node);
    return Admission::kNoRoom;  // not kWaits: those admitted past it are counted
  }
  Admit(state, std::move(match), *load_len);
  return Admission::kAdmitted;
}

// Sessions keep their prefixes as long as others run, but a turn takes those of other sessions
// where that makes room; where nothing runs, everybody takes all.
bool PrefillManager::TakePrefixFromSession(const RequestState& state, const PrefixMatch& match) {
  SessionTable& sessions = context_->sessions;
  if (context_->running.empty()) return sessions.LetOldestGo();
  const SessionId own = state.request.session;
  if (own == 0) return false;
  const int64_t room = int64_t{context_->cache.num_available()} + context_->num_coming();
  if (WantedPages(state, match) > room + sessions.PagesBeside(own)) return false;
  return sessions.LetOldestGo(own);
}

int64_t PrefillManager::WantedPages(const RequestState& state, const PrefixMatch& match) const {
  int64_t wanted = context_->PromisedPages(state) - static_cast<int64_t>(match.pages.size()) +
                   context_->OwedPages();
  if (state.request.session == 0 && !context_->running.empty()) {
    wanted += context_->PagesKeptForSessions();
  }
  return wanted;
}

bool PrefillManager::LockWhereItFits(const RequestState& state, const PrefixMatch& match) {
  CacheManager& cache = context_->cache;
  const int64_t wanted = WantedPages(state, match);
  const auto room = [&] { return int64_t{cache.num_available()} + context_->num_coming(); };
  if (wanted > room()) return false;
  cache.cache().Lock(match.node);
  if (wanted <= room()) return true;
  cache.cache().Unlock(match.node);  // the match itself was counted as evictable
  return false;
}

void PrefillManager::Admit(RequestState* state, PrefixMatch match, int64_t load_len) {
  const auto matched = static_cast<int32_t>(match.pages.size());
  context_->waiting.Remove(state);
  context_->waiting.CountAdmission();
  state->node = match.node;
  state->holds_lock = true;
  state->pages = std::move(match.pages);
  state->tree_pages = matched;
  state->cached_len = int64_t{matched} * context_->limits.page_size;
  state->computed_len = state->launched_len = state->cached_len;
  state->window_begin = context_->window.FirstPage(state->computed_len);
  context_->ClaimWindows(state, static_cast<size_t>(state->window_begin));
  state->device_len = state->prefill_len;
  state->table_row = context_->table.Take();
  state->phase = Phase::kPrefill;
  state->registered_pages = matched;
  if (context_->cache.cache().keeps_pages()) {
    state->registered_pages = static_cast<int32_t>(state->page_hashes.size());
    for (int32_t page = matched; page < state->registered_pages; ++page) {
      context_->computing.Add(state->page_hashes[static_cast<size_t>(page)]);
    }
  }
  context_->running.push_back(state);
  if (state->request.session != 0) context_->sessions.LetGo(state->request.session);
  if (load_len > 0) {
    const bool taken = context_->TakePagesFor(state, load_len);
    MINISGL_CHECK(taken, "no pages for the load of request {}", state->request.id);
    state->phase = Phase::kLoading;
    state->load_len = load_len;
    context_->loader.Begin(state);
  }
  context_->Note(SchedNote::Kind::kAdmitted, state->request.id, state->cached_len);
  if (state->first_cached_len >= 0) return;
  state->first_cached_len = state->cached_len;
  context_->stats.prompt_tokens += state->prompt_len();
  context_->stats.cached_tokens += state->cached_len;
}

int64_t PrefillManager::ChunkLimit(const RequestState& state) const {
  const int64_t budget = context_->draft.budget;
  const WaitingQueue& waiting = context_->waiting;
  if (waiting.num_ready() == 0 || (state.is_chat() && !waiting.HasChat())) return budget;
  const int64_t threshold = context_->options.long_prefill_threshold > 0
                                ? context_->options.long_prefill_threshold
                                : std::max(context_->options.max_prefill_tokens / 2, 1);
  return std::min(budget, threshold);
}

int64_t PrefillManager::BudgetFor(const RequestState& state) const {
  const StepDraft& draft = context_->draft;
  return state.is_chat() ? draft.budget : std::min(draft.budget, draft.batch_budget);
}

void PrefillManager::AddChunk(RequestState* state) {
  const int64_t remaining = state->prefill_len - state->launched_len;
  MINISGL_CHECK(remaining > 0, "request {} has no prompt left to compute", state->request.id);
  int64_t count = std::min({remaining, ChunkLimit(*state), BudgetFor(*state)});
  // A shorter chunk runs where there are no pages for the whole; nobody is preempted but for the
  // first token.
  if (!context_->TakePagesFor(state, 1)) return;
  count = std::min(count, context_->TokensWithinReach(*state));
  if (!context_->TakePagesFor(state, count)) return;
  context_->draft.prefill.push_back({state, count, {}});
  context_->draft.budget -= count;
  if (!state->is_chat()) context_->draft.batch_budget -= count;
}

}  // namespace minisgl
