// The products of latent attention's heads: out[t, h, C + o] = x[t, h, C + i] * weights[h, o, i],
// with the first C elements of each head copied.
//
// A block has a head, 16 or 64 tokens and 64 outputs (product_tile.cuh), so that a result depends
// on its own token and head only. Blocks of one tile of tokens and all heads are neighbours.
//
// Traffic: the weights (2 * H * out * in bytes) once for each tile of tokens, after the first from
// the second-level cache, x again for each 64 outputs, and 2 * (C + out) bytes for each token and
// head. At H = 16, in = 128 and out = 512 the weights are 2 MB, 128 blocks.
#include "kernels/dispatch.h"
#include "kernels/kernels.h"
#include "kernels/product_tile.cuh"
#include "minisgl/base/checked_math.h"

namespace minisgl::cuda {
namespace {

struct HeadLinearKernelParams {
  const void* x;
  const void* weights;
  void* out;
  int64_t out_stride;
  int num_tokens, num_heads;
  int num_copied, num_in, num_out;
  bool aligned;   // rows of x and of the weights are whole chunks of 16 bytes
  bool in_pairs;  // outputs are stored two at a time
};

template <typename T, int ROWS16>
class HeadTile {
 public:
  MINISGL_DEVICE HeadTile(const HeadLinearKernelParams& p)
      : p_(p),
        head_(static_cast<int>(blockIdx.x) % p.num_heads),
        first_token_(static_cast<int>(blockIdx.x) / p.num_heads * ProductShape<ROWS16>::kRows),
        first_out_(static_cast<int>(blockIdx.y) * kTileOuts) {}

  MINISGL_DEVICE void Run() const {
    device::SharedArena arena;
    ProductTile<T, ROWS16> product(&arena, p_.num_in, p_.aligned, p_.weights);
    product.SetWeights([&](int i) -> const T* {
      const int out = first_out_ + i;
      if (out >= p_.num_out) return nullptr;
      return static_cast<const T*>(p_.weights) + (int64_t{head_} * p_.num_out + out) * p_.num_in;
    });
    product.SetRows([&](int i) -> const T* {
      const int token = first_token_ + i;
      return token < p_.num_tokens ? HeadOf(token) + p_.num_copied : nullptr;
    });
    float sums[ROWS16][2][4] = {};
    product.Multiply(sums);
    Store(first_out_ + product.first_out(), product.lane(), sums);
    if (blockIdx.y == 0) CopyFirst();
  }

 private:
  MINISGL_DEVICE const T* HeadOf(int token) const {
    return static_cast<const T*>(p_.x) +
           (int64_t{token} * p_.num_heads + head_) * (p_.num_copied + p_.num_in);
  }
  MINISGL_DEVICE T* OutputOf(int token) const {
    return static_cast<T*>(p_.out) + token * p_.out_stride +
           int64_t{head_} * (p_.num_copied + p_.num_out);
  }

  MINISGL_DEVICE void Store(int first_out, int lane, const float (&sums)[ROWS16][2][4]) const {
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const int out = first_out + n * 8 + lane % 4 * 2;
      if (out >= p_.num_out) continue;
#pragma unroll
      for (int i = 0; i < 2 * ROWS16; ++i) {
        const int token = first_token_ + i * 8 + lane / 4;
        if (token >= p_.num_tokens) continue;
        const float* const sum = &sums[i / 2][n][i % 2 * 2];
        T* const target = OutputOf(token) + p_.num_copied + out;
        if (p_.in_pairs) {
          device::Vec<T, 2> two;
          two[0] = device::FromFloat<T>(sum[0]);
          two[1] = device::FromFloat<T>(sum[1]);
          device::StoreVec(target, two);
          continue;
        }
        target[0] = device::FromFloat<T>(sum[0]);
        if (out + 1 < p_.num_out) target[1] = device::FromFloat<T>(sum[1]);
      }
    }
  }

  MINISGL_DEVICE void CopyFirst() const {
    const int rest = p_.num_tokens - first_token_;
    const int num_tokens = rest < ProductShape<ROWS16>::kRows ? rest : ProductShape<ROWS16>::kRows;
    for (int i = static_cast<int>(threadIdx.x); i < num_tokens * p_.num_copied; i += kTileThreads) {
      const int token = first_token_ + i / p_.num_copied, element = i % p_.num_copied;
      OutputOf(token)[element] = HeadOf(token)[element];
    }
  }

  const HeadLinearKernelParams& p_;
  const int head_, first_token_, first_out_;
};

// Grid (tiles of tokens * H, out / 64), block 128. Shared memory: ProductShape::kBytes. Traffic:
// see the head of this file.
template <typename T, int ROWS16>
MINISGL_KERNEL void MINISGL_LAUNCH_BOUNDS(kTileThreads, 3)
    HeadLinearKernel(HeadLinearKernelParams p) {
  device::GridRelease();
  device::GridWait();
  HeadTile<T, ROWS16>(p).Run();
}

}  // namespace

CudaError LaunchHeadLinear(const LaunchContext& context, const HeadLinearParams& params,
                           const void* weights) {
  MINISGL_CHECK(params.x.dtype == params.out.dtype && params.x.dtype == params.weights->dtype,
                "x is {}, weights are {}, the output is {}", DTypeName(params.x.dtype),
                DTypeName(params.weights->dtype), DTypeName(params.out.dtype));
  const int64_t num_heads = params.weights->num_experts, copied = params.num_copied;
  const int64_t num_in = params.weights->num_in, num_out = params.weights->num_out;
  const int64_t out_stride =
      params.out_stride == 0 ? num_heads * (copied + num_out) : params.out_stride;
  const HeadLinearKernelParams p = {
      .x = params.x.data,
      .weights = weights,
      .out = params.out.data,
      .out_stride = out_stride,
      .num_tokens = static_cast<int>(params.num_tokens),
      .num_heads = static_cast<int>(num_heads),
      .num_copied = static_cast<int>(copied),
      .num_in = static_cast<int>(num_in),
      .num_out = static_cast<int>(num_out),
      .aligned =
          (num_in | copied) % kChunk == 0 && IsAligned16(params.x.data) && IsAligned16(weights),
      .in_pairs = (num_out | copied | out_stride) % 2 == 0 && IsAligned16(params.out.data)};
  const bool large = params.num_tokens > ProductShape<1>::kRows;
  const int64_t rows = large ? ProductShape<4>::kRows : ProductShape<1>::kRows;
  const LaunchShape shape = {
      .grid = {static_cast<unsigned>(CeilDiv(params.num_tokens, rows) * num_heads),
               static_cast<unsigned>(CeilDiv<int64_t>(num_out, kTileOuts))},
      .block = {kTileThreads},
      .shared_bytes = large ? ProductShape<4>::kBytes : ProductShape<1>::kBytes,
      .programmatic = true};
  return DispatchHalf(params.x.dtype, [&]<typename T>() {
    return large ? Launch(context, shape, HeadLinearKernel<T, 4>, p)
                 : Launch(context, shape, HeadLinearKernel<T, 1>, p);
  });
}

}  // namespace minisgl::cuda
