// What the next step holds: drafted within its budgets, then turned into a plan.
#include <algorithm>
#include <vector>

#include "sched/plan_builder.h"
#include "sched/scheduler_impl.h"

namespace minisgl {
namespace {

// While a chat's turn waits or runs, other prompts take at most 1/kChatShare of a step's budget.
constexpr int64_t kChatShare = 4;

}  // namespace

bool Scheduler::Impl::RunsChat() const {
  const std::vector<RequestState*>& running = pages.running();
  return std::any_of(running.begin(), running.end(),
                     [](const RequestState* state) { return state->is_chat(); });
}

bool Scheduler::Impl::RunsChatIn(Phase phase) const {
  const std::vector<RequestState*>& running = pages.running();
  return std::any_of(running.begin(), running.end(), [phase](const RequestState* state) {
    return state->phase == phase && state->is_chat();
  });
}

bool Scheduler::Impl::HasLongStepBeforeATurn() const {
  const int64_t longest = context.options.long_step_tokens;
  if (longest == 0 || !awaits_turns || in_flight.empty() || RunsChat()) return false;
  const BatchPlan& last = *in_flight.back().plan;
  int64_t work = last.num_tokens();  // an embedding's is about that of a token
  for (const EncoderRun& run : last.extras.encoded) work += run.end - run.begin;
  return work > longest;
}

// A request whose prompt is not computed has a row too, so that at least one token is left for it.
void Scheduler::Impl::LeaveRoomForDecode() {
  if (context.options.max_step_tokens == 0) return;
  const int64_t room = context.options.max_step_tokens - std::ssize(draft.decode);
  draft.budget = std::min(draft.budget, room);
  draft.batch_budget = std::min(draft.batch_budget, room);
}

void Scheduler::Impl::DraftStep() {
  draft = sched::StepDraft();
  draft.budget = draft.batch_budget = context.options.max_prefill_tokens;
  LeaveRoomForDecode();  // with prefill-first, prompts come before any row
  const bool is_mixed = context.options.step == StepPolicy::kMixed;
  // The reader of a chat's answer waits for a whole step between two tokens, and a turn that just
  // came must not wait for other prompts.
  const bool is_beside_chat = queues.waiting().HasChat() || RunsChatIn(Phase::kPrefill) ||
                              (is_mixed && RunsChatIn(Phase::kDecode));
  encoders.BeginStep(is_beside_chat ? kChatShare : 1);
  if (is_beside_chat) {
    draft.batch_budget = std::max<int64_t>(draft.budget / kChatShare, 1);
  }
  if (is_mixed) {
    DraftMixedStep();
  } else {
    prefill.Schedule();
    if (draft.prefill.empty()) {
      if (RunsChat()) chat_room.Bound(&draft);
      decode.Schedule();
      LetOneRun();
    }
    LeaveRoomForDecode();
  }
  decode.AddDrafts();
}

void Scheduler::Impl::DraftMixedStep() {
  const bool runs_chat = RunsChat();
  if (runs_chat || queues.waiting().HasChat()) chat_room.Bound(&draft);
  if (draft.is_bounded) encoders.BoundBatch(draft.room / sched::kRoomOfToken);
  decode.Schedule();
  LeaveRoomForDecode();
  prefill.Schedule();
  if (draft.is_bounded && !runs_chat && !draft.HasChat()) {
    // The turn that waits cannot be admitted yet: it waits for what the others hold.
    draft.is_bounded = false;
    decode.ScheduleRest();
    draft.is_bounded = draft.empty();
  }
  LetOneRun();
}

// The chat has no row in this step, because it waits for a mask or a page, and others may hold the
// page.
void Scheduler::Impl::LetOneRun() {
  if (!draft.is_bounded || !draft.empty() || draft.preempted) return;
  draft.lets_one_run = true;
  decode.ScheduleRest();
  if (draft.empty()) prefill.Schedule();
}

// A request with a token that the engine's drafter has not read has no drafts any more: the drafter
// lacks that token's keys.
void Scheduler::Impl::FeedDrafter(const sched::StepDraft::Row& row, bool feeds,
                                  sched::PlanBuilder* builder) {
  row.state->is_fed &= feeds;
  MINISGL_CHECK(row.state->is_fed || !row.is_made,
                "request {} has drafts of a drafter that lacks it", row.state->request.id);
  if (row.state->is_fed) builder->FeedDrafter(row.is_made);
}

Scheduler::Impl::InFlight Scheduler::Impl::BuildStep() {
  sched::PlanBuilder builder(next_step, context.limits.page_size, &pages.states(),
                             pages.cache().windows());
  InFlight step;
  const bool feeds = context.engine_drafts() && !decode.TooManyToDraft();
  for (const sched::StepDraft::Row& row : draft.decode) {
    builder.AddRow(row.state, row.count, true, row.drafts, row.is_made);
    step.has_drafts |= !row.drafts.empty();
    FeedDrafter(row, feeds, &builder);
  }
  for (const sched::StepDraft::Row& row : draft.prefill) {
    const bool is_last = row.state->launched_len + row.count == row.state->prefill_len;
    builder.AddRow(row.state, row.count, is_last && row.state->request.max_tokens > 0);
    FeedDrafter(row, feeds, &builder);
    if (is_last) row.state->phase = Phase::kDecode;
    context.stats.computed_tokens += row.count;
    if (row.state->preemptions > 0) context.stats.recomputed_tokens += row.count;
  }
  chat_room.Launched(draft);
  pages.Launched(next_step++);
  ++context.stats.steps;
  context.stats.prefill_steps += draft.prefill.empty() ? 0 : 1;
  encoders.Launch(builder.extras());
  step.rows = builder.TakeRows();
  context.stats.step_rows += static_cast<int64_t>(step.rows.size());
  step.plan = builder.Finish();
  step.needs_masks = step.plan->has_masks();
  if (context.options.check_invariants) {
    CheckRoom(step);
    for (const RequestState* state : step.rows) {
      step.pages_in_use.insert(step.pages_in_use.end(), state->pages.begin() + state->tree_pages,
                               state->pages.end());
    }
  }
  return step;
}

}  // namespace minisgl
