// Admission and chunked prefill.
#include <algorithm>

#include "minisgl/base/check.h"
#include "sched/scheduler_impl.h"

namespace minisgl {
namespace {

// How often a request may be passed over because an admitted one computes its prefix. That one's
// chunks go first in every prefill step, so the wait ends by itself after its prompt's steps; the
// bound is for what nobody thought of.
constexpr int64_t kShareWaitsMax = 4096;

// How many requests may be admitted past one that does not fit, before all wait for it.
constexpr int32_t kBypassMax = 16;

// How many of the queue are looked at in one step, beyond those that can be admitted: the cost of a
// step must not grow with the queue.
constexpr size_t kLookMax = 64;

}  // namespace

void PrefillManager::Schedule() {
  const std::vector<RequestState*> running =
      context_->running;  // preemption takes out of the real one
  for (RequestState* state : running) {
    if (context_->draft.budget == 0) return;
    if (state->phase == Phase::kPrefill) AddChunk(state);
  }
  if (!context_->draft.preempted) AdmitNew();
}

// Those that wait for a prefix, or for their last token to land, are passed over and keep their
// order. One that does not fit may be passed too, but not for ever.
void PrefillManager::AdmitNew() {
  WaitingQueue& waiting = context_->waiting;
  if (waiting.empty()) return;
  RequestState* blocked = nullptr;
  for (RequestState* state :
       waiting.Front(kLookMax + static_cast<size_t>(context_->table.num_free()))) {
    if (context_->draft.budget == 0) return;
    if (context_->table.num_free() == 0) {
      PreemptFor(*state);
      return;
    }
    if (state->in_flight > 0) continue;
    switch (TryAdmit(state)) {
      case Admission::kWaits:
        break;
      case Admission::kNoRoom:
        if (blocked == nullptr) {
          if (PreemptFor(*state) || state->bypassed >= kBypassMax) return;
          blocked = state;
        }
        break;
      case Admission::kAdmitted:
        if (blocked != nullptr) ++blocked->bypassed;
        AddChunk(state);
        if (context_->draft.preempted || (blocked != nullptr && blocked->bypassed >= kBypassMax))
          return;
    }
  }
}

bool PrefillManager::PreemptFor(const RequestState& state) {
  if (state.queue_class > kChatPriority || context_->table.num_deferred() > 0 ||
      context_->cache.num_deferred() > 0) {
    return false;
  }
  RequestState* victim = context_->PickVictim();
  if (victim == nullptr || victim->queue_class <= state.queue_class) return false;
  context_->Preempt(victim);
  return true;
}

bool PrefillManager::WaitsForPrefix(const RequestState& state, int32_t matched_pages) const {
  // The last token is always computed, for its logits: only pages before it can be shared.
  const auto shareable =
      (static_cast<int64_t>(state.tokens.size()) - 1) / context_->limits.page_size;
  return matched_pages < shareable && state.share_waits < kShareWaitsMax &&
         context_->computing.Contains(state.page_hashes[static_cast<size_t>(matched_pages)]);
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
  PrefixMatch match = cache.cache().Match(known.first(known.size() - 1));
  const auto matched = static_cast<int32_t>(match.pages.size());
  if (WaitsForPrefix(*state, matched)) {
    ++state->share_waits;
    return Admission::kWaits;
  }
  state->prefill_len = static_cast<int64_t>(known.size());
  state->is_guaranteed = context_->options.admission == AdmissionPolicy::kReserve ||
                         state->preemptions >= kPreemptionsMax;
  const int64_t wanted = context_->PromisedPages(*state) - matched + context_->OwedPages();
  const auto room = [&] { return int64_t{cache.num_available()} + cache.num_deferred(); };
  if (wanted > room()) return Admission::kNoRoom;
  cache.cache().Lock(match.node);
  if (wanted > room()) {  // the match itself was counted as evictable
    cache.cache().Unlock(match.node);
    return Admission::kNoRoom;
  }
  Admit(state, std::move(match));
  return Admission::kAdmitted;
}

void PrefillManager::Admit(RequestState* state, PrefixMatch match) {
  const auto matched = static_cast<int32_t>(match.pages.size());
  context_->waiting.Remove(state);
  context_->waiting.CountAdmission();
  state->node = match.node;
  state->holds_lock = true;
  state->pages = std::move(match.pages);
  state->tree_pages = matched;
  state->cached_len = int64_t{matched} * context_->limits.page_size;
  state->computed_len = state->launched_len = state->cached_len;
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
  if (state->first_cached_len >= 0) return;
  state->first_cached_len = state->cached_len;
  context_->stats.prompt_tokens += state->prompt_len();
  context_->stats.cached_tokens += state->cached_len;
}

int64_t PrefillManager::ChunkLimit() const {
  const int64_t budget = context_->draft.budget;
  if (context_->waiting.empty()) return budget;
  const int64_t threshold = context_->options.long_prefill_threshold > 0
                                ? context_->options.long_prefill_threshold
                                : std::max(context_->options.max_prefill_tokens / 2, 1);
  return std::min(budget, threshold);
}

void PrefillManager::AddChunk(RequestState* state) {
  const int64_t remaining = state->prefill_len - state->launched_len;
  MINISGL_CHECK(remaining > 0, "request {} has no prompt left to compute", state->request.id);
  int64_t count = std::min(remaining, ChunkLimit());
  // A shorter chunk runs where there are no pages for the whole; nobody is preempted but for the
  // first token.
  if (!context_->TakePagesFor(state, 1)) return;
  const int64_t reachable =
      (static_cast<int64_t>(state->pages.size()) + context_->cache.num_available()) *
      context_->limits.page_size;
  count = std::min(count, reachable - state->launched_len);
  if (!context_->TakePagesFor(state, count)) return;
  context_->draft.prefill.push_back({state, count});
  context_->draft.budget -= count;
}

}  // namespace minisgl
