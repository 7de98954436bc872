#include "sched/decode_manager.h"

#include <algorithm>
#include <unordered_set>
#include <vector>

#include "minisgl/base/check.h"
#include "sched/chat_room.h"
#include "sched/constrained_rows.h"

namespace minisgl::sched {
namespace {

// Fewer forced tokens past those in flight are not worth a step that overlaps with none.
constexpr int64_t kForcedWorthWaiting = 3;

}  // namespace

bool DecodeManager::WantsDrafts(const RequestState& state) const {
  if (context_->engine_drafts() && !state.is_fed) return false;
  return context_->options.max_drafts > 0 && state.CanLaunchDecode() &&
         state.device_len + 1 < state.max_device_len() && state.pacer.Wants(state.answer_len());
}

// The tokens that the steps in flight sample are probably the first of those.
int64_t DecodeManager::NumForced(RequestState* state) const {
  if (state->request.constraint == nullptr || context_->limits.max_step_drafts == 0 ||
      !state->CanLaunchDecode() || !state->forced_pacer.Wants(state->answer_len())) {
    return 0;
  }
  const int64_t in_flight = state->device_len - static_cast<int64_t>(state->tokens.size());
  return std::ssize(ForcedTokens(state)) - in_flight;
}

bool DecodeManager::TooManyToDraft() const {
  const int64_t most = context_->options.max_draft_rows;
  if (draft_->is_bounded) return std::ssize(draft_->decode) > most;
  const auto decodes = [](const RequestState* state) { return state->phase == Phase::kDecode; };
  const std::vector<RequestState*>& running = pages_->running();
  return std::count_if(running.begin(), running.end(), decodes) > most;
}

bool DecodeManager::WantsDrafts() const {
  // If prompts took the whole budget of the last step, the next has none left for drafts either.
  if (draft_->budget == 0) return false;
  const bool guesses = context_->options.max_drafts > 0 && !TooManyToDraft();
  const std::vector<RequestState*>& running = pages_->running();
  return std::any_of(running.begin(), running.end(), [&](RequestState* state) {
    if (draft_->is_bounded && !state->is_chat()) return false;
    return (guesses && WantsDrafts(*state)) || NumForced(state) >= kForcedWorthWaiting;
  });
}

void DecodeManager::Schedule() {
  const std::vector<RequestState*> running = pages_->running();  // a copy: preemption changes it
  if (!draft_->is_bounded) {
    for (RequestState* state : running) AddRow(state);
    return;
  }
  for (const bool is_chat : {true, false}) {
    for (RequestState* state : running) {
      if (state->is_chat() == is_chat) AddRow(state);
    }
  }
}

void DecodeManager::ScheduleRest() {
  const std::vector<RequestState*> running = pages_->running();
  std::unordered_set<const RequestState*> drafted;
  for (const StepDraft::Row& row : draft_->decode) drafted.insert(row.state);
  for (RequestState* state : running) {
    if (drafted.contains(state)) continue;
    const bool counts = context_->options.max_step_tokens > 0;
    if (counts && draft_->budget == 0) return;
    const size_t rows = draft_->decode.size();
    AddRow(state);
    if (counts && draft_->decode.size() > rows) --draft_->budget;
  }
}

// A row whose token in flight completes its length is never launched again. A row whose next page
// is freed only after a step in flight skips this step; so does one that was preempted for an
// earlier row.
void DecodeManager::AddRow(RequestState* state) {
  if (!state->CanLaunchDecode()) return;
  int64_t room = 0;
  if (!state->is_chat()) {
    room = RoomFor(context_->options, *state, 1);
    if (!draft_->HasRoom(room)) return;
  }
  if (!preemptor_->TakePages(state, 1)) return;
  draft_->decode.push_back({state, 1, {}, room});
  draft_->room -= room;
}

void DecodeManager::AddDrafts() {
  StepDraft& draft = *draft_;
  int64_t most = std::min<int64_t>(draft.budget, context_->limits.max_step_drafts);
  if (most == 0 || draft.decode.empty()) return;
  const bool guesses = context_->options.max_drafts > 0 && !TooManyToDraft();
  for (StepDraft::Row& row : draft.decode) {
    if (most <= 0) return;
    if (row.state->in_flight > 0) continue;
    if (NumForced(row.state) > 0) {
      AddForcedTo(&row, most);
    } else if (guesses && WantsDrafts(*row.state)) {
      AddDraftsTo(&row, most);
    }
    most -= static_cast<int64_t>(row.drafts.size());
  }
}

int64_t DecodeManager::RoomForDrafts(const RequestState& state, int64_t most) const {
  if (draft_->is_bounded && !state.is_chat()) return 0;
  const int64_t room = pages_->AvailableTokens(state) - 1;
  return std::min({most, room, state.max_device_len() - state.device_len - 1});
}

void DecodeManager::AddForcedTo(StepDraft::Row* row, int64_t most) {
  const int64_t count = RoomForDrafts(*row->state, most);
  if (count <= 0) return;
  std::vector<TokenId> forced = ForcedTokens(row->state);
  forced.resize(std::min(forced.size(), static_cast<size_t>(count)));
  CutDrafts(*row->state, &forced);
  row->drafts = std::move(forced);
  row->state->drafts_forced = true;
  TakePages(row);
}

// Drafts take only available pages: no request is preempted and no session loses its prefix.
void DecodeManager::AddDraftsTo(StepDraft::Row* row, int64_t most) {
  RequestState* state = row->state;
  const int64_t count = RoomForDrafts(
      *state, std::min(most, int64_t{state->pacer.length(context_->options.max_drafts)}));
  if (count <= 0) return;
  row->is_made = context_->engine_drafts();
  if (row->is_made)
    row->drafts.assign(static_cast<size_t>(count), TokenId{0});
  else
    context_->options.drafter->Draft(state->request.id, state->tokens, static_cast<int32_t>(count),
                                     &row->drafts);
  MINISGL_CHECK(std::ssize(row->drafts) <= count, "{} drafts, {} requested", row->drafts.size(),
                count);
  if (state->request.constraint != nullptr && !row->is_made) CutDrafts(*state, &row->drafts);
  if (row->drafts.empty()) {
    state->pacer.CountNoGuess(state->answer_len());
    return;
  }
  state->drafts_forced = false;
  TakePages(row);
}

void DecodeManager::TakePages(StepDraft::Row* row) {
  row->count += std::ssize(row->drafts);
  const bool taken = preemptor_->TakePages(row->state, row->count);
  MINISGL_CHECK(taken, "no pages for drafts of request {}", row->state->request.id);
}

}  // namespace minisgl::sched
