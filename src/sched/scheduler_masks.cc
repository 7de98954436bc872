// Masks of rows with a constraint: made after a launch, and waited for if they take too much work.
//
// A row whose mask comes later is in the step already. It samples among all tokens there, and the
// token is dropped. The request then has no row until its mask is ready; the next one computes the
// keys of its last known token once more, which are the same, and samples within the mask. So other
// rows wait for bounded work alone, and the tokens of a request do not depend on what came late.
//
// The same happens to a row that was launched without a mask because a constraint expected to need
// none (TokenConstraint::NeedsMask), if the token before it shows that it does.
#include <algorithm>

#include "minisgl/base/check.h"
#include "sched/constrained_rows.h"
#include "sched/scheduler_impl.h"

namespace minisgl {

void Scheduler::Impl::MaskReady(RequestId id) {
  const auto found = requests.find(id);
  if (found != requests.end()) found->second->awaited_mask = -1;
}

std::vector<TokenId> Scheduler::Impl::DraftsOf(const BatchPlan& plan, int row) {
  const int32_t num_drafts = plan.num_drafts[row];
  if (num_drafts == 0) return {};
  // They are the last tokens that the step writes for its table row.
  for (auto write = plan.token_pool_writes.rbegin(); write != plan.token_pool_writes.rend();
       ++write) {
    if (write->table_row != plan.table_row[row]) continue;
    MINISGL_CHECK(write->count == num_drafts, "{} drafts written, {} planned", write->count,
                  num_drafts);
    const auto first = plan.tokens.begin() + write->offset;
    return {first, first + num_drafts};
  }
  MINISGL_CHECK(false, "row {} has drafts that no write brings", row);
  return {};
}

bool Scheduler::Impl::GuideDraft(const InFlight& step, int32_t row, std::span<const TokenId> drafts,
                                 std::span<uint32_t> mask, int64_t* work_left) {
  const RequestState& state = *step.rows[static_cast<size_t>(row)];
  if (state.phase == Phase::kEnded) return false;
  TokenConstraint& constraint = *state.request.constraint;
  size_t accepted = 0;
  while (accepted < drafts.size() && !constraint.MustEnd() && constraint.Accept(drafts[accepted])) {
    ++accepted;
  }
  const bool is_filled = accepted == drafts.size() && !constraint.MustEnd() &&
                         constraint.FillMask(mask, work_left) == MaskOutcome::kMade;
  constraint.RollBack(static_cast<int64_t>(accepted));
  return is_filled;
}

std::optional<StepMasks> Scheduler::Impl::TakeMasks(Engine* engine) {
  if (in_flight.size() != 1 || !in_flight.back().needs_masks) return std::nullopt;
  InFlight& step = in_flight.back();
  const BatchPlan& plan = *step.plan;
  StepMasks masks;
  int64_t work_left = sched::kStepMaskWork;
  std::vector<std::vector<TokenId>> made;  // of the rows whose drafts the engine makes
  if (plan.guides_drafts()) {
    MINISGL_CHECK(engine != nullptr, "the drafts of step {} are not known", plan.step);
    made = engine->GuideDrafts([&](int32_t row, auto drafts, auto mask) {
      return GuideDraft(step, row, drafts, mask, &work_left);
    });
  }
  auto next_made = made.begin();
  for (int row = 0; row < plan.num_rows(); ++row) {
    if (!plan.masked(row)) continue;
    const auto at = static_cast<size_t>(row);
    RequestState* state = step.rows[at];
    const int32_t num_places = 1 + plan.num_drafts[at];
    const bool is_made = plan.makes_drafts_of(row);
    std::vector<TokenId> drafts = is_made ? std::move(*next_made++) : DraftsOf(plan, row);
    if (state->phase == Phase::kEnded) {
      sched::AppendFullMasks(num_places, context.limits.vocab_size, &masks);
      continue;
    }
    // A draft that the constraint does not allow is rejected, and after the end of an answer
    // nothing is sampled: places behind them may have any mask.
    if (is_made) sched::CutDrafts(*state, &drafts);
    const auto num_used = static_cast<int32_t>(drafts.size()) + 1;
    const int32_t num_made =
        sched::AppendMasks(*state, drafts, context.limits.vocab_size, &work_left, &masks);
    sched::AppendFullMasks(num_places - num_used, context.limits.vocab_size, &masks);
    if (num_made == num_used) continue;
    state->awaited_mask = static_cast<int64_t>(state->tokens.size()) + num_made;
    state->drops_tokens = true;
    step.places_made.resize(step.rows.size(), INT32_MAX);
    step.places_made[at] = num_made;
  }
  step.needs_masks = false;
  return masks;
}

void Scheduler::Impl::DropIfUnmasked(RequestState* state) {
  TokenConstraint* const constraint = state->request.constraint.get();
  if (constraint == nullptr || state->in_flight == 0 || !constraint->NeedsMask(0)) return;
  for (InFlight& step : in_flight) {
    const auto row = std::find(step.rows.begin(), step.rows.end(), state);
    if (row == step.rows.end()) continue;
    const auto at = static_cast<size_t>(row - step.rows.begin());
    if (step.plan->wants_token[at] == 0 || step.plan->masked(static_cast<int>(at))) return;
    state->drops_tokens = true;
    step.places_made.resize(step.rows.size(), INT32_MAX);
    step.places_made[at] = 0;
    return;
  }
}

void Scheduler::Impl::CollectWithoutMask(RequestState* state, int64_t known_len, int64_t state_len,
                                         const RowResult& row) {
  // Among all tokens, so it is no fault of a mask.
  if (row.outcome == RowResult::Outcome::kNonFinite) return EndNonFinite(state, known_len);
  if (state->phase == Phase::kWaiting) return;
  state->computed_len = std::max(state->computed_len, std::min(known_len - 1, state_len));
  InsertComputedPages(state);
  pages.Advance(state);
  if (state_len < known_len - 1) ComputeAgain(state);
  // Requests that wait for the page of its last token must not wait for the mask.
  queues.StopComputing(*state, state->tree_pages, state->registered_pages);
  state->registered_pages = std::min(state->registered_pages, state->tree_pages);
}

bool Scheduler::Impl::IsStuck(const RequestState& state) const {
  if (state.request.constraint == nullptr || state.request.max_tokens == 0) return false;
  std::vector<uint32_t> mask(static_cast<size_t>(MaskWords(context.limits.vocab_size)));
  int64_t work_left = INT64_MAX;
  return state.request.constraint->FillMask(mask, &work_left) == MaskOutcome::kNone;
}

}  // namespace minisgl
