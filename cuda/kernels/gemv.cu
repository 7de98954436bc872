// Matrix times few vectors: out[T, N] = x[T, K] * weight[N, K]^T + bias for T <= 16. The sums may
// then be activated, or added to the residual stream (product_end.h). Bound by reading the weights
// once.
//
// An element's result does not depend on the number of tokens: the rows of a product do not
// interact, and the division of K is a function of (N, K) only, as is the choice of a kernel:
// gemv_ring.cu computes large matrices. The operations around a product change no bit either.
//
// There are two instances: one for at most 8 tokens, which passes zeros as rows 8 to 15 of a
// product (gemv_parts.h), and one for at most 16, which loads them. Products, loads of weights and
// order of sums are the same in both.
//
// Division: a block takes tiles of 8 * ROWS8 rows of the weights. Its warps share a tile's K in
// batches, batch b to warp b % warps, and their sums are added in the order of the warps.
//
// Loads in flight (Little's law): 4.3 TB/s * 0.8 us / 132 multiprocessors = 26 KB are needed on
// each. 16 warps with kLoads = 8 loads of 16 bytes in each lane have 64 KB. Each load is reissued,
// for the next batch or the next tile, as soon as its registers have been used, so that the end of
// a tile (a barrier, the sum over warps) does not drain them. The first loads are issued before
// GridWait, so that a warp then has all of its part of a small matrix in registers.
#include <algorithm>

#include "kernels/chunk.h"
#include "kernels/dispatch.h"
#include "kernels/gemv_input.h"
#include "kernels/gemv_parts.h"
#include "minisgl/base/checked_math.h"

namespace minisgl::cuda {
namespace gemv {
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
// multiple of 8 and rows begin at multiples of 16 bytes. STREAM: the data is read once.
template <bool ALIGNED, bool STREAM>
MINISGL_DEVICE Words LoadWords(const uint16_t* from, int at, int left) {
  Words words = {};
  if constexpr (ALIGNED) {
    if (at >= left) return words;
    const uint32_t* const p = reinterpret_cast<const uint32_t*>(from + at);
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

template <int ROWS8>
MINISGL_DEVICE WeightSource<ROWS8> FindWeights(const GemvKernelParams& p, int tile, int batch) {
  int k = 0;
  const int left = RowLeft(p, batch, &k);
  WeightSource<ROWS8> source = {.row = {}, .left = tile < p.num_tiles ? left : 0};
#pragma unroll
  for (int n = 0; n < ROWS8; ++n) {
    const int row =
        RowOfTile<8 * ROWS8>(p.end, tile, n * 8 + static_cast<int>(threadIdx.x) % kWarpSize / 4);
    source.row[n] = p.weight + int64_t{row} * p.input.num_in + k;
  }
  return source;
}

template <int ROWS8, int GROUPS, bool ALIGNED>
MINISGL_DEVICE void LoadWeightGroup(const WeightSource<ROWS8>& source, int group,
                                    WeightBatch<ROWS8, GROUPS>& w) {
#pragma unroll
  for (int n = 0; n < ROWS8; ++n) {
    w.words[group][n] = LoadWords<ALIGNED, true>(source.row[n], group * kGroup, source.left);
  }
}

// Adds the batch's products to `sums` and starts the loads of the next batch. TOKENS8: tokens in
// units of 8. With two, and for 24 rows, x is loaded for half of the groups at a time.
template <typename T, int TOKENS8, int ROWS8, int GROUPS, bool ALIGNED>
MINISGL_DEVICE void MultiplyBatch(const GemvKernelParams& p, int batch, int next_tile,
                                  int next_batch, WeightBatch<ROWS8, GROUPS>& w,
                                  GemvSums<ROWS8>& sums) {
  constexpr int kGroupsAtOnce = GROUPS / (TOKENS8 == 2 || ROWS8 == 3 ? 2 : 1);
  const int token = static_cast<int>(threadIdx.x) % kWarpSize / 4;
  int k = 0;
  const int left = RowLeft(p, batch, &k);
  const uint16_t* const x_row = p.input.x + int64_t{token} * p.input.num_in + k;
  const WeightSource<ROWS8> next = FindWeights<ROWS8>(p, next_tile, next_batch);
#pragma unroll
  for (int first = 0; first < GROUPS; first += kGroupsAtOnce) {
    // Keeps the compiler from loading more of x at once than there are registers for.
    if (kGroupsAtOnce < GROUPS && first > 0) __syncwarp();
    Words x[kGroupsAtOnce][TOKENS8];
#pragma unroll
    for (int i = 0; i < kGroupsAtOnce; ++i) {
#pragma unroll
      for (int m = 0; m < TOKENS8; ++m) {
        const int at = (first + i) * kGroup;
        const int x_left = m * 8 + token < p.input.num_tokens ? left : 0;
        x[i][m] = LoadWords<ALIGNED, false>(x_row + int64_t{m} * 8 * p.input.num_in, at, x_left);
      }
    }
#pragma unroll
    for (int i = 0; i < kGroupsAtOnce; ++i) {
#pragma unroll
      for (int n = 0; n < ROWS8; ++n) {
        MultiplyGemvWords<T>(x[i], w.words[first + i][n], n, sums);
      }
      LoadWeightGroup<ROWS8, GROUPS, ALIGNED>(next, first + i, w);
    }
  }
}

// Grid (min(tiles, blocks that run at once)), block 32 * warps; a block takes tiles b, b + grid,
// ... Shared memory: 2 * warps * 8 * TOKENS8 * 8 * ROWS8 floats (at most 16 KB), for the sums of
// two tiles in turn, so that one barrier for each tile is enough. A tile has at most as many
// elements as the block threads. Traffic: 2 * N * K bytes, and 2 * T * K of x for
// each tile, mostly from the first-level cache. 2 * 16 * N * K operations of the tensor cores. The
// first weights are loaded before GridWait.
template <typename T, int TOKENS8, int ROWS8, int GROUPS, bool ALIGNED>
MINISGL_KERNEL void MINISGL_LAUNCH_BOUNDS(kGemvThreadsMax, 1) GemvKernel(GemvKernelParams p) {
  constexpr int kTile = kGemvTileSums<TOKENS8, ROWS8>;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int num_warps = static_cast<int>(blockDim.x) / kWarpSize;
  const int num_batches =
      (p.input.num_in + p.groups_per_batch * kGroup - 1) / (p.groups_per_batch * kGroup);
  SharedArena arena;
  const Shared<float> partial = arena.Take<float>(2 * num_warps * kTile);

  WeightBatch<ROWS8, GROUPS> w;
  const auto source = FindWeights<ROWS8>(p, static_cast<int>(blockIdx.x), warp);
#pragma unroll
  for (int group = 0; group < GROUPS; ++group) {
    LoadWeightGroup<ROWS8, GROUPS, ALIGNED>(source, group, w);
  }
  const int blocks = static_cast<int>(gridDim.x);
  if (static_cast<int>(blockIdx.x) + blocks >= p.num_tiles) PrefetchNext(p.next);
  device::GridRelease();
  device::GridWait();

  int parity = 0;
  for (int tile = static_cast<int>(blockIdx.x); tile < p.num_tiles; tile += blocks) {
    if (tile >= blocks && tile + blocks >= p.num_tiles) PrefetchNext(p.next);
    // Early, so that the residual stream's element is there in time. Matrices of more rows have no
    // registers left for it, and are seldom added to that stream.
    GemvPlace place;
    if constexpr (ROWS8 == 1) place = PlaceOfGemv<ROWS8>(p.end, p.input.num_tokens, tile);
    GemvSums<ROWS8> sums = {};
    for (int batch = warp; batch < num_batches; batch += num_warps) {
      const bool ends = batch + num_warps >= num_batches;
      MultiplyBatch<T, TOKENS8, ROWS8, GROUPS, ALIGNED>(p, batch, ends ? tile + blocks : tile,
                                                        ends ? warp : batch + num_warps, w, sums);
    }
    if constexpr (ROWS8 != 1) place = PlaceOfGemv<ROWS8>(p.end, p.input.num_tokens, tile);
    const Shared<float> tile_sums = partial + parity * num_warps * kTile;
    StoreGemvSums<TOKENS8, ROWS8>(sums, tile_sums);
    __syncthreads();  // all warps' sums are written
    WriteGemvPlace<T, TOKENS8, ROWS8>(p.end, place, tile_sums);
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

int BlocksAtOnce(const LaunchContext& context, const GemvSplit& split) {
  return context.num_multiprocessors * (kWarpsPerProcessor / split.num_warps);
}

// The share of blocks that have a tile, over the rounds in which `blocks` blocks take all tiles.
double TileShare(int64_t num_out, int rows8, int64_t blocks) {
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
GemvSplit ChooseSplit(const LaunchContext& context, int64_t num_out, int64_t num_in,
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

template <typename T, int TOKENS8>
CudaError LaunchInstance(const LaunchContext& context, const LaunchShape& shape,
                         const GemvSplit& split, const GemvKernelParams& p) {
  if (split.rows8 == 1) {
    return Launch(context, shape, GemvKernel<T, TOKENS8, 1, kLoads, true>, p);
  }
  if constexpr (TOKENS8 == 1) {
    if (split.rows8 == 3) {
      return Launch(context, shape, GemvKernel<T, 1, 3, kLoads / 2, true>, p);
    }
  }
  return Launch(context, shape, GemvKernel<T, TOKENS8, 2, kLoads / 2, true>, p);
}

template <typename T>
CudaError LaunchAny(const LaunchContext& context, const LaunchShape& shape, const GemvSplit& split,
                    const GemvKernelParams& p) {
  const bool few = p.input.num_tokens <= 8;
  if (!split.aligned) {
    return few ? Launch(context, shape, GemvKernel<T, 1, 1, kGroupsUnaligned, false>, p)
               : Launch(context, shape, GemvKernel<T, 2, 1, kGroupsUnaligned, false>, p);
  }
  return few ? LaunchInstance<T, 1>(context, shape, split, p)
             : LaunchInstance<T, 2>(context, shape, split, p);
}

}  // namespace
}  // namespace gemv

bool GemvTakesNorm(const LaunchContext& context, const Matrix& weight, const NormParams& norm) {
  // Each block normalises all tokens before it multiplies: a small matrix takes less time than that
  // costs, and of more tokens one kernel for all blocks is faster.
  if (!GemvTakesRing(context, weight)) return false;
  constexpr int64_t kElementsMax = 4096;
  const bool whole = norm.group_width == 0 || norm.group_width == norm.width;
  return norm.kind == NormKind::kRms && norm.x == nullptr && norm.residual != nullptr &&
         norm.weight != nullptr && norm.bias == nullptr && norm.residual_factor == 1 && whole &&
         norm.width % kChunk == 0 && norm.width <= kGemvNormWidthMax && norm.num_tokens <= 8 &&
         norm.num_tokens * norm.width <= std::max(kElementsMax, norm.width) &&
         IsAligned16(norm.residual) && IsAligned16(norm.weight);
}

bool ProductTakesActivation(const ActivateParams& p) {
  return p.activation != Activation::kGelu && p.activation != Activation::kSigmoid &&
         p.activation != Activation::kXielu && p.up == nullptr && p.gate_scale == 1 &&
         p.out.dtype != DType::kF32;
}

CudaError LaunchGemv(const LaunchContext& context, const ProductParams& params,
                     const void* weight) {
  using namespace gemv;  // NOLINT: this file's own
  const LinearParams& linear = params.linear;
  MINISGL_CHECK(linear.num_tokens <= kGemvTokensMax, "{} tokens; at most {}", linear.num_tokens,
                kGemvTokensMax);
  if (linear.num_tokens == 0) return kCudaSuccess;
  const int64_t num_out = linear.weight->num_out, num_in = linear.weight->num_in;
  MINISGL_CHECK(num_in % 8 != 0 || (IsAligned16(weight) && IsAligned16(linear.x.data)),
                "matrices must begin at multiples of 16 bytes");
  if (params.norm != nullptr) {
    MINISGL_CHECK(GemvTakesNorm(context, *linear.weight, *params.norm),
                  "a norm that this product does not begin with");
  }
  if (GemvTakesRing(context, *linear.weight)) return LaunchGemvRing(context, params, weight);
  const GemvSplit split = ChooseSplit(context, num_out, num_in, linear.num_tokens);
  const int64_t tile_rows = 8 * split.rows8, tile_tokens = linear.num_tokens <= 8 ? 8 : 16;
  GemvKernelParams p = {.weight = static_cast<const uint16_t*>(weight),
                        .input = MakeGemvInput(params),
                        .end = MakeProductEnd(params),
                        .num_tiles = 0,
                        .groups_per_batch = split.groups_per_batch,
                        .next = NextOfGemv(context, linear.next, linear.num_tokens)};
  p.num_tiles =
      static_cast<int>(p.end.num_pairs > 0 ? CeilDiv<int64_t>(p.end.num_pairs, tile_rows / 2)
                                           : CeilDiv(num_out, tile_rows));
  const size_t tile_bytes = static_cast<size_t>(tile_tokens * tile_rows) * sizeof(float);
  const LaunchShape shape = {
      .grid = {static_cast<unsigned>(std::min(p.num_tiles, BlocksAtOnce(context, split)))},
      .block = {static_cast<unsigned>(split.num_warps * kWarpSize)},
      .shared_bytes = 2 * static_cast<size_t>(split.num_warps) * tile_bytes,
      .programmatic = true};
  return DispatchHalf(linear.x.dtype,
                      [&]<typename T>() { return LaunchAny<T>(context, shape, split, p); });
}

}  // namespace minisgl::cuda
