// The matrix products of experts: out[t K + k] = x[t] * weights[experts[t, k]]^T + bias.
//
// Each expert's weights are read about once for each step, however many tokens chose it. The host
// needs no result of the routing, so a graph can hold these kernels. An element is summed in one
// chain in the order of K, in tiles of 16 as in tiles of 64, and the rows of a product do not
// interact: a result depends on its own row, its expert and K only.
//
// Two kernels:
//   GroupPairsKernel, one block, sorts the T * K pairs (token, choice) by expert and cuts each
//     expert's pairs into tiles of 16 or 64 rows: the work list;
//   ExpertLinearKernel has a block for each possible tile of the list and each 64 outputs; blocks
//     past the list's end exit at once. If there are few pairs, mostly of different experts, the
//     first kernel is skipped: block x looks through all pairs, and exits unless pair x is the
//     first of a tile.
//
// product_tile.cuh has the products.
//
// Traffic: the weights of the experts in use (2 * N * K bytes each; again for each further tile,
// mostly from the second-level cache), 2 * K bytes of x for each pair and 64 outputs, and 2 * N
// bytes for each pair. 2 * N * K operations for each row of a tile. Loads in flight: 26 KB are
// needed on each multiprocessor (gemv.cu); three blocks of 5 steps of 10 KB (tiles of 16 rows) have
// 150 KB.
#include <algorithm>

#include "kernels/chunk.h"
#include "kernels/dispatch.h"
#include "kernels/expert_tiles.cuh"
#include "kernels/kernels.h"
#include "kernels/product_tile.cuh"
#include "minisgl/base/checked_math.h"

namespace minisgl::cuda {
namespace {

using device::GridRelease;
using device::GridWait;
using device::kAllLanes;
using device::kWarpSize;
using device::Shared;
using device::SharedArena;

// --- the work list ---

constexpr int kGroupThreads = kExpertsMax;  // a thread for each expert

// Upper bound on the number of tiles: every expert may have one tile that is not full, and there
// are no more tiles than pairs.
int64_t TilesMax(int64_t num_pairs, int64_t num_experts, int64_t rows) {
  return std::min(num_pairs, num_pairs / rows + num_experts);
}

struct GroupKernelParams {
  const int32_t* experts;
  int num_pairs;
  int num_experts;
  int tile_rows;
  ExpertLists lists;
};

// Returns the sum of x over the block's threads before this one. `scratch`: an int for each warp,
// used only here.
MINISGL_DEVICE int SumBefore(int x, Shared<int> scratch) {
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % kWarpSize, warp = thread / kWarpSize;
  int sum = x;
#pragma unroll
  for (int distance = 1; distance < kWarpSize; distance *= 2) {
    const int other = __shfl_up_sync(kAllLanes, sum, static_cast<unsigned>(distance));
    if (lane >= distance) sum += other;
  }
  if (lane == kWarpSize - 1) scratch[warp] = sum;
  __syncthreads();  // all warps' sums are there
  sum -= x;
  for (int w = 0; w < warp; ++w) sum += scratch[w];
  return sum;
}

// Calls f(pair, expert) for this thread's pairs. Several loads are in flight at once, as a single
// block has nothing else to do.
template <typename F>
MINISGL_DEVICE void ForEachPair(const GroupKernelParams& p, const F& f) {
  constexpr int kAtOnce = 8;
  for (int base = static_cast<int>(threadIdx.x); base < p.num_pairs;
       base += kAtOnce * kGroupThreads) {
    int expert[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int pair = base + i * kGroupThreads;
      expert[i] = pair < p.num_pairs ? p.experts[pair] : -1;
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (expert[i] >= 0) f(base + i * kGroupThreads, expert[i]);
    }
  }
}

// Grid (1), block 512. Shared memory: 4.2 KB. Traffic: 12 bytes for each pair. The order of an
// expert's pairs depends on the order of atomics; no result depends on it.
MINISGL_KERNEL void MINISGL_LAUNCH_BOUNDS(kGroupThreads, 1) GroupPairsKernel(GroupKernelParams p) {
  SharedArena arena;
  const Shared<int> counts = arena.Take<int>(kExpertsMax);
  const Shared<int> next = arena.Take<int>(kExpertsMax);
  const Shared<int> pair_scratch = arena.Take<int>(kWarpSize);
  const Shared<int> tile_scratch = arena.Take<int>(kWarpSize);
  GridRelease();
  const int thread = static_cast<int>(threadIdx.x);
  counts[thread] = 0;
  GridWait();
  __syncthreads();  // all counts are zero
  ForEachPair(p, [&](int, int expert) { device::AtomicAddShared(counts + expert, 1); });
  __syncthreads();  // the counts are complete
  const int count = counts[thread];
  const int num_tiles = (count + p.tile_rows - 1) / p.tile_rows;
  const int first = SumBefore(count, pair_scratch);
  const int first_tile = SumBefore(num_tiles, tile_scratch);
  next[thread] = first;
  for (int i = 0; i < num_tiles; ++i) {
    const int done = i * p.tile_rows;
    p.lists.tiles[first_tile + i] = {thread, first + done, min(count - done, p.tile_rows)};
  }
  if (thread == kGroupThreads - 1) *p.lists.num_tiles = first_tile + num_tiles;
  __syncthreads();  // `next` is written
  ForEachPair(p, [&](int pair, int expert) {
    p.lists.pairs[device::AtomicAddShared(next + expert, 1)] = pair;
  });
}

// --- the products ---

template <int ROWS16>
constexpr size_t kSharedBytes = ProductShape<ROWS16>::kBytes +
                                (ProductShape<ROWS16>::kRows + kTileThreads / kWarpSize) *
                                    sizeof(int);

// Grid (upper bound on the tiles, N / 64), block 128. Shared memory: kSharedBytes. Traffic:
// see the head of this file.
template <typename T, int ROWS16>
MINISGL_KERNEL void MINISGL_LAUNCH_BOUNDS(kTileThreads, 3)
    ExpertLinearKernel(ExpertLinearKernelParams p) {
  using Tile = ProductShape<ROWS16>;
  SharedArena arena;
  const Shared<int> pairs = arena.Take<int>(Tile::kRows);
  ProductTile<T, ROWS16> product(&arena, p.num_in, p.aligned, p.weights);
  const Shared<unsigned> same = arena.Take<unsigned>(kTileThreads / kWarpSize);
  GridRelease();
  GridWait();
  const int expert = p.experts != nullptr ? TileOfLeader<Tile::kRows>(p, pairs, same)
                                          : TileOfList<Tile::kRows>(p, pairs);
  if (expert < 0) return;
  const int first_out = static_cast<int>(blockIdx.y) * kTileOuts;
  product.SetWeights([&](int i) -> const T* {
    const int out = first_out + i;
    if (out >= p.num_out) return nullptr;
    return static_cast<const T*>(p.weights) + (int64_t{expert} * p.num_out + out) * p.num_in;
  });
  product.SetRows([&](int i) -> const T* {
    const int pair = pairs[i];
    if (pair < 0) return nullptr;
    return static_cast<const T*>(p.x) + int64_t{pair / p.pairs_per_row} * p.num_in;
  });
  float sums[ROWS16][2][4] = {};
  product.Multiply(sums);
  StoreTile<T, ROWS16>(p, expert, first_out + product.first_out(), product.lane(), pairs, sums);
}

// Offsets of the parts of the workspace, in bytes.
struct ListLayout {
  int64_t tiles, pairs, end;
};

ListLayout LayOut(int64_t num_pairs, int64_t num_experts) {
  constexpr int64_t kAlignment = 256;
  ListLayout layout = {.tiles = kAlignment};  // the number of tiles is at offset 0
  const int64_t tile_bytes =
      TilesMax(num_pairs, num_experts, kRowsMin) * static_cast<int64_t>(sizeof(ExpertTile));
  layout.pairs = layout.tiles + CeilDiv(tile_bytes, kAlignment) * kAlignment;
  layout.end = layout.pairs + num_pairs * static_cast<int64_t>(sizeof(int32_t));
  return layout;
}

ExpertLists ListsIn(const ExpertWorkspace& workspace) {
  const DeviceLimits& limits = workspace.limits;
  const ListLayout layout =
      LayOut(int64_t{limits.max_tokens} * limits.num_chosen, limits.num_experts);
  auto* const bytes = static_cast<unsigned char*>(workspace.memory);
  return {.num_tiles = reinterpret_cast<int32_t*>(bytes),
          .tiles = reinterpret_cast<ExpertTile*>(bytes + layout.tiles),
          .pairs = reinterpret_cast<int32_t*>(bytes + layout.pairs)};
}

CudaError LaunchGroupPairs(const LaunchContext& context, const GroupKernelParams& params) {
  const LaunchShape shape = {.grid = {1},
                             .block = {kGroupThreads},
                             .shared_bytes = (2 * kExpertsMax + 2 * kWarpSize) * sizeof(int),
                             .programmatic = true};
  return Launch(context, shape, GroupPairsKernel, params);
}

}  // namespace

size_t ExpertWorkspaceBytes(const DeviceLimits& limits) {
  if (limits.num_experts == 0) return 0;
  const int64_t num_pairs = int64_t{limits.max_tokens} * limits.num_chosen;
  return static_cast<size_t>(LayOut(num_pairs, limits.num_experts).end);
}

ExpertLaunch PrepareExperts(const LaunchContext& context, const ExpertLinearParams& params,
                            const void* weights, const ExpertWorkspace& workspace) {
  const int64_t num_pairs = params.num_tokens * params.num_chosen;
  const DeviceLimits& limits = workspace.limits;
  const int64_t num_experts = params.weights->num_experts;
  MINISGL_CHECK(params.num_tokens <= limits.max_tokens && params.num_chosen <= limits.num_chosen &&
                    num_experts <= limits.num_experts && num_experts <= kExpertsMax,
                "{} tokens with {} of {} experts do not fit a workspace for {} with {} of {}",
                params.num_tokens, params.num_chosen, num_experts, limits.max_tokens,
                limits.num_chosen, limits.num_experts);
  MINISGL_CHECK(params.x.dtype == params.out.dtype && params.x.dtype == params.weights->dtype,
                "x is {}, weights are {}, the output is {}", DTypeName(params.x.dtype),
                DTypeName(params.weights->dtype), DTypeName(params.out.dtype));
  // Tiles of 64 if experts have more than 16 pairs on average: otherwise they would mostly multiply
  // zeros. With at most one pair for each expert on average, most pairs are the first of a tile.
  const bool large = num_pairs > kRowsMin * num_experts;
  const bool leads = num_pairs <= std::min<int64_t>(kLeadersMax, num_experts);
  const int rows = large ? ProductShape<4>::kRows : ProductShape<1>::kRows;
  const ExpertLists lists = ListsIn(workspace);
  CudaError error = kCudaSuccess;
  if (!leads) {
    error = LaunchGroupPairs(context, {.experts = params.experts,
                                       .num_pairs = static_cast<int>(num_pairs),
                                       .num_experts = static_cast<int>(num_experts),
                                       .tile_rows = rows,
                                       .lists = lists});
  }

  const int64_t num_in = params.weights->num_in, num_out = params.weights->num_out;
  const int64_t num_tiles = leads ? num_pairs : TilesMax(num_pairs, num_experts, rows);
  const ExpertLinearKernelParams p = {
      .experts = leads ? params.experts : nullptr,
      .num_pairs = static_cast<int>(num_pairs),
      .x = params.x.data,
      .weights = weights,
      .bias = params.bias,
      .out = params.out.data,
      .lists = lists,
      .num_in = static_cast<int>(num_in),
      .num_out = static_cast<int>(num_out),
      .pairs_per_row = params.x_per_choice ? 1 : params.num_chosen,
      .aligned = num_in % kChunk == 0 && IsAligned16(params.x.data) && IsAligned16(weights)};
  const LaunchShape shape = {.grid = {static_cast<unsigned>(num_tiles),
                                      static_cast<unsigned>(CeilDiv<int64_t>(num_out, kTileOuts))},
                             .block = {kTileThreads},
                             .programmatic = true};
  return {.params = p, .shape = shape, .large = large, .error = error};
}

CudaError LaunchExpertLinear(const LaunchContext& context, const ExpertLinearParams& params,
                             const void* weights, const ExpertWorkspace& workspace) {
  if (params.num_tokens * params.num_chosen == 0) return kCudaSuccess;
  ExpertLaunch launch = PrepareExperts(context, params, weights, workspace);
  if (launch.error != kCudaSuccess) return launch.error;
  launch.shape.shared_bytes = launch.large ? kSharedBytes<4> : kSharedBytes<1>;
  return DispatchHalf(params.out.dtype, [&]<typename T>() {
    return launch.large ? Launch(context, launch.shape, ExpertLinearKernel<T, 4>, launch.params)
                        : Launch(context, launch.shape, ExpertLinearKernel<T, 1>, launch.params);
  });
}

}  // namespace minisgl::cuda
