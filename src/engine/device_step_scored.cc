// The part of device_step.h that scores given tokens (BatchPlan::num_scored).
#include <algorithm>
#include <vector>

#include "engine/device_step.h"

namespace minisgl::engine {

void DeviceStep::RunScored(const InFlightStep& step) {
  const StepTail& tail = step.tail;
  for (int32_t begin = 0; begin < tail.num_scored; begin += layout_.max_places) {
    const int32_t count = std::min(layout_.max_places, tail.num_scored - begin);
    float* const logits =
        state_->Logits({.slot_of = TokenSlots(step.shape),
                        .logit_tokens = InStep<int32_t>(step, tail.scored_tokens) + begin,
                        .num_logit_tokens = count});
    ops_->SamplePlaces({.logits = logits,
                        .num_places = count,
                        .vocab_size = limits().vocab_size,
                        .places = InStep<DeviceSampling>(step, tail.scored_places) + begin,
                        .token_pool = state_->tables().token_pool,
                        .token_pool_stride = state_->tables().token_pool_stride,
                        .bias_ids = InStep<int32_t>(step, tail.scored_ids),
                        .bias_values = InStep<float>(step, tail.scored_bias),
                        .banned_ids = Meta<int32_t>(layout_.banned_ids),
                        .counts = counts_.data(),
                        .raw_logits = raw_logits_.data(),
                        .max_logprobs = tail.num_ranks,
                        .sampled = InStep<DeviceToken>(step, tail.scored_sampled) + begin,
                        .top_logprobs = InStep<TokenLogprob>(step, tail.scored_logprobs) +
                                        int64_t{begin} * tail.num_ranks});
  }
}

// A token that was not chosen in spite of its bias has a logit of -infinity.
std::vector<RowResult> DeviceStep::ScoredResults(const InFlightStep& step) const {
  const StepTail& tail = step.tail;
  const auto* const memory = static_cast<const std::byte*>(step.meta.get());
  const auto* const sampled = reinterpret_cast<const DeviceToken*>(memory + tail.scored_sampled);
  const auto* const ranks = reinterpret_cast<const TokenLogprob*>(memory + tail.scored_logprobs);
  std::vector<RowResult> results(static_cast<size_t>(tail.num_scored));
  for (int32_t i = 0; i < tail.num_scored; ++i) {
    RowResult& result = results[static_cast<size_t>(i)];
    result.outcome = RowResult::Outcome::kNonFinite;
    if (sampled[i].token != step.plan->scored_ids[static_cast<size_t>(i)]) continue;
    result.outcome = RowResult::Outcome::kToken;
    result.token = sampled[i].token;
    result.logprob = sampled[i].logprob;
    const TokenLogprob* const first = ranks + int64_t{i} * tail.num_ranks;
    result.top_logprobs.assign(first, first + sampled[i].num_ranks);
  }
  return results;
}

}  // namespace minisgl::engine
