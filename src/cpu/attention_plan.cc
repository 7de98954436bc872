// See attention_plan.h.
#include "cpu/attention_plan.h"

#include <algorithm>

#include "minisgl/base/checked_math.h"

namespace minisgl {
namespace {

int64_t StateFloats(const AttentionParams& p, const AttentionItem& item) {
  const int64_t group_size = p.num_heads / p.num_kv_heads;
  return AttentionStateFloats((item.token_end - item.token_begin) * group_size, p.head_dim);
}

}  // namespace

// Last tokens first: they have the most keys, and the loop ends evenly if its longest chunks come
// first.
std::vector<AttentionItem> PlanAttention(const AttentionParams& p) {
  std::vector<AttentionItem> items;
  const int64_t group_size = p.num_heads / p.num_kv_heads;
  const auto tokens_per_item =
      static_cast<int32_t>(std::max<int64_t>(1, kQueryRowsMax / group_size));
  for (int32_t row = p.num_rows - 1; row >= 0; --row) {
    const int32_t row_begin = p.row_begin[row], row_end = p.row_begin[row + 1];
    for (int32_t end = row_end; end > row_begin;
         end -= std::min(tokens_per_item, end - row_begin)) {
      const int32_t begin = std::max(row_begin, end - tokens_per_item);
      const int64_t key_end = p.kv_len[row] - (row_end - end);
      const int64_t first_position = key_end - (end - begin);
      const int64_t key_begin =
          p.sliding_window > 0 ? std::max<int64_t>(0, first_position - p.sliding_window + 1) : 0;
      for (int32_t kv_head = 0; kv_head < p.num_kv_heads; ++kv_head) {
        items.push_back({.row = row,
                         .kv_head = kv_head,
                         .token_begin = begin,
                         .token_end = end,
                         .split_begin = key_begin / kSplitKeys,
                         .split_end = CeilDiv(key_end, kSplitKeys)});
      }
    }
  }
  return items;
}

int64_t SplitStateFloats(const AttentionParams& params, const AttentionItem& item) {
  return StateFloats(params, item) * (item.split_end - item.split_begin);
}

SplitPlan PlanSplits(const AttentionParams& params, const std::vector<AttentionItem>& items,
                     int64_t floats_max) {
  SplitPlan plan;
  int64_t left = 0;  // of the batch being filled
  for (const AttentionItem& item : items) {
    const int64_t floats = SplitStateFloats(params, item);
    if (floats > floats_max) {
      plan.whole.push_back(item);
      continue;
    }
    if (plan.batches.empty() || floats > left) {
      plan.batches.emplace_back();
      left = floats_max;
    }
    plan.batches.back().push_back(item);
    left -= floats;
  }
  return plan;
}

std::vector<AttentionItem> ShareOut(const AttentionParams& params, float* states,
                                    std::vector<AttentionItem>* batch) {
  std::vector<AttentionItem> splits;
  for (AttentionItem& item : *batch) {
    item.states = states;
    for (int64_t split = item.split_begin; split < item.split_end; ++split) {
      AttentionItem one = item;
      one.split_begin = split;
      one.split_end = split + 1;
      one.states = states;
      states += StateFloats(params, item);
      splits.push_back(one);
    }
  }
  return splits;
}

}  // namespace minisgl
