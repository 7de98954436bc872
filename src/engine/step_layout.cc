// See step_layout.h.
#include "engine/step_layout.h"

#include <utility>

#include "engine/state_spans.h"
#include "engine/step_places.h"

namespace minisgl::engine {
namespace {

// Assigns consecutive offsets.
class Offsets {
 public:
  explicit Offsets(size_t begin) : next_(begin) {}
  template <typename T>
  size_t Take(size_t count) {
    const size_t at = next_;
    next_ += (count * sizeof(T) + 15) / 16 * 16;
    return at;
  }
  size_t next() const { return next_; }

 private:
  size_t next_;
};

}  // namespace

StepLayout::StepLayout(const EngineLimits& limits)
    : max_rows(limits.max_running_requests + 1), max_places(MaxPlaces(limits)) {
  const auto rows = static_cast<size_t>(max_rows), count = static_cast<size_t>(max_places);
  Offsets next(0);
  table_row = next.Take<int32_t>(rows);
  row_begin = next.Take<int32_t>(rows + 1);
  kv_len = next.Take<int32_t>(rows);
  decode_rows = next.Take<int32_t>(1);
  num_tokens = next.Take<int32_t>(1);
  host_results = next.Take<HostResults>(1);
  place_begin = next.Take<int32_t>(rows + 1);
  num_groups = next.Take<int32_t>(1);
  group_begin = next.Take<int32_t>(rows + 1);
  group_rows = next.Take<int32_t>(rows);
  shared_splits = next.Take<int32_t>(rows);
  logit_tokens = next.Take<int32_t>(count);
  places = next.Take<DeviceSampling>(count);
  bias_ids = next.Take<int32_t>(kBiasMax);
  bias_values = next.Take<float>(kBiasMax);
  banned_ids = next.Take<int32_t>(kBiasMax);
  const auto num_spans = static_cast<size_t>(MaxStateSpans(limits));
  if (num_spans > 0) span_of_row = next.Take<int32_t>(rows + 1);
  spans = next.next();
  if (num_spans > 0) next.Take<StateSpan>(num_spans + 1);
  token_slots = next.next();
  if (limits.num_adapters > 0) {
    next.Take<int32_t>(static_cast<size_t>(limits.max_step_tokens));
  }
  front_bytes = next.next();
}

StepTail::StepTail(const BatchPlan& plan, size_t begin, int64_t num_biased, int64_t num_banned,
                   int32_t ranks, int32_t with_positions, int32_t with_key_ends)
    : num_positions(with_positions),
      num_key_ends(with_key_ends),
      num_scored(static_cast<int32_t>(plan.scored_ids.size())),
      num_ranks(ranks) {
  const auto scored = plan.scored_ids.size();
  Offsets next(begin);
  page_table_writes = next.Take<PageTableWrite>(plan.page_table_writes.size());
  pages = next.Take<int32_t>(plan.pages.size());
  window_pages = next.Take<int32_t>(plan.window_pages.size());
  token_pool_writes = next.Take<TokenPoolWrite>(plan.token_pool_writes.size());
  tokens = next.Take<int32_t>(plan.tokens.size());
  bias_ids = next.Take<int32_t>(static_cast<size_t>(num_biased));
  bias_values = next.Take<float>(static_cast<size_t>(num_biased));
  banned_ids = next.Take<int32_t>(static_cast<size_t>(num_banned));
  rope_positions = next.Take<RopePosition>(static_cast<size_t>(num_positions));
  key_ends = next.Take<int32_t>(static_cast<size_t>(num_key_ends));
  scored_tokens = next.Take<int32_t>(scored);
  scored_places = next.Take<DeviceSampling>(scored);
  scored_ids = next.Take<int32_t>(scored);
  scored_bias = next.Take<float>(scored);
  end = next.next();
  scored_sampled = next.Take<DeviceToken>(scored);
  scored_logprobs = next.Take<TokenLogprob>(scored * static_cast<size_t>(num_ranks));
  results_end = next.next();
}

ResultLayout::ResultLayout(const StepLayout& step) {
  Offsets next(0);
  sampled = next.Take<DeviceToken>(static_cast<size_t>(step.max_places));
  num_accepted = next.Take<int32_t>(static_cast<size_t>(step.max_rows));
  top_logprobs = next.Take<TokenLogprob>(static_cast<size_t>(step.max_places) *
                                         static_cast<size_t>(kTopLogprobsMax));
  bytes = next.next();
  top_logprobs_bytes = bytes - top_logprobs;
}

}  // namespace minisgl::engine
