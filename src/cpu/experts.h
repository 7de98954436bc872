// Mixture of experts on the CPU: routing, packed weights, and how the rows that chose an expert are
// gathered into matrix products. Plain bookkeeping: no result depends on how work is divided.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cpu/kernels/kernels.h"
#include "cpu/pack_store.h"
#include "cpu/packed_matrix.h"
#include "minisgl/ops_params.h"

namespace minisgl::cpu {

// What ExpertMatrices::storage holds.
struct PackedExperts {
  std::vector<PackedMatrix> experts;  // of one shape
};

Result<PackedExperts> PackAllExperts(std::span<const std::vector<TensorView>> experts,
                                     const WeightFormat& format, PackStore* store,
                                     ThreadPool* pool);

// Route for tokens [begin, end). A NaN counts as the largest logit: it is chosen, and the token's
// shares are NaN, so that the step does not hide it.
void RouteTokens(const RouteParams& params, int64_t begin, int64_t end);

// Some of the pairs (t, k), numbered t K + k, that chose one expert.
struct ExpertChunk {
  int64_t expert;
  std::span<const int32_t> pairs;  // of ExpertPlan::pairs
};

struct ExpertPlan {
  std::vector<int32_t> pairs;  // all of them, by expert
  std::vector<ExpertChunk> chunks;
};

// Cuts the pairs of every expert into even chunks of at most `rows_max`, whole multiples of
// kRowsMax but for the last.
void PlanExperts(const ExpertLinearParams& params, int64_t rows_max, ExpertPlan* plan);

// Outputs [64 group_begin, 64 group_end) of a chunk.
struct ExpertItem {
  const ExpertChunk* chunk;
  int64_t group_begin, group_end;
};

// Floats of scratch for items of up to `rows_max` rows of `row_bytes` each.
int64_t ExpertScratchFloats(int64_t rows_max, int64_t row_bytes);

// `x`: the tokens' rows, or the pairs' where x_per_choice.
void RunExpertItem(const ExpertLinearParams& params, const ExpertItem& item,
                   const LinearKernel& linear, const LinearInput& x, float* scratch);

}  // namespace minisgl::cpu
