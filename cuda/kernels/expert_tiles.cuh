// The tiles of experts' products (expert_linear.cu), for matrices of any form: which pairs a block
// has, and the end of its product.
#pragma once

#include "device/device.h"
#include "kernels/kernels.h"
#include "kernels/product_tile.cuh"

namespace minisgl::cuda {

inline constexpr int kRowsMin = 16;  // rows of a small tile

// Pairs [first, first + count) of ExpertLists::pairs, which all chose `expert`.
struct ExpertTile {
  int32_t expert, first, count;
};

struct ExpertLists {
  int32_t* num_tiles;
  ExpertTile* tiles;
  int32_t* pairs;  // t K + k, grouped by expert
};

inline constexpr int kLeadersMax = kTileThreads;  // each thread looks at one pair
static_assert(kRowsAtOnce == kRowsMin);

struct ExpertLinearKernelParams {
  // The experts of at most kLeadersMax pairs, which the kernel groups itself; null: use the list.
  const int32_t* experts;
  int num_pairs;
  const void* x;
  const void* weights;
  const float* bias;  // [X, out] or null
  void* out;
  ExpertLists lists;
  int num_in;
  int num_out;
  int pairs_per_row;  // pairs for each row of x: K, or 1 if each pair has its own row
  bool aligned;       // rows of x and of the weights are whole chunks of 16 bytes
};

// Finds the tile of block x in the work list: sets `pairs` (-1 after the last) and returns its
// expert, or -1 if the block has no tile. Every thread of the block must call this, and
// TileOfLeader.
template <int ROWS>
MINISGL_DEVICE int TileOfList(const ExpertLinearKernelParams& p, device::Shared<int> pairs) {
  const int thread = static_cast<int>(threadIdx.x);
  if (static_cast<int>(blockIdx.x) >= *p.lists.num_tiles) return -1;
  const ExpertTile tile = p.lists.tiles[blockIdx.x];
  if (thread < ROWS) {
    pairs[thread] = thread < tile.count ? p.lists.pairs[tile.first + thread] : -1;
  }
  __syncthreads();  // all pairs are written
  return tile.expert;
}

// The same without a list: the tile of pair x and the next ROWS - 1 pairs that chose the same
// expert, if the number of such pairs before x is a multiple of ROWS. `same`: an int for each warp.
template <int ROWS>
MINISGL_DEVICE int TileOfLeader(const ExpertLinearKernelParams& p, device::Shared<int> pairs,
                                device::Shared<unsigned> same) {
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % device::kWarpSize, warp = thread / device::kWarpSize;
  const int leader = static_cast<int>(blockIdx.x), expert = p.experts[leader];
  const bool is_same = thread < p.num_pairs && p.experts[thread] == expert;
  const unsigned same_lanes = __ballot_sync(device::kAllLanes, is_same);
  if (lane == 0) same[warp] = same_lanes;
  if (thread < ROWS) pairs[thread] = -1;
  __syncthreads();  // `same` is written, and `pairs` is cleared
  int rank = __popc(same_lanes & ((1u << lane) - 1)), leader_rank = 0;
#pragma unroll
  for (int w = 0; w < kTileThreads / device::kWarpSize; ++w) {
    const unsigned mask = same[w];
    const int before = leader - w * device::kWarpSize;  // lanes of warp w before the leader
    const unsigned earlier = before >= device::kWarpSize ? ~0u
                             : before <= 0               ? 0u
                                                         : (1u << before) - 1;
    leader_rank += __popc(mask & earlier);
    if (w < warp) rank += __popc(mask);
  }
  if (leader_rank % ROWS != 0) return -1;
  const int place = rank - leader_rank;
  if (is_same && place >= 0 && place < ROWS) pairs[place] = thread;
  __syncthreads();  // all pairs are written
  return expert;
}

// `first_out`: the warp's first output.
template <typename T, int ROWS16>
MINISGL_DEVICE void StoreTile(const ExpertLinearKernelParams& p, int expert, int first_out,
                              int lane, device::Shared<int> pairs,
                              const float (&sums)[ROWS16][2][4]) {
#pragma unroll
  for (int n = 0; n < 2; ++n) {
    const int out = first_out + n * 8 + lane % 4 * 2;
    if (out >= p.num_out) continue;
    const bool both = out + 1 < p.num_out;
    float bias[2] = {};
    if (p.bias != nullptr) {
      const float* const source = p.bias + int64_t{expert} * p.num_out + out;
      bias[0] = source[0];
      if (both) bias[1] = source[1];
    }
#pragma unroll
    for (int i = 0; i < 2 * ROWS16; ++i) {
      const int pair = pairs[i * 8 + lane / 4];
      if (pair < 0) continue;
      const float* const sum = &sums[i / 2][n][i % 2 * 2];
      T* const target = static_cast<T*>(p.out) + int64_t{pair} * p.num_out + out;
      if (p.num_out % 2 == 0) {
        device::Vec<T, 2> two;
        two[0] = device::FromFloat<T>(sum[0] + bias[0]);
        two[1] = device::FromFloat<T>(sum[1] + bias[1]);
        device::StoreVec(target, two);
        continue;
      }
      target[0] = device::FromFloat<T>(sum[0] + bias[0]);
      if (both) target[1] = device::FromFloat<T>(sum[1] + bias[1]);
    }
  }
}

// A launch of the product's kernel: what it is given, and its grid and blocks.
struct ExpertLaunch {
  ExpertLinearKernelParams params;
  LaunchShape shape;  // without shared memory
  bool large;         // tiles of 64 rows, otherwise of 16
  CudaError error;    // of the kernel that groups the pairs, if it is launched
};
// Groups the pairs. `weights`: those that the kernel reads by itself, or null.
ExpertLaunch PrepareExperts(const LaunchContext& context, const ExpertLinearParams& params,
                            const void* weights, const ExpertWorkspace& workspace);

}  // namespace minisgl::cuda
