// Divides the attention of a step into items of work. No result depends on the division.
//
// An item is some tokens and one KV head. Tokens of rows that share a prefix go into one item,
// which passes their query rows over each shared tile together (prefix_order.h). An item that would
// keep one thread busy after the others are done is divided into splits, whose states are merged.
#pragma once

#include <cstdint>
#include <vector>

#include "cpu/kernels/attention_kernels.h"

namespace minisgl::cpu {

// Upper bound on the floats of one loop's split states: 32 MiB.
inline constexpr int64_t kSplitStateFloatsMax = int64_t{8} << 20;

// Items that may run in parallel: all of `attend`, then all of `merge`.
struct AttentionLoop {
  // Costliest first: a loop ends evenly if its longest chunks come first.
  std::vector<AttentionItem> attend;
  std::vector<AttentionItem> merge;
  int64_t state_floats = 0;
};

struct AttentionPlan {
  AttentionPlan() = default;
  AttentionPlan(AttentionPlan&&) = default;  // items point into segments: not copied
  AttentionPlan& operator=(AttentionPlan&&) = default;

  std::vector<AttentionSegment> segments;
  std::vector<AttentionLoop> loops;
};

// `floats_max`: upper bound on the state floats of one loop. An item that needs more is not
// divided.
AttentionPlan PlanAttention(const AttentionParams& params, int num_threads,
                            int64_t floats_max = kSplitStateFloatsMax);

// Caches the plans of one step.
class AttentionPlanner {
 public:
  // The result is valid until the next call.
  const AttentionPlan& Plan(const AttentionParams& params, int num_threads);

 private:
  // Everything that a plan depends on within one step.
  struct Key {
    explicit Key(const AttentionParams& params);
    const int32_t *page_table, *key_end;
    int32_t page_size, sliding_window, first_key, num_heads, num_kv_heads, head_dim, value_dim;
    bool operator==(const Key&) const = default;
  };
  struct Entry {
    Key key;
    AttentionPlan plan;
  };
  uint64_t step_ = 0;
  std::vector<Entry> entries_;  // plans of that step, one for each shape of a layer
};

}  // namespace minisgl::cpu
