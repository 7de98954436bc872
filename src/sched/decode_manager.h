// The rows of a decode step: one token for every running request whose answer goes on, and drafts
// of the tokens that follow.
//
// A draft continues known tokens, so a request with a step in flight cannot have one. To plan it
// without a draft would halve the gain of drafting, and to skip it would split the batch into
// halves that alternate. Therefore, while any request drafts, a step is planned only after the one
// before it was collected; steps overlap again when no request drafts.
//
// The tokens that a request's constraint forces are drafts, too, with any number of rows: they are
// accepted where the model spells the text as the tokenizer does.
#pragma once

#include <cstdint>

#include "sched/context.h"
#include "sched/page_ledger.h"
#include "sched/preemptor.h"
#include "sched/request_state.h"
#include "sched/step_draft.h"

namespace minisgl::sched {

class DecodeManager {
 public:
  DecodeManager(const SchedulerContext* context, const PageLedger* pages, StepDraft* draft,
                Preemptor* preemptor)
      : context_(context), pages_(pages), draft_(draft), preemptor_(preemptor) {}

  // Drafts one row of one token for each request that can decode, of those that are no chat's only
  // as many as the draft has room for.
  void Schedule();
  // The same for requests that have no row in the draft yet, within its budget.
  void ScheduleRest();
  // Adds drafted tokens to those rows, within the budget and pages that are left. REQUIRES that
  // all other rows of the step are decided.
  void AddDrafts();
  // True if any row would get drafts if its tokens were all known: then no step may be planned
  // beside one in flight.
  bool WantsDrafts() const;
  // With more rows the drafts of a step would cost time.
  bool TooManyToDraft() const;

 private:
  void AddRow(RequestState* state);
  bool WantsDrafts(const RequestState& state) const;
  // Tokens that a constraint forces after those that are known or in flight.
  int64_t NumForced(RequestState* state) const;
  // Upper bound on the drafts of a row, of which the step can take `most`. Beside a chat the rows
  // of other requests have none.
  int64_t RoomForDrafts(const RequestState& state, int64_t most) const;
  void AddForcedTo(StepDraft::Row* row, int64_t most);
  void AddDraftsTo(StepDraft::Row* row, int64_t most);
  void TakePages(StepDraft::Row* row);

  const SchedulerContext* context_;
  const PageLedger* pages_;
  StepDraft* draft_;
  Preemptor* preemptor_;
};

}  // namespace minisgl::sched
