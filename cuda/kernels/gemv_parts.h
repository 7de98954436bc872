// Parts that both kernels for products of few rows use: the products of a step, and the fetching of
// a later product's weights.
//
// Products: tensor cores, mma m16n8k16, with x as the first operand (its 16 rows are tokens, those
// past the last zero) and 8 rows of the weights as the second. A step of K needs no shuffles: the
// order of k within a product is free if both operands have the same, so a lane passes the 8
// consecutive elements that it loads with 16 bytes (lane 4 g + q: elements 8 q ... of row g), as
// two products of 4 elements each. Lanes then read 64 bytes of each of 8 rows: whole sectors.
#pragma once

#include <cstdint>

#include "device/device.h"
#include "kernels/kernels.h"
#include "kernels/product_end.h"

namespace minisgl::cuda {

using GemvWords = device::Vec<uint32_t, 4>;  // 8 elements of a row

// Sums in two independent chains of products: of the first 4 elements of each lane's 8, and of the
// last 4. For 8 * ROWS8 rows of the weights.
template <int ROWS8>
struct GemvSums {
  float chain[ROWS8][2][4];
};

// Adds the products of 8 * TOKENS8 tokens and rows [8 n, 8 n + 8).
template <typename T, int TOKENS8, int ROWS8>
MINISGL_DEVICE void MultiplyGemvWords(const GemvWords (&x)[TOKENS8], const GemvWords& weight, int n,
                                      GemvSums<ROWS8>& sums) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    uint32_t a[4] = {x[0][2 * half], 0, x[0][2 * half + 1], 0};
    if constexpr (TOKENS8 == 2) {
      a[1] = x[1][2 * half];
      a[3] = x[1][2 * half + 1];
    }
    const uint32_t b[2] = {weight[2 * half], weight[2 * half + 1]};
    device::Mma16816<T>(sums.chain[n][half], a, b);
  }
}

// A tile's sums in shared memory: [warps][8 * TOKENS8 tokens][8 * ROWS8 rows].
template <int TOKENS8, int ROWS8>
inline constexpr int kGemvTileSums = 8 * TOKENS8 * 8 * ROWS8;

template <int TOKENS8, int ROWS8>
MINISGL_DEVICE void StoreGemvSums(const GemvSums<ROWS8>& sums, device::Shared<float> partial) {
  constexpr int kRows = 8 * ROWS8;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % device::kWarpSize;
  const device::Shared<float> mine =
      partial + (thread / device::kWarpSize * kGemvTileSums<TOKENS8, ROWS8> + lane / 4 * kRows +
                 lane % 4 * 2);
#pragma unroll
  for (int m = 0; m < TOKENS8; ++m) {
#pragma unroll
    for (int n = 0; n < ROWS8; ++n) {
      const int at = 8 * m * kRows + n * 8;
      mine[at] = sums.chain[n][0][2 * m] + sums.chain[n][1][2 * m];
      mine[at + 1] = sums.chain[n][0][2 * m + 1] + sums.chain[n][1][2 * m + 1];
    }
  }
}

// An output element of this thread, if it has one.
struct GemvPlace {
  bool valid;
  int row;       // of the weights; of a gate, if outputs are gated
  int64_t at;    // index in `out` or `residual`
  int partial;   // index in a warp's sums
  float before;  // the element of the residual stream, if that is added to
};

template <int ROWS8, EndKind END = EndKind::kAny>
MINISGL_DEVICE GemvPlace PlaceOfGemv(const ProductEnd& p, int num_tokens, int tile) {
  constexpr int kRows = 8 * ROWS8;
  const bool gated = IsGated<END>(p);
  const int thread = static_cast<int>(threadIdx.x);
  const int token = gated ? thread / (kRows / 2) : thread / kRows;
  const int r = gated ? thread % (kRows / 2) : thread % kRows;
  const int row = tile * (gated ? kRows / 2 : kRows) + r;
  GemvPlace place = {.valid = token < num_tokens && row < p.width(),
                     .row = row,
                     .at = token * p.stride + row,
                     .partial = token * kRows + r,
                     .before = 0};
  if constexpr (END == EndKind::kAny || END == EndKind::kAdd) {
    if (place.valid && (END == EndKind::kAdd || p.residual != nullptr)) {
      place.before = p.residual[place.at];
    }
  }
  return place;
}

// Writes this thread's element of a tile, whose warps' sums are added in the order of the warps.
// WARPS: of the block; 0: as many as it has.
template <typename T, int TOKENS8, int ROWS8, EndKind END = EndKind::kAny, int WARPS = 0>
MINISGL_DEVICE void WriteGemvPlace(const ProductEnd& p, const GemvPlace& place,
                                   device::Shared<float> partial) {
  if (!place.valid) return;
  const int num_warps = WARPS > 0 ? WARPS : static_cast<int>(blockDim.x) / device::kWarpSize;
  float sum = 0, up = 0;
  for (int warp = 0; warp < num_warps; ++warp) {
    sum += partial[warp * kGemvTileSums<TOKENS8, ROWS8> + place.partial];
  }
  if (IsGated<END>(p)) {
    for (int warp = 0; warp < num_warps; ++warp) {
      up += partial[warp * kGemvTileSums<TOKENS8, ROWS8> + place.partial + 4 * ROWS8];
    }
    if constexpr (END == EndKind::kAny) up = AddBias(p, up, place.row + p.num_pairs);
  }
  if constexpr (END == EndKind::kAny) sum = AddBias(p, sum, place.row);
  StoreProduct<T, END>(p, place.at, sum, up, place.before);
}

// A part of a later product's weights, to be fetched into the second-level cache: `bytes` from
// `begin` on, and the same of each row after it.
struct GemvNext {
  const uint8_t* begin = nullptr;
  int rows = 0;    // 0: nothing
  int stride = 0;  // bytes; a multiple of 16
  int bytes = 0;   // a multiple of 16
};

// Blocks take rows in turn, so that all ask for about as many: one multiprocessor is too slow.
MINISGL_DEVICE void PrefetchNext(const GemvNext& next) {
  const int blocks = static_cast<int>(gridDim.x);
  for (int row = static_cast<int>(threadIdx.x) * blocks + static_cast<int>(blockIdx.x);
       row < next.rows; row += blocks * static_cast<int>(blockDim.x)) {
    device::PrefetchL2(next.begin + int64_t{row} * next.stride, static_cast<uint32_t>(next.bytes));
  }
}

// gemv_ring.cu: of large matrices, whose weights go through shared memory.
bool GemvTakesRing(const LaunchContext& context, const Matrix& weight);
CudaError LaunchGemvRing(const LaunchContext& context, const ProductParams& params,
                         const void* weight);
// The part of `next` (may be null) to fetch for a step of so many tokens: nothing, unless its
// product takes the ring. Smaller matrices gain nothing.
GemvNext NextOfGemv(const LaunchContext& context, const Matrix* next, int64_t num_tokens);

}  // namespace minisgl::cuda
