// The result of one row of a step.
#pragma once

#include <cstdint>
#include <vector>

#include "minisgl/base/ids.h"

namespace minisgl {

struct TokenLogprob {
  TokenId id;
  float logprob;  // natural logarithm of the probability
};

// The outcome is kNone, and token -1, for a row that wanted no token.
//
// A row with drafts returns 1 + accepted results: the first is this one, the others are in `more`
// (whose own `more` are empty). A result with the outcome kNonFinite is the last one.
struct RowResult {
  // kNonFinite: the logits held NaN or +infinity, or bans left no token to choose.
  enum class Outcome : uint8_t { kNone, kToken, kNonFinite };
  Outcome outcome = Outcome::kNone;
  TokenId token = -1;
  // Both are of the raw distribution, and set only if SamplingParams::num_logprobs asks for them.
  float logprob = 0;                       // of `token`
  std::vector<TokenLogprob> top_logprobs;  // most likely first (ties: the lower id)
  std::vector<RowResult> more;
  // [width] if the row ends a pooled prompt (PoolingSpan): then it wants no token.
  std::vector<float> vector;
  // [BatchPlan::num_scored] the given tokens with their log-probabilities, in order. A given token
  // whose logit is not finite has the outcome kNonFinite, too. Of the lists only top_logprobs is
  // set (SamplingParams::num_prompt_logprobs).
  std::vector<RowResult> scored;
};

}  // namespace minisgl
