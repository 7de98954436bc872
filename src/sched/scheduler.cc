#include "minisgl/sched/scheduler.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "minisgl/base/check.h"
#include "sched/scheduler_impl.h"

namespace minisgl {

namespace {

// Error code reported to every request of a failed step.
const char* FaultCode(StatusCode code) {
  switch (code) {
    case StatusCode::kOutOfMemory:
      return "out_of_memory";
    case StatusCode::kUnavailable:
      return "device_unavailable";
    default:
      return "device_fault";
  }
}

void CheckScored(const BatchPlan& plan, int row, const RowResult& result) {
  if (result.outcome == RowResult::Outcome::kNonFinite) return;
  MINISGL_CHECK(std::ssize(result.scored) == plan.scored_len(row), "{} tokens scored, {} requested",
                result.scored.size(), plan.scored_len(row));
}

}  // namespace

Scheduler::Impl::Impl(const EngineLimits& limits, const SchedulerOptions& options)
    : context(limits, options),
      pages(limits, options),
      encoders(options, limits.encodes_in_pieces),
      queues(limits, options.queue, pages.prefix_cache(), options.adapter_source),
      chat_room(&context),
      preemptor(&context, &pages, &encoders, &queues, &draft),
      prefill(&context, &pages, &encoders, &queues, &draft, &preemptor),
      decode(&context, &pages, &draft, &preemptor) {}

void Scheduler::Impl::Submit(Request request) {
  MINISGL_CHECK(!request.prompt.empty(), "an empty prompt");
  const RequestId id = request.id;
  auto owned = std::make_unique<RequestState>();
  RequestState* state = owned.get();
  state->request = std::move(request);
  state->tokens = state->request.prompt;
  state->is_whole = context.limits.attends_both_ways;
  MINISGL_CHECK(AreMarksOf(state->request.marks, state->prompt_len()),
                "marks of request {} are not in its prompt, or not in order", id);
  if (state->request.constraint != nullptr) SetConstraint(state, state->request.constraint);
  state->scored_len = state->scored_begin();
  const bool may_lack_answer = state->scored_len < state->prompt_len() || state->pools();
  MINISGL_CHECK(state->request.max_tokens >= (may_lack_answer ? 0 : 1), "max_tokens {}",
                state->request.max_tokens);
  MINISGL_CHECK(!state->pools() ||
                    (state->request.max_tokens == 0 && state->scored_len == state->prompt_len()),
                "request {} is pooled, and has an answer or scores", id);
  state->arrival = next_arrival++;
  MINISGL_CHECK(requests.emplace(id, std::move(owned)).second, "request id {} is used twice", id);
  ++context.stats.submitted;
  if (state->request.extras != nullptr && !TakesExtras(state)) return;
  const int64_t length = state->max_device_len();
  const int64_t num_pages = CeilDiv<int64_t>(state->max_kv_len(), context.limits.page_size);
  if (length > context.limits.max_seq_len || num_pages > context.limits.num_pages) {
    const int64_t capacity = int64_t{context.limits.num_pages} * context.limits.page_size + 1;
    End(state, EndReason::kFailed, "length_exceeded",
        fmt::format("a prompt of {} tokens and an answer of up to {} do not fit in {} tokens",
                    state->prompt_len(), state->request.max_tokens,
                    std::min<int64_t>(context.limits.max_seq_len, capacity)));
    return;
  }
  encoders.Add(state);
  if (!FitsWhole(state)) return;
  context.Note(SchedNote::Kind::kQueued, id, state->prompt_len());
  const SessionId session = state->request.session;
  if (session != 0 && !queues.sessions().IsOpen(session)) {
    End(state, EndReason::kAborted);
    return;
  }
  if (state->request.is_gated) state->holds |= sched::kHeldByGate;
  if (session != 0 && !queues.sessions().AddTurn(state)) state->holds |= sched::kHeldByTurn;
  queues.Add(state);
  awaits_turns |= session != 0 && state->is_chat();
}

bool Scheduler::Impl::TakesExtras(RequestState* state) {
  const RowExtras& extras = *state->request.extras;
  const Status status = CheckExtras(extras, state->prompt_len(), state->request.marks);
  MINISGL_CHECK(status.ok(), "request {}: {}", state->request.id, status.message());
  const auto lacking = static_cast<RowExtraSet>(extras.parts() & ~context.limits.extras);
  if (lacking == 0) return true;
  End(state, EndReason::kFailed, "invalid_row",
      fmt::format("the engine cannot run a row with {}", NameOfFirst(lacking)));
  return false;
}

bool Scheduler::Impl::IsGated(RequestId id) const {
  const auto found = requests.find(id);
  return found != requests.end() && found->second->phase == Phase::kWaiting &&
         (found->second->holds & sched::kHeldByGate) != 0;
}

void Scheduler::Impl::SetConstraint(RequestState* state,
                                    std::shared_ptr<TokenConstraint> constraint) {
  state->may_end = constraint->MayEnd();
  state->request.constraint = std::move(constraint);
}

void Scheduler::Impl::OpenGate(RequestId id, std::shared_ptr<TokenConstraint> constraint) {
  if (!IsGated(id)) return;
  RequestState* state = requests.at(id).get();
  if (constraint != nullptr) SetConstraint(state, std::move(constraint));
  queues.waiting().Unhold(state, sched::kHeldByGate);
}

void Scheduler::Impl::FailGate(RequestId id, std::string error_code, std::string error_message) {
  if (!IsGated(id)) return;
  End(requests.at(id).get(), EndReason::kFailed, std::move(error_code), std::move(error_message));
}

void Scheduler::Impl::CloseSession(SessionId id) {
  if (!queues.sessions().IsOpen(id)) return;
  // End turns newest first, so that ending one does not release the next.
  const std::vector<RequestState*> turns = queues.sessions().Turns(id);
  for (auto turn = turns.rbegin(); turn != turns.rend(); ++turn) End(*turn, EndReason::kAborted);
  queues.sessions().Close(id);
  if (queues.sessions().size() == 0) awaits_turns = false;
}

void Scheduler::Impl::EndById(RequestId id, EndReason reason) {
  const auto found = requests.find(id);
  if (found == requests.end() || found->second->phase == Phase::kEnded) return;
  End(found->second.get(), reason);
}

std::shared_ptr<const BatchPlan> Scheduler::Impl::Next() {
  CollectLoads();
  UpdateAdapters();
  pages.saver().CollectSaved();
  if (static_cast<int32_t>(in_flight.size()) >= context.limits.max_in_flight) return nullptr;
  if (!in_flight.empty() && in_flight.back().needs_masks) return nullptr;
  // The lengths that a step with drafts leaves are known only after it is collected.
  if (!in_flight.empty() && (in_flight.back().has_drafts || decode.WantsDrafts())) return nullptr;
  if (HasLongStepBeforeATurn()) return nullptr;
  const int64_t evicted_before = pages.cache().num_evicted();
  prefill.PollKvSource();
  // A step that preempts admits nothing. If that leaves it empty, the next attempt may admit.
  do {
    DraftStep();
  } while (draft.empty() && draft.preempted && !encoders.has_draft());
  const int64_t evicted = pages.cache().num_evicted() - evicted_before;
  if (evicted > 0) context.Note(SchedNote::Kind::kPagesEvicted, 0, evicted);
  if (draft.empty() && !encoders.has_draft()) return nullptr;
  in_flight.push_back(BuildStep());
  return in_flight.back().plan;
}

void Scheduler::Impl::Collect(const StepResult& result) {
  MINISGL_CHECK(!in_flight.empty(), "a step result, but no step in flight");
  MINISGL_CHECK(!in_flight.front().needs_masks, "the result of a step that waits for masks");
  const InFlight step = std::move(in_flight.front());
  in_flight.pop_front();
  MINISGL_CHECK(!result.status.ok() || result.rows.size() == step.rows.size(),
                "{} results for {} rows", result.rows.size(), step.rows.size());
  if (!result.status.ok()) encoders.Invalidate(step.plan->extras.encoded);
  for (size_t row = 0; row < step.rows.size(); ++row) {
    RequestState* state = step.rows[row];
    --state->in_flight;
    if (state->phase == Phase::kEnded) {  // computed ahead: the token is dropped
      ForgetIfDone(state);
      continue;
    }
    if (!result.status.ok()) {
      End(state, EndReason::kFailed, FaultCode(result.status.code()), result.status.message());
      continue;
    }
    CheckScored(*step.plan, static_cast<int>(row), result.rows[row]);
    context.stats.answer_rows += step.plan->wants_token[row];
    CollectRow(state, step.plan->kv_len[row], step.plan->num_drafts[row],
               step.places_made.empty() ? INT32_MAX : step.places_made[row], result.rows[row]);
  }
  if (!result.status.ok()) {
    EndReadersOf(*step.plan, FaultCode(result.status.code()), result.status.message());
  }
  pages.Collected(step.plan->step);
}

void Scheduler::Impl::CountDrafts(int32_t num_drafts, int32_t accepted, bool are_forced) {
  SchedulerStats& stats = context.stats;
  stats.drafted_tokens += num_drafts;
  stats.accepted_drafts += accepted;
  if (are_forced) return;
  for (size_t i = 0; i < kDraftPlaces && std::cmp_less(i, num_drafts); ++i) {
    ++stats.drafted_at[i];
    stats.accepted_at[i] += std::cmp_less(i, accepted) ? 1 : 0;
  }
}

void Scheduler::Impl::CollectRow(RequestState* state, int32_t kv_len, int32_t num_drafts,
                                 int32_t places_made, const RowResult& row) {
  const int64_t known_len = kv_len - num_drafts;
  state->drops_tokens = false;
  // Places after the first one without a mask continue a token that is dropped.
  const auto accepted = std::min(static_cast<int32_t>(row.more.size()), places_made - 1);
  if (num_drafts > 0) {
    MINISGL_CHECK(accepted <= num_drafts, "{} of {} drafts accepted", accepted, num_drafts);
    CountDrafts(num_drafts, std::max(accepted, 0), state->drafts_forced);
    sched::DraftPacer& pacer = state->drafts_forced ? state->forced_pacer : state->pacer;
    if (places_made > num_drafts) {
      pacer.CountVerified(num_drafts, accepted, state->answer_len());
    }
  }
  // Tokens that are accepted and must be computed again, for their state, do not count as computed.
  int64_t state_len = kv_len;
  if ((num_drafts > 0 || accepted < 0) && state->phase != Phase::kWaiting) {
    state_len = RollBack(state, known_len + accepted);
  }
  if (!row.scored.empty() && !CollectScored(state, known_len, row)) return;
  if (!row.vector.empty()) TellVector(*state, row);
  if (accepted < 0) return CollectWithoutMask(state, known_len, state_len, row);
  // Tokens accepted past an end are dropped; `state` may be deleted by then.
  bool goes_on = CollectToken(state, std::min<int64_t>(known_len, state_len), row);
  for (int32_t i = 0; i < accepted && goes_on; ++i) {
    goes_on = CollectToken(state, std::min(known_len + 1 + i, state_len),
                           row.more[static_cast<size_t>(i)]);
  }
  if (goes_on && state_len < known_len + accepted) ComputeAgain(state);
  // Other tokens came than those after which a mask is being made.
  if (goes_on && state->awaited_mask != static_cast<int64_t>(state->tokens.size())) {
    state->awaited_mask = -1;
  }
  if (goes_on) DropIfUnmasked(state);
  if (goes_on && state->request.wants_progress) TellProgress(*state);
  if (!goes_on || state->request.max_tokens > 0) return;
  const bool is_done =
      state->pools() ? !row.vector.empty() : state->scored_len == state->prompt_len();
  if (is_done) End(state, EndReason::kLength);
}

void Scheduler::Impl::TellVector(const RequestState& state, const RowResult& row) {
  SchedEvent event;
  event.id = state.request.id;
  event.kind = SchedEvent::Kind::kVector;
  event.token.vector = row.vector;
  events.push_back(std::move(event));
}

void Scheduler::Impl::TellProgress(const RequestState& state) {
  if (state.phase != Phase::kPrefill || state.answer_len() > 0) return;
  SchedEvent event;
  event.id = state.request.id;
  event.kind = SchedEvent::Kind::kPrompt;
  event.computed_tokens = state.computed_len;
  events.push_back(std::move(event));
}

bool Scheduler::Impl::CollectScored(RequestState* state, int64_t computed_len,
                                    const RowResult& row) {
  for (const RowResult& scored : row.scored) {
    if (scored.outcome == RowResult::Outcome::kToken) continue;
    EndNonFinite(state, computed_len);
    return false;
  }
  state->scored_len += std::ssize(row.scored);
  context.stats.scored_tokens += std::ssize(row.scored);
  SchedEvent event;
  event.id = state->request.id;
  event.kind = SchedEvent::Kind::kScored;
  event.scored = row.scored;
  events.push_back(std::move(event));
  return true;
}

void Scheduler::Impl::EndNonFinite(RequestState* state, int64_t computed_len) {
  End(state, EndReason::kFailed, "nan_logits",
      fmt::format("the model gave logits that are not finite after {} tokens", computed_len));
}

int64_t Scheduler::Impl::RollBack(RequestState* state, int64_t launched_len) {
  MINISGL_CHECK(state->in_flight == 0, "request {} is rolled back with a step in flight",
                state->request.id);
  const int64_t state_len = pages.states().RollBack(state, launched_len);
  pages.SetLaunched(state, state_len);
  state->device_len = launched_len + 1;
  return state_len;
}

void Scheduler::Impl::ComputeAgain(RequestState* state) {
  state->phase = Phase::kPrefill;
  state->prefill_len = state->device_len = static_cast<int64_t>(state->tokens.size());
}

bool Scheduler::Impl::CollectToken(RequestState* state, int64_t computed_len,
                                   const RowResult& row) {
  // Non-finite logits may come from non-finite keys, and such pages must not be shared.
  if (row.outcome == RowResult::Outcome::kNonFinite) {
    if (IsStuck(*state)) {
      End(state, EndReason::kFailed, "invalid_grammar",
          fmt::format("no token of the vocabulary may follow the {} of the answer so far",
                      state->answer_len()));
    } else {
      EndNonFinite(state, computed_len);
    }
    return false;
  }
  // If it was preempted since, its pages are gone; the token stays.
  if (state->phase != Phase::kWaiting) {
    state->computed_len = std::max(state->computed_len, computed_len);
    encoders.Pass(state);
    InsertComputedPages(state);
    pages.Advance(state);
  }
  return row.outcome != RowResult::Outcome::kToken || AcceptToken(state, row);
}

void Scheduler::Impl::CollectLoads() {
  for (const KvLoadResult& result : pages.loader().TakeFinished()) {
    const auto found = requests.find(result.id);
    MINISGL_CHECK(found != requests.end(), "a load of request {} ended that never began",
                  result.id);
    RequestState* state = found->second.get();
    pages.loader().Finish(state);
    if (state->phase == Phase::kLoading) {
      CollectLoad(state, result);
    } else {
      pages.states().EndLoad(state, false);
      ForgetIfDone(state);
    }
  }
}

void Scheduler::Impl::UpdateAdapters() {
  for (const AdapterLoad& load : queues.adapters().Update(&queues.waiting())) {
    for (RequestState* state : queues.adapters().WaitingFor(load.adapter)) {
      End(state, EndReason::kFailed, "adapter_load_failed", load.error);
    }
  }
}

void Scheduler::Impl::CollectLoad(RequestState* state, const KvLoadResult& result) {
  const int64_t page_size = context.limits.page_size;
  int64_t loaded =
      std::clamp<int64_t>(result.num_tokens, 0, state->load_len) / page_size * page_size;
  // A picture that is computed whole is computed from its beginning on.
  loaded = pages.WholeLength(*state, state->launched_len + loaded) - state->launched_len;
  // Without the state after them all are computed again.
  const bool has_states = pages.states().pool() != nullptr;
  if (has_states && loaded < state->load_len) {
    loaded = 0;
    pages.states().EndLoad(state, false);
  }
  context.stats.loaded_states += has_states && loaded > 0 ? 1 : 0;
  context.stats.loaded_tokens += loaded;
  const int64_t missing = state->load_len - loaded;
  const int64_t load_end = state->launched_len + state->load_len;
  if (state->preemptions == 0) {  // its first admission
    state->first_cached_len += loaded;
    context.stats.cached_tokens += loaded;
  }
  state->load_len = 0;
  state->phase = Phase::kPrefill;
  pages.SetLaunched(state, state->launched_len + loaded);
  if (result.failed) {
    ++context.stats.failed_loads;
    if (context.options.kv_failure == KvFailurePolicy::kFail) {
      End(state, EndReason::kFailed, "kv_load_failed",
          fmt::format("{} tokens of the prompt's keys could not be loaded", missing));
      return;
    }
  }
  if (missing > 0) pages.states().Want(state, load_end);  // as it was not to be had
  state->computed_len = state->launched_len;
  encoders.Pass(state);
  InsertComputedPages(state);
  pages.states().EndLoad(state, true);
}

bool Scheduler::Impl::AcceptToken(RequestState* state, const RowResult& row) {
  if (row.token < 0 || row.token >= context.limits.vocab_size) {
    End(state, EndReason::kFailed, "internal",
        fmt::format("the engine sampled token {}, outside the vocabulary of {}", row.token,
                    context.limits.vocab_size));
    return false;
  }
  TokenConstraint* const constraint = state->request.constraint.get();
  if (constraint != nullptr && !constraint->Accept(row.token)) {
    End(state, EndReason::kFailed, "internal",
        fmt::format("the engine sampled token {}, which the grammar does not allow", row.token));
    return false;
  }
  state->tokens.push_back(row.token);
  ++context.stats.generated_tokens;
  SchedEvent event;
  event.id = state->request.id;
  event.kind = SchedEvent::Kind::kToken;
  event.token.outcome = row.outcome;
  event.token.token = row.token;
  event.token.logprob = row.logprob;
  event.token.top_logprobs = row.top_logprobs;
  events.push_back(std::move(event));
  const auto& stops = state->request.stop_ids;
  if (std::binary_search(stops.begin(), stops.end(), row.token)) {
    End(state, EndReason::kStopToken);
    return false;
  }
  if (constraint != nullptr) {
    state->may_end = constraint->MayEnd();
    if (constraint->MustEnd()) {
      End(state, EndReason::kStopToken);
      return false;
    }
  }
  if (state->answer_len() == state->request.max_tokens) {
    End(state, EndReason::kLength);
    return false;
  }
  return true;
}

void Scheduler::Impl::InsertComputedPages(RequestState* state) {
  if (pages.WholePages(*state) <= state->tree_pages) return;
  std::optional<StepId> fence;
  if (!in_flight.empty()) fence = pages.last_launched();
  const sched::InsertedPages inserted = pages.InsertComputed(state, fence);
  queues.StopComputing(*state, inserted.first, inserted.end);
  context.stats.remapped_pages += inserted.num_remapped;
  const int64_t stored = inserted.end - inserted.first - inserted.num_remapped;
  if (stored > 0) context.Note(SchedNote::Kind::kPagesStored, state->request.id, stored);
}

void Scheduler::Impl::End(RequestState* state, EndReason reason, std::string error_code,
                          std::string error_message) {
  MINISGL_CHECK(state->phase != Phase::kEnded, "request {} ends twice", state->request.id);
  queues.Remove(state);
  state->phase = Phase::kEnded;
  EndTurn(state, reason);
  const bool is_kept = state->holds_lock && reason != EndReason::kFailed;
  PrefixNode* const kept = is_kept ? pages.saver().LockFor(*state) : nullptr;
  if (state->table_row >= 0) preemptor.Release(state);
  encoders.Remove(state);
  pages.saver().Offer(*state, kept);
  if (context.options.kv_source != nullptr) context.options.kv_source->Forget(state->request.id);
  if (context.options.drafter != nullptr) context.options.drafter->Forget(state->request.id);
  SchedEvent event;
  event.id = state->request.id;
  event.kind = SchedEvent::Kind::kEnd;
  event.reason = reason;
  event.error_code = std::move(error_code);
  event.error_message = std::move(error_message);
  event.cut_in_constraint = state->request.constraint != nullptr && !state->may_end;
  event.cached_tokens = std::max<int64_t>(state->first_cached_len, 0);
  events.push_back(std::move(event));
  switch (reason) {
    case EndReason::kFailed:
      ++context.stats.failed;
      break;
    case EndReason::kAborted:
    case EndReason::kTimedOut:
      ++context.stats.aborted;
      break;
    default:
      ++context.stats.finished;
  }
  ForgetIfDone(state);
}

void Scheduler::Impl::EndTurn(RequestState* state, EndReason reason) {
  const SessionId id = state->request.session;
  if (id == 0 || !queues.sessions().IsOpen(id)) return;
  const bool keeps_pages = pages.cache().cache().keeps_pages();
  if (state->holds_lock && reason != EndReason::kFailed && keeps_pages) {
    queues.sessions().Keep(id, state->node, state->tree_pages);
  }
  RequestState* next = queues.sessions().EndTurn(state);
  if (next != nullptr) queues.waiting().Unhold(next, sched::kHeldByTurn);
}

void Scheduler::Impl::ForgetIfDone(RequestState* state) {
  if (state->phase == Phase::kEnded && state->in_flight == 0 && !state->is_loading) {
    requests.erase(state->request.id);
  }
}

bool Scheduler::Impl::WaitsOutside() const {
  if (!in_flight.empty() || requests.empty()) return false;
  // A request may run after the source frees these.
  if (pages.loader().num_abandoned_pages() > 0 || pages.saver().num_dropping() > 0) return true;
  bool any_mask = false, any_picture = false;
  for (const RequestState* state : pages.running()) {
    const bool awaits_mask = state->phase != Phase::kLoading && state->LacksMask();
    // It waits for room in the encoder cache, which a request that awaits its mask takes.
    const bool awaits_picture = state->phase == Phase::kPrefill && !awaits_mask &&
                                encoders.Reach(*state, state->LeastChunk()) < state->LeastChunk();
    if (!awaits_mask && !awaits_picture && state->phase != Phase::kLoading) return false;
    any_mask = any_mask || awaits_mask;
    any_picture = any_picture || awaits_picture;
  }
  if (any_picture) return any_mask;
  return any_mask || pages.loader().num_loading() > 0 || queues.waiting().num_ready() == 0;
}

Scheduler::Scheduler(const EngineLimits& limits, const SchedulerOptions& options)
    : impl_(std::make_unique<Impl>(limits, options)) {}

Scheduler::~Scheduler() {
  // The cache checks when it is destroyed that no lock is left.
  PrefixCache* cache = impl_->pages.prefix_cache();
  for (PrefixNode* node : impl_->queues.sessions().Locks()) cache->Unlock(node);
  impl_->pages.UnlockAll();
}

void Scheduler::Submit(Request request) {
  impl_->Checked([&] { impl_->Submit(std::move(request)); });
}

void Scheduler::Abort(RequestId id) {
  impl_->Checked([&] { impl_->EndById(id, EndReason::kAborted); });
}

void Scheduler::Stop(RequestId id) {
  impl_->Checked([&] { impl_->EndById(id, EndReason::kStopped); });
}

void Scheduler::TimeOut(RequestId id) {
  impl_->Checked([&] { impl_->EndById(id, EndReason::kTimedOut); });
}

void Scheduler::OpenGate(RequestId id, std::shared_ptr<TokenConstraint> constraint) {
  impl_->Checked([&] { impl_->OpenGate(id, std::move(constraint)); });
}

void Scheduler::FailGate(RequestId id, std::string error_code, std::string error_message) {
  impl_->Checked([&] { impl_->FailGate(id, std::move(error_code), std::move(error_message)); });
}

void Scheduler::MaskReady(RequestId id) {
  impl_->Checked([&] { impl_->MaskReady(id); });
}

void Scheduler::OpenSession(SessionId id) {
  impl_->Checked([&] { impl_->queues.sessions().Open(id); });
}

void Scheduler::CloseSession(SessionId id) {
  impl_->Checked([&] { impl_->CloseSession(id); });
}

std::optional<StepMasks> Scheduler::TakeMasks(Engine* engine) { return impl_->TakeMasks(engine); }

std::shared_ptr<const BatchPlan> Scheduler::Next() {
  std::shared_ptr<const BatchPlan> plan;
  impl_->Checked([&] { plan = impl_->Next(); });
  return plan;
}

void Scheduler::Collect(const StepResult& result) {
  impl_->Checked([&] { impl_->Collect(result); });
}

std::vector<SchedEvent> Scheduler::TakeEvents() { return std::exchange(impl_->events, {}); }

std::vector<SchedNote> Scheduler::TakeNotes() { return std::exchange(impl_->context.notes, {}); }

bool Scheduler::HasInFlight() const { return !impl_->in_flight.empty(); }

bool Scheduler::Idle() const { return impl_->requests.empty() && impl_->in_flight.empty(); }

bool Scheduler::Saving() const { return impl_->pages.saver().num_saves() > 0; }

void Scheduler::DropSaves() {
  impl_->Checked([&] {
    while (impl_->pages.saver().DropOne()) {
    }
  });
}

bool Scheduler::WaitsOutside() const { return impl_->WaitsOutside(); }

int64_t Scheduler::ResetPrefixCache() {
  while (impl_->queues.sessions().DropOldestPrefix()) continue;
  const int64_t kept = impl_->pages.ResetCache();
  impl_->context.Note(SchedNote::Kind::kCacheReset, 0, kept);
  CacheObserver* observer = impl_->context.options.cache_observer;
  if (observer != nullptr) observer->Reset(kept);
  return kept;
}

void Scheduler::CheckInvariants() const { impl_->CheckInvariants(); }

}  // namespace minisgl
