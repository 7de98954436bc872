// The rows of a decode step, and the drafts of each.
#pragma once

#include <cstdint>

#include "sched/context.h"
#include "sched/step_draft.h"

namespace minisgl {

class DecodeManager {
 public:
  explicit DecodeManager(SchedulerContext* context) : context_(context) {}
  void Schedule();
  // Guesses for the rows drafted, within what budget and pages are left: REQUIRES that all else of
  // the step is decided.
  void AddDrafts();
  // Whether some row would be given a guess if its tokens were all known: then no step may be
  // planned beside one in flight.
  bool AnyoneDrafts() const;

 private:
  bool WantsDrafts(const RequestState& state) const;
  bool TooManyToDraft() const;
  void AddDraftsTo(StepDraft::Row* row, int64_t most);

  SchedulerContext* context_;
};

}  // namespace minisgl
