// The table of sampling parameters: the name and range of each, for everything that reads one.
// These are the options (src/load), the fields of rows (src/batch), generation_config.json
// (src/weights), /set of a chat (src/chat) and the benchmarks' options.
//
// A value that stands for no value lies outside the ranges: -1 for all tokens, no limit or any
// seed in options and rows, "auto" for no limit after /set.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>

#include "minisgl/base/number_range.h"
#include "minisgl/sampling_params.h"

namespace minisgl {

template <typename Value, typename Range>
struct SamplingField {
  const char* name;  // with "_"; an option has "-" in its place
  Value SamplingParams::*param;
  std::optional<Value> SamplingOverrides::*override_value;
  Range range;
};
using NumberField = SamplingField<double, NumberRange>;
using IntField = SamplingField<int32_t, IntRange>;

inline constexpr int64_t kTokenCountMax = std::numeric_limits<int32_t>::max();

// clang-format off
inline constexpr NumberField kTemperature = {
    "temperature", &SamplingParams::temperature, &SamplingOverrides::temperature, {0, 100}};
inline constexpr IntField kTopK = {
    "top_k", &SamplingParams::top_k, &SamplingOverrides::top_k, {0, kTokenCountMax}};
inline constexpr NumberField kTopP = {
    "top_p", &SamplingParams::top_p, &SamplingOverrides::top_p, {0, 1}};  // 0: greedy
inline constexpr NumberField kMinP = {
    "min_p", &SamplingParams::min_p, &SamplingOverrides::min_p, {0, 1}};
inline constexpr NumberField kRepetitionPenalty = {
    "repetition_penalty", &SamplingParams::repetition_penalty,
    &SamplingOverrides::repetition_penalty, {0, 100, true}};
inline constexpr NumberField kPresencePenalty = {
    "presence_penalty", &SamplingParams::presence_penalty,
    &SamplingOverrides::presence_penalty, {-2, 2}};
inline constexpr NumberField kFrequencyPenalty = {
    "frequency_penalty", &SamplingParams::frequency_penalty,
    &SamplingOverrides::frequency_penalty, {-2, 2}};
inline constexpr IntField kNumLogprobs = {
    "logprobs", &SamplingParams::num_logprobs, &SamplingOverrides::num_logprobs, {0, 20}};
inline constexpr IntField kMinTokens = {
    "min_tokens", &SamplingParams::min_tokens, &SamplingOverrides::min_tokens, {0, kTokenCountMax}};
// clang-format on

// The range of max_tokens, which is a property of the answer and not in SamplingParams. A seed is
// any uint64_t; rows accept a negative int64_t too, and take its two's complement.
inline constexpr IntRange kMaxTokensRange = {1, kTokenCountMax};

// Upper bound on the bytes of a text that ends reasoning (thought_message).
inline constexpr size_t kThoughtMessageBytesMax = 4096;

// Returns `range` with -1 as its lower bound, where -1 means what 0 means (top_k: all).
constexpr IntRange FromMinusOne(IntRange range) { return {-1, range.max}; }

}  // namespace minisgl
