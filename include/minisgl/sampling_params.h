// Parameters of the choice of one request's next token.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "minisgl/base/ids.h"

namespace minisgl {

// Plain data; the neutral value of a field turns it off. Order: logit_bias, penalties, bans,
// temperature, top_k, top_p, min_p, then the random draw.
struct SamplingParams {
  double temperature = 0.0;         // 0: greedy (ties: the lowest id)
  int32_t top_k = 0;                // 0: all
  double top_p = 1.0;               // (0, 1]
  double min_p = 0.0;               // [0, 1]: keep p >= min_p * p_max
  double repetition_penalty = 1.0;  // > 0: over prompt and answer (l > 0: l / r, else l * r)
  double presence_penalty = 0.0;    // over the answer
  double frequency_penalty = 0.0;   // over the answer, times the count
  uint64_t seed = 0;                // together with the token's index, selects its random number
  std::vector<std::pair<TokenId, float>> logit_bias;
  int32_t num_logprobs = -1;  // -1: none; 0: of the chosen token; n: also of the n most likely
  // The same for tokens of the prompt, from position `prompt_logprobs_begin` on. At least 1: no
  // token stands before the first.
  int32_t num_prompt_logprobs = -1;
  int32_t prompt_logprobs_begin = 1;
  int32_t min_tokens = 0;  // `banned_until_min` is banned until the answer has this many tokens
  std::vector<TokenId> banned_until_min;

  bool UsesPenalties() const {
    return repetition_penalty != 1.0 || presence_penalty != 0.0 || frequency_penalty != 0.0;
  }
};

// The parameters that one source sets: options, a row or generation_config.json. The rest are left
// to the sources below it.
struct SamplingOverrides {
  std::optional<double> temperature, top_p, min_p;
  std::optional<int32_t> top_k;
  std::optional<double> repetition_penalty, presence_penalty, frequency_penalty;
  std::optional<uint64_t> seed;
  std::vector<std::pair<TokenId, float>> logit_bias;  // empty: not set
  std::optional<int32_t> num_logprobs;
  std::optional<int32_t> min_tokens;
};

// Returns `base` with the parameters that `overrides` sets.
inline SamplingParams Apply(SamplingParams base, const SamplingOverrides& overrides) {
  const auto set = [](auto* value, const auto& override_value) {
    if (override_value) *value = *override_value;
  };
  set(&base.temperature, overrides.temperature);
  set(&base.top_p, overrides.top_p);
  set(&base.min_p, overrides.min_p);
  set(&base.top_k, overrides.top_k);
  set(&base.repetition_penalty, overrides.repetition_penalty);
  set(&base.presence_penalty, overrides.presence_penalty);
  set(&base.frequency_penalty, overrides.frequency_penalty);
  set(&base.seed, overrides.seed);
  if (!overrides.logit_bias.empty()) base.logit_bias = overrides.logit_bias;
  set(&base.num_logprobs, overrides.num_logprobs);
  set(&base.min_tokens, overrides.min_tokens);
  return base;
}

}  // namespace minisgl
