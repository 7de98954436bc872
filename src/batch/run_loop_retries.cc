// The part of the run loop that asks rows again whose answers took too long.
//
// Such a row waits until no other is left to begin. It then is asked as the first time, with the
// same prompt and seed: without a new timeout its answer is that of an unhurried run.
#include <algorithm>
#include <utility>

#include "batch/run_loop.h"

namespace minisgl::batch {
namespace {

constexpr int32_t kTriesSlowerMax = 30;

}  // namespace

// If the row timed out and may be asked again, sets it aside and returns true.
bool RunLoop::SetAsideToRetry(int64_t index) {
  const Pending& ended = pending_.at(index);
  if (!ended.timed_out || ended.error || ended.aborted || Stops() || ended.again.empty()) {
    return false;
  }
  auto node = pending_.extract(index);
  Pending& pending = node.mapped();
  open_bytes_ -= pending.bytes;
  retry_bytes_ += pending.bytes;
  // The answered turns of a row stay.
  const size_t first = pending.row.all_turns ? pending.answers.size() - 1 : 0;
  for (size_t i = first; i < pending.answers.size(); ++i) {
    tokens_ -= std::ssize(pending.answers[i].token_ids);
    reasoning_tokens_ -= pending.answers[i].usage.reasoning_tokens;
    answers_in_thought_ -= pending.answers[i].ended_in_thought ? 1 : 0;
    std::vector<ToolRound> rounds = std::move(pending.answers[i].rounds);
    pending.answers[i] = RowAnswer();
    pending.answers[i].rounds = std::move(rounds);
  }
  pending.timed_out = false;
  pending.requests.clear();
  if (pending.said != nullptr) LeaveRuntimeSession(pending.said.get());
  if (pending.tries == 1) ++rows_retried_;
  timed_out_.emplace(index, std::move(pending));
  return true;
}

// A row of the window that waits for room in the output may wait for one of these. With each try
// half as many run at once: beside fewer others an answer takes less time.
bool RunLoop::RetriesAreNext() const {
  if (timed_out_.empty()) return false;
  const int32_t tries = std::min(timed_out_.begin()->second.tries, kTriesSlowerMax);
  const int64_t at_once = std::max<int64_t>(options_.retried_answers_max >> tries, 1);
  if (open_answers_ >= at_once) return false;
  const bool no_other = window_.empty() && preparer_.empty() && source_ended_;
  return no_other || (pending_.empty() && (window_.empty() || !IsWithinBounds()));
}

void RunLoop::SubmitRetries() {
  while (RetriesAreNext()) {
    Pending pending = std::move(timed_out_.extract(timed_out_.begin()).mapped());
    retry_bytes_ -= pending.bytes;
    std::vector<Prompt> prompts = std::move(pending.again);
    Enter(std::move(pending), std::move(prompts));
  }
}

Status RunLoop::FailRetry(int64_t index, const RowError& error) {
  const auto node = timed_out_.extract(index);
  retry_bytes_ -= node.mapped().bytes;
  return WriteFailure(node.mapped().row, error);
}

Status RunLoop::CancelRetries() {
  while (!timed_out_.empty()) {
    MINISGL_RETURN_IF_ERROR(
        FailRetry(timed_out_.begin()->first,
                  {"cancelled", "the run was stopped before this row was asked again", ""}));
  }
  return Status();
}

}  // namespace minisgl::batch
