#include "sim/oracle.h"

#include <fmt/core.h>

#include <algorithm>

#include "minisgl/base/check.h"
#include "minisgl/base/checked_math.h"
#include "sim/sim_engine.h"

namespace minisgl::sim {
namespace {

void ThrowViolation(const std::string& message) { throw Violation(message); }

void CheckFailure(const Workload& workload, const Request& request, const Told& told) {
  if (told.all_failed && told.error_code == "out_of_memory") return;
  const bool too_long = told.error_code == "length_exceeded";
  const auto length = static_cast<int64_t>(request.prompt.size()) + request.max_tokens;
  const bool fits =
      length <= workload.limits.max_seq_len &&
      CeilDiv<int64_t>(length - 1, workload.limits.page_size) <= workload.limits.num_pages;
  Require(too_long != fits, fmt::format("request {} failed as {}", request.id, told.error_code));
  const bool may_fail_loads =
      workload.source.exists && workload.options.kv_failure == KvFailurePolicy::kFail;
  const bool is_load = told.error_code == "kv_load_failed";
  Require(too_long || (is_load ? may_fail_loads : !workload.faults.empty()),
          fmt::format("request {} failed without a fault: {}", request.id, told.error_code));
}

// All scores are told before the first token, and to a request that ends well.
void CheckScores(const Request& request, const Told& told, bool ended_well) {
  const SamplingParams& sampling = request.sampling;
  std::vector<std::pair<TokenId, float>> right;
  uint64_t prefix = 1;
  for (size_t at = 0; at < request.prompt.size() && sampling.num_prompt_logprobs >= 0; ++at) {
    prefix = Extend(prefix, request.prompt[at]);
    if (static_cast<int64_t>(at) < std::max(sampling.prompt_logprobs_begin, 1)) continue;
    right.emplace_back(request.prompt[at], ScoreOf(prefix));
  }
  Require(told.scored.size() <= right.size() &&
              std::equal(told.scored.begin(), told.scored.end(), right.begin()),
          fmt::format("I11: request {} was told wrong log-probabilities", request.id));
  const bool is_due = ended_well || (!told.tokens.empty() && told.reason != EndReason::kFailed);
  Require(!is_due || told.scored.size() == right.size(),
          fmt::format("I11: request {} was told {} of {} log-probabilities", request.id,
                      told.scored.size(), right.size()));
}

}  // namespace

ChecksThrow::ChecksThrow() { SetCheckHandler(&ThrowViolation); }

ChecksThrow::~ChecksThrow() { SetCheckHandler(nullptr); }

void CheckAnswer(const Workload& workload, const Request& request, const Told& told) {
  Require(told.ended, fmt::format("I10: request {} was never answered", request.id));
  const auto right = RightAnswer(request.prompt, request.max_tokens, !request.stop_ids.empty(),
                                 workload.limits.vocab_size, workload.end_rate);
  Require(told.tokens.size() <= right.size() &&
              std::equal(told.tokens.begin(), told.tokens.end(), right.begin()),
          fmt::format("I11: request {} was told wrong tokens", request.id));
  const bool is_stopped = told.reason == EndReason::kAborted ||
                          told.reason == EndReason::kTimedOut || told.reason == EndReason::kFailed;
  CheckScores(request, told, !is_stopped);
  const bool is_whole = told.tokens.size() == right.size();
  if (told.reason == EndReason::kAborted) {
    Require(told.was_aborted, fmt::format("request {} was aborted by nobody", request.id));
  } else if (told.reason == EndReason::kTimedOut) {
    Require(told.was_timed_out, fmt::format("request {} had no deadline", request.id));
  } else if (told.reason == EndReason::kFailed) {
    CheckFailure(workload, request, told);
  } else {
    const bool by_length = static_cast<int64_t>(right.size()) == request.max_tokens &&
                           (request.stop_ids.empty() || right.empty() || right.back() != 0);
    Require(is_whole && (told.reason == EndReason::kLength) == by_length,
            fmt::format("I11: request {} ended with {} of {} tokens", request.id,
                        told.tokens.size(), right.size()));
  }
}

int64_t StepsToIdle(const Workload& workload, const std::map<RequestId, Told>& told) {
  int64_t steps = 100;
  for (const Arrival& arrival : workload.arrivals) {
    const auto found = told.find(arrival.request.id);
    if (found == told.end() || found->second.ended) continue;
    // Upper bound: the request runs alone, one token per step, all of it again after each
    // preemption, and as long again for the pipeline.
    steps += 2 * (kPreemptionsMax + 2) *
             (static_cast<int64_t>(arrival.request.prompt.size()) + arrival.request.max_tokens + 4);
  }
  return steps;
}

}  // namespace minisgl::sim
