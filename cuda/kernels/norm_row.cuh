// A block's norm of a row, or of a group of its features: a chunk of 8 elements (chunk.h), or two,
// for each thread.
#pragma once

#include <algorithm>

#include "kernels/chunk.h"
#include "kernels/kernels.h"
#include "minisgl/base/checked_math.h"

namespace minisgl::cuda {

// A row stays in registers between the sum and the scaling: 2 chunks for each of at most 1,024
// threads. With more chunks the threads of such a block would not fit into 64 registers.
inline constexpr int kNormChunksMax = 2;
inline constexpr int kNormThreadsMax = 1024;
static_assert(kNormWidthMax == int64_t{kNormChunksMax} * kNormThreadsMax * kChunk);

// Threads of a block that has a chunk, or two, for each of them.
inline unsigned NormThreads(int64_t width) {
  const int64_t warps = CeilDiv<int64_t>(CeilDiv<int64_t>(width, kChunk), device::kWarpSize);
  return static_cast<unsigned>(std::min<int64_t>(warps * device::kWarpSize, kNormThreadsMax));
}

inline void CheckNormWidth(int64_t width) {
  MINISGL_CHECK(width <= kNormWidthMax, "a norm over {} elements; {} at most", width,
                kNormWidthMax);
}

// Returns the block's sum, in an order that depends on the number of warps only. Has one barrier:
// the scratch (a float for each warp) is used once, and every warp adds the warps' sums itself.
MINISGL_DEVICE float BlockSumOnce(float x, device::Shared<float> scratch) {
  const int lane = static_cast<int>(threadIdx.x) % device::kWarpSize;
  const int num_warps = static_cast<int>(blockDim.x) / device::kWarpSize;
  x = device::WarpSum(x);
  if (lane == 0) scratch[static_cast<int>(threadIdx.x) / device::kWarpSize] = x;
  __syncthreads();
  float partial = 0;
  if (lane < num_warps) partial = scratch[lane];
  return device::WarpSum(partial);
}

// First element of chunk `c` of this thread.
MINISGL_DEVICE int64_t NormChunk(int c) { return (int64_t{c} * blockDim.x + threadIdx.x) * kChunk; }

// A block normalises group_width features of one token.
struct NormKernelParams {
  NormParams norm;  // group_width and stride are set
  bool aligned;
};

// Sets v to the chunk to be normalised: to x, or to the residual at `at` after x is added to it.
MINISGL_DEVICE void AddToNormRow(const NormKernelParams& params, int64_t at, int64_t count,
                                 const float (&x)[kChunk], float (&v)[kChunk]) {
  const NormParams& p = params.norm;
  if (p.residual == nullptr) {
#pragma unroll
    for (int i = 0; i < kChunk; ++i) v[i] = x[i];
    return;
  }
  LoadChunk(p.residual + at, count, params.aligned, v);
  if (p.x.data == nullptr && p.residual_factor == 1) return;
#pragma unroll
  for (int i = 0; i < kChunk; ++i) v[i] = fmaf(p.x_scale, x[i], v[i]) * p.residual_factor;
  StoreChunk(p.residual + at, count, params.aligned, v);
}

template <int CHUNKS>
MINISGL_DEVICE void LoadNormWeights(const NormKernelParams& params, int64_t group,
                                    float (&weight)[CHUNKS][kChunk]) {
  const NormParams& p = params.norm;
#pragma unroll
  for (int c = 0; c < CHUNKS; ++c) {
    const int64_t first = NormChunk(c), count = p.group_width - first;
    if (count > 0 && p.weight != nullptr) {
      LoadChunk(p.weight + group + first, count, params.aligned, weight[c]);
    }
  }
}

// Sets v to the values to be normalised, and updates the residual. The block's features begin at
// `row` in the residual and at `x_row` in x.
template <typename T, int CHUNKS>
MINISGL_DEVICE void LoadNormRow(const NormKernelParams& params, int64_t row, int64_t x_row,
                                float (&v)[CHUNKS][kChunk]) {
  const NormParams& p = params.norm;
#pragma unroll
  for (int c = 0; c < CHUNKS; ++c) {
#pragma unroll
    for (int i = 0; i < kChunk; ++i) v[c][i] = 0;
    const int64_t first = NormChunk(c), count = p.group_width - first;
    if (count <= 0) continue;
    float x[kChunk] = {};
    if (p.x.data != nullptr) LoadChunk(p.x.as<T>() + x_row + first, count, params.aligned, x);
    AddToNormRow(params, row + first, count, x, v[c]);
  }
}

// Subtracts the block's mean from v.
template <int CHUNKS>
MINISGL_DEVICE void CenterNormRow(int64_t width, device::Shared<float> scratch,
                                  float (&v)[CHUNKS][kChunk]) {
  float sum = 0;
#pragma unroll
  for (int c = 0; c < CHUNKS; ++c) {
#pragma unroll
    for (int i = 0; i < kChunk; ++i) sum += v[c][i];
  }
  const float mean = BlockSumOnce(sum, scratch) / static_cast<float>(width);
#pragma unroll
  for (int c = 0; c < CHUNKS; ++c) {
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      // Elements past the row's end stay zero: they must not count.
      if (NormChunk(c) + i < width) v[c][i] -= mean;
    }
  }
}

// Calls store(first feature of the group, count, values) for each chunk of the norm of v, of the
// features from `group` on. `mean`: of the squares, or null: it is computed here. Has a barrier for
// each sum; the scratches are used once.
template <int CHUNKS, typename Store>
MINISGL_DEVICE void ForNormRow(const NormKernelParams& params, int64_t group, const float* mean,
                               const float (&weight)[CHUNKS][kChunk], device::Shared<float> scratch,
                               device::Shared<float> center_scratch, float (&v)[CHUNKS][kChunk],
                               const Store& store) {
  const NormParams& p = params.norm;
  float scale = 1;
  if (p.weight != nullptr) {
    if (p.kind == NormKind::kLayer) CenterNormRow(p.group_width, center_scratch, v);
    float sum = 0;
#pragma unroll
    for (int c = 0; c < CHUNKS; ++c) {
#pragma unroll
      for (int i = 0; i < kChunk; ++i) sum += v[c][i] * v[c][i];
    }
    const float mean_square =
        mean != nullptr ? *mean : BlockSumOnce(sum, scratch) / static_cast<float>(p.group_width);
    scale = device::Rsqrt(mean_square + p.eps);
  }
#pragma unroll
  for (int c = 0; c < CHUNKS; ++c) {
    const int64_t first = NormChunk(c), count = p.group_width - first;
    if (count <= 0) continue;
    if (p.weight != nullptr) {
#pragma unroll
      for (int i = 0; i < kChunk; ++i) v[c][i] *= scale * weight[c][i];
      if (p.bias != nullptr) {
        float bias[kChunk];
        LoadChunk(p.bias + group + first, count, params.aligned, bias);
#pragma unroll
        for (int i = 0; i < kChunk; ++i) v[c][i] += bias[i];
      }
    }
    store(first, count, v[c]);
  }
}

// Writes the norm of v to `out` at x_row.
template <typename T, int CHUNKS>
MINISGL_DEVICE void FinishNormRow(const NormKernelParams& params, int64_t group, int64_t x_row,
                                  const float* mean, const float (&weight)[CHUNKS][kChunk],
                                  device::Shared<float> scratch,
                                  device::Shared<float> center_scratch,
                                  float (&v)[CHUNKS][kChunk]) {
  ForNormRow(params, group, mean, weight, scratch, center_scratch, v,
             [&](int64_t first, int64_t count, const float(&values)[kChunk]) {
               StoreChunk(params.norm.out.as<T>() + x_row + first, count, params.aligned, values);
             });
}

}  // namespace minisgl::cuda
