// Reductions over a warp and over a block, with the same code on the device and in the emulator.
//
// The order of every sum depends on lane and warp numbers only.
#pragma once

namespace minisgl::cuda::device {

inline constexpr unsigned kAllLanes = 0xffffffffu;  // the mask of all lanes of a warp

template <typename T>
MINISGL_DEVICE T WarpSum(T x) {
#pragma unroll
  for (int offset = kWarpSize / 2; offset > 0; offset /= 2) {
    x += __shfl_xor_sync(kAllLanes, x, offset);
  }
  return x;
}

template <typename T>
MINISGL_DEVICE T WarpMax(T x) {
#pragma unroll
  for (int offset = kWarpSize / 2; offset > 0; offset /= 2) {
    const T other = __shfl_xor_sync(kAllLanes, x, offset);
    x = other > x ? other : x;
  }
  return x;
}

// Reduces each warp with `reduce`, then the warps' results. Its barriers: an earlier reduction may
// still read the scratch; the warps' results are written; the block's result is written.
template <typename T, typename Reduce>
MINISGL_DEVICE T BlockReduce(T x, T identity, Shared<T> scratch, const Reduce& reduce) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int num_warps = (static_cast<int>(blockDim.x) + kWarpSize - 1) / kWarpSize;
  x = reduce(x);
  __syncthreads();
  if (lane == 0) scratch[warp] = x;
  __syncthreads();
  if (warp == 0) {
    T partial = identity;
    if (lane < num_warps) partial = scratch[lane];
    partial = reduce(partial);
    if (lane == 0) scratch[kWarpSize] = partial;
  }
  __syncthreads();
  return scratch[kWarpSize];
}

// REQUIRES a block of whole warps, at most 32 of them; scratch of 33 elements.
template <typename T>
MINISGL_DEVICE T BlockSum(T x, Shared<T> scratch) {
  return BlockReduce(x, T(0), scratch, [](T v) { return WarpSum(v); });
}

// `lowest`: the identity of the maximum.
template <typename T>
MINISGL_DEVICE T BlockMax(T x, T lowest, Shared<T> scratch) {
  return BlockReduce(x, lowest, scratch, [](T v) { return WarpMax(v); });
}

}  // namespace minisgl::cuda::device
