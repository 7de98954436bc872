// How attention is divided into chunks of work. Plain bookkeeping: no result depends on it.
//
// An item is some tokens and one KV head. Tokens of rows that share a prefix are put into one item,
// which passes their query rows over each shared tile together (prefix_order.h). Items that are too
// long for the threads to end together are shared out split by split, and their states merged.
#pragma once

#include <cstdint>
#include <vector>

#include "cpu/kernels/attention_kernels.h"

namespace minisgl::cpu {

// Floats that the states of splits in flight may take: 32 MiB.
inline constexpr int64_t kSplitStateFloatsMax = int64_t{8} << 20;

// What runs side by side: all of `attend`, then all of `merge`.
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

// `floats_max`: of the states of one loop. An item whose own are more is not shared out.
AttentionPlan PlanAttention(const AttentionParams& params, int num_threads,
                            int64_t floats_max = kSplitStateFloatsMax);

// Keeps plans for as long as the calls are of one step.
class AttentionPlanner {
 public:
  // Good until the next call.
  const AttentionPlan& Plan(const AttentionParams& params, int num_threads);

 private:
  // What a plan depends on within a step.
  struct Key {
    explicit Key(const AttentionParams& params);
    const int32_t* page_table;
    int32_t page_size, sliding_window, num_heads, num_kv_heads, head_dim;
    bool operator==(const Key&) const = default;
  };
  struct Entry {
    Key key;
    AttentionPlan plan;
  };
  uint64_t step_ = 0;
  std::vector<Entry> entries_;  // of that step: one for each kind of layer
};

}  // namespace minisgl::cpu
