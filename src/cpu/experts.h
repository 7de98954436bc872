// Mixture of experts on the CPU: routing, packed weights, and the gathering of the rows that chose
// an expert into matrix products. No result depends on how work is divided.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cpu/kernels/kernels.h"
#include "cpu/memory.h"
#include "cpu/pack_store.h"
#include "cpu/packed_matrix.h"
#include "minisgl/ops_params.h"

namespace minisgl::cpu {

// The object behind ExpertMatrices::storage.
struct PackedExperts {
  std::vector<PackedMatrix> experts;  // of one shape
};

Result<PackedExperts> PackAllExperts(std::span<const std::vector<WeightTensor>> experts,
                                     const WeightFormat& format, CodeOrders orders,
                                     PackStore* store, ThreadPool* pool);

// Ops::Route for tokens [begin, end). A NaN counts as the largest logit: it is chosen, and the
// token's shares become NaN, so that the step does not hide it.
void RouteTokens(const RouteParams& params, int64_t begin, int64_t end);

// Some of the pairs (token t, choice k) that chose one expert. Pairs are numbered t K + k.
struct ExpertChunk {
  int64_t expert;
  std::span<const int32_t> pairs;  // part of ExpertPlan::pairs
};

struct ExpertPlan {
  std::vector<int32_t> pairs;  // all pairs, grouped by expert
  std::vector<ExpertChunk> chunks;
};

// Cuts the pairs of every expert into even chunks of at most `rows_max`. All but the last chunk of
// an expert are multiples of `rows_multiple`.
void PlanExperts(const ExpertLinearParams& params, int64_t rows_max, int64_t rows_multiple,
                 ExpertPlan* plan);

// Outputs [64 group_begin, 64 group_end) of a chunk.
struct ExpertItem {
  const ExpertChunk* chunk;
  int64_t group_begin, group_end;
};

// Floats of scratch for items of at most `rows_max` rows of `row_bytes` bytes each.
int64_t ExpertScratchFloats(int64_t rows_max, int64_t row_bytes);

// What a thread computes products with.
struct ExpertThread {
  CpuTarget target;
  const LinearKernel* linear;
  float* scratch;         // ExpertScratchFloats
  FloatBuffer* expanded;  // MultiplyBlock
};

// `x`: one row for each token, or for each pair if x_per_choice.
void RunExpertItem(const ExpertLinearParams& params, const ExpertItem& item, const LinearInput& x,
                   const ExpertThread& thread);

}  // namespace minisgl::cpu
