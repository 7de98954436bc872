// Products of few rows (gemv.cu) by kernels that are made for what stands behind the sums, and for
// the number of warps: fewer instructions between the end of the kernel before and the first store,
// which is the time that a step of one row waits for. bf16, at most 8 tokens, aligned rows. The
// division of the work, the order of sums and so the bits are those of gemv.cu.
//
// The x of the first batch is asked for right behind the wait; the addresses of the next weights
// are computed while it is under way.
//
// HINT: a load of weights asks the second-level cache for 256 bytes of a row, which the next loads
// of the warp read.
#include "kernels/gemv_far.cuh"
#include "kernels/gemv_tile.cuh"
#include "kernels/launch.h"

namespace minisgl::cuda {
namespace gemv {
namespace {

struct GemvEndKernelParams {
  GemvKernelParams product;
  FarWeights far;
};

template <int ROWS8>
inline constexpr int kEndGroups = ROWS8 == 1 ? kLoads : kLoads / 2;

// x of the groups [first, first + COUNT) of a batch.
template <int COUNT>
MINISGL_DEVICE void LoadX(const GemvKernelParams& p, const uint16_t* row, int first, int left,
                          Words (&x)[COUNT][1]) {
  const bool has_token = static_cast<int>(threadIdx.x) % kWarpSize / 4 < p.input.num_tokens;
#pragma unroll
  for (int i = 0; i < COUNT; ++i) {
    x[i][0] = LoadWords<true, false>(row, (first + i) * kGroup, has_token ? left : 0);
  }
}

// MultiplyBatch of gemv.cu, with the loads of x before the addresses of the next weights.
template <typename T, int ROWS8, EndKind END, bool HINT>
MINISGL_DEVICE void MultiplyEndBatch(const GemvKernelParams& p, int batch, int next_tile,
                                     int next_batch, WeightBatch<ROWS8, kEndGroups<ROWS8>>& w,
                                     GemvSums<ROWS8>& sums) {
  constexpr int kGroups = kEndGroups<ROWS8>;
  constexpr int kAtOnce = kGroups / (ROWS8 == 3 ? 2 : 1);
  const int token = static_cast<int>(threadIdx.x) % kWarpSize / 4;
  int k = 0;
  const int left = RowLeft(p, batch, &k);
  const uint16_t* const row = p.input.x + int64_t{token} * p.input.num_in + k;
  WeightSource<ROWS8> next;
#pragma unroll
  for (int first = 0; first < kGroups; first += kAtOnce) {
    if (first > 0)
      __syncwarp();  // keeps the compiler from loading more of x than there is room for
    Words x[kAtOnce][1];
    LoadX(p, row, first, left, x);
    if (first == 0) next = FindWeights<ROWS8, END>(p, next_tile, next_batch);
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
#pragma unroll
      for (int n = 0; n < ROWS8; ++n) {
        MultiplyGemvWords<T>(x[i], w.words[first + i][n], n, sums);
      }
      LoadWeightGroup<ROWS8, kGroups, true, HINT>(next, first + i, w);
    }
  }
}

// Grid, shared memory and traffic: GemvKernel's. Block 32 * WARPS. The first weights are loaded
// before GridWait; what is far is fetched behind the last store.
template <typename T, int ROWS8, int WARPS, EndKind END, bool HINT>
MINISGL_KERNEL void MINISGL_LAUNCH_BOUNDS(WARPS* kWarpSize, kWarpsPerProcessor / WARPS)
    GemvEndKernel(GemvEndKernelParams params) {
  const GemvKernelParams& p = params.product;
  constexpr int kTile = kGemvTileSums<1, ROWS8>, kGroups = kEndGroups<ROWS8>;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int num_batches =
      (p.input.num_in + p.groups_per_batch * kGroup - 1) / (p.groups_per_batch * kGroup);
  SharedArena arena;
  const Shared<float> partial = arena.Take<float>(2 * WARPS * kTile);

  WeightBatch<ROWS8, kGroups> w;
  const auto source = FindWeights<ROWS8, END>(p, static_cast<int>(blockIdx.x), warp);
#pragma unroll
  for (int group = 0; group < kGroups; ++group) {
    LoadWeightGroup<ROWS8, kGroups, true, HINT>(source, group, w);
  }
  const int blocks = static_cast<int>(gridDim.x);
  const bool has_one_tile = static_cast<int>(blockIdx.x) + blocks >= p.num_tiles;
  if (has_one_tile) PrefetchNext(p.next);
  device::GridRelease();
  device::GridWait();

  int parity = 0;
  for (int tile = static_cast<int>(blockIdx.x); tile < p.num_tiles; tile += blocks) {
    GemvPlace place;
    // Early, so that the residual stream's element is there in time.
    if constexpr (END == EndKind::kAdd) {
      place = PlaceOfGemv<ROWS8, END>(p.end, p.input.num_tokens, tile);
    }
    GemvSums<ROWS8> sums = {};
    for (int batch = warp; batch < num_batches; batch += WARPS) {
      const bool ends = batch + WARPS >= num_batches;
      MultiplyEndBatch<T, ROWS8, END, HINT>(p, batch, ends ? tile + blocks : tile,
                                            ends ? warp : batch + WARPS, w, sums);
    }
    if constexpr (END != EndKind::kAdd) {
      place = PlaceOfGemv<ROWS8, END>(p.end, p.input.num_tokens, tile);
    }
    const Shared<float> tile_sums = partial + parity * WARPS * kTile;
    StoreGemvSums<1, ROWS8>(sums, tile_sums);
    __syncthreads();  // all warps' sums are written
    WriteGemvPlace<T, 1, ROWS8, END, WARPS>(p.end, place, tile_sums);
    parity ^= 1;
  }
  if (!has_one_tile) PrefetchNext(p.next);
  FetchFar(params.far);
}

template <int ROWS8, int WARPS, EndKind END>
CudaError LaunchEnd(const LaunchContext& context, const LaunchShape& shape,
                    const GemvEndKernelParams& p) {
  using device::bf16;
  return context.l2_hint ? Launch(context, shape, GemvEndKernel<bf16, ROWS8, WARPS, END, true>, p)
                         : Launch(context, shape, GemvEndKernel<bf16, ROWS8, WARPS, END, false>, p);
}

// No kernel is made for gates of fewer than 4,096 rows, which models do not have.
template <int ROWS8, int WARPS>
CudaError LaunchAnyEnd(const LaunchContext& context, const LaunchShape& shape,
                       const GemvEndKernelParams& p) {
  const EndKind kind = context.product_ends ? KindOfEnd(p.product.end) : EndKind::kAny;
  if (kind == EndKind::kStore) return LaunchEnd<ROWS8, WARPS, EndKind::kStore>(context, shape, p);
  if (kind == EndKind::kAdd) return LaunchEnd<ROWS8, WARPS, EndKind::kAdd>(context, shape, p);
  if constexpr (ROWS8 > 1) {
    if (kind == EndKind::kGatedSilu) {
      return LaunchEnd<ROWS8, WARPS, EndKind::kGatedSilu>(context, shape, p);
    }
  }
  return LaunchEnd<ROWS8, WARPS, EndKind::kAny>(context, shape, p);
}

}  // namespace

CudaError LaunchGemvEnds(const LaunchContext& context, const LaunchShape& shape,
                         const GemvSplit& split, const GemvKernelParams& product,
                         const FarWeights& far) {
  const GemvEndKernelParams p = {.product = product, .far = far};
  if (split.rows8 == 3) return LaunchAnyEnd<3, 8>(context, shape, p);
  if (split.rows8 == 2) return LaunchAnyEnd<2, 8>(context, shape, p);
  return split.num_warps == 8 ? LaunchAnyEnd<1, 8>(context, shape, p)
                              : LaunchAnyEnd<1, kWarpsPerProcessor>(context, shape, p);
}

}  // namespace gemv

FarWeights FarOf(const LaunchContext& context, const LinearParams& linear) {
  const auto bytes_of = [](const Matrix* matrix) {
    const bool is_plain = matrix != nullptr && matrix->storage != nullptr &&
                          matrix->dtype == DType::kBF16 &&
                          matrix->quantization == Quantization::kNone;
    return is_plain ? matrix->num_out * matrix->num_in * 2 : 0;
  };
  const auto piece = [](const Matrix& matrix, int64_t first_row, int64_t num_bytes) {
    const auto* const begin = static_cast<const uint8_t*>(matrix.storage.get());
    return FarPiece{.begin = begin + first_row * matrix.num_in * 2,
                    .bytes = static_cast<int>(num_bytes / 16 * 16)};
  };
  const BehindAttention& behind = linear.behind_attention;
  FarWeights far;
  if (linear.num_tokens > 8 || bytes_of(behind.output) == 0) return far;
  const int64_t first = std::min(bytes_of(behind.output), context.far_bytes);
  if (first == 0) return far;
  far.first = piece(*behind.output, 0, first);
  const int64_t left = std::min(bytes_of(behind.next), context.far_bytes - first);
  if (left == 0) return far;
  // The first tiles of a gated product are its first gates and what those multiply.
  far.second = piece(*behind.next, 0, behind.next_is_gated ? left / 2 : left);
  if (behind.next_is_gated) far.third = piece(*behind.next, behind.next->num_out / 2, left / 2);
  return far;
}

}  // namespace minisgl::cuda
