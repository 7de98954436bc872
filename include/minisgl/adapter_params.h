// The parameters of the operation of adapters: products of low rank beside a product of the model.
// Letters as in ops_params.h.
#pragma once

#include <cstdint>
#include <span>

#include "minisgl/ops_params.h"

namespace minisgl {

// Outputs of a low-rank part that stand together in memory.
inline constexpr int64_t kLowRankTile = 16;

// Outputs [first_out, first_out + num_out) of a product, by rows [first_rank, first_rank + rank) of
// the adapter's first matrix.
struct LowRankPart {
  int64_t first_out = 0;
  int64_t num_out = 0;
  int32_t first_rank = 0;
  int32_t rank = 0;
  float scale = 1;
  const void* b = nullptr;  // [ceil(num_out / tile)][rank][tile], zeros behind the last output
};

// What an adapter has beside one product of the model. Parts do not overlap.
struct LowRankMatrices {
  int64_t num_in = 0;
  int64_t num_out = 0;  // of the product
  int32_t num_ranks = 0;
  DType dtype = DType::kF32;  // of a and b: kF32 or kBF16
  const void* a = nullptr;    // [num_ranks, num_in]
  std::span<const LowRankPart> parts;
  const float* factor = nullptr;  // [num_out] or null: 1
  const float* offset = nullptr;  // [num_out] or null: 0
};

// Rows of the product that go through one adapter.
struct LowRankGroup {
  const LowRankMatrices* matrices = nullptr;
  std::span<const int32_t> rows;  // of `out`; no row is in two groups
};

// For each row r of a group, with u[k] = sum_i a[k, i] * x[r / rows_per_input, i]:
//   out[r, o] = out[r, o] * factor[o] + offset[o] + sum_k b[o, k] * (scale * u[k])
// where the last sum and `scale` are of the part that has output o, if there is one. The order of
// each sum is fixed: it depends on the adapter alone, not on other rows or groups.
struct LowRankParams {
  ConstActivationPtr x;  // [inputs, in]; null: `inner` holds u already
  ActivationPtr out;     // rows are `out_stride` elements apart
  std::span<const LowRankGroup> groups;
  float* inner = nullptr;      // memory for u: [rows, num_ranks] of each group, one after another
  int64_t out_stride = 0;      // 0: num_out
  int64_t rows_per_input = 1;  // of `out`, which stand one after another
};

}  // namespace minisgl
