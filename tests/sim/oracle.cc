#include "sim/oracle.h"

#include <fmt/core.h>

#include <algorithm>

#include "minisgl/base/check.h"
#include "minisgl/base/checked_math.h"
#include "minisgl/base/window_math.h"
#include "sim/sim_engine.h"

namespace minisgl::sim {
namespace {

void ThrowViolation(const std::string& message) { throw Violation(message); }

// The right answer of one request.
struct Right {
  std::vector<TokenId> tokens;
  bool is_stuck = false;     // no token may follow, and the answer goes on
  bool by_length = false;    // it ends by its length
  bool may_end_here = true;  // its grammar allows an end after its text
};

Right RightAnswerOf(const Workload& workload, const Arrival& arrival) {
  const Request& request = arrival.request;
  const int64_t vocab = workload.limits.vocab_size;
  const bool stops = !request.stop_ids.empty();
  Right right;
  if (!arrival.grammar) {
    right.tokens = RightAnswer({request.prompt, request.marks}, request.max_tokens, stops, vocab,
                               workload.end_rate);
  } else {
    SimConstraint constraint(*arrival.grammar);
    uint64_t prefix = PrefixWalk(request.marks).PushAll(request.prompt);
    while (static_cast<int64_t>(right.tokens.size()) < request.max_tokens) {
      right.may_end_here = constraint.MayEnd();
      if (constraint.MustEnd()) return right;
      TokenId token = NextToken(prefix, vocab, workload.end_rate);
      int64_t tried = 0;
      while (tried++ < vocab && !constraint.Allows(token)) {
        token = (token + 1) % static_cast<TokenId>(vocab);
      }
      right.is_stuck = !constraint.Allows(token);
      if (right.is_stuck) return right;
      right.tokens.push_back(token);
      if (token == 0) return right;
      Require(constraint.Accept(token), "a right token is refused");
      prefix = Extend(prefix, token);
    }
    right.may_end_here = constraint.MayEnd();
    if (!right.tokens.empty() && constraint.MustEnd()) return right;
  }
  right.by_length = static_cast<int64_t>(right.tokens.size()) == request.max_tokens &&
                    (!stops || right.tokens.empty() || right.tokens.back() != 0);
  return right;
}

// True if one step, and the window pages, have room for each input that is computed whole.
bool HasRoomForWhole(const Workload& workload, const Request& request) {
  if (request.extras == nullptr) return true;
  const EngineLimits& limits = workload.limits;
  int64_t longest = limits.attends_both_ways ? std::ssize(request.prompt) : 0;
  for (const EncoderInput& input : request.extras->inputs) {
    if (input.attends_both_ways) longest = std::max(longest, input.length);
  }
  if (longest <= 1) return true;
  int64_t most = std::min(workload.options.max_prefill_tokens, limits.max_step_tokens);
  const int64_t step = workload.options.max_step_tokens;
  if (step > 0) most = std::min(most, step - (limits.max_running_requests - 1));
  if (longest > most) return false;
  if (limits.num_window_pages == 0) return true;
  const int64_t tokens =
      std::ssize(request.prompt) + request.max_tokens - (request.extras->pooling ? 0 : 1);
  const WindowMath math{limits.page_size, limits.sliding_window};
  return std::min(CeilDiv<int64_t>(tokens, limits.page_size),
                  math.PagesOf(limits.max_in_flight - 1 + longest)) <= limits.num_window_pages;
}

void CheckFailure(const Workload& workload, const Request& request, const Told& told) {
  if (told.all_failed && told.error_code == "out_of_memory") return;
  const bool too_long = told.error_code == "length_exceeded";
  const bool pools = request.extras != nullptr && request.extras->pooling.has_value();
  const auto length = static_cast<int64_t>(request.prompt.size()) + request.max_tokens;
  const bool fits = length <= workload.limits.max_seq_len &&
                    CeilDiv<int64_t>(length - (pools ? 0 : 1), workload.limits.page_size) <=
                        workload.limits.num_pages &&
                    HasRoomForWhole(workload, request);
  Require(too_long != fits, fmt::format("request {} failed as {}", request.id, told.error_code));
  const bool may_fail_loads = (workload.source.exists || workload.store.exists) &&
                              workload.options.kv_failure == KvFailurePolicy::kFail;
  const bool is_load = told.error_code == "kv_load_failed";
  Require(too_long || (is_load ? may_fail_loads : !workload.faults.empty()),
          fmt::format("request {} failed without a fault: {}", request.id, told.error_code));
}

// All scores are told before the first token, and to a request that ends well.
void CheckScores(const Request& request, const Told& told, bool ended_well) {
  const SamplingParams& sampling = request.sampling;
  std::vector<std::pair<TokenId, float>> right;
  PrefixWalk walk(request.marks);
  for (size_t at = 0; at < request.prompt.size() && sampling.num_prompt_logprobs >= 0; ++at) {
    // What a mark at its own place changes follows the token.
    const float score = ScoreOf(Extend(walk.prefix(), request.prompt[at]));
    walk.Push(request.prompt[at]);
    if (static_cast<int64_t>(at) < std::max(sampling.prompt_logprobs_begin, 1)) continue;
    right.emplace_back(request.prompt[at], score);
  }
  Require(told.scored.size() <= right.size() &&
              std::equal(told.scored.begin(), told.scored.end(), right.begin()),
          fmt::format("I11: request {} was told wrong log-probabilities", request.id));
  const bool is_due = ended_well || (!told.tokens.empty() && told.reason != EndReason::kFailed);
  Require(!is_due || told.scored.size() == right.size(),
          fmt::format("I11: request {} was told {} of {} log-probabilities", request.id,
                      told.scored.size(), right.size()));
}

// Only a pooled prompt has a vector, and has it if it ends well.
void CheckVector(const Request& request, const Told& told, bool ended_well) {
  std::vector<float> right;
  if (ended_well && request.extras != nullptr && request.extras->pooling) {
    right = RightVector({request.prompt, request.marks}, *request.extras->pooling);
  }
  Require(told.vector == right, fmt::format("I11: request {} was told a wrong vector", request.id));
}

}  // namespace

ChecksThrow::ChecksThrow() { SetCheckHandler(&ThrowViolation); }

ChecksThrow::~ChecksThrow() { SetCheckHandler(nullptr); }

void CheckStats(const Workload& workload, const SchedulerStats& stats) {
  if (!workload.limits.attends_both_ways) return;
  const int64_t num_pages = stats.remapped_pages + stats.evicted_pages + stats.saved_pages;
  Require(num_pages == 0, fmt::format("{} pages of whole texts in a cache", num_pages));
}

void CheckAnswer(const Workload& workload, const Arrival& arrival, const Told& told) {
  const Request& request = arrival.request;
  Require(told.ended, fmt::format("I10: request {} was never answered", request.id));
  const Right right = RightAnswerOf(workload, arrival);
  Require(told.tokens.size() <= right.tokens.size() &&
              std::equal(told.tokens.begin(), told.tokens.end(), right.tokens.begin()),
          fmt::format("I11: request {} was told wrong tokens", request.id));
  const bool is_stopped = told.reason == EndReason::kAborted ||
                          told.reason == EndReason::kTimedOut || told.reason == EndReason::kFailed;
  CheckScores(request, told, !is_stopped);
  CheckVector(request, told, !is_stopped);
  const bool is_whole = told.tokens.size() == right.tokens.size();
  if (told.reason == EndReason::kAborted) {
    Require(told.was_aborted, fmt::format("request {} was aborted by nobody", request.id));
  } else if (told.reason == EndReason::kTimedOut) {
    Require(told.was_timed_out, fmt::format("request {} had no deadline", request.id));
  } else if (told.error_code == "invalid_grammar") {
    Require(told.gate_failed || (right.is_stuck && is_whole),
            fmt::format("request {} failed by its grammar after {} of {} tokens", request.id,
                        told.tokens.size(), right.tokens.size()));
  } else if (told.reason == EndReason::kFailed) {
    CheckFailure(workload, request, told);
  } else {
    Require(is_whole && !right.is_stuck && (told.reason == EndReason::kLength) == right.by_length,
            fmt::format("I11: request {} ended with {} of {} tokens", request.id,
                        told.tokens.size(), right.tokens.size()));
    Require(request.max_tokens == 0 || told.cut_in_constraint == !right.may_end_here,
            fmt::format("request {} is {}said to be cut", request.id,
                        told.cut_in_constraint ? "" : "not "));
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
