// Merging of a row's splits, in the order of splits, by the block that has written the last.
#pragma once

#include "device/device.h"
#include "kernels/attention_arguments.h"
#include "kernels/attention_state.h"
#include "kernels/attention_tile.cuh"

namespace minisgl::cuda {

// Splits of a row that a layer reads: those that its window shows.
struct RowSplits {
  int32_t first, count;
};

MINISGL_DEVICE RowSplits FindSplits(int32_t kv_len, int32_t window, int32_t split_keys) {
  const int32_t seen = kv_len - window;
  const int32_t first = seen > 0 ? seen / split_keys : 0;
  return {first, DivideUp(kv_len, split_keys) - first};
}

// Index of the part of a row's split and query head.
template <typename T>
MINISGL_DEVICE int64_t PartOf(const AttentionArguments<T>& args, int32_t row, int32_t split,
                              int32_t head) {
  return int64_t{args.plan.part_begin[row] + split} * args.num_heads + head;
}

template <typename T>
MINISGL_DEVICE SoftmaxState AddSink(const AttentionArguments<T>& args, SoftmaxState state,
                                    int32_t head) {
  return args.sinks == nullptr ? state : Merge(state, SinkState(args.sinks[head]));
}

template <typename T, int D>
MINISGL_DEVICE T* OutputOf(const AttentionArguments<T>& args, int32_t row, int32_t head) {
  return args.out + (int64_t{row} * args.num_heads + head) * D;
}

// Loads of sums in flight. The order of additions does not depend on it.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
template <int D>
inline constexpr int kLoadsOfSums = D > 128  ? 2
                                    : D > 64 ? 8
                                             : 4;  // 8 of E = 64 would cost spills
#else
template <int D>
inline constexpr int kLoadsOfSums = D > 128 ? 2 : 8;
#endif

// Computes four neighbouring elements of an output row, adding the row's splits in order.
// factor_of(s): the factor of split s of [0, splits.count), called once for each.
template <typename T, int D, typename FactorOf>
MINISGL_DEVICE void AddSplits(const AttentionArguments<T>& args, int32_t row, RowSplits splits,
                              int32_t head, int32_t column, const FactorOf& factor_of) {
  constexpr int kAtOnce = kLoadsOfSums<D>;  // from the second-level cache
  const float* const part = args.plan.sums + PartOf(args, row, splits.first, head) * D + column;
  const int64_t stride = int64_t{args.num_heads} * D;
  float sum[4] = {0, 0, 0, 0};
  for (int32_t begin = 0; begin < splits.count; begin += kAtOnce) {
    device::Vec<float, 4> parts[kAtOnce];
#pragma unroll
    for (int s = 0; s < kAtOnce; ++s) {
      if (begin + s < splits.count) parts[s] = device::LoadVec<4>(part + (begin + s) * stride);
    }
#pragma unroll
    for (int s = 0; s < kAtOnce; ++s) {
      if (begin + s >= splits.count) break;
      const float factor = factor_of(begin + s);
#pragma unroll
      for (int i = 0; i < 4; ++i) sum[i] = fmaf(parts[s][i], factor, sum[i]);
    }
  }
  T* const out = OutputOf<T, D>(args, row, head) + column;
  StorePair(out, sum[0], sum[1]);
  StorePair(out + 2, sum[2], sum[3]);
}

// The factor of split `lane` of a head's sums: 0 if there is no such split.
template <typename T>
MINISGL_DEVICE float FactorOfSplit(const AttentionArguments<T>& args, int32_t row, RowSplits splits,
                                   int32_t head, int lane) {
  static_assert(kSplitsMax == 32);
  SoftmaxState own;
  if (lane < splits.count) {
    const auto pair = device::LoadVec<2>(static_cast<const float*>(args.plan.states) +
                                         PartOf(args, row, splits.first + lane, head) * 2);
    own = {pair[0], pair[1]};
  }
  SoftmaxState all;
  all.largest = device::WarpMax(own.largest);
  all.sum = device::WarpSum(own.sum * Rescale(own.largest, all.largest));
  all = AddSink(args, all, head);
  return Rescale(own.largest, all.largest) * Normaliser(all);
}

// Merges the splits of query heads [first_head, first_head + num_heads) of a row: all threads of a
// block of WARPS warps together. factors: [num_heads][FACTORS_ROW], which may be written again
// after a barrier.
template <typename T, int D, int WARPS, int FACTORS_ROW>
MINISGL_DEVICE void MergeSplits(const AttentionArguments<T>& args, int32_t row, RowSplits splits,
                                int32_t first_head, int32_t num_heads,
                                device::Shared<float> factors) {
  static_assert(FACTORS_ROW >= kSplitsMax);
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  // Lane s of a warp takes split s of a head.
  for (int32_t head = warp; head < num_heads; head += WARPS) {
    factors[head * FACTORS_ROW + lane] = FactorOfSplit(args, row, splits, first_head + head, lane);
  }
  __syncthreads();  // every head's factors are there
  for (int i = thread; i < num_heads * (D / 4); i += WARPS * 32) {
    const int32_t head = i / (D / 4);
    AddSplits<T, D>(args, row, splits, first_head + head, i % (D / 4) * 4,
                    [&](int32_t s) -> float { return factors[head * FACTORS_ROW + s]; });
  }
}

// The same by one warp, without shared memory.
template <typename T, int D>
MINISGL_DEVICE void MergeSplitsByWarp(const AttentionArguments<T>& args, int32_t row,
                                      RowSplits splits, int32_t first_head, int32_t num_heads) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int32_t head = first_head; head < first_head + num_heads; ++head) {
    const float own = FactorOfSplit(args, row, splits, head, lane);
    for (int column = 0; column < D; column += 32 * 4) {
      // Lanes past the row's end compute its last elements again.
      const int mine = column + lane * 4 < D ? column + lane * 4 : D - 4;
      AddSplits<T, D>(args, row, splits, head, mine,
                      [&](int32_t s) { return __shfl_sync(device::kAllLanes, own, s); });
    }
  }
}

}  // namespace minisgl::cuda
