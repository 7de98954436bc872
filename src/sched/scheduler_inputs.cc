// Requests that end because of their inputs to encode: those that no step can compute, and those
// that read what a failed step was to encode.
#include <algorithm>
#include <vector>

#include "sched/scheduler_impl.h"

namespace minisgl {

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

void Scheduler::Impl::EndReadersOf(const BatchPlan& plan, const std::string& error_code,
                                   const std::string& message) {
  if (plan.extras.encoded.empty()) return;
  std::vector<RequestState*> readers;  // End may erase from `requests`
  for (const auto& [id, state] : requests) {
    if (state->phase != Phase::kEnded && encoders.ReadsInvalid(*state)) {
      readers.push_back(state.get());
    }
  }
  for (RequestState* state : readers) {
    End(state, EndReason::kFailed, error_code, message);
  }
}

}  // namespace minisgl
