// Sums and columns of several ranks, exchanged through memory that all ranks reach
// (rank_exchange.cuh).
//
// Grid: a block for each slice, at most kExchangeBlocks; 256 threads, 16 bytes of shared memory.
// Traffic of a rank over its link, each way, for N ranks and B bytes: (N - 1) B in one shot, which
// has one meeting; 2 (N - 1) / N B in two, which have two.
// A sum with a norm: a block for each token, at most kExchangeBlocks, with the norm's threads (256
// to 1,024 for 2,048 to 8,192 features), and two floats of shared memory for each warp besides.
#include <algorithm>

#include "kernels/dispatch.h"
#include "kernels/kernels.h"
#include "kernels/rank_exchange.cuh"
#include "kernels/rank_norm.cuh"
#include "minisgl/base/checked_math.h"

namespace minisgl::cuda {
namespace {

// RELEASES: the next kernel may begin, and have its weights under way while the ranks meet. Behind
// the wait, so that it may count on all kernels before this one.
template <typename T, bool RELEASES>
MINISGL_KERNEL void MINISGL_LAUNCH_BOUNDS(kExchangeThreads, 1)
    SumKernel(MINISGL_GRID_CONSTANT RankSumParams params) {
  device::GridWait();
  if constexpr (RELEASES) device::GridRelease();  // of a sum
  device::SharedArena arena;
  RankSum<T>(params, arena.Take<uint32_t>(1)).Run();
}

template <bool RELEASES>
MINISGL_KERNEL void MINISGL_LAUNCH_BOUNDS(kExchangeThreads, 1)
    GatherColumnsKernel(MINISGL_GRID_CONSTANT RankGatherParams params) {
  device::GridWait();
  if constexpr (RELEASES) device::GridRelease();
  device::SharedArena arena;
  RankGather(params, arena.Take<uint32_t>(1)).Run();
}

template <typename T, bool RELEASES>
MINISGL_KERNEL void MINISGL_LAUNCH_BOUNDS(kNormThreadsMax, 1)
    SumNormKernel(MINISGL_GRID_CONSTANT RankNormParams params) {
  device::SharedArena arena;
  const device::Shared<uint32_t> failed = arena.Take<uint32_t>(1);
  const device::Shared<float> scratch = arena.Take<float>(device::kWarpSize);
  const device::Shared<float> center_scratch = arena.Take<float>(device::kWarpSize);
  device::GridWait();
  if constexpr (RELEASES) device::GridRelease();
  float weight[kRankNormChunks][kChunk];  // under way while the ranks meet
  LoadNormWeights(params.norm, 0, weight);
  RankNorm<T>(params, failed, scratch, center_scratch).Run(weight);
}

// Packs of a slice: one for each thread, or more if there are more than blocks have.
int32_t SliceOf(int64_t num_packs) {
  const int64_t a_block = CeilDiv<int64_t>(num_packs, int64_t{kExchangeBlocks} * kExchangeThreads);
  return static_cast<int32_t>(
      std::min<int64_t>(std::max<int64_t>(a_block, 1) * kExchangeThreads, kExchangePacks));
}

LaunchShape ExchangeShape(int64_t num_packs, int32_t slice) {
  return {.grid = {static_cast<unsigned>(
              std::min<int64_t>(CeilDiv<int64_t>(num_packs, slice), kExchangeBlocks))},
          .block = {kExchangeThreads},
          .shared_bytes = kExchangePackBytes,
          .programmatic = true};
}

}  // namespace

CudaError LaunchAllReduce(const LaunchContext& context, const AllReduceParams& params,
                          const RankExchange& ranks) {
  const int64_t num_bytes = params.count * static_cast<int64_t>(DTypeBytes(params.x.dtype));
  const int64_t num_packs = CeilDiv<int64_t>(num_bytes, kExchangePackBytes);
  const int32_t slice = SliceOf(num_packs);
  const RankSumParams p = {.ranks = ranks,
                           .x = params.x.data,
                           .count = params.count,
                           .slice = slice,
                           .two_shots = num_bytes > ranks.one_shot_bytes};
  return DispatchDType(params.x.dtype, [&]<typename T>() {
    return Launch(context, ExchangeShape(num_packs, slice),
                  ranks.on_distinct_devices ? SumKernel<T, true> : SumKernel<T, false>, p);
  });
}

bool SumTakesNorm(const AllReduceNormParams& params, const RankExchange& ranks) {
  const AllReduceParams& sum = params.sum;
  const NormParams& norm = params.norm;
  const bool is_whole = (norm.group_width == 0 || norm.group_width == norm.width) &&
                        (norm.stride == 0 || norm.stride == norm.width) &&
                        norm.mean_squares == nullptr && norm.width <= kRankNormWidthMax;
  const bool is_aligned = norm.width % kChunk == 0 && IsAligned16(sum.x.data) &&
                          IsAligned16(norm.residual) && IsAligned16(norm.weight) &&
                          IsAligned16(norm.bias) && IsAligned16(norm.out.data);
  return sum.x.dtype != DType::kF32 && norm.out.data != nullptr && is_whole && is_aligned &&
         sum.count * static_cast<int64_t>(DTypeBytes(sum.x.dtype)) <= ranks.one_shot_bytes;
}

CudaError LaunchAllReduceNorm(const LaunchContext& context, const AllReduceNormParams& params,
                              const RankExchange& ranks) {
  RankNormParams p = {.ranks = ranks, .norm = {.norm = params.norm, .aligned = true}};
  p.norm.norm.group_width = p.norm.norm.stride = params.norm.width;
  const LaunchShape shape = {
      .grid = {static_cast<unsigned>(std::min<int64_t>(params.norm.num_tokens, kExchangeBlocks))},
      .block = {NormThreads(params.norm.width)},
      .shared_bytes = kExchangePackBytes + 2 * device::kWarpSize * sizeof(float),
      .programmatic = true};
  return DispatchHalf(params.sum.x.dtype, [&]<typename T>() {
    return Launch(context, shape,
                  ranks.on_distinct_devices ? SumNormKernel<T, true> : SumNormKernel<T, false>, p);
  });
}

// In pieces whose elements 31 bits count.
CudaError LaunchGatherColumns(const LaunchContext& context, const GatherColumnsParams& params,
                              const RankExchange& ranks) {
  int64_t widest = 1;
  RankGatherParams p = {.ranks = ranks, .out_stride = params.out_stride};
  for (int32_t rank = 0; rank <= ranks.count; ++rank) {
    p.bounds[rank] = static_cast<int32_t>(params.bounds[rank]);
    if (rank > 0) widest = std::max(widest, params.bounds[rank] - params.bounds[rank - 1]);
  }
  // A multiple of 4 tokens, so that each piece begins at a pack.
  const int64_t most = std::max<int64_t>(4, (int64_t{1} << 28) / widest * 4);
  for (int64_t first = 0; first < params.num_tokens; first += most) {
    const int64_t num_tokens = std::min(most, params.num_tokens - first);
    const int64_t num_packs = CeilDiv<int64_t>(num_tokens * widest, kPackElements<float>);
    p.x = params.x + first * params.width;
    p.out = params.out == nullptr ? nullptr : params.out + first * params.out_stride;
    p.num_tokens = static_cast<int32_t>(num_tokens);
    p.slice = SliceOf(num_packs);
    const CudaError error = Launch(
        context, ExchangeShape(num_packs, p.slice),
        ranks.on_distinct_devices ? GatherColumnsKernel<true> : GatherColumnsKernel<false>, p);
    if (error != kCudaSuccess) return error;
  }
  return kCudaSuccess;
}

}  // namespace minisgl::cuda
