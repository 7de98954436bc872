// What running prompts would take, from their token ids alone: tokens, what they share, pages, and
// with the speed of an earlier run the time. No weights are read. Used by one thread.
//
// Sharing is exact for a pool that holds every prompt and answer: then nothing is evicted, and the
// order in which rows run makes no difference but for a prompt that ends with a page's end. In a
// smaller pool the scheduler's order decides: a model of the cache tells how little is found where
// rows run in the order of the file.
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

// How fast tokens were, and what they were of.
struct RunSpeed {
  double prompt_token_s = 0;  // of one that is computed
  double answer_token_s = 0;
  std::optional<double> answer_tokens_mean;  // of a row
  std::string what;                          // "wren, cpu (2 threads)", "" where it does not say
};

// From a summary file, or from what `minisgl bench --json` wrote of a throughput.
Result<RunSpeed> ParseRunSpeed(const Json& json, const std::string& where);

struct RunPlan {
  int64_t rows = 0, bad_rows = 0;
  int64_t requests = 0;  // answers: a row may ask for several
  int64_t prompt_tokens = 0, longest_prompt = 0;
  int64_t cached_tokens = 0, computed_tokens = 0;  // where nothing is evicted
  int64_t cached_tokens_min = 0;  // where rows run one after another in the pool there is
  bool counted_exactly = true;    // else from a sample of the pages
  int64_t answer_tokens_max = 0;
  int64_t unlimited_requests = 0;        // whose answer only the context ends
  std::optional<int64_t> answer_tokens;  // expected, where an earlier run tells
  int64_t pages_total = 0;               // of the pool
  int64_t pages_needed = 0;              // to hold all at their longest, what is shared once
  int64_t at_once = 0;                   // requests that run together at their longest
  bool fits() const { return pages_needed <= pages_total; }
};

class RunPlanner {
 public:
  // `limits` as the engine would have them. `keeps_prefixes`: the radix cache is used. `speed`: as
  // far as it is known.
  RunPlanner(const EngineLimits& limits, bool keeps_prefixes, const std::optional<RunSpeed>& speed);

  // The prompts of one row.
  void Add(const std::vector<Prompt>& prompts);
  void AddBad();
  RunPlan Finish() const;

 private:
  int64_t AnswerRoom(const Prompt& prompt) const;

  const EngineLimits limits_;
  const bool keeps_prefixes_;
  const std::optional<double> answer_mean_;
  PrefixCounter prefixes_;
  PoolModel pool_;
  RunPlan plan_;
  double answer_tokens_ = 0;   // expected
  int64_t prompt_pages_ = 0;   // whole ones of each prompt, shared or not
  int64_t longest_pages_ = 0;  // of each request at its longest, shared or not
};

// Seconds that `plan` takes at `speed`: of prompts and of answers.
struct PlannedTime {
  double prompts_s = 0, answers_s = 0;
  double total_s() const { return prompts_s + answers_s; }
};
PlannedTime TimeOf(const RunPlan& plan, const RunSpeed& speed);

}  // namespace minisgl::report
