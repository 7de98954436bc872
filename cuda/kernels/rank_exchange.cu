// Sums and columns of several ranks, exchanged through memory that all ranks reach
// (rank_exchange.cuh).
//
// Grid: a block for each slice, at most kExchangeBlocks; 256 threads, 16 bytes of shared memory.
// Traffic of a rank over its link, each way, for N ranks and B bytes: (N - 1) B in one shot, which
// has one meeting; 2 (N - 1) / N B in two, which have two.
#include <algorithm>

#include "kernels/dispatch.h"
#include "kernels/kernels.h"
#include "kernels/rank_exchange.cuh"
#include "minisgl/base/checked_math.h"

namespace minisgl::cuda {
namespace {

template <typename T>
MINISGL_KERNEL void MINISGL_LAUNCH_BOUNDS(kExchangeThreads, 1)
    SumKernel(MINISGL_GRID_CONSTANT RankSumParams params) {
  device::GridWait();
  device::SharedArena arena;
  RankSum<T>(params, arena.Take<uint32_t>(1)).Run();
}

MINISGL_KERNEL void MINISGL_LAUNCH_BOUNDS(kExchangeThreads, 1)
    GatherColumnsKernel(MINISGL_GRID_CONSTANT RankGatherParams params) {
  device::GridWait();
  device::SharedArena arena;
  RankGather(params, arena.Take<uint32_t>(1)).Run();
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
    return Launch(context, ExchangeShape(num_packs, slice), SumKernel<T>, p);
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
    const CudaError error =
        Launch(context, ExchangeShape(num_packs, p.slice), GatherColumnsKernel, p);
    if (error != kCudaSuccess) return error;
  }
  return kCudaSuccess;
}

}  // namespace minisgl::cuda
