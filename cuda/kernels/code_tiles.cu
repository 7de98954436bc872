// Matrix products of 17 to 511 rows with weights that are codes (code_tile.cuh), without expanding
// them to memory: a tile of 64 tokens by 64 outputs for each block.
//
// Traffic: the codes and scales once for 64 tokens, from the second-level cache for further ones,
// whose blocks are neighbours; x for each 64 outputs, mostly from that cache. An element's sum is
// one chain in the order of the row's lines (CodeOrder), whatever the number of tokens.
#include "kernels/code_tile.cuh"
#include "kernels/dispatch.h"
#include "kernels/kernels.h"
#include "minisgl/base/checked_math.h"

namespace minisgl::cuda {
namespace code_tiles {
namespace {

constexpr int kRows16 = 4;  // tiles of 64 tokens

struct TileInput {
  const void* x;
  int num_in;
  bool aligned;
};

struct CodeTilesKernelParams {
  TileInput linear;
  CodedRows rows;
  const float* bias;  // [N] or null
  void* out;
  int64_t out_stride;
  int num_tokens, num_out;
  bool out_is_f32;
};

template <typename T>
MINISGL_DEVICE void StoreSum(const CodeTilesKernelParams& p, int token, int out, float sum) {
  if (token >= p.num_tokens || out >= p.num_out) return;
  if (p.bias != nullptr) sum += p.bias[out];
  const int64_t at = token * p.out_stride + out;
  if (p.out_is_f32) {
    static_cast<float*>(p.out)[at] = sum;
  } else {
    static_cast<T*>(p.out)[at] = device::FromFloat<T>(sum);
  }
}

// Grid (T / 64, N / 64), block 128. Shared memory: CodesShape::kBytes.
template <typename T, RowCodes KIND, CodeMath MATH>
MINISGL_KERNEL void MINISGL_LAUNCH_BOUNDS(kTileThreads, 3)
    CodeTilesKernel(MINISGL_GRID_CONSTANT CodeTilesKernelParams p) {
  device::SharedArena arena;
  CodesTile<CodeTilesKernelParams, T, KIND, MATH, kRows16, /*ANY_ORDER=*/true> product(p, &arena);
  device::GridRelease();
  device::GridWait();
  __syncthreads();  // the table of numbers is written
  const int thread = static_cast<int>(threadIdx.x);
  const int first_token = static_cast<int>(blockIdx.x) * 16 * kRows16;
  const int first_out = static_cast<int>(blockIdx.y) * kTileOuts;
  const int row = first_out + thread / 2;
  product.SetWeights(row < p.num_out ? row : -1);
  product.SetRows([&](int i) -> const T* {
    const int token = first_token + i;
    if (token >= p.num_tokens) return nullptr;
    return static_cast<const T*>(p.linear.x) + int64_t{token} * p.linear.num_in;
  });
  float sums[kRows16][2][4] = {};
  product.Multiply(sums);
  const int lane = thread % device::kWarpSize;
  const int out_of_warp = first_out + thread / device::kWarpSize * kOutsOfWarp;
#pragma unroll
  for (int i = 0; i < 2 * kRows16; ++i) {
    const int token = first_token + i * 8 + lane / 4;
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const int out = out_of_warp + n * 8 + lane % 4 * 2;
      StoreSum<T>(p, token, out, sums[i / 2][n][i % 2 * 2]);
      StoreSum<T>(p, token, out + 1, sums[i / 2][n][i % 2 * 2 + 1]);
    }
  }
}

}  // namespace
}  // namespace code_tiles

CudaError LaunchCodeTiles(const LaunchContext& context, const LinearParams& params,
                          const CodedRows& rows, int64_t first_row, int64_t num_rows) {
  using namespace code_tiles;  // NOLINT: this file's own
  MINISGL_CHECK(rows.order.has_shifts(), "lines of an order without shifts");
  const int64_t num_in = params.weight->num_in;
  const bool is_f32 = params.out.dtype == DType::kF32;
  const CodeTilesKernelParams p = {
      .linear = {.x = params.x.data,
                 .num_in = static_cast<int>(num_in),
                 .aligned = num_in % kChunk == 0 && IsAligned16(params.x.data)},
      .rows = rows,
      .bias = params.bias == nullptr ? nullptr : params.bias + first_row,
      .out = static_cast<char*>(params.out.data) +
             first_row * static_cast<int64_t>(DTypeBytes(params.out.dtype)),
      .out_stride = params.out_stride == 0 ? params.weight->num_out : params.out_stride,
      .num_tokens = static_cast<int>(params.num_tokens),
      .num_out = static_cast<int>(num_rows),
      .out_is_f32 = is_f32};
  const LaunchShape shape = {
      .grid = {static_cast<unsigned>(CeilDiv<int64_t>(params.num_tokens, 16 * kRows16)),
               static_cast<unsigned>(CeilDiv<int64_t>(num_rows, kTileOuts))},
      .block = {kTileThreads},
      .shared_bytes = CodesShape<kRows16>::kBytes,
      .programmatic = true};
  return DispatchHalf(params.x.dtype, [&]<typename T>() {
    return DispatchCodes(rows, [&]<RowCodes KIND>() {
      using enum CodeMath;
      if constexpr (KIND == RowCodes::kTable4) {
        const CodeMath math = MathOf(rows, params.x.dtype);
        if (math == kCounting) {
          return Launch(context, shape, CodeTilesKernel<T, KIND, kCounting>, p);
        }
        if (math == kE2M1) return Launch(context, shape, CodeTilesKernel<T, KIND, kE2M1>, p);
      }
      return Launch(context, shape, CodeTilesKernel<T, KIND, kFloat>, p);
    });
  });
}

}  // namespace minisgl::cuda
