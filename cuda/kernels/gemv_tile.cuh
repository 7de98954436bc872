// Matrix times few vectors: the loads of weights into registers, and the division of a matrix, of
// both kernels that compute it (gemv.cu, gemv_ends.cu).
#pragma once

#include <algorithm>

#include "kernels/chunk.h"
#include "kernels/gemv_far.cuh"
#include "kernels/gemv_input.h"
#include "kernels/gemv_parts.h"
#include "minisgl/base/checked_math.h"

namespace minisgl::cuda {
namespace gemv {

using device::kWarpSize;
using device::Shared;
using device::SharedArena;
using device::Vec;

inline constexpr int kLoads = 8;               // loads of 16 bytes in flight in a lane
inline constexpr int kGroup = 32;              // elements of a row that 4 lanes load at once
inline constexpr int kWarpsPerProcessor = 16;  // 128 registers for each thread
// For rows that are not aligned, which are loaded element by element.
inline constexpr int kGroupsUnaligned = 2;
inline constexpr int kGemvThreadsMax = kWarpsPerProcessor * kWarpSize;
static_assert(kGemvTokensMax == 16, "tokens are rows of one product");

struct GemvKernelParams {
  const uint16_t* weight;  // [N, K]
  GemvInput input;
  ProductEnd end;
  int num_tiles;
  int groups_per_batch;  // <= GROUPS
  GemvNext next;
};

using Words = GemvWords;

// Number of elements of a row from this lane's first element of a batch on, to the end of the row
// or of the batch's groups. Sets `k` to that first element.
MINISGL_DEVICE int RowLeft(const GemvKernelParams& p, int batch, int* k) {
  *k = batch * p.groups_per_batch * kGroup + static_cast<int>(threadIdx.x) % 4 * 8;
  return min(p.input.num_in - *k, p.groups_per_batch * kGroup);
}

// Loads elements [at, at + 8) from `from` on, zeros from element `left` on. ALIGNED: K is a
// multiple of 8 and rows begin at multiples of 16 bytes. STREAM: the data is read once. HINT: with
// the lines beside it.
template <bool ALIGNED, bool STREAM, bool HINT = false>
MINISGL_DEVICE Words LoadWords(const uint16_t* from, int at, int left) {
  Words words = {};
  if constexpr (ALIGNED) {
    if (at >= left) return words;
    const uint32_t* const p = reinterpret_cast<const uint32_t*>(from + at);
    if constexpr (HINT) return device::LoadStreamWide<4>(p);
    return STREAM ? device::LoadStream<4>(p) : device::LoadVec<4>(p);
  } else {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const uint32_t element = at + i < left ? from[at + i] : 0;
      words[i / 2] |= element << (i % 2 * 16);
    }
    return words;
  }
}

// This lane's part of a batch of the weights.
template <int ROWS8, int GROUPS>
struct WeightBatch {
  Words words[GROUPS][ROWS8];
};

// Where this lane's part of a batch begins in each of its rows.
template <int ROWS8>
struct WeightSource {
  const uint16_t* row[ROWS8];
  int left;
};

template <int ROWS8, EndKind END = EndKind::kAny>
MINISGL_DEVICE WeightSource<ROWS8> FindWeights(const GemvKernelParams& p, int tile, int batch) {
  int k = 0;
  const int left = RowLeft(p, batch, &k);
  WeightSource<ROWS8> source = {.row = {}, .left = tile < p.num_tiles ? left : 0};
#pragma unroll
  for (int n = 0; n < ROWS8; ++n) {
    const int row = RowOfTile<8 * ROWS8, END>(
        p.end, tile, n * 8 + static_cast<int>(threadIdx.x) % kWarpSize / 4);
    source.row[n] = p.weight + int64_t{row} * p.input.num_in + k;
  }
  return source;
}

template <int ROWS8, int GROUPS, bool ALIGNED, bool HINT = false>
MINISGL_DEVICE void LoadWeightGroup(const WeightSource<ROWS8>& source, int group,
                                    WeightBatch<ROWS8, GROUPS>& w) {
#pragma unroll
  for (int n = 0; n < ROWS8; ++n) {
    w.words[group][n] = LoadWords<ALIGNED, true, HINT>(source.row[n], group * kGroup, source.left);
  }
}

// The division of a matrix, and the instance that computes it.
struct GemvSplit {
  bool aligned;
  int rows8;
  int num_warps;
  int groups_per_batch;
};

inline int BlocksAtOnce(const LaunchContext& context, const GemvSplit& split) {
  return context.num_multiprocessors * (kWarpsPerProcessor / split.num_warps);
}

// The share of blocks that have a tile, over the rounds in which `blocks` blocks take all tiles.
inline double TileShare(int64_t num_out, int rows8, int64_t blocks) {
  const int64_t tiles = CeilDiv<int64_t>(num_out, 8 * rows8);
  return static_cast<double>(tiles) / static_cast<double>(CeilDiv(tiles, blocks) * blocks);
}

// From 4,096 rows on, tiles of 16 rows (a load of x serves two loads of weights) still give 256
// blocks of 8 warps, two for each of 132 multiprocessors; for up to 8 tokens tiles of 24 rows, if
// more blocks then have a tile in the last round (6,144 rows: 256 tiles for 264 blocks, where 384
// take two rounds). From 2,048 rows on, tiles of 8 rows are enough. Below that there are at most
// two tiles for each multiprocessor, and 16 warps share one. A batch is as long as a lane's loads
// of two rows allow, but not so long that warps would have no batch: it does not depend on the
// number of tokens.
inline GemvSplit ChooseSplit(const LaunchContext& context, int64_t num_out, int64_t num_in,
                             int64_t num_tokens) {
  GemvSplit split = {.aligned = num_in % 8 == 0,
                     .rows8 = num_in % 8 == 0 && num_out >= 4096 ? 2 : 1,
                     .num_warps = num_out >= 2048 ? 8 : kWarpsPerProcessor,
                     .groups_per_batch = 1};
  const int groups_max = split.aligned ? kLoads / split.rows8 : kGroupsUnaligned;
  const int64_t groups = CeilDiv<int64_t>(num_in, kGroup);
  split.groups_per_batch = static_cast<int>(
      std::clamp<int64_t>(CeilDiv<int64_t>(groups, split.num_warps), 1, groups_max));
  const int64_t blocks = BlocksAtOnce(context, split);
  if (split.rows8 == 2 && num_tokens <= 8 &&
      TileShare(num_out, 3, blocks) > TileShare(num_out, 2, blocks) + 0.1) {
    split.rows8 = 3;
  }
  return split;
}

// gemv_ends.cu: REQUIRES bf16, at most 8 tokens, aligned rows.
CudaError LaunchGemvEnds(const LaunchContext& context, const LaunchShape& shape,
                         const GemvSplit& split, const GemvKernelParams& product,
                         const FarWeights& far);

}  // namespace gemv
}  // namespace minisgl::cuda
