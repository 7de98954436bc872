// See device_places.h.
#include "engine/device_places.h"

#include <algorithm>
#include <limits>

#include "engine/step_layout.h"
#include "engine/step_places.h"

namespace minisgl::engine {
namespace {

// A double out of range of float (very hot or very cold) becomes the closest finite float.
float ToFloatInRange(double value) {
  constexpr double kMax = std::numeric_limits<float>::max();
  return static_cast<float>(std::clamp(value, -kMax, kMax));
}

// A temperature above zero stays above zero, because zero means greedy.
float ToTemperature(double value) {
  if (!(value > 0)) return 0;
  return std::max(ToFloatInRange(value), std::numeric_limits<float>::min());
}

}  // namespace

DeviceSampling NeutralSampling(int32_t table_row) {
  DeviceSampling sampling = {};
  sampling.top_p = 1;
  sampling.repetition_penalty = 1;
  sampling.table_row = table_row;
  sampling.prompt_len = 1;
  sampling.history_len = 1;
  sampling.num_logprobs = -1;
  return sampling;
}

void DevicePlaces::List(const BatchPlan& plan, int32_t padded_rows, int32_t padding_row) {
  const int32_t num_rows = plan.num_rows();
  tokens.clear();
  sampling.clear();
  bias_ids.clear();
  bias_values.clear();
  banned_ids.clear();
  wants_top_logprobs_ = false;
  mask_of.clear();
  num_masks = 0;
  place_begin.resize(static_cast<size_t>(std::max(num_rows, padded_rows)) + 1);
  ForEachPlace(plan, place_begin.data(), [&](int32_t row, int32_t token, int32_t history_len) {
    Add(plan, row, token, history_len);
  });
  for (int32_t row = num_rows; row < padded_rows; ++row) {
    tokens.push_back(row);  // one token a row
    sampling.push_back(NeutralSampling(padding_row));
    place_begin[static_cast<size_t>(row) + 1] = num_places();
  }
  ListScored(plan);
}

bool DevicePlaces::AreFirstTokens() const {
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] != static_cast<int32_t>(i)) return false;
  }
  return true;
}

void DevicePlaces::ListScored(const BatchPlan& plan) {
  scored_tokens.clear();
  scored_sampling.clear();
  num_scored_ranks_ = 0;
  ForEachScored(plan, [&](int32_t row, int32_t token) {
    DeviceSampling sampling_of = NeutralSampling(plan.table_row[row]);
    sampling_of.num_logprobs = std::min(plan.sampling[row]->num_prompt_logprobs, kTopLogprobsMax);
    sampling_of.bias_begin = static_cast<int32_t>(scored_tokens.size());
    sampling_of.bias_end = sampling_of.bias_begin + 1;
    num_scored_ranks_ = std::max(num_scored_ranks_, sampling_of.num_logprobs);
    scored_tokens.push_back(token);
    scored_sampling.push_back(sampling_of);
  });
  scored_bias.assign(scored_tokens.size(), std::numeric_limits<float>::max());
}

void DevicePlaces::Add(const BatchPlan& plan, int32_t row, int32_t token, int32_t history_len) {
  const SamplingParams& from = *plan.sampling[row];
  DeviceSampling to = NeutralSampling(plan.table_row[row]);
  to.seed = from.seed;
  to.temperature = ToTemperature(from.temperature);
  to.top_p = static_cast<float>(from.top_p);
  to.min_p = static_cast<float>(from.min_p);
  to.repetition_penalty = ToFloatInRange(from.repetition_penalty);
  to.presence_penalty = ToFloatInRange(from.presence_penalty);
  to.frequency_penalty = ToFloatInRange(from.frequency_penalty);
  to.top_k = from.top_k;
  to.prompt_len = plan.prompt_len[row];
  to.history_len = history_len;
  to.num_logprobs = std::min(from.num_logprobs, kTopLogprobsMax);
  to.bias_begin = static_cast<int32_t>(bias_ids.size());
  for (const auto& [id, bias] : from.logit_bias) {
    bias_ids.push_back(id);
    bias_values.push_back(bias);
  }
  to.bias_end = static_cast<int32_t>(bias_ids.size());
  to.banned_begin = static_cast<int32_t>(banned_ids.size());
  if (!plan.masked(row) && history_len - plan.prompt_len[row] < from.min_tokens) {
    banned_ids.insert(banned_ids.end(), from.banned_until_min.begin(), from.banned_until_min.end());
  }
  to.banned_end = static_cast<int32_t>(banned_ids.size());
  if (plan.has_masks()) mask_of.push_back(plan.masked(row) ? num_masks++ : -1);
  wants_top_logprobs_ |= from.num_logprobs > 0;
  tokens.push_back(token);
  sampling.push_back(to);
}

}  // namespace minisgl::engine
