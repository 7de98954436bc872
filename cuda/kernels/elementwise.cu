// Kernels on rows or elements: embedding, norms (norm_row.cuh), activation, soft-capping, bounds,
// gathering, placing and mixing of rows, bias.
// All except the norm have the same mapping: grid (rows, chunks of a row / 128), block 128, a
// thread for each chunk of 8 elements (chunk.h), no shared memory. They are bound by memory: 2,048
// threads of a multiprocessor have at least 16 bytes each in flight, 32 KB, above the 26 KB that
// are needed (4.3 TB/s * 0.8 us / 132). Tokens are along grid.x, whose limit is 2^31.
#include <algorithm>

#include "kernels/activate_chunk.cuh"
#include "kernels/chunk.h"
#include "kernels/dispatch.h"
#include "kernels/kernels.h"
#include "kernels/norm_row.cuh"
#include "minisgl/base/checked_math.h"

namespace minisgl::cuda {
namespace {

using device::GridRelease;
using device::GridWait;
using device::kWarpSize;
using device::Shared;
using device::SharedArena;

constexpr int kRowThreads = 128;

LaunchShape RowShape(int64_t num_rows, int64_t num_pieces) {
  return {.grid = {static_cast<unsigned>(num_rows),
                   static_cast<unsigned>(CeilDiv<int64_t>(num_pieces, kRowThreads))},
          .block = {kRowThreads},
          .programmatic = true};
}

// This thread's first element of the row, in kernels of RowShape.
MINISGL_DEVICE int64_t FirstOfChunk() {
  return (int64_t{blockIdx.y} * kRowThreads + threadIdx.x) * kChunk;
}

struct EmbeddingKernelParams {
  const int32_t* ids;
  const void* table;
  float scale;
  float* out;
  int64_t width;
  int64_t first_id, num_ids;  // of the table's rows
  bool aligned;
};

// Traffic: T * D * (sizeof(TABLE) + 4) bytes; one multiplication for each element.
template <typename TABLE>
MINISGL_KERNEL void MINISGL_LAUNCH_BOUNDS(kRowThreads, 1) EmbeddingKernel(EmbeddingKernelParams p) {
  GridRelease();
  GridWait();
  const int64_t first = FirstOfChunk();
  if (first >= p.width) return;
  const int64_t id = p.ids[blockIdx.x] - p.first_id;
  float v[kChunk] = {};
  if (id >= 0 && id < p.num_ids) {
    LoadChunk(static_cast<const TABLE*>(p.table) + id * p.width + first, p.width - first, p.aligned,
              v);
  }
#pragma unroll
  for (int i = 0; i < kChunk; ++i) v[i] *= p.scale;
  StoreChunk(p.out + blockIdx.x * p.width + first, p.width - first, p.aligned, v);
}

// Grid (tokens, groups), block: a thread for each chunk of a group, or for two chunks if there are
// more than 1,024. Shared memory: two floats for each warp. Traffic: T * D * (8 residual + 2 *
// sizeof(T)) + 4 * D bytes; about 5 operations for each element. The order of the sum depends on
// the group's width only. Weights are read before GridWait.
template <typename T>
MINISGL_KERNEL void MINISGL_LAUNCH_BOUNDS(kNormThreadsMax, 1) NormKernel(NormKernelParams params) {
  const NormParams& p = params.norm;
  SharedArena arena;
  const Shared<float> scratch = arena.Take<float>(kWarpSize);
  const Shared<float> center_scratch = arena.Take<float>(kWarpSize);
  GridRelease();
  const int64_t group = blockIdx.y * p.group_width;  // its first feature
  float weight[kNormChunksMax][kChunk];
  LoadNormWeights(params, group, weight);
  GridWait();
  const int64_t x_row = blockIdx.x * p.stride + group;
  float v[kNormChunksMax][kChunk];
  LoadNormRow<T>(params, blockIdx.x * p.width + group, x_row, v);
  if (p.out.data == nullptr) return;
  const float* const mean = p.mean_squares == nullptr ? nullptr : p.mean_squares + blockIdx.x;
  FinishNormRow<T>(params, group, x_row, mean, weight, scratch, center_scratch, v);
}

// Grid (tokens), block and order of the sum as of a norm of the vector's width. Shared memory: a
// float for each warp. Traffic: T * D * sizeof(T) bytes; two operations for each element.
template <typename T>
MINISGL_KERNEL void MINISGL_LAUNCH_BOUNDS(kNormThreadsMax, 1)
    MeanSquaresKernel(MeanSquaresParams p, bool aligned) {
  SharedArena arena;
  const Shared<float> scratch = arena.Take<float>(kWarpSize);
  GridRelease();
  GridWait();
  float sum = 0;
#pragma unroll
  for (int c = 0; c < kNormChunksMax; ++c) {
    const int64_t first = NormChunk(c), count = p.width - first;
    if (count <= 0) continue;
    float x[kChunk] = {};
    LoadChunk(p.x.as<T>() + blockIdx.x * p.stride + first, count, aligned, x);
#pragma unroll
    for (int i = 0; i < kChunk; ++i) sum += x[i] * x[i];
  }
  sum = BlockSumOnce(sum, scratch);
  if (threadIdx.x == 0) p.out[blockIdx.x] = p.share * (sum / static_cast<float>(p.width));
}

// Traffic: 3 * T * I * sizeof(T) bytes, or 2 * ... if not gated. About 25 operations for each
// element, most of them an exponential and a division. EXACT_GELU is a separate instance: the error
// function takes more registers than the others.
template <typename T, bool EXACT_GELU>
MINISGL_KERNEL void MINISGL_LAUNCH_BOUNDS(kRowThreads, 1)
    ActivateKernel(ActivateParams p, bool aligned) {
  GridRelease();
  GridWait();
  const int64_t first = FirstOfChunk(), count = p.width - first;
  if (count <= 0) return;
  ActivateChunk<T, EXACT_GELU>(p, aligned, first, count);
}

// kXielu, which has neither a gate nor a factor. Traffic: 2 * T * I * sizeof(T) bytes. About 25
// operations for each element.
template <typename T>
MINISGL_KERNEL void MINISGL_LAUNCH_BOUNDS(kRowThreads, 1)
    XieluKernel(ActivateParams p, bool aligned) {
  GridRelease();
  GridWait();
  const int64_t first = FirstOfChunk(), count = p.width - first;
  if (count <= 0) return;
  float x[kChunk] = {};
  LoadChunk(p.gate_up.as<T>() + blockIdx.x * p.width + first, count, aligned, x);
#pragma unroll
  for (int i = 0; i < kChunk; ++i) x[i] *= p.gate_scale;
  ActivateXielu(p.xielu, x);
  StoreChunk(p.out.as<T>() + blockIdx.x * p.width + first, count, aligned, x);
}

// Grid (count / 1,024), block 128. Traffic: 8 bytes for each value.
MINISGL_KERNEL void MINISGL_LAUNCH_BOUNDS(kRowThreads, 1)
    SoftcapKernel(SoftcapParams p, bool aligned) {
  GridRelease();
  GridWait();
  const int64_t first = (int64_t{blockIdx.x} * kRowThreads + threadIdx.x) * kChunk;
  const int64_t count = p.count - first;
  if (count <= 0) return;
  const bool whole = aligned && count >= kChunk;
  float v[kChunk];
  LoadChunk(p.values + first, count, whole, v);
#pragma unroll
  for (int i = 0; i < kChunk; ++i) v[i] = p.cap * device::Tanh(v[i] / p.cap);
  StoreChunk(p.values + first, count, whole, v);
}

// Rows of `words` words of type WORD, moved 16 bytes or one element at a time. Traffic: 2 * N * D *
// sizeof(T) bytes.
struct GatherKernelParams {
  const void* x;
  const int32_t* rows;
  void* out;
  int64_t words;
};

template <typename WORD>
MINISGL_KERNEL void MINISGL_LAUNCH_BOUNDS(kRowThreads, 1) GatherRowsKernel(GatherKernelParams p) {
  GridRelease();
  GridWait();
  constexpr int kVec = sizeof(WORD) == 4 ? 4 : 1;
  const int64_t word = (int64_t{blockIdx.y} * kRowThreads + threadIdx.x) * kVec;
  if (word >= p.words) return;
  const int64_t row = p.rows[blockIdx.x];
  device::StoreVec(static_cast<WORD*>(p.out) + blockIdx.x * p.words + word,
                   device::LoadVec<kVec>(static_cast<const WORD*>(p.x) + row * p.words + word));
}

// Grid (count / 1,024), block 128. Traffic: 2 * sizeof(T) bytes for each value.
template <typename T>
MINISGL_KERNEL void MINISGL_LAUNCH_BOUNDS(kRowThreads, 1) ClampKernel(ClampParams p, bool aligned) {
  GridRelease();
  GridWait();
  const int64_t first = (int64_t{blockIdx.x} * kRowThreads + threadIdx.x) * kChunk;
  const int64_t count = p.count - first;
  if (count <= 0) return;
  const bool whole = aligned && count >= kChunk;
  float v[kChunk];
  LoadChunk(p.values.as<T>() + first, count, whole, v);
#pragma unroll
  for (int i = 0; i < kChunk; ++i) v[i] = v[i] < p.low ? p.low : v[i] > p.high ? p.high : v[i];
  StoreChunk(p.values.as<T>() + first, count, whole, v);
}

// Traffic: 8 bytes for each value, 12 with `adds`.
MINISGL_KERNEL void MINISGL_LAUNCH_BOUNDS(kRowThreads, 1)
    PlaceRowsKernel(PlaceRowsParams p, bool aligned) {
  GridRelease();
  GridWait();
  const int64_t first = FirstOfChunk(), count = p.width - first;
  if (count <= 0) return;
  float v[kChunk], sum[kChunk] = {};
  LoadChunk(p.x + blockIdx.x * p.x_stride + first, count, aligned, v);
  float* const out = p.out + blockIdx.x * p.out_stride + first;
  if (p.adds) {
    LoadChunk(out, count, aligned, sum);
#pragma unroll
    for (int i = 0; i < kChunk; ++i) v[i] += sum[i];
  }
  StoreChunk(out, count, aligned, v);
}

// Traffic: N * D * (K + 1) * sizeof(T) bytes, rows that are read again mostly from the second-level
// cache; a multiply-add for each value read.
template <typename T>
MINISGL_KERNEL void MINISGL_LAUNCH_BOUNDS(kRowThreads, 1)
    MixRowsKernel(MixRowsParams p, bool aligned) {
  GridRelease();
  GridWait();
  const int64_t first = FirstOfChunk(), count = p.width - first;
  if (count <= 0) return;
  const int64_t begin = int64_t{blockIdx.x} * p.num_per_row;
  float sum[kChunk] = {};
  for (int32_t k = 0; k < p.num_per_row; ++k) {
    const float share = p.shares[begin + k];
    const T* const row = p.x.as<T>() + int64_t{p.rows[begin + k]} * p.width;
    float x[kChunk];
    LoadChunk(row + first, count, aligned, x);
#pragma unroll
    for (int i = 0; i < kChunk; ++i) sum[i] = fmaf(share, x[i], sum[i]);
  }
  StoreChunk(p.out.as<T>() + blockIdx.x * p.width + first, count, aligned, sum);
}

struct MixRotaryKernelParams {
  MixRotaryParams mix;
  const int32_t* positions;  // [T, 3]
};

// Grid (tokens, frequencies / 128), a thread for each frequency. Traffic: 16 bytes for each, of
// tables that are in the second-level cache.
MINISGL_KERNEL void MINISGL_LAUNCH_BOUNDS(kRowThreads, 1)
    MixRotaryKernel(MINISGL_GRID_CONSTANT MixRotaryKernelParams params) {
  const MixRotaryParams& p = params.mix;
  GridRelease();
  GridWait();
  const int32_t i = static_cast<int32_t>(blockIdx.y * kRowThreads + threadIdx.x);
  if (i >= p.half) return;
  const int64_t token = blockIdx.x;
  const int32_t part = RotaryPartOf(i, p.sections, p.mixed);
  const int64_t from = int64_t{params.positions[token * 3 + part]} * p.half + i;
  p.out_cos[token * p.half + i] = p.cos[from];
  p.out_sin[token * p.half + i] = p.sin[from];
}

struct AddBiasKernelParams {
  ActivationPtr out;
  const float* bias;
  int64_t width, out_stride;
  bool aligned;
};

// Traffic: T * N * 2 * sizeof(T) + 4 * N bytes; one addition for each element.
template <typename T>
MINISGL_KERNEL void MINISGL_LAUNCH_BOUNDS(kRowThreads, 1) AddBiasKernel(AddBiasKernelParams p) {
  GridRelease();
  const int64_t first = FirstOfChunk(), count = p.width - first;
  float v[kChunk], bias[kChunk];
  if (count > 0) LoadChunk(p.bias + first, count, p.aligned, bias);
  GridWait();
  if (count <= 0) return;
  T* const out = p.out.as<T>() + blockIdx.x * p.out_stride + first;
  LoadChunk(out, count, p.aligned, v);
#pragma unroll
  for (int i = 0; i < kChunk; ++i) v[i] += bias[i];
  StoreChunk(out, count, p.aligned, v);
}

}  // namespace

CudaError LaunchEmbedding(const LaunchContext& context, const EmbeddingParams& params,
                          const void* table, DType table_dtype) {
  const int64_t width = params.table->num_in;
  const EmbeddingKernelParams p = {
      .ids = params.ids,
      .table = table,
      .scale = params.scale,
      .out = params.out,
      .width = width,
      .first_id = params.first_id,
      .num_ids = params.table->num_out,
      .aligned = width % kChunk == 0 && IsAligned16(table) && IsAligned16(params.out)};
  const LaunchShape shape = RowShape(params.num_tokens, CeilDiv<int64_t>(width, kChunk));
  return DispatchDType(table_dtype, [&]<typename TABLE>() {
    return Launch(context, shape, EmbeddingKernel<TABLE>, p);
  });
}

CudaError LaunchNorm(const LaunchContext& context, const NormParams& params) {
  NormKernelParams p = {.norm = params, .aligned = false};
  if (p.norm.group_width == 0) p.norm.group_width = params.width;
  if (p.norm.stride == 0) p.norm.stride = params.width;
  const int64_t width = p.norm.group_width;
  CheckNormWidth(width);
  MINISGL_CHECK(params.width % width == 0, "groups of {} in {} elements", width, params.width);
  p.aligned = (width | p.norm.stride) % kChunk == 0 && IsAligned16(params.x.data) &&
              IsAligned16(params.residual) && IsAligned16(params.weight) &&
              IsAligned16(params.bias) && IsAligned16(params.out.data);
  const LaunchShape shape = {.grid = {static_cast<unsigned>(params.num_tokens),
                                      static_cast<unsigned>(params.width / width)},
                             .block = {NormThreads(width)},
                             .shared_bytes = 2 * kWarpSize * sizeof(float),
                             .programmatic = true};
  const DType dtype = params.x.data != nullptr ? params.x.dtype : params.out.dtype;
  return DispatchDType(dtype,
                       [&]<typename T>() { return Launch(context, shape, NormKernel<T>, p); });
}

CudaError LaunchMeanSquares(const LaunchContext& context, const MeanSquaresParams& params) {
  MeanSquaresParams p = params;
  if (p.stride == 0) p.stride = p.width;
  CheckNormWidth(p.width);
  const bool aligned = (p.width | p.stride) % kChunk == 0 && IsAligned16(p.x.data);
  const LaunchShape shape = {.grid = {static_cast<unsigned>(p.num_tokens)},
                             .block = {NormThreads(p.width)},
                             .shared_bytes = kWarpSize * sizeof(float),
                             .programmatic = true};
  return DispatchHalf(p.x.dtype, [&]<typename T>() {
    return Launch(context, shape, MeanSquaresKernel<T>, p, aligned);
  });
}

CudaError LaunchActivate(const LaunchContext& context, const ActivateParams& params) {
  const bool aligned = ActivateIsAligned(params);
  const LaunchShape shape = RowShape(params.num_tokens, CeilDiv<int64_t>(params.width, kChunk));
  return DispatchHalf(params.out.dtype, [&]<typename T>() {
    switch (params.activation) {
      case Activation::kXielu:
        return Launch(context, shape, XieluKernel<T>, params, aligned);
      case Activation::kGelu:
        return Launch(context, shape, ActivateKernel<T, true>, params, aligned);
      default:
        return Launch(context, shape, ActivateKernel<T, false>, params, aligned);
    }
  });
}

CudaError LaunchSoftcap(const LaunchContext& context, const SoftcapParams& params) {
  const LaunchShape shape = {
      .grid = {static_cast<unsigned>(CeilDiv<int64_t>(params.count, kRowThreads * kChunk))},
      .block = {kRowThreads},
      .programmatic = true};
  return Launch(context, shape, SoftcapKernel, params, IsAligned16(params.values));
}

CudaError LaunchGatherRows(const LaunchContext& context, const GatherRowsParams& params) {
  const int64_t row_bytes = params.width * static_cast<int64_t>(DTypeBytes(params.x.dtype));
  GatherKernelParams p = {
      .x = params.x.data, .rows = params.rows, .out = params.out.data, .words = 0};
  if (row_bytes % 16 == 0 && IsAligned16(p.x) && IsAligned16(p.out)) {
    p.words = row_bytes / 4;
    return Launch(context, RowShape(params.num_rows, row_bytes / 16), GatherRowsKernel<uint32_t>,
                  p);
  }
  p.words = row_bytes / 2;
  return Launch(context, RowShape(params.num_rows, p.words), GatherRowsKernel<uint16_t>, p);
}

CudaError LaunchClamp(const LaunchContext& context, const ClampParams& params) {
  const LaunchShape shape = {
      .grid = {static_cast<unsigned>(CeilDiv<int64_t>(params.count, kRowThreads * kChunk))},
      .block = {kRowThreads},
      .programmatic = true};
  return DispatchDType(params.values.dtype, [&]<typename T>() {
    return Launch(context, shape, ClampKernel<T>, params, IsAligned16(params.values.data));
  });
}

CudaError LaunchPlaceRows(const LaunchContext& context, const PlaceRowsParams& params) {
  const bool aligned = (params.width | params.x_stride | params.out_stride) % kChunk == 0 &&
                       IsAligned16(params.x) && IsAligned16(params.out);
  return Launch(context, RowShape(params.num_rows, CeilDiv<int64_t>(params.width, kChunk)),
                PlaceRowsKernel, params, aligned);
}

CudaError LaunchMixRows(const LaunchContext& context, const MixRowsParams& params) {
  const bool aligned =
      params.width % kChunk == 0 && IsAligned16(params.x.data) && IsAligned16(params.out.data);
  const LaunchShape shape = RowShape(params.num_rows, CeilDiv<int64_t>(params.width, kChunk));
  return DispatchDType(params.x.dtype, [&]<typename T>() {
    return Launch(context, shape, MixRowsKernel<T>, params, aligned);
  });
}

CudaError LaunchMixRotary(const LaunchContext& context, const MixRotaryParams& params) {
  static_assert(sizeof(RopePosition) == 3 * sizeof(int32_t));
  const MixRotaryKernelParams p = {.mix = params,
                                   .positions = reinterpret_cast<const int32_t*>(params.positions)};
  return Launch(context, RowShape(params.num_tokens, params.half), MixRotaryKernel, p);
}

CudaError LaunchAddBias(const LaunchContext& context, ActivationPtr out, const float* bias,
                        int64_t num_tokens, int64_t width, int64_t out_stride) {
  if (out_stride == 0) out_stride = width;
  const AddBiasKernelParams p = {
      .out = out,
      .bias = bias,
      .width = width,
      .out_stride = out_stride,
      .aligned = (width | out_stride) % kChunk == 0 && IsAligned16(out.data) && IsAligned16(bias)};
  const LaunchShape shape = RowShape(num_tokens, CeilDiv<int64_t>(width, kChunk));
  return DispatchDType(out.dtype,
                       [&]<typename T>() { return Launch(context, shape, AddBiasKernel<T>, p); });
}

}  // namespace minisgl::cuda
