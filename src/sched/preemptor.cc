#include "sched/preemptor.h"

#include "minisgl/base/check.h"

namespace minisgl::sched {

bool Preemptor::TakePages(RequestState* state, int64_t count) {
  const int32_t missing = pages_->MissingPages(*state, count);
  if (missing <= 0) return true;
  const WindowLedger& windows = pages_->windows();
  if (!windows.MayTake(*state, missing)) return false;
  // Pages that wait for a step in flight do not count as short: else every retry would preempt one
  // more request.
  while (pages_->IsShortOf(missing)) {
    // Sessions claim no window pages.
    if (!windows.IsShortOf(missing) && queues_->sessions().DropOldestPrefix()) continue;
    RequestState* victim = PickVictim();
    MINISGL_CHECK(victim != nullptr, "I8: pages promised to request {} are missing",
                  state->request.id);
    Preempt(victim);
    if (victim == state) return false;
  }
  return pages_->Take(state, missing);
}

bool Preemptor::PreemptFor(const RequestState& state) {
  if (!state.is_chat() || pages_->table().num_deferred() > 0 || pages_->num_pending_free() > 0 ||
      pages_->saver().num_dropping() > 0) {
    return false;
  }
  RequestState* victim = PickVictim();
  if (victim == nullptr || victim->queue_class <= state.queue_class) return false;
  Preempt(victim);
  return true;
}

RequestState* Preemptor::PickVictim() const {
  RequestState* victim = nullptr;
  // In order of admission: the last of the lowest class wins.
  for (RequestState* state : pages_->running()) {
    if (state->is_guaranteed) continue;
    if (victim != nullptr && state->is_loading != victim->is_loading) {
      if (victim->is_loading) victim = state;
      continue;
    }
    if (victim == nullptr || state->queue_class >= victim->queue_class) victim = state;
  }
  return victim;
}

void Preemptor::Preempt(RequestState* state) {
  MINISGL_CHECK(!state->is_guaranteed && state->preemptions < kPreemptionsMax,
                "request {} may not be preempted", state->request.id);
  draft_->Withdraw(state);
  draft_->preempted = true;
  Release(state);
  ++state->preemptions;
  ++context_->stats.preemptions;
  state->phase = Phase::kWaiting;
  state->in_token_pool = false;
  state->clean_pages = 0;
  queues_->adapters().Leave(state);
  queues_->Add(state);
  context_->Note(SchedNote::Kind::kPreempted, state->request.id, state->preemptions);
}

void Preemptor::Release(RequestState* state) {
  queues_->StopComputing(*state, state->tree_pages, state->registered_pages);
  state->registered_pages = 0;
  pages_->Release(state);
  encoders_->Release(state);
}

}  // namespace minisgl::sched
