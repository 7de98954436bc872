// Matrix times few vectors: out[T, N] = x[T, K] * weight[N, K]^T + bias for T <= 8. Bound by
// reading the weights once.
//
// An element's result does not depend on the number of tokens: the rows of a product do not
// interact, and the division of K is a function of (N, K) only.
//
// Products: tensor cores, mma m16n8k16, with x as the first operand (8 of its 16 rows are tokens,
// the others zero) and 8 rows of the weights as the second. The cost is the same for 1 token and
// for 8, so one instance serves all. A step of K needs no shuffles: the order of k within a product
// is free if both operands have the same, so a lane passes the 8 consecutive elements that it loads
// with 16 bytes (lane 4 g + q: elements 8 q ... of row g), as two products of 4 elements each.
// Lanes then read 64 bytes of each of 8 rows: whole sectors.
//
// Division: a block takes tiles of 8 * ROWS8 rows of the weights. Its warps share a tile's K in
// batches, batch b to warp b % warps, and their sums are added in the order of the warps.
//
// Loads in flight (Little's law): 4.3 TB/s * 0.8 us / 132 multiprocessors = 26 KB are needed on
// each. 16 warps with kLoads = 8 loads of 16 bytes in each lane have 64 KB. Each load is reissued,
// for the next batch or the next tile, as soon as its registers have been used, so that the end of
// a tile (a barrier, the sum over warps) does not drain them.
#include <algorithm>

#include "kernels/chunk.h"
#include "kernels/dispatch.h"
#include "kernels/kernels.h"
#include "minisgl/base/checked_math.h"

namespace minisgl::cuda {
namespace {

using device::kWarpSize;
using device::Shared;
using device::SharedArena;
using device::Vec;

constexpr int kLoads = 8;               // loads of 16 bytes in flight in a lane
constexpr int kGroup = 32;              // elements of a row that 4 lanes load at once
constexpr int kWarpsPerProcessor = 16;  // 128 registers for each thread
// For rows that are not aligned, which are loaded element by element.
constexpr int kGroupsUnaligned = 2;
constexpr int kGemvThreadsMax = kWarpsPerProcessor * kWarpSize;
constexpr int kTokens = static_cast<int>(kGemvTokensMax);
static_assert(kTokens == 8, "tokens are rows of one product");

struct GemvKernelParams {
  const uint16_t* weight;  // [N, K]
  const uint16_t* x;       // [T, K]
  const float* bias;       // [N] or null
  void* out;               // [T, N]
  bool out_is_f32;
  int num_tokens;
  int num_out;
  int num_in;
  int num_tiles;
  int groups_per_batch;  // <= GROUPS
};

using Words = Vec<uint32_t, 4>;  // 8 elements

// Loads elements [k, k + 8) of a row; zeros past its end and if not valid. ALIGNED: K is a multiple
// of 8 and rows begin at multiples of 16 bytes. STREAM: the data is read once.
template <bool ALIGNED, bool STREAM>
MINISGL_DEVICE Words LoadWords(const uint16_t* row, int k, int num_in, bool valid) {
  Words words = {};
  if constexpr (ALIGNED) {
    if (!valid || k >= num_in) return words;
    const uint32_t* const p = reinterpret_cast<const uint32_t*>(row + k);
    return STREAM ? device::LoadStream<4>(p) : device::LoadVec<4>(p);
  } else {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const uint32_t element = valid && k + i < num_in ? row[k + i] : 0;
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

template <int ROWS8, int GROUPS, bool ALIGNED>
MINISGL_DEVICE void LoadWeightGroup(const GemvKernelParams& p, int tile, int batch, int group,
                                    WeightBatch<ROWS8, GROUPS>& w) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int k = (batch * p.groups_per_batch + group) * kGroup + lane % 4 * 8;
  const bool valid = tile < p.num_tiles && group < p.groups_per_batch;
#pragma unroll
  for (int n = 0; n < ROWS8; ++n) {
    // Rows past the last alias it; their results are not stored.
    const int row = min((tile * ROWS8 + n) * 8 + lane / 4, p.num_out - 1);
    w.words[group][n] =
        LoadWords<ALIGNED, true>(p.weight + int64_t{row} * p.num_in, k, p.num_in, valid);
  }
}

// Sums in two independent chains of products: of the first 4 elements of each lane's 8, and of the
// last 4.
template <int ROWS8>
struct Sums {
  float chain[ROWS8][2][4];
};

// Adds the batch's products to `sums` and starts the loads of the next batch.
template <typename T, int ROWS8, int GROUPS, bool ALIGNED>
MINISGL_DEVICE void MultiplyBatch(const GemvKernelParams& p, int batch, int next_tile,
                                  int next_batch, WeightBatch<ROWS8, GROUPS>& w,
                                  Sums<ROWS8>& sums) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int token = lane / 4;
  Words x[GROUPS];
#pragma unroll
  for (int group = 0; group < GROUPS; ++group) {
    const int k = (batch * p.groups_per_batch + group) * kGroup + lane % 4 * 8;
    x[group] = LoadWords<ALIGNED, false>(p.x + int64_t{token} * p.num_in, k, p.num_in,
                                         token < p.num_tokens && group < p.groups_per_batch);
  }
#pragma unroll
  for (int group = 0; group < GROUPS; ++group) {
#pragma unroll
    for (int n = 0; n < ROWS8; ++n) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const uint32_t a[4] = {x[group][2 * half], 0, x[group][2 * half + 1], 0};
        const uint32_t b[2] = {w.words[group][n][2 * half], w.words[group][n][2 * half + 1]};
        device::Mma16816<T>(sums.chain[n][half], a, b);
      }
    }
    LoadWeightGroup<ROWS8, GROUPS, ALIGNED>(p, next_tile, next_batch, group, w);
  }
}

// Writes the tile: the warps' sums, added in the order of warps. `partial`: [warps][tokens * rows]
// floats, which are not written again before the barrier of the next tile.
template <typename T, int ROWS8>
MINISGL_DEVICE void CombineTile(const GemvKernelParams& p, int tile, const Sums<ROWS8>& sums,
                                Shared<float> partial) {
  constexpr int kRows = 8 * ROWS8;
  constexpr int kTile = kTokens * kRows;
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % kWarpSize, num_warps = static_cast<int>(blockDim.x) / kWarpSize;
  const Shared<float> mine = partial + thread / kWarpSize * kTile + lane / 4 * kRows + lane % 4 * 2;
#pragma unroll
  for (int n = 0; n < ROWS8; ++n) {
    mine[n * 8] = sums.chain[n][0][0] + sums.chain[n][1][0];
    mine[n * 8 + 1] = sums.chain[n][0][1] + sums.chain[n][1][1];
  }
  __syncthreads();  // all warps' sums are written
  const int row = tile * kRows + thread % kRows, token = thread / kRows;
  if (token >= p.num_tokens || row >= p.num_out) return;
  float sum = 0;
  for (int warp = 0; warp < num_warps; ++warp) sum += partial[warp * kTile + thread];
  if (p.bias != nullptr) sum += p.bias[row];
  const int64_t at = int64_t{token} * p.num_out + row;
  if (p.out_is_f32) {
    static_cast<float*>(p.out)[at] = sum;
  } else {
    static_cast<T*>(p.out)[at] = device::FromFloat<T>(sum);
  }
}

// Grid (min(tiles, blocks that run at once)), block 32 * warps; a block takes tiles b, b + grid,
// ... Shared memory: 2 * warps * 8 * 8 * ROWS8 floats (at most 8 KB), for two tiles' sums in turn,
// so that one barrier for each tile is enough. Traffic: 2 * N * K bytes, and 2 * T * K of x for
// each tile, mostly from the first-level cache. 2 * 16 * N * K operations of the tensor cores, half
// of them on zeros. The first weights are loaded before GridWait.
template <typename T, int ROWS8, int GROUPS, bool ALIGNED>
MINISGL_KERNEL void MINISGL_LAUNCH_BOUNDS(kGemvThreadsMax, 1) GemvKernel(GemvKernelParams p) {
  constexpr int kTile = kTokens * 8 * ROWS8;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int num_warps = static_cast<int>(blockDim.x) / kWarpSize;
  const int num_batches =
      (p.num_in + p.groups_per_batch * kGroup - 1) / (p.groups_per_batch * kGroup);
  SharedArena arena;
  const Shared<float> partial = arena.Take<float>(2 * num_warps * kTile);

  WeightBatch<ROWS8, GROUPS> w;
#pragma unroll
  for (int group = 0; group < GROUPS; ++group) {
    LoadWeightGroup<ROWS8, GROUPS, ALIGNED>(p, static_cast<int>(blockIdx.x), warp, group, w);
  }
  device::GridRelease();
  device::GridWait();

  int parity = 0;
  for (int tile = static_cast<int>(blockIdx.x); tile < p.num_tiles;
       tile += static_cast<int>(gridDim.x)) {
    Sums<ROWS8> sums = {};
    for (int batch = warp; batch < num_batches; batch += num_warps) {
      const bool ends = batch + num_warps >= num_batches;
      MultiplyBatch<T, ROWS8, GROUPS, ALIGNED>(p, batch,
                                               ends ? tile + static_cast<int>(gridDim.x) : tile,
                                               ends ? warp : batch + num_warps, w, sums);
    }
    CombineTile<T, ROWS8>(p, tile, sums, partial + parity * num_warps * kTile);
    parity ^= 1;
  }
}

// The division of a matrix, and the instance that computes it.
struct GemvSplit {
  bool aligned;
  int rows8;
  int num_warps;
  int groups_per_batch;
};

// From 4,096 rows on, tiles of 16 rows (a load of x serves two loads of weights) still give 256
// blocks of 8 warps, two for each of 132 multiprocessors. From 2,048 rows on, tiles of 8 rows do.
// Below that there are at most two tiles for each multiprocessor, and 16 warps share one. A batch
// is as long as a lane's loads allow, but not so long that warps would have no batch.
GemvSplit ChooseSplit(int64_t num_out, int64_t num_in) {
  GemvSplit split = {.aligned = num_in % 8 == 0,
                     .rows8 = num_in % 8 == 0 && num_out >= 4096 ? 2 : 1,
                     .num_warps = num_out >= 2048 ? 8 : kWarpsPerProcessor,
                     .groups_per_batch = 1};
  const int groups_max = split.aligned ? kLoads / split.rows8 : kGroupsUnaligned;
  const int64_t groups = CeilDiv<int64_t>(num_in, kGroup);
  split.groups_per_batch = static_cast<int>(
      std::clamp<int64_t>(CeilDiv<int64_t>(groups, split.num_warps), 1, groups_max));
  return split;
}

}  // namespace

CudaError LaunchGemv(const LaunchContext& context, const LinearParams& params, const void* weight) {
  MINISGL_CHECK(params.num_tokens <= kGemvTokensMax, "{} tokens; at most {}", params.num_tokens,
                kGemvTokensMax);
  const int64_t num_out = params.weight->num_out, num_in = params.weight->num_in;
  const GemvSplit split = ChooseSplit(num_out, num_in);
  const int64_t tile_rows = 8 * split.rows8;
  const GemvKernelParams p = {.weight = static_cast<const uint16_t*>(weight),
                              .x = params.x.as<uint16_t>(),
                              .bias = params.bias,
                              .out = params.out.data,
                              .out_is_f32 = params.out.dtype == DType::kF32,
                              .num_tokens = static_cast<int>(params.num_tokens),
                              .num_out = static_cast<int>(num_out),
                              .num_in = static_cast<int>(num_in),
                              .num_tiles = static_cast<int>(CeilDiv(num_out, tile_rows)),
                              .groups_per_batch = split.groups_per_batch};
  const int blocks_at_once = context.num_multiprocessors * (kWarpsPerProcessor / split.num_warps);
  const size_t tile_bytes = static_cast<size_t>(kTokens * tile_rows) * sizeof(float);
  const LaunchShape shape = {.grid = {params.num_tokens == 0 ? 0u
                                                             : static_cast<unsigned>(std::min(
                                                                   p.num_tiles, blocks_at_once))},
                             .block = {static_cast<unsigned>(split.num_warps * kWarpSize)},
                             .shared_bytes = 2 * static_cast<size_t>(split.num_warps) * tile_bytes,
                             .programmatic = true};
  MINISGL_CHECK(!split.aligned || (IsAligned16(weight) && IsAligned16(p.x)),
                "matrices must begin at multiples of 16 bytes");
  return DispatchHalf(params.x.dtype, [&]<typename T>() {
    if (!split.aligned) return Launch(context, shape, GemvKernel<T, 1, kGroupsUnaligned, false>, p);
    if (split.rows8 == 1) return Launch(context, shape, GemvKernel<T, 1, kLoads, true>, p);
    return Launch(context, shape, GemvKernel<T, 2, kLoads / 2, true>, p);
  });
}

}  // namespace minisgl::cuda
