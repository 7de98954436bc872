// The part of the run loop that does what control lines of the input ask for.
#include <utility>

#include "batch/run_loop.h"

namespace minisgl::batch {

Status RunLoop::TakeControl(const RunControl& control) {
  if (control.resets_cache) runtime_.ResetPrefixCache();
  return control.aborted_id.is_null() ? Status() : AbortById(control.aborted_id);
}

// Ends the row with this id wherever it is. Nothing happens if no row has it, or if it is done:
// its answer may have been on its way.
Status RunLoop::AbortById(const Json& id) {
  for (auto& [index, pending] : pending_) {
    if (pending.row.id != id) continue;
    pending.aborted = true;
    if (pending.open_answers == 0) return CancelTools(index, Aborted());
    AbortRow(pending);
    return Status();
  }
  if (std::optional<ReadyRow> ready = window_.TakeById(id)) {
    return WriteFailure(ready->row, Aborted());
  }
  for (const auto& [index, waiting] : timed_out_) {
    if (waiting.row.id == id) return FailRetry(index, Aborted());
  }
  if (preparer_.Has(id)) {
    aborted_ids_.push_back(id);
  } else {
    sessions_.Fail(id, Aborted());
  }
  return Status();
}

}  // namespace minisgl::batch
