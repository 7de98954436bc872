// The places of a device's step as plain data: sampling parameters in f32, with biased and banned
// tokens in arrays of the whole step.
//
// Listed on the host before any of it is copied, so that the size of the step is known first. Kept
// from step to step for its memory.
#pragma once

#include <cstdint>
#include <vector>

#include "minisgl/batch_plan.h"
#include "minisgl/device_ops.h"

namespace minisgl::engine {

// A place that takes the most likely token, and changes nothing else.
DeviceSampling NeutralSampling(int32_t table_row);

class DevicePlaces {
 public:
  // The places of `plan`, followed by one neutral place for each row up to `padded_rows`, of table
  // row `padding_row`. REQUIRES a plain decode step (one place for each row) if rows are padded.
  void List(const BatchPlan& plan, int32_t padded_rows, int32_t padding_row);

  int32_t num_places() const { return static_cast<int32_t>(tokens.size()); }
  bool wants_top_logprobs() const { return wants_top_logprobs_; }
  // True if `tokens` are the first N of the step, in their order.
  bool AreFirstTokens() const;

  std::vector<int32_t> place_begin;      // [R + 1], R padded
  std::vector<int32_t> tokens;           // [N] of the step, whose logits are wanted
  std::vector<DeviceSampling> sampling;  // [N]
  std::vector<int32_t> bias_ids;         // ranges of these three are in `sampling`
  std::vector<float> bias_values;
  std::vector<int32_t> banned_ids;
  std::vector<int32_t> mask_of;  // [N] index of the place's mask, or -1; empty if there are none
  int32_t num_masks = 0;

  // The places that score plan.scored_ids: [M] each. A bias that no other logit reaches makes the
  // given token the choice, and its log-probability is of the raw logits as for any choice.
  std::vector<int32_t> scored_tokens;
  std::vector<DeviceSampling> scored_sampling;
  std::vector<float> scored_bias;
  // The most likely tokens that any of them asks for.
  int32_t num_scored_ranks() const { return num_scored_ranks_; }

 private:
  void ListScored(const BatchPlan& plan);
  void Add(const BatchPlan& plan, int32_t row, int32_t token, int32_t history_len);

  bool wants_top_logprobs_ = false;
  int32_t num_scored_ranks_ = 0;
};

}  // namespace minisgl::engine
