// How attention is divided into chunks of work: items of a few tokens and one KV head each, and,
// where those are too few for the threads, their splits of keys. Plain bookkeeping: no result
// depends on it.
#pragma once

#include <cstdint>
#include <vector>

#include "cpu/kernels.h"

namespace minisgl {

// Floats that the states of splits in flight may take, 32 MiB: the engine's memory plan counts
// them.
inline constexpr int64_t kSplitStateFloatsMax = int64_t{8} << 20;

// Items that each take all splits of their keys, those with the most keys first.
std::vector<AttentionItem> PlanAttention(const AttentionParams& params);

// Floats of the states of all splits of `item`.
int64_t SplitStateFloats(const AttentionParams& params, const AttentionItem& item);

struct SplitPlan {
  // Whose states alone are past the bound: not to be shared out.
  std::vector<AttentionItem> whole;
  // The others, in runs whose states together keep to it.
  std::vector<std::vector<AttentionItem>> batches;
};
SplitPlan PlanSplits(const AttentionParams& params, const std::vector<AttentionItem>& items,
                     int64_t floats_max);

// One item for each split of `batch`; both get their places in `states`.
std::vector<AttentionItem> ShareOut(const AttentionParams& params, float* states,
                                    std::vector<AttentionItem>* batch);

}  // namespace minisgl
