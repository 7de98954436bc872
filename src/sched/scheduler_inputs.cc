// Requests that end because of their inputs to encode: those that no step can compute, and those
// that read what a failed step was to encode.
#include <algorithm>
#include <map>
#include <vector>

#include "sched/scheduler_impl.h"

namespace minisgl {
namespace {

// True if row `row` of `step` reads embeddings that `encoder` encodes.
bool ReadsFrom(const BatchPlan& step, size_t row, const BatchPlan& encoder) {
  const std::vector<EncoderRun>& encoded = encoder.extras.encoded;
  const auto is_read = [&](const ReplacedEmbeddings& run) {
    return run.token >= step.row_begin[row] && run.token < step.row_begin[row + 1] &&
           std::any_of(encoded.begin(), encoded.end(),
                       [&run](const EncoderRun& one) { return one.source == run.source; });
  };
  return std::any_of(step.extras.embeddings.begin(), step.extras.embeddings.end(), is_read);
}

}  // namespace

bool Scheduler::Impl::FitsWhole(RequestState* state) {
  const int64_t longest = state->longest_whole();
  const char* const what = state->is_whole ? "a text" : "a picture";
  int64_t most = std::min(context.options.max_prefill_tokens, context.limits.max_step_tokens);
  if (context.options.max_step_tokens > 0) {
    // Every other request may have a decoding row beside it.
    most = std::min<int64_t>(
        most, context.options.max_step_tokens - (context.limits.max_running_requests - 1));
  }
  if (longest > 1 && longest > most) {
    End(state, EndReason::kFailed, "length_exceeded",
        fmt::format("{} of {} tokens, which one step computes, does not fit in the {} of a step; "
                    "allow longer steps, or {}",
                    what, longest, most,
                    state->is_whole ? "shorter texts" : "fewer tokens of a picture"));
    return false;
  }
  if (pages.windows().HasRoomAlone(*state)) return true;
  End(state, EndReason::kFailed, "length_exceeded",
      fmt::format("{} of {} tokens does not fit in the memory for windows", what, longest));
  return false;
}

// A request that refers to the embeddings reads them in its next step. One that was preempted
// refers to none any more, and may have a row in flight that reads them.
void Scheduler::Impl::EndReadersOf(const BatchPlan& plan, const std::string& error_code,
                                   const std::string& message) {
  if (plan.extras.encoded.empty()) return;
  std::map<RequestId, RequestState*> readers;  // End may erase from `requests`
  for (const auto& [id, state] : requests) {
    if (encoders.ReadsInvalid(*state)) readers.emplace(id, state.get());
  }
  for (const InFlight& step : in_flight) {
    for (size_t row = 0; row < step.rows.size(); ++row) {
      RequestState* const state = step.rows[row];
      if (ReadsFrom(*step.plan, row, plan)) readers.emplace(state->request.id, state);
    }
  }
  std::erase_if(readers, [](const auto& one) { return one.second->phase == Phase::kEnded; });
  for (const auto& [id, state] : readers) {
    End(state, EndReason::kFailed, error_code, message);
  }
}

}  // namespace minisgl
