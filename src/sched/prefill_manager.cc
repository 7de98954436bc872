#include "sched/prefill_manager.h"

#include <algorithm>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "minisgl/base/check.h"
#include "sched/chat_room.h"

namespace minisgl::sched {
namespace {

// Upper bound on the requests admitted past one that does not fit; after that all wait for it.
constexpr int32_t kBypassMax = 16;

// Upper bound on the waiting requests looked at in one step, beyond those that can be admitted: the
// cost of a step must not grow with the queue.
constexpr size_t kLookMax = 64;

// A new request has no hashes; one that was preempted returns with a part of its answer.
void HashPages(RequestState* state, int32_t page_size) {
  const size_t num_pages = state->tokens.size() / static_cast<size_t>(page_size);
  if (state->page_hashes.size() != num_pages) {
    state->page_hashes = ChainHashes(state->key(), page_size);
  }
}

}  // namespace

void PrefillManager::Schedule() {
  const std::vector<RequestState*> running = pages_->running();  // a copy: preemption changes it
  for (const bool is_chat : {true, false}) {
    for (RequestState* state : running) {
      if (draft_->budget == 0) return;
      if (state->phase != Phase::kPrefill || state->is_chat() != is_chat) continue;
      if (state->LacksMask()) continue;
      const bool goes_on = BudgetFor(*state, state->LeastChunk()) > 0 && AddChunk(state);
      if (!goes_on && !state->inputs.empty()) draft_->holds_back = true;
    }
  }
  if (!draft_->preempted) AdmitNew();
}

void PrefillManager::PollKvSource() {
  if (!pages_->loader().has_source()) return;
  WaitingQueue& waiting = queues_->waiting();
  for (RequestState* state : waiting.Held(kHeldBySource, kLookMax, polled_last_)) {
    polled_last_ = state->arrival;
    // What is cached may have changed since then. An answer for nothing cached shows that the
    // source knows by now.
    if (pages_->loader().Lookup(*state, 0)) waiting.Unhold(state, kHeldBySource);
  }
}

void PrefillManager::AdmitNew() {
  size_t num_ready = 0;
  do {  // again, if all that were looked at are held now: others may go
    num_ready = queues_->waiting().num_ready();
    AdmitFront();
  } while (pages_->running().empty() && queues_->waiting().num_ready() < num_ready);
}

bool PrefillManager::HoldForPrefix(RequestState* state, const PrefixMatch& match) {
  int32_t end = queues_->HoldForPrefix(state, static_cast<int32_t>(match.cached_pages));
  const auto matched = static_cast<int32_t>(match.pages.size());
  const bool lacks_state = match.cached_pages > match.pages.size();
  if (end == 0 && lacks_state && matched > state->awaited_state_at) {
    end = queues_->HoldForPrefix(state, matched);
    if (end > 0) state->awaited_state_at = matched;
  }
  if (end == 0) return false;
  if (pages_->states().pool() == nullptr) return true;
  // The one that computes the prefix leaves a snapshot where the two part.
  for (RequestState* other : pages_->running()) {
    if (end > other->tree_pages && end <= other->registered_pages &&
        other->page_hashes[static_cast<size_t>(end - 1)] == state->awaited_hash) {
      pages_->states().Want(other, int64_t{end} * context_->limits.page_size);
    }
  }
  return true;
}

// Snapshots of a model with states: where a cached path without one ends, at the end of the prompt,
// and where waiting prompts part from it; of those the ones that save most.
void PrefillManager::PlanSnapshots(RequestState* state, int64_t cached_pages) {
  StateLedger& states = pages_->states();
  if (states.pool() == nullptr) return;
  const int64_t page_size = context_->limits.page_size;
  states.Want(state, cached_pages * page_size);
  states.Want(state, (state->prefill_len - 1) / page_size * page_size);
  std::map<int64_t, int64_t> saved;  // by pages in common, tokens
  for (RequestState* other : queues_->waiting().Front(kLookMax)) {
    HashPages(other, context_->limits.page_size);
    const auto [mine, its] = std::mismatch(state->page_hashes.begin(), state->page_hashes.end(),
                                           other->page_hashes.begin(), other->page_hashes.end());
    const int64_t common =
        std::min((mine - state->page_hashes.begin()), (other->shareable_len() / page_size));
    if (common > state->tree_pages) saved[common] += (common - state->tree_pages) * page_size;
  }
  std::vector<std::pair<int64_t, int64_t>> order;  // what is saved, pages in common
  for (const auto& [common, tokens] : saved) order.emplace_back(tokens, common);
  std::sort(order.rbegin(), order.rend());
  for (const auto& [tokens, common] : order) states.Want(state, common * page_size);
}

// Skips requests whose last token is still in flight; they keep their place. A request that does
// not fit may be overtaken at most kBypassMax times.
void PrefillManager::AdmitFront() {
  WaitingQueue& waiting = queues_->waiting();
  const RequestTable& table = pages_->table();
  if (waiting.num_ready() == 0) return;
  RequestState* blocked = nullptr;
  const int32_t kept_rows = queues_->sessions().num_kept_rows();
  for (RequestState* state : waiting.Front(kLookMax + static_cast<size_t>(table.num_free()))) {
    if (draft_->budget == 0) return;
    if (table.num_free() == 0) {
      preemptor_->PreemptFor(*state);
      return;
    }
    if (state->in_flight > 0 || state->is_loading) continue;
    const bool may_take_kept_row = state->request.session != 0 || waiting.IsAged(*state);
    if (!may_take_kept_row && table.num_free() <= kept_rows) continue;
    if (draft_->holds_back && !state->is_chat()) continue;
    if (BudgetFor(*state, 1) == 0) continue;
    switch (TryAdmit(state)) {
      case Admission::kWaits:
        break;
      case Admission::kNoRoom:
        if (blocked == nullptr) {
          if (preemptor_->PreemptFor(*state) || state->is_chat() || state->bypassed >= kBypassMax) {
            return;
          }
          blocked = state;
        }
        break;
      case Admission::kAdmitted:
        if (blocked != nullptr) ++blocked->bypassed;
        if (state->phase == Phase::kPrefill) AddChunk(state);
        if (draft_->preempted || (blocked != nullptr && blocked->bypassed >= kBypassMax)) return;
    }
  }
}

PrefixMatch PrefillManager::MatchWhole(const RequestState& state, const PrefixKey& key) {
  PrefixMatch match = pages_->Match(key);
  for (;;) {
    const auto matched = std::ssize(match.pages) * context_->limits.page_size;
    const int64_t whole = state.BeforeInput(matched);
    if (whole == matched) return match;
    match = pages_->Match(key.first(static_cast<size_t>(whole)));
  }
}

// All or nothing: a request that is not admitted holds no lock, no row and no page.
PrefillManager::Admission PrefillManager::TryAdmit(RequestState* state) {
  const int32_t page_size = context_->limits.page_size;
  const PrefixKey known = state->key();
  HashPages(state, page_size);
  PrefixMatch match = MatchWhole(*state, known.first(static_cast<size_t>(state->shareable_len())));
  const auto matched = static_cast<int32_t>(match.pages.size());
  if (HoldForPrefix(state, match)) return Admission::kWaits;
  const int64_t cached_len = int64_t{matched} * page_size;
  const std::optional<int64_t> load_len = pages_->loader().Lookup(*state, cached_len);
  if (!load_len) {
    queues_->waiting().Hold(state, kHeldBySource);
    return Admission::kWaits;
  }
  state->prefill_len = static_cast<int64_t>(known.size());
  // No token follows the last one.
  if (state->request.max_tokens == 0 && !state->pools()) --state->prefill_len;
  state->is_guaranteed = context_->options.admission == AdmissionPolicy::kReserve ||
                         state->preemptions >= kPreemptionsMax;
  const int64_t kept = state->request.session == 0 ? queues_->sessions().num_kept_pages() : 0;
  if (!pages_->windows().CanAdmit(*state, kept)) return Admission::kNoRoom;
  if (!pages_->HasStateSlots()) return Admission::kNoRoom;
  while (!pages_->LockIfRoom(match, WantedPages(*state, match))) {
    if (!DropSessionPrefixFor(*state, match)) return Admission::kNoRoom;
  }
  if (*load_len > 0 && !pages_->MayLoad(*load_len)) {
    pages_->Unlock(match);
    return Admission::kNoRoom;  // not kWaits: requests admitted past it are counted
  }
  Admit(state, std::move(match), *load_len);
  return Admission::kAdmitted;
}

// Sessions keep their prefixes while other requests run, except that a turn of one session may drop
// those of others if that makes enough room. If nothing runs, any request may drop any.
bool PrefillManager::DropSessionPrefixFor(const RequestState& state, const PrefixMatch& match) {
  SessionTable& sessions = queues_->sessions();
  if (pages_->running().empty()) return sessions.DropOldestPrefix();
  const SessionId own = state.request.session;
  if (own == 0) return false;
  if (WantedPages(state, match) > pages_->num_attainable() + sessions.PagesBeside(own)) {
    return false;
  }
  return sessions.DropOldestPrefix(own);
}

int64_t PrefillManager::WantedPages(const RequestState& state, const PrefixMatch& match) const {
  int64_t wanted = state.promised_pages(context_->limits.page_size) -
                   static_cast<int64_t>(match.pages.size()) + pages_->OwedPages();
  if (state.request.session == 0 && !pages_->running().empty()) {
    wanted += queues_->sessions().num_kept_pages();
  }
  return wanted;
}

void PrefillManager::Admit(RequestState* state, PrefixMatch match, int64_t load_len) {
  queues_->waiting().Remove(state);
  queues_->waiting().CountAdmission();
  queues_->adapters().Run(state);
  const auto cached_pages = static_cast<int64_t>(match.cached_pages);
  pages_->Admit(state, std::move(match));
  encoders_->Pass(state);
  state->device_len = static_cast<int64_t>(state->tokens.size());
  state->phase = Phase::kPrefill;
  const RowExtras* const extras = state->request.extras.get();
  state->is_fed = context_->engine_drafts() &&
                  (extras == nullptr || (extras->parts() & ~context_->limits.draft_extras) == 0);
  if (pages_->cache().cache().keeps_pages()) queues_->StartComputing(state);
  if (state->request.session != 0) queues_->sessions().DropPrefix(state->request.session);
  if (load_len > 0) {
    const bool taken = preemptor_->TakePages(state, load_len);
    MINISGL_CHECK(taken, "no pages for the load of request {}", state->request.id);
    state->phase = Phase::kLoading;
    state->load_len = load_len;
    pages_->states().TakeForLoad(state);
    pages_->loader().Begin(state);
  }
  PlanSnapshots(state, cached_pages);
  context_->Note(SchedNote::Kind::kAdmitted, state->request.id, state->cached_len);
  if (state->first_cached_len >= 0) return;
  state->first_cached_len = state->cached_len;
  context_->stats.prompt_tokens += state->prompt_len();
  context_->stats.cached_tokens += state->cached_len;
}

int64_t PrefillManager::ChunkLimit(const RequestState& state) const {
  const WaitingQueue& waiting = queues_->waiting();
  if (waiting.num_ready() == 0 || (state.is_chat() && !waiting.HasChat())) return draft_->budget;
  const int64_t threshold = context_->options.long_prefill_threshold > 0
                                ? context_->options.long_prefill_threshold
                                : std::max(context_->options.max_prefill_tokens / 2, 1);
  return std::min(draft_->budget, threshold);
}

int64_t PrefillManager::BudgetFor(const RequestState& state, int64_t least) const {
  if (state.is_chat()) return draft_->budget < least ? 0 : draft_->budget;
  int64_t budget = std::min(draft_->budget, draft_->batch_budget);
  if (budget < least && least > 1 && !draft_->HasBatchPrompt()) {
    budget = std::min(draft_->budget, least);
  }
  if (budget < least) return 0;
  if (!draft_->is_bounded) return budget;
  if (!draft_->HasRoom(RoomFor(context_->options, state, least))) return 0;
  return std::max(TokensIn(draft_->room, context_->options, state, budget), least);
}

bool PrefillManager::AddChunk(RequestState* state) {
  const int64_t remaining = state->prefill_len - state->launched_len;
  MINISGL_CHECK(remaining > 0, "request {} has no prompt left to compute", state->request.id);
  const int64_t least = state->LeastChunk();
  int64_t count =
      std::min({remaining, std::max(ChunkLimit(*state), least), BudgetFor(*state, least)});
  count = encoders_->Reach(*state, count);
  // Admitted with more keys than there is room for beside a chat, or before a picture that waits.
  if (count < least) {
    return encoders_->Advance(state, least) || encoders_->WaitsForBudget(*state, least);
  }
  // Only the first tokens may preempt another request. If pages are short, the chunk is shorter.
  if (!preemptor_->TakePages(state, least)) return false;
  pages_->MakeAvailable(pages_->MissingPages(*state, count));
  count = std::min(count, pages_->AvailableTokens(*state));
  count = state->BeforeInput(state->launched_len + count) - state->launched_len;
  if (!preemptor_->TakePages(state, count)) return false;
  encoders_->Take(state, count);
  const int64_t room = state->is_chat() ? 0 : RoomFor(context_->options, *state, count);
  draft_->prefill.push_back({state, count, {}, room});
  draft_->room -= room;
  draft_->budget -= count;
  if (!state->is_chat()) draft_->batch_budget -= count;
  return true;
}

}  // namespace minisgl::sched
