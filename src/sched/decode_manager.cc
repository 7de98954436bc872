// One token for every running request whose answer goes on, and guesses of those that follow.
//
// A guess continues tokens that are known, so a request with a step in flight cannot be given one.
// Planning it without would halve what drafting gains, and letting it sit out would split the batch
// into halves that alternate; so while anybody drafts, a step is planned when the one before it has
// been collected, and steps overlap again as soon as nobody does.
#include "sched/decode_manager.h"

#include <algorithm>

#include "minisgl/base/check.h"

namespace minisgl {
bool DecodeManager::WantsDrafts(const RequestState& state) const {
  return context_->options.max_drafts > 0 && state.CanLaunchDecode() &&
         state.device_len + 1 < state.max_device_len() && state.pacer.Wants(state.answer_len());
}

bool DecodeManager::TooManyToDraft() const {
  const auto decodes = [](const RequestState* state) { return state->phase == Phase::kDecode; };
  return std::count_if(context_->running.begin(), context_->running.end(), decodes) > kDraftRowsMax;
}

bool DecodeManager::AnyoneDrafts() const {
  if (context_->options.max_drafts == 0 || TooManyToDraft()) return false;
  // Where prompts took all of the last step, there is nothing left for guesses in the next either.
  if (context_->draft.budget == 0) return false;
  return std::any_of(context_->running.begin(), context_->running.end(),
                     [this](const RequestState* state) { return WantsDrafts(*state); });
}

void DecodeManager::Schedule() {
  const std::vector<RequestState*> running =
      context_->running;  // preemption takes out of the real one
  for (RequestState* state : running) {
    // A row whose token in flight completes its length is never launched again. A row whose next
    // page waits behind a fence sits this step out; so does one that was preempted for an earlier
    // row.
    if (state->CanLaunchDecode() && context_->TakePagesFor(state, 1)) {
      context_->draft.decode.push_back({state, 1, {}});
    }
  }
}

void DecodeManager::AddDrafts() {
  StepDraft& draft = context_->draft;
  if (context_->options.max_drafts == 0 || draft.decode.empty() || TooManyToDraft()) return;
  int64_t most = std::min<int64_t>(draft.budget, context_->limits.max_step_drafts);
  for (StepDraft::Row& row : draft.decode) {
    if (most <= 0) return;
    if (row.state->in_flight > 0 || !WantsDrafts(*row.state)) continue;
    AddDraftsTo(&row, most);
    most -= static_cast<int64_t>(row.drafts.size());
  }
}

// Nobody is preempted for a guess, and no session loses its prefix: it takes pages nobody holds.
void DecodeManager::AddDraftsTo(StepDraft::Row* row, int64_t most) {
  RequestState* state = row->state;
  const int64_t room = context_->TokensWithinReach(*state) - 1;
  const int64_t count = std::min({most, room, state->max_device_len() - state->device_len - 1,
                                  int64_t{state->pacer.length(context_->options.max_drafts)}});
  if (count <= 0) return;
  context_->options.drafter->Draft(state->request.id, state->tokens, static_cast<int32_t>(count),
                                   &row->drafts);
  if (row->drafts.empty()) {
    state->pacer.CountNoGuess(state->answer_len());
    return;
  }
  const auto num_drafts = static_cast<int64_t>(row->drafts.size());
  MINISGL_CHECK(num_drafts <= count, "{} drafts, {} asked for", num_drafts, count);
  row->count += num_drafts;
  const bool taken = context_->TakePagesFor(state, row->count);
  MINISGL_CHECK(taken, "no pages for drafts of request {}", state->request.id);
}

}  // namespace minisgl
