// Building blocks of the sampling kernels: a row of logits in tiles of 256, each processed by one
// warp, and sums over tiles.
//
// A tile is held in the registers of a warp, eight logits in each lane, so that its largest logit
// and the weights relative to it need one read. Weights are 64-bit fixed point, 2^40 for the
// largest logit: their sums are exact, whatever the order, and do not overflow for rows of up to
// 2^23 logits.
#pragma once

#include <cstdint>

#include "device/device.h"

namespace minisgl::cuda::sample {

using namespace minisgl::cuda::device;  // NOLINT: the vocabulary of kernels

// 256: a lane's eight logits are two loads of 16 bytes, and the warp's maximum and sum cost a fifth
// of the work on the logits. Larger tiles would reduce that, but top-k and top-p read a whole tile
// again for each likely token.
inline constexpr int kTileSize = 256;
inline constexpr int kPerLane = kTileSize / kWarpSize;
inline constexpr int kPerLoad = 4;
inline constexpr int kLoads = kPerLane / kPerLoad;

// Threads of a sampling block. 512: a multiprocessor holds two blocks with 64 registers for each
// thread, so 256 places are one wave on 132 multiprocessors.
inline constexpr int kThreads = 512;
inline constexpr int kWarps = kThreads / kWarpSize;

inline constexpr float kLargestFloat = 3.402823466e38f;
inline constexpr float kInfinity = __builtin_huge_valf();

MINISGL_DEVICE int Lane() { return static_cast<int>(threadIdx.x) % kWarpSize; }
MINISGL_DEVICE int Warp() { return static_cast<int>(threadIdx.x) / kWarpSize; }

// One place's logits.
struct Row {
  const float* logits;
  int32_t vocab_size;
  bool aligned;  // every group of four starts at a multiple of 16 bytes and is whole

  MINISGL_DEVICE Row(const float* p, int32_t size)
      : logits(p),
        vocab_size(size),
        aligned(size % kPerLoad == 0 && reinterpret_cast<uintptr_t>(p) % 16 == 0) {}
};

struct Tile {
  float logit[kPerLane];
  int token[kPerLane];
};

// Index in the row of a lane's i-th logit of a tile: ascending by load, lane and element.
MINISGL_DEVICE int PlaceInRow(int tile, int i) {
  return tile * kTileSize + i / kPerLoad * (kWarpSize * kPerLoad) + Lane() * kPerLoad +
         i % kPerLoad;
}

// Loads a tile; logits past the row's end are -infinity.
MINISGL_DEVICE Tile LoadTile(const Row& row, int tile) {
  Tile result;
#pragma unroll
  for (int load = 0; load < kLoads; ++load) {
    const int first = PlaceInRow(tile, load * kPerLoad);
#pragma unroll
    for (int i = 0; i < kPerLoad; ++i) result.token[load * kPerLoad + i] = first + i;
    if (row.aligned && first < row.vocab_size) {
      const auto four = LoadVec<kPerLoad>(row.logits + first);
#pragma unroll
      for (int i = 0; i < kPerLoad; ++i) result.logit[load * kPerLoad + i] = four[i];
    } else {
#pragma unroll
      for (int i = 0; i < kPerLoad; ++i) {
        const bool inside = first + i < row.vocab_size;
        result.logit[load * kPerLoad + i] = inside ? row.logits[first + i] : -kInfinity;
      }
    }
  }
  return result;
}

// exp((logit - largest) / temperature) as a multiple of 2^-40; 0 for -infinity.
struct Weight {
  float largest;
  float scale;  // WeightScale(temperature)

  // Below -64 all weights are 0. NaN (-infinity minus itself, or times 0) becomes -64 too. Half the
  // difference of two floats is a float; the whole difference might overflow.
  MINISGL_DEVICE float Log2(float logit) const {
    return fmaxf((0.5f * logit - 0.5f * largest) * scale, -64.0f);
  }
  MINISGL_DEVICE uint64_t operator()(float logit) const {
    return static_cast<uint64_t>(Exp2(Log2(logit)) * 0x1p40f);
  }
  // The factor from weights relative to `logit` to weights relative to the largest.
  MINISGL_DEVICE double Ratio(float logit) const { return static_cast<double>(Exp2(Log2(logit))); }
};

// 2 log2(e) / temperature, for a temperature > 0. Finite, as 0 * scale must be 0.
MINISGL_DEVICE float WeightScale(float temperature) {
  return fminf(2.88539008f / temperature, kLargestFloat);
}

struct TileSummary {
  float largest;  // +infinity if a logit is NaN or +infinity
  uint64_t sum;   // sum of weights relative to `largest`
};

// Called by one warp; every lane gets the result.
MINISGL_DEVICE TileSummary Summarize(const Row& row, int tile, bool wants_sum, float scale) {
  const Tile values = LoadTile(row, tile);
  TileSummary summary = {-kInfinity, 0};
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const bool finite = values.logit[i] <= kLargestFloat;
    summary.largest = fmaxf(summary.largest, finite ? values.logit[i] : kInfinity);
  }
  summary.largest = WarpMax(summary.largest);
  if (!wants_sum) return summary;
  const Weight weight = {summary.largest, scale};
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) summary.sum += weight(values.logit[i]);
  summary.sum = WarpSum(summary.sum);
  return summary;
}

// The sum over the lanes up to and including this one.
MINISGL_DEVICE uint64_t WarpInclusiveSum(uint64_t x) {
#pragma unroll
  for (int offset = 1; offset < kWarpSize; offset *= 2) {
    const uint64_t below = __shfl_up_sync(0xffffffffu, x, offset);
    if (Lane() >= offset) x += below;
  }
  return x;
}

// Scratch of the block's sums, in 64-bit words.
inline constexpr int kScratchWords = 36;

struct BlockPrefix {
  uint64_t before;  // the sum over the threads before this one
  uint64_t total;   // the sum over all threads
};

MINISGL_DEVICE BlockPrefix BlockExclusiveSum(uint64_t x, Shared<uint64_t> scratch) {
  const uint64_t inclusive = WarpInclusiveSum(x);
  __syncthreads();
  if (Lane() == kWarpSize - 1) scratch[Warp()] = inclusive;
  __syncthreads();
  uint64_t of_warp = 0;
  if (Lane() < kWarps) of_warp = scratch[Lane()];
  const uint64_t warps = WarpInclusiveSum(of_warp);
  const uint64_t upto = __shfl_sync(0xffffffffu, warps, Warp());
  const uint64_t own = __shfl_sync(0xffffffffu, of_warp, Warp());
  return {upto - own + inclusive - x, __shfl_sync(0xffffffffu, warps, kWarpSize - 1)};
}

struct Found {
  int index;        // the first at which the running sum exceeds the target; -1 if none
  uint64_t before;  // the running sum before it
  uint64_t sum;     // the total
};

// Searches the running sum of get(0 .. count - 1). REQUIRES a barrier after the writes that get
// reads.
template <typename Get>
MINISGL_DEVICE Found BlockFind(int count, uint64_t target, Shared<uint64_t> scratch,
                               const Get& get) {
  const int per_thread = (count + kThreads - 1) / kThreads;
  const int begin = static_cast<int>(threadIdx.x) * per_thread;
  const int end = min(begin + per_thread, count);
  uint64_t mine = 0;
  for (int i = begin; i < end; ++i) mine += get(i);
  const BlockPrefix prefix = BlockExclusiveSum(mine, scratch);
  if (target >= prefix.total) return {-1, 0, prefix.total};  // the same for every thread
  uint64_t running = prefix.before;
  if (running <= target && target < running + mine) {
    int i = begin;
    for (; running + get(i) <= target; ++i) running += get(i);
    scratch[kWarpSize] = static_cast<uint64_t>(i);
    scratch[kWarpSize + 1] = running;
  }
  __syncthreads();
  const uint64_t index = scratch[kWarpSize], before = scratch[kWarpSize + 1];
  return {static_cast<int>(index), before, prefix.total};
}

// Returns the first token of the tile at which the running sum of weight_of(logit, token) exceeds
// the target; -1 if the tile's sum does not. Called by one warp; every lane gets the result.
template <typename WeightOf>
MINISGL_DEVICE int FindInTile(const Tile& values, uint64_t target, const WeightOf& weight_of) {
  int found = -1;
#pragma unroll
  for (int load = 0; load < kLoads; ++load) {
    uint64_t weights[kPerLoad];
    uint64_t sum = 0;
#pragma unroll
    for (int i = 0; i < kPerLoad; ++i) {
      const int index = load * kPerLoad + i;
      weights[i] = weight_of(values.logit[index], values.token[index]);
      sum += weights[i];
    }
    const uint64_t inclusive = WarpInclusiveSum(sum);
    uint64_t running = inclusive - sum;
    if (running <= target && target < inclusive && found < 0) {
#pragma unroll
      for (int i = 0; i < kPerLoad; ++i) {
        running += weights[i];
        if (running > target && found < 0) found = values.token[load * kPerLoad + i];
      }
    }
    const uint64_t total = __shfl_sync(0xffffffffu, inclusive, kWarpSize - 1);
    if (target < total) break;  // the same for every lane
    target -= total;
  }
  return WarpMax(found);
}

}  // namespace minisgl::cuda::sample
