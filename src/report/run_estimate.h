// Estimates what running some prompts takes, from their token ids alone: tokens, shared prefixes,
// pages, and with the speed of an earlier run, time. Reads no weights. Used by one thread.
//
// Prefix sharing is exact if the pool holds every prompt and answer: nothing is evicted then, and
// the order of rows matters only for prompts that end at a page boundary. In a smaller pool it
// depends on the scheduler's order; PoolModel then gives a lower bound, as if rows ran in input
// order.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "minisgl/base/json.h"
#include "minisgl/base/status.h"
#include "minisgl/engine/engine.h"
#include "minisgl/runtime/runtime.h"
#include "report/pool_model.h"
#include "report/prefix_counter.h"
#include "report/run_figures.h"

namespace minisgl::report {

// Cost per token, and the run it was measured in.
struct RunSpeed {
  double prompt_token_s = 0;  // of a computed one
  double answer_token_s = 0;
  std::optional<double> answer_tokens_mean;  // per row
  std::string what;                          // "wren, cpu (2 threads)"; "" if unknown
};

// Parses a summary file, or the output of a throughput benchmark by `minisgl bench --json`.
Result<RunSpeed> ParseRunSpeed(const Json& json, const std::string& where);

struct RunEstimate {
  int64_t rows = 0, bad_rows = 0;
  int64_t requests = 0;  // answers; a row may have several
  int64_t prompt_tokens = 0, longest_prompt = 0;
  int64_t cached_tokens = 0, computed_tokens = 0;  // if nothing is evicted
  int64_t cached_tokens_min = 0;  // if rows run one after another in the given pool
  bool counted_exactly = true;    // if false, from a sample of the pages
  int64_t answer_tokens_max = 0;
  int64_t unlimited_requests = 0;        // answers limited only by the context
  std::optional<int64_t> answer_tokens;  // expected number, if an earlier run tells
  int64_t pages_total = 0;               // of the pool
  // to hold all requests at full length, shared pages counted once
  int64_t pages_needed = 0;
  int64_t at_once = 0;  // requests that can run together at full length
  bool fits() const { return pages_needed <= pages_total; }
};

class RunEstimator {
 public:
  // `limits`: the engine's. `keeps_prefixes`: true if the radix cache is used. `speed`: if known;
  // may have only some of its values.
  RunEstimator(const EngineLimits& limits, bool keeps_prefixes,
               const std::optional<RunSpeed>& speed);

  // Adds the prompts of one row.
  void Add(const std::vector<Prompt>& prompts);
  void AddBad();
  RunEstimate Finish() const;

 private:
  int64_t AnswerRoom(const Prompt& prompt) const;

  const EngineLimits limits_;
  const bool keeps_prefixes_;
  const std::optional<double> answer_mean_;
  PrefixCounter prefixes_;
  PoolModel pool_;
  RunEstimate estimate_;
  double answer_tokens_ = 0;   // expected number
  int64_t prompt_pages_ = 0;   // whole pages of all prompts, shared ones counted repeatedly
  int64_t longest_pages_ = 0;  // of all requests at full length, shared ones counted repeatedly
};

// Estimated seconds for `estimate` at `speed`: computing prompts and generating answers.
struct EstimatedTime {
  double prompts_s = 0, answers_s = 0;
  double total_s() const { return prompts_s + answers_s; }
};
EstimatedTime TimeOf(const RunEstimate& estimate, const RunSpeed& speed);

}  // namespace minisgl::report
