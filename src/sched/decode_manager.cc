#include "sched/decode_manager.h"

#include <algorithm>
#include <vector>

#include "minisgl/base/check.h"

namespace minisgl::sched {

bool DecodeManager::WantsDrafts(const RequestState& state) const {
  return context_->options.max_drafts > 0 && state.CanLaunchDecode() &&
         state.device_len + 1 < state.max_device_len() && state.pacer.Wants(state.answer_len());
}

bool DecodeManager::TooManyToDraft() const {
  const auto decodes = [](const RequestState* state) { return state->phase == Phase::kDecode; };
  const std::vector<RequestState*>& running = pages_->running();
  return std::count_if(running.begin(), running.end(), decodes) > kDraftRowsMax;
}

bool DecodeManager::WantsDrafts() const {
  if (context_->options.max_drafts == 0 || TooManyToDraft()) return false;
  // If prompts took the whole budget of the last step, the next has none left for drafts either.
  if (draft_->budget == 0) return false;
  const std::vector<RequestState*>& running = pages_->running();
  return std::any_of(running.begin(), running.end(),
                     [this](const RequestState* state) { return WantsDrafts(*state); });
}

void DecodeManager::Schedule() {
  const std::vector<RequestState*> running = pages_->running();  // a copy: preemption changes it
  for (RequestState* state : running) {
    // A row whose token in flight completes its length is never launched again. A row whose next
    // page is freed only after a step in flight skips this step; so does one that was preempted for
    // an earlier row.
    if (state->CanLaunchDecode() && preemptor_->TakePages(state, 1)) {
      draft_->decode.push_back({state, 1, {}});
    }
  }
}

void DecodeManager::AddDrafts() {
  StepDraft& draft = *draft_;
  if (context_->options.max_drafts == 0 || draft.decode.empty() || TooManyToDraft()) return;
  int64_t most = std::min<int64_t>(draft.budget, context_->limits.max_step_drafts);
  for (StepDraft::Row& row : draft.decode) {
    if (most <= 0) return;
    if (row.state->in_flight > 0 || !WantsDrafts(*row.state)) continue;
    AddDraftsTo(&row, most);
    most -= static_cast<int64_t>(row.drafts.size());
  }
}

// Drafts take only available pages: no request is preempted and no session loses its prefix.
void DecodeManager::AddDraftsTo(StepDraft::Row* row, int64_t most) {
  RequestState* state = row->state;
  const int64_t room = pages_->AvailableTokens(*state) - 1;
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
  MINISGL_CHECK(num_drafts <= count, "{} drafts, {} requested", num_drafts, count);
  row->count += num_drafts;
  const bool taken = preemptor_->TakePages(state, row->count);
  MINISGL_CHECK(taken, "no pages for drafts of request {}", state->request.id);
}

}  // namespace minisgl::sched
