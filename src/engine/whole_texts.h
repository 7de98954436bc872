// Which keys the tokens of texts attend to in models whose texts attend both ways, and which of two
// texts they are of. Used by one thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "minisgl/batch_plan.h"
#include "minisgl/model/decoder.h"
#include "minisgl/weights/model_config.h"

namespace minisgl::engine {

class WholeTexts {
 public:
  // Sets the ends of keys, and types, in *input, which point to memory of this, for a plan whose
  // rows are whole texts. Nothing for models whose texts are causal.
  void List(const BatchPlan& plan, const ModelConfig& config, ForwardInput* input) {
    if (!config.attends_both_ways) return;
    int32_t window = 0;  // the same in all layers that have one
    for (const LayerConfig& layer : config.layers) window = std::max(window, layer.sliding_window);
    ends_.clear();
    window_ends_.clear();
    for (int32_t row = 0; row < plan.num_rows(); ++row) {
      const int32_t end = plan.kv_len[row];
      for (int32_t token = plan.row_begin[row]; token < plan.row_begin[row + 1]; ++token) {
        ends_.push_back(end);
        window_ends_.push_back(std::min(end, plan.positions[token] + window));
      }
    }
    input->key_end = ends_.data();
    input->window_key_end = window_ends_.data();
    ListTypes(plan, input);
  }

 private:
  void ListTypes(const BatchPlan& plan, ForwardInput* input) {
    const bool has_pairs = std::any_of(plan.extras.pooling.begin(), plan.extras.pooling.end(),
                                       [](const PoolingSpan& span) { return span.num_second > 0; });
    if (!has_pairs) return;
    types_.assign(static_cast<size_t>(plan.num_tokens()), 0);
    for (const PoolingSpan& span : plan.extras.pooling) {
      const auto end = types_.begin() + span.token + span.count;
      std::fill(end - span.num_second, end, 1);
    }
    input->token_types = types_.data();
  }

  std::vector<int32_t> types_;               // [T]
  std::vector<int32_t> ends_, window_ends_;  // [T]
};

}  // namespace minisgl::engine
