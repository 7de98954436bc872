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

#include "kernels/dispatch.h"
#include "kernels/gemv_tile.cuh"

namespace minisgl::cuda {
namespace gemv {
namespace {

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
  const FarWeights far = FarOf(context, linear);
  const bool ends = context.product_ends || context.l2_hint || far.first.bytes > 0;
  if (ends && split.aligned && linear.num_tokens <= 8 && linear.x.dtype == DType::kBF16) {
    return LaunchGemvEnds(context, shape, split, p, far);
  }
  return DispatchHalf(linear.x.dtype,
                      [&]<typename T>() { return LaunchAny<T>(context, shape, split, p); });
}

}  // namespace minisgl::cuda
