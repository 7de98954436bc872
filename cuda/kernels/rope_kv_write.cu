// Rotary position embedding of q and k, with the model's QK-norm before or after it, and the
// writing of k and v to their KV slots: one kernel, so that k and v are read once.
//
// q is rotated in place; k and v in qkv are not changed, as attention reads them from the KV slots.
// Between the norm, the rotation and the scaling of q, values stay f32.
#include "kernels/chunk.h"
#include "kernels/dispatch.h"
#include "kernels/kernels.h"
#include "minisgl/base/checked_math.h"

namespace minisgl::cuda {
namespace {

using device::kWarpSize;

constexpr int kRopeThreads = 256;
// A head's elements are in the registers of at most one warp, 16 in each lane.
constexpr int kHeadDimMax = 16 * kWarpSize;

// A head is divided into units of two pieces of W elements. Units that rotate hold the two halves
// of W pairs; units past `rot` hold two pieces that are copied, the last of which may be missing. W
// is 8 (16 bytes), or 1 if head_dim, rot/2 or a stride is not a multiple of 8. `lanes` lanes, a
// power of two, share a head, and each has at most kUnits units.
struct RopeKernelParams {
  RopeKvWriteParams rope;
  int num_units;
  int lanes;
};

template <int W>
struct Unit {
  int first, second;  // offsets of the pieces in the head
  bool rotates;
  bool has_second;
};

template <int W>
MINISGL_DEVICE Unit<W> UnitAt(const RopeKvWriteParams& p, int unit) {
  const int half = p.rotary_dim / 2;
  const int num_rotating = half / W;
  if (unit < num_rotating) return {unit * W, half + unit * W, true, true};
  const int first = 2 * half + (unit - num_rotating) * 2 * W;
  return {first, first + W, false, first + W < p.head_dim};
}

// The pieces of one lane.
template <int W>
struct LaneValues {
  static constexpr int kUnits = kHeadDimMax / (2 * W * kWarpSize);
  float first[kUnits][W];
  float second[kUnits][W];
};

template <int W, typename T>
MINISGL_DEVICE void LoadHead(const RopeKernelParams& p, int lane, const T* head, LaneValues<W>& v) {
#pragma unroll
  for (int u = 0; u < LaneValues<W>::kUnits; ++u) {
#pragma unroll
    for (int i = 0; i < W; ++i) v.first[u][i] = v.second[u][i] = 0;
    const int index = lane + u * p.lanes;
    if (index >= p.num_units) continue;
    const Unit<W> unit = UnitAt<W>(p.rope, index);
    LoadFloats(head + unit.first, v.first[u]);
    if (unit.has_second) LoadFloats(head + unit.second, v.second[u]);
  }
}

// v *= weight / rms(v), over the head's lanes. Every lane of the warp must call this; a null
// `weight` leaves v unchanged.
template <int W>
MINISGL_DEVICE void NormHead(const RopeKernelParams& p, int lane, const float* weight,
                             LaneValues<W>& v) {
  float sum = 0;
#pragma unroll
  for (int u = 0; u < LaneValues<W>::kUnits; ++u) {
#pragma unroll
    for (int i = 0; i < W; ++i) {
      sum += v.first[u][i] * v.first[u][i] + v.second[u][i] * v.second[u][i];
    }
  }
  for (int offset = p.lanes / 2; offset > 0; offset /= 2) {
    sum += __shfl_xor_sync(0xffffffffu, sum, offset);
  }
  if (weight == nullptr) return;
  const float scale = device::Rsqrt(sum / static_cast<float>(p.rope.head_dim) + p.rope.norm_eps);
#pragma unroll
  for (int u = 0; u < LaneValues<W>::kUnits; ++u) {
    const int index = lane + u * p.lanes;
    if (index >= p.num_units) continue;
    const Unit<W> unit = UnitAt<W>(p.rope, index);
    float w[W];
    LoadFloats(weight + unit.first, w);
#pragma unroll
    for (int i = 0; i < W; ++i) v.first[u][i] *= scale * w[i];
    if (!unit.has_second) continue;
    LoadFloats(weight + unit.second, w);
#pragma unroll
    for (int i = 0; i < W; ++i) v.second[u][i] *= scale * w[i];
  }
}

template <int W>
MINISGL_DEVICE void RotateHead(const RopeKernelParams& p, int lane, int position,
                               LaneValues<W>& v) {
  const int64_t row = int64_t{position} * (p.rope.rotary_dim / 2);
#pragma unroll
  for (int u = 0; u < LaneValues<W>::kUnits; ++u) {
    const int index = lane + u * p.lanes;
    if (index >= p.num_units) continue;
    const Unit<W> unit = UnitAt<W>(p.rope, index);
    if (!unit.rotates) continue;
    float cos[W], sin[W];
    LoadFloats(p.rope.cos + row + unit.first, cos);
    LoadFloats(p.rope.sin + row + unit.first, sin);
#pragma unroll
    for (int i = 0; i < W; ++i) {
      const float a = v.first[u][i], b = v.second[u][i];
      v.first[u][i] = a * cos[i] - b * sin[i];
      v.second[u][i] = b * cos[i] + a * sin[i];
    }
  }
}

template <int W>
MINISGL_DEVICE void ScaleHead(float scale, LaneValues<W>& v) {
#pragma unroll
  for (int u = 0; u < LaneValues<W>::kUnits; ++u) {
#pragma unroll
    for (int i = 0; i < W; ++i) {
      v.first[u][i] *= scale;
      v.second[u][i] *= scale;
    }
  }
}

template <int W, typename T>
MINISGL_DEVICE void StoreHead(const RopeKernelParams& p, int lane, const LaneValues<W>& v,
                              T* head) {
#pragma unroll
  for (int u = 0; u < LaneValues<W>::kUnits; ++u) {
    const int index = lane + u * p.lanes;
    if (index >= p.num_units) continue;
    const Unit<W> unit = UnitAt<W>(p.rope, index);
    StoreFloats(head + unit.first, v.first[u]);
    if (unit.has_second) StoreFloats(head + unit.second, v.second[u]);
  }
}

// The key of KV head `head` in a slot. Slots fit in 32 bits: 2^32 slots of 64 elements of k and v
// would be 1 TB. A 32-bit division costs a fifth of a 64-bit one.
template <typename T>
MINISGL_DEVICE T* KeyAt(const KvLayer& kv, int64_t slot, int head) {
  const uint32_t page_size = static_cast<uint32_t>(kv.page_size);
  const uint32_t page = static_cast<uint32_t>(slot) / page_size;
  const uint32_t offset = static_cast<uint32_t>(slot) % page_size;
  return kv.base.as<T>() + page * kv.page_stride + offset * kv.slot_stride + head * kv.head_stride;
}

// Grid (T * (H + 2 HKV) * lanes / 256), block 256: `lanes` lanes for each head of a token, 8 for a
// head of 128. No shared memory. Traffic: T * E * sizeof(T) * (2 H + 4 HKV) bytes, and 4 * rot of
// the tables for each token (cached after its first head). 3 operations for an element that
// rotates, 4 more if it is normalised.
template <typename T, int W>
MINISGL_KERNEL void MINISGL_LAUNCH_BOUNDS(kRopeThreads, 1) RopeKvWriteKernel(RopeKernelParams p) {
  device::GridRelease();
  device::GridWait();
  const RopeKvWriteParams& rope = p.rope;
  const int num_heads = rope.num_heads + 2 * rope.num_kv_heads;
  const int64_t thread = int64_t{blockIdx.x} * kRopeThreads + threadIdx.x;
  const int64_t item = thread / p.lanes;
  const int lane = static_cast<int>(threadIdx.x) % p.lanes;
  const bool valid = item < rope.num_tokens * num_heads;
  // Threads past the end take part in the warps' sums: they load the last item.
  const uint32_t last = static_cast<uint32_t>(rope.num_tokens * num_heads - 1);
  const uint32_t index = valid ? static_cast<uint32_t>(item) : last;
  const int64_t token = index / static_cast<uint32_t>(num_heads);
  const int head = static_cast<int>(index % static_cast<uint32_t>(num_heads));
  const int kv_head = (head - rope.num_heads) % rope.num_kv_heads;
  const bool is_q = head < rope.num_heads;
  const bool is_v = head >= rope.num_heads + rope.num_kv_heads;

  T* const source = rope.qkv.as<T>() + (token * num_heads + head) * rope.head_dim;
  LaneValues<W> v;
  LoadHead(p, lane, source, v);
  const bool has_norm = rope.q_norm != nullptr || rope.k_norm != nullptr;
  const float* const norm = is_v ? nullptr : is_q ? rope.q_norm : rope.k_norm;
  if (has_norm && !rope.norm_last) NormHead(p, lane, norm, v);
  const int position = rope.positions[token];
  if (!is_v) RotateHead(p, lane, position, v);
  if (has_norm && rope.norm_last) NormHead(p, lane, norm, v);
  if (!valid) return;
  if (is_q && rope.query_scale != nullptr) ScaleHead(rope.query_scale[position], v);
  T* target = source;
  if (!is_q) {
    target = KeyAt<T>(rope.kv, rope.slots[token], kv_head) + (is_v ? rope.kv.v_offset : 0);
  }
  StoreHead(p, lane, v, target);
}

bool CanUseVectors(const RopeKvWriteParams& p) {
  const int64_t multiples_of_8 = p.head_dim | p.rotary_dim / 2 | p.kv.page_stride |
                                 p.kv.slot_stride | p.kv.head_stride | p.kv.v_offset;
  return multiples_of_8 % 8 == 0 && IsAligned16(p.qkv.data) && IsAligned16(p.kv.base.data) &&
         IsAligned16(p.cos) && IsAligned16(p.sin) && IsAligned16(p.q_norm) && IsAligned16(p.k_norm);
}

}  // namespace

CudaError LaunchRopeKvWrite(const LaunchContext& context, const RopeKvWriteParams& params) {
  MINISGL_CHECK(params.head_dim <= kHeadDimMax, "heads of {} elements; {} at most", params.head_dim,
                kHeadDimMax);
  const bool vectors = CanUseVectors(params);
  const int width = vectors ? 8 : 1;
  const int half = params.rotary_dim / 2;
  RopeKernelParams p = {.rope = params, .num_units = 0, .lanes = 1};
  p.num_units = half / width + CeilDiv(params.head_dim - 2 * half, 2 * width);
  while (p.lanes < p.num_units && p.lanes < kWarpSize) p.lanes *= 2;
  const int64_t threads =
      params.num_tokens * (params.num_heads + 2 * params.num_kv_heads) * p.lanes;
  const LaunchShape shape = {
      .grid = {static_cast<unsigned>(CeilDiv<int64_t>(threads, kRopeThreads))},
      .block = {kRopeThreads},
      .programmatic = true};
  return DispatchHalf(params.qkv.dtype, [&]<typename T>() {
    return vectors ? Launch(context, shape, RopeKvWriteKernel<T, 8>, p)
                   : Launch(context, shape, RopeKvWriteKernel<T, 1>, p);
  });
}

}  // namespace minisgl::cuda
