#include "minisgl/sched/scheduler.h"

#include <algorithm>

#include "minisgl/base/check.h"
#include "sched/scheduler_impl.h"

namespace minisgl {

Scheduler::Impl::Impl(const EngineLimits& limits, const SchedulerOptions& options)
    : context(limits, options), prefill(&context), decode(&context) {}

void Scheduler::Impl::Submit(Request request) {
  MINISGL_CHECK(!request.prompt.empty(), "an empty prompt");
  MINISGL_CHECK(request.max_tokens >= 1, "max_tokens {}", request.max_tokens);
  const RequestId id = request.id;
  auto owned = std::make_unique<RequestState>();
  RequestState* state = owned.get();
  state->request = std::move(request);
  state->tokens = state->request.prompt;
  state->arrival = next_arrival++;
  MINISGL_CHECK(requests.emplace(id, std::move(owned)).second, "request id {} is used twice", id);
  ++context.stats.submitted;
  const int64_t length = state->max_device_len();
  const int64_t pages = CeilDiv<int64_t>(state->max_kv_len(), context.limits.page_size);
  if (length > context.limits.max_seq_len || pages > context.limits.num_pages) {
    const int64_t capacity = int64_t{context.limits.num_pages} * context.limits.page_size + 1;
    End(state, EndReason::kFailed, "length_exceeded",
        fmt::format("a prompt of {} tokens and an answer of up to {} do not fit in {} tokens",
                    state->prompt_len(), state->request.max_tokens,
                    std::min<int64_t>(context.limits.max_seq_len, capacity)));
    return;
  }
  context.waiting.Add(state);
}

void Scheduler::Impl::EndById(RequestId id, EndReason reason) {
  const auto found = requests.find(id);
  if (found == requests.end() || found->second->phase == Phase::kEnded) return;
  End(found->second.get(), reason);
}

std::shared_ptr<const BatchPlan> Scheduler::Impl::Next() {
  if (static_cast<int32_t>(in_flight.size()) >= context.limits.max_in_flight) return nullptr;
  StepDraft& draft = context.draft;
  draft = StepDraft();
  draft.budget = context.options.max_prefill_tokens;
  if (context.options.step == StepPolicy::kMixed) {
    decode.Schedule();
    prefill.Schedule();
  } else {
    prefill.Schedule();
    if (draft.prefill.empty()) decode.Schedule();
  }
  if (draft.decode.empty() && draft.prefill.empty()) return nullptr;
  in_flight.push_back(BuildStep());
  return in_flight.back().plan;
}

// Turns the draft into a plan: from here on its rows are launched.
Scheduler::Impl::InFlight Scheduler::Impl::BuildStep() {
  PlanBuilder builder(next_step, context.limits.page_size);
  for (const StepDraft::Row& row : context.draft.decode) builder.AddRow(row.state, row.count, true);
  for (const StepDraft::Row& row : context.draft.prefill) {
    const bool is_last = row.state->launched_len + row.count == row.state->prefill_len;
    builder.AddRow(row.state, row.count, is_last);
    if (is_last) row.state->phase = Phase::kDecode;
    context.stats.computed_tokens += row.count;
  }
  context.last_launched = next_step++;
  ++context.stats.steps;
  context.stats.prefill_steps += context.draft.prefill.empty() ? 0 : 1;
  InFlight step;
  step.rows = builder.TakeRows();
  step.plan = builder.Finish();
  if (context.options.check_invariants) {
    for (const RequestState* state : step.rows) {
      step.pages_in_use.insert(step.pages_in_use.end(), state->pages.begin() + state->tree_pages,
                               state->pages.end());
    }
  }
  return step;
}

void Scheduler::Impl::Collect(const StepResult& result) {
  MINISGL_CHECK(!in_flight.empty(), "a result without a step in flight");
  const InFlight step = std::move(in_flight.front());
  in_flight.pop_front();
  MINISGL_CHECK(!result.status.ok() || result.rows.size() == step.rows.size(),
                "{} results for {} rows", result.rows.size(), step.rows.size());
  for (size_t row = 0; row < step.rows.size(); ++row) {
    RequestState* state = step.rows[row];
    --state->in_flight;
    if (state->phase == Phase::kEnded) {  // computed ahead: the token is dropped
      ForgetIfDone(state);
      continue;
    }
    if (!result.status.ok()) {
      End(state, EndReason::kFailed, "device_fault", result.status.message());
      continue;
    }
    CollectRow(state, step.plan->kv_len[row], result.rows[row]);
  }
  context.cache.Collected(step.plan->step);
  context.table.Collected(step.plan->step);
}

void Scheduler::Impl::CollectRow(RequestState* state, int32_t kv_len, const RowResult& row) {
  // Non-finite logits may come from non-finite keys: such pages must not be shared.
  if (row.outcome == RowResult::Outcome::kNonFinite) {
    End(state, EndReason::kFailed, "nan_logits",
        fmt::format("the model gave logits that are not finite after {} tokens", kv_len));
    return;
  }
  // Preempted since: its pages are gone, the token stays.
  if (state->phase != Phase::kWaiting) {
    state->computed_len = std::max<int64_t>(state->computed_len, kv_len);
    InsertComputedPages(state);
  }
  if (row.outcome == RowResult::Outcome::kToken) AcceptToken(state, row);
}

void Scheduler::Impl::AcceptToken(RequestState* state, const RowResult& row) {
  if (row.token < 0 || row.token >= context.limits.vocab_size) {
    End(state, EndReason::kFailed, "internal",
        fmt::format("the engine sampled token {}, outside the vocabulary of {}", row.token,
                    context.limits.vocab_size));
    return;
  }
  state->tokens.push_back(row.token);
  ++context.stats.generated_tokens;
  SchedEvent event;
  event.id = state->request.id;
  event.kind = SchedEvent::Kind::kToken;
  event.token = row;
  events.push_back(std::move(event));
  const auto& stops = state->request.stop_ids;
  if (std::binary_search(stops.begin(), stops.end(), row.token)) {
    End(state, EndReason::kStopToken);
  } else if (state->answer_len() == state->request.max_tokens) {
    End(state, EndReason::kLength);
  }
}

// Who owns what, in page indices, before and after:
//   before  [0, tree) the cache, locked;   [tree, whole) its own, written and whole;   [whole, end)
//   its own after   [0, whole) the cache, locked;  [whole, end) its own
// Where the cache had a page of [tree, whole) already, the request's entry becomes the cache's page
// and its own one waits behind the last launched step, which may still read it.
void Scheduler::Impl::InsertComputedPages(RequestState* state) {
  const int32_t page_size = context.limits.page_size;
  const auto whole = static_cast<int32_t>(state->computed_len / page_size);
  if (whole <= state->tree_pages || !context.cache.cache().keeps_pages()) return;
  const auto num_tokens = static_cast<size_t>(whole) * static_cast<size_t>(page_size);
  const auto num_pages = static_cast<size_t>(whole);
  PrefixCache& cache = context.cache.cache();
  const PrefixInsertion insertion =
      cache.Insert(state->node, state->tree_pages, std::span(state->tokens).first(num_tokens),
                   std::span<const PageId>(state->pages).first(num_pages));
  std::vector<PageId> duplicates;
  for (int32_t page = state->tree_pages; page < whole; ++page) {
    const PageId held = insertion.pages[static_cast<size_t>(page - state->tree_pages)];
    PageId& mine = state->pages[static_cast<size_t>(page)];
    if (mine == held) continue;
    duplicates.push_back(mine);
    mine = held;
    state->clean_pages = std::min(state->clean_pages, page);
  }
  cache.Lock(insertion.node);
  cache.Unlock(state->node);
  state->node = insertion.node;
  context.Unregister(state, whole);
  state->tree_pages = whole;
  context.stats.remapped_pages += static_cast<int64_t>(duplicates.size());
  if (in_flight.empty()) {
    context.cache.Give(duplicates);
  } else {
    context.cache.GiveAfter(context.last_launched, duplicates);
  }
}

void Scheduler::Impl::End(RequestState* state, EndReason reason, std::string error_code,
                          std::string error_message) {
  MINISGL_CHECK(state->phase != Phase::kEnded, "request {} ends twice", state->request.id);
  if (context.waiting.Contains(state)) context.waiting.Remove(state);
  state->phase = Phase::kEnded;
  if (state->table_row >= 0) context.Release(state);
  SchedEvent event;
  event.id = state->request.id;
  event.kind = SchedEvent::Kind::kEnd;
  event.reason = reason;
  event.error_code = std::move(error_code);
  event.error_message = std::move(error_message);
  event.cached_tokens = std::max<int64_t>(state->first_cached_len, 0);
  events.push_back(std::move(event));
  switch (reason) {
    case EndReason::kFailed:
      ++context.stats.failed;
      break;
    case EndReason::kAborted:
      ++context.stats.aborted;
      break;
    default:
      ++context.stats.finished;
  }
  ForgetIfDone(state);
}

void Scheduler::Impl::ForgetIfDone(RequestState* state) {
  if (state->phase == Phase::kEnded && state->in_flight == 0) requests.erase(state->request.id);
}

Scheduler::Scheduler(const EngineLimits& limits, const SchedulerOptions& options)
    : impl_(std::make_unique<Impl>(limits, options)) {}

Scheduler::~Scheduler() {
  // Locks are the cache's business until the last: whoever still runs lets go.
  for (RequestState* state : impl_->context.running) {
    if (state->holds_lock) impl_->context.cache.cache().Unlock(state->node);
  }
}

void Scheduler::Submit(Request request) {
  impl_->Submit(std::move(request));
  if (impl_->context.options.check_invariants) CheckInvariants();
}

void Scheduler::Abort(RequestId id) {
  impl_->EndById(id, EndReason::kAborted);
  if (impl_->context.options.check_invariants) CheckInvariants();
}

void Scheduler::Stop(RequestId id) {
  impl_->EndById(id, EndReason::kStopped);
  if (impl_->context.options.check_invariants) CheckInvariants();
}

std::shared_ptr<const BatchPlan> Scheduler::Next() {
  auto plan = impl_->Next();
  if (impl_->context.options.check_invariants) CheckInvariants();
  return plan;
}

void Scheduler::Collect(const StepResult& result) {
  impl_->Collect(result);
  if (impl_->context.options.check_invariants) CheckInvariants();
}

std::vector<SchedEvent> Scheduler::TakeEvents() { return std::exchange(impl_->events, {}); }

bool Scheduler::HasInFlight() const { return !impl_->in_flight.empty(); }

bool Scheduler::Idle() const { return impl_->requests.empty() && impl_->in_flight.empty(); }

SchedulerStats Scheduler::Stats() const {
  SchedulerStats stats = impl_->context.stats;
  const CacheManager& cache = impl_->context.cache;
  stats.waiting = static_cast<int64_t>(impl_->context.waiting.size());
  stats.running = static_cast<int64_t>(impl_->context.running.size());
  stats.pages_total = cache.pool().num_pages();
  stats.pages_free = cache.pool().num_free();
  stats.pages_cached = cache.cache().num_evictable() + cache.cache().num_locked();
  stats.pages_locked = cache.cache().num_locked();
  stats.evicted_pages = cache.num_evicted();
  return stats;
}

int64_t Scheduler::ResetPrefixCache() { return impl_->context.cache.Reset(); }

void Scheduler::CheckInvariants() const { impl_->CheckInvariants(); }

}  // namespace minisgl
