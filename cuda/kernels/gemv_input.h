// The x of a product of few rows, staged in the shared memory of each block: copied, or computed as
// the RMS norm of the residual stream, so that no kernel stands between the stream's last addition
// and the product.
//
// The norm has the bits of NormKernel: a token's elements are divided among virtual warps as among
// the warps of that kernel, and their sums are added in the same order. Every block normalises all
// tokens: a few KB from the second-level cache.
#pragma once

#include <cstdint>

#include "kernels/chunk.h"
#include "kernels/kernels.h"
#include "minisgl/base/check.h"
#include "minisgl/base/host_device.h"

namespace minisgl::cuda {

// Elements of x (tokens times inputs) that are staged; more are read from global memory.
inline constexpr int64_t kGemvStagedMax = 16384;
// A token's elements that are normalised: the virtual warps of one block of NormKernel have them,
// with one chunk for each thread.
inline constexpr int64_t kGemvNormWidthMax = 8192;

// Where x comes from, and its place in shared memory.
struct GemvInput {
  const uint16_t* x = nullptr;         // [T, K]
  const float* stream = nullptr;       // [T, K] the residual stream: x is its norm; null: copied
  const float* norm_weight = nullptr;  // [K]
  float norm_eps = 0;
  int num_tokens = 0;
  int num_in = 0;
  int stride = 0;  // elements between tokens in shared memory
};

// An odd number of 64 bytes: four lanes read 64 bytes of each token, in different banks for
// neighbours. REQUIRES num_in % 8 == 0.
inline int GemvInputStride(int64_t num_in) {
  return static_cast<int>((num_in + 63) / 64 * 64 + 32);
}

inline GemvInput MakeGemvInput(const ProductParams& params) {
  const LinearParams& linear = params.linear;
  GemvInput input = {.x = linear.x.as<uint16_t>(),
                     .num_tokens = static_cast<int>(linear.num_tokens),
                     .num_in = static_cast<int>(linear.weight->num_in),
                     .stride = GemvInputStride(linear.weight->num_in)};
  if (params.norm == nullptr) return input;
  input.stream = params.norm->residual;
  input.norm_weight = params.norm->weight;
  input.norm_eps = params.norm->eps;
  return input;
}

struct GemvInputMemory {
  device::Shared<uint32_t> x;         // [T, stride], two elements in a word
  device::Shared<float> norm_weight;  // [K]
  device::Shared<float> sums;         // [T, virtual warps]
};

MINISGL_HOST_DEVICE inline int NormWarps(int num_in) {
  return (num_in / kChunk + device::kWarpSize - 1) / device::kWarpSize;
}

// Bytes of GemvInputMemory, in the order of its arrays.
inline size_t GemvInputBytes(const GemvInput& p) {
  const auto whole = [](int64_t bytes) { return static_cast<size_t>((bytes + 15) / 16 * 16); };
  size_t bytes = whole(int64_t{p.num_tokens} * p.stride * 2);
  if (p.stream != nullptr) {
    bytes += whole(int64_t{p.num_in} * 4) + whole(int64_t{p.num_tokens} * NormWarps(p.num_in) * 4);
  }
  return bytes;
}

MINISGL_DEVICE GemvInputMemory TakeGemvInput(const GemvInput& p, device::SharedArena& arena) {
  GemvInputMemory memory;
  memory.x = arena.Take<uint32_t>(p.num_tokens * p.stride / 2);
  if (p.stream != nullptr) {
    memory.norm_weight = arena.Take<float>(p.num_in);
    memory.sums = arena.Take<float>(p.num_tokens * NormWarps(p.num_in));
  }
  return memory;
}

// Asks for what no kernel writes: before GridWait. It is there when this thread's copies so far
// have ended, for other threads after a barrier.
MINISGL_DEVICE void LoadGemvInputEarly(const GemvInput& p, const GemvInputMemory& memory) {
  if (p.stream == nullptr) return;
  for (int i = static_cast<int>(threadIdx.x) * 4; i < p.num_in;
       i += static_cast<int>(blockDim.x) * 4) {
    device::CopyAsync16(memory.norm_weight + i, p.norm_weight + i);
  }
}

// The warps' parts of a token's sum of squares, one for each virtual warp of each token.
MINISGL_DEVICE void SumGemvSquares(const GemvInput& p, const GemvInputMemory& memory) {
  const int lane = static_cast<int>(threadIdx.x) % device::kWarpSize;
  const int norm_warps = NormWarps(p.num_in), items = p.num_tokens * norm_warps;
  const int num_warps = static_cast<int>(blockDim.x) / device::kWarpSize;
  for (int item = static_cast<int>(threadIdx.x) / device::kWarpSize; item < items;
       item += num_warps) {
    const int token = item / norm_warps;
    const int first = ((item - token * norm_warps) * device::kWarpSize + lane) * kChunk;
    float v[kChunk] = {}, sum = 0;
    if (first < p.num_in) LoadFloats(p.stream + int64_t{token} * p.num_in + first, v);
#pragma unroll
    for (int i = 0; i < kChunk; ++i) sum += v[i] * v[i];
    sum = device::WarpSum(sum);
    if (lane == 0) memory.sums[item] = sum;
  }
}

// The stream is read a second time, from the first-level cache: its values would not fit into
// registers beside the product's. EARLY: the weights are in shared memory.
template <typename T, bool EARLY>
MINISGL_DEVICE void NormaliseGemvInput(const GemvInput& p, const GemvInputMemory& memory) {
  const int lane = static_cast<int>(threadIdx.x) % device::kWarpSize;
  const int norm_warps = NormWarps(p.num_in), items = p.num_tokens * norm_warps;
  const int num_warps = static_cast<int>(blockDim.x) / device::kWarpSize;
  for (int item = static_cast<int>(threadIdx.x) / device::kWarpSize; item < items;
       item += num_warps) {
    const int token = item / norm_warps;
    const int first = ((item - token * norm_warps) * device::kWarpSize + lane) * kChunk;
    float sum = 0;
    if (lane < norm_warps) sum = memory.sums[token * norm_warps + lane];
    sum = device::WarpSum(sum);
    const float scale = device::Rsqrt(sum / static_cast<float>(p.num_in) + p.norm_eps);
    if (first >= p.num_in) continue;
    float v[kChunk];
    LoadFloats(p.stream + int64_t{token} * p.num_in + first, v);
    device::Vec<uint32_t, 4> words;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const device::Vec<float, 4> weight =
          EARLY ? device::LoadShared<4>(memory.norm_weight + (first + 4 * half))
                : device::LoadVec<4>(p.norm_weight + first + 4 * half);
#pragma unroll
      for (int i = 0; i < 4; ++i) v[4 * half + i] *= scale * weight[i];
      words[2 * half] = device::Pack2<T>(v[4 * half], v[4 * half + 1]);
      words[2 * half + 1] = device::Pack2<T>(v[4 * half + 2], v[4 * half + 3]);
    }
    device::StoreShared(memory.x + (token * p.stride + first) / 2, words);
  }
}

// After GridWait: x, readable by all threads when this returns. REQUIRES that this thread's copies
// of LoadGemvInputEarly have ended; not EARLY: there were none.
template <typename T, bool EARLY = true>
MINISGL_DEVICE void StageGemvInput(const GemvInput& p, const GemvInputMemory& memory) {
  if (p.stream != nullptr) {
    SumGemvSquares(p, memory);
    __syncthreads();  // all sums and weights are there
    NormaliseGemvInput<T, EARLY>(p, memory);
  } else {
    const int row_chunks = p.num_in / kChunk, chunks = p.num_tokens * row_chunks;
    for (int i = static_cast<int>(threadIdx.x); i < chunks; i += static_cast<int>(blockDim.x)) {
      const int token = i / row_chunks, first = (i - token * row_chunks) * kChunk;
      device::StoreShared(memory.x + (token * p.stride + first) / 2,
                          device::LoadVec<4>(reinterpret_cast<const uint32_t*>(
                              p.x + int64_t{token} * p.num_in + first)));
    }
  }
  __syncthreads();  // x is there
}

}  // namespace minisgl::cuda
