// Rotary position embedding of q and k, with the model's QK-norm before or after it, and the
// writing of k and v to their KV slots: one kernel, so that k and v are read once.
//
// q is rotated in place; k and v in qkv are not changed, as attention reads them from the KV slots.
// Between the norm, the rotation and the scaling of q, values stay f32.
//
// Latency: a decode step has one block or a few on each multiprocessor, so a dependent load costs
// its whole latency. There are two in a row after GridWait: of the position, the slot and the head;
// and of the tables' row. The norm's weights, which no kernel writes, are loaded before it.
#include <algorithm>

#include "kernels/chunk.h"
#include "kernels/dispatch.h"
#include "kernels/kernels.h"
#include "minisgl/base/checked_math.h"

namespace minisgl::cuda {
namespace {

using device::kWarpSize;

// 64 tokens of a small model are then 128 blocks, and 7 blocks, of 72 registers for each thread,
// fit on a multiprocessor: 28 KB of heads in flight.
constexpr int kRopeThreads = 128;
// A head's elements are in the registers of at most one warp, 16 in each lane.
constexpr int kHeadDimMax = 16 * kWarpSize;

// A head is divided into units of two pieces of W elements. Units that rotate hold the two halves
// of W pairs; units past `rot` hold two pieces that are copied, the last of which may be missing. W
// is 8 (16 bytes), or 1 if head_dim, rot/2 or a stride is not a multiple of 8. 2^lane_bits lanes
// share a head, and each has at most kUnits units.
struct RopeKernelParams {
  RopeKvWriteParams rope;
  int num_units;
  int lane_bits;
};

template <int W>
struct LaneUnits {
  static constexpr int kUnits = kHeadDimMax / (2 * W * kWarpSize);
  struct Unit {
    int first, second;  // offsets of the pieces in the head; those of another piece if absent
    bool has_first, has_second;
    bool rotates;
  };
  Unit unit[kUnits];
};

// The units of a lane. A lane may have fewer than kUnits, or none.
template <int W>
MINISGL_DEVICE LaneUnits<W> UnitsOf(const RopeKernelParams& p, int lane) {
  const int half = p.rope.rotary_dim / 2, num_rotating = half / W;
  LaneUnits<W> units;
#pragma unroll
  for (int u = 0; u < LaneUnits<W>::kUnits; ++u) {
    const int index = lane + (u << p.lane_bits);
    const bool present = index < p.num_units, rotates = present && index < num_rotating;
    const int copied = 2 * half + (index - num_rotating) * 2 * W;
    const int first = !present ? 0 : rotates ? index * W : copied;
    const int second = rotates ? half + index * W : first + W;
    const bool has_second = present && second < p.rope.head_dim;
    units.unit[u] = {first, has_second ? second : first, present, has_second, rotates};
  }
  return units;
}

// Two pieces for each unit of one lane: of a head, of the norm's weights, or of a row of the tables
// (cos, sin).
template <int W>
struct LaneValues {
  float first[LaneUnits<W>::kUnits][W];
  float second[LaneUnits<W>::kUnits][W];
};

// The pieces of a lane of `head`, which has head_dim elements; absent ones are 0. Here and in
// LoadTables every lane loads something: without branches, the compiler can issue all loads of a
// thread before it waits for one.
template <int W, typename T>
MINISGL_DEVICE void LoadHead(const LaneUnits<W>& units, const T* head, LaneValues<W>& v) {
#pragma unroll
  for (int u = 0; u < LaneUnits<W>::kUnits; ++u) {
    const auto& unit = units.unit[u];
    LoadFloats(head + unit.first, v.first[u]);
    LoadFloats(head + unit.second, v.second[u]);
#pragma unroll
    for (int i = 0; i < W; ++i) {
      v.first[u][i] = unit.has_first ? v.first[u][i] : 0;
      v.second[u][i] = unit.has_second ? v.second[u][i] : 0;
    }
  }
}

// The pieces of the tables' row of a position; any others of the row for units that do not rotate.
template <int W>
MINISGL_DEVICE void LoadTables(const RopeKvWriteParams& p, const LaneUnits<W>& units, int position,
                               LaneValues<W>& table) {
  const int64_t row = int64_t{position} * (p.rotary_dim / 2);
#pragma unroll
  for (int u = 0; u < LaneUnits<W>::kUnits; ++u) {
    const int64_t at = row + (units.unit[u].rotates ? units.unit[u].first : 0);
    LoadFloats(p.cos + at, table.first[u]);
    LoadFloats(p.sin + at, table.second[u]);
  }
}

// v *= weight / rms(v), over the head's lanes. Every lane of the warp must call this; without
// `has_weight`, v is left unchanged.
template <int W>
MINISGL_DEVICE void NormHead(const RopeKernelParams& p, bool has_weight,
                             const LaneValues<W>& weight, LaneValues<W>& v) {
  float sum = 0;
#pragma unroll
  for (int u = 0; u < LaneUnits<W>::kUnits; ++u) {
#pragma unroll
    for (int i = 0; i < W; ++i) {
      sum += v.first[u][i] * v.first[u][i] + v.second[u][i] * v.second[u][i];
    }
  }
  for (int offset = (1 << p.lane_bits) / 2; offset > 0; offset /= 2) {
    sum += __shfl_xor_sync(0xffffffffu, sum, offset);
  }
  if (!has_weight) return;
  const float scale = device::Rsqrt(sum / static_cast<float>(p.rope.head_dim) + p.rope.norm_eps);
#pragma unroll
  for (int u = 0; u < LaneUnits<W>::kUnits; ++u) {
#pragma unroll
    for (int i = 0; i < W; ++i) {
      v.first[u][i] *= scale * weight.first[u][i];
      v.second[u][i] *= scale * weight.second[u][i];
    }
  }
}

template <int W>
MINISGL_DEVICE void RotateHead(const LaneUnits<W>& units, const LaneValues<W>& table,
                               LaneValues<W>& v) {
#pragma unroll
  for (int u = 0; u < LaneUnits<W>::kUnits; ++u) {
    if (!units.unit[u].rotates) continue;
#pragma unroll
    for (int i = 0; i < W; ++i) {
      const float a = v.first[u][i], b = v.second[u][i];
      const float cos = table.first[u][i], sin = table.second[u][i];
      v.first[u][i] = a * cos - b * sin;
      v.second[u][i] = b * cos + a * sin;
    }
  }
}

template <int W>
MINISGL_DEVICE void ScaleHead(float scale, LaneValues<W>& v) {
#pragma unroll
  for (int u = 0; u < LaneUnits<W>::kUnits; ++u) {
#pragma unroll
    for (int i = 0; i < W; ++i) {
      v.first[u][i] *= scale;
      v.second[u][i] *= scale;
    }
  }
}

template <int W, typename T>
MINISGL_DEVICE void StoreHead(const LaneUnits<W>& units, const LaneValues<W>& v, T* head) {
#pragma unroll
  for (int u = 0; u < LaneUnits<W>::kUnits; ++u) {
    const auto& unit = units.unit[u];
    if (unit.has_first) StoreFloats(head + unit.first, v.first[u]);
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

// Grid (T * (H + 2 HKV) * lanes / 128), block 128: `lanes` lanes for each head of a token, 8 for a
// head of 128. No shared memory. Traffic: T * E * sizeof(T) * (2 H + 4 HKV) bytes, and 4 * rot of
// the tables for each token (cached after its first head). 3 operations for an element that
// rotates, 4 more if it is normalised.
template <typename T, int W, bool ROTATES>
MINISGL_KERNEL void MINISGL_LAUNCH_BOUNDS(kRopeThreads, 1) RopeKvWriteKernel(RopeKernelParams p) {
  const RopeKvWriteParams& rope = p.rope;
  const uint32_t num_heads = static_cast<uint32_t>(rope.num_heads + 2 * rope.num_kv_heads);
  const uint32_t thread = blockIdx.x * kRopeThreads + threadIdx.x;
  const uint32_t item = thread >> p.lane_bits;
  const int lane = static_cast<int>(thread & ((1u << p.lane_bits) - 1));
  // Threads past the end take part in the warps' sums: they load the last item.
  const uint32_t last = static_cast<uint32_t>(rope.num_tokens) * num_heads - 1;
  const bool valid = item <= last;
  const uint32_t index = valid ? item : last;
  const int64_t token = index / num_heads;
  const int head = static_cast<int>(index % num_heads);
  const bool is_q = head < rope.num_heads;
  const bool is_v = head >= rope.num_heads + rope.num_kv_heads;
  const int kv_head = head - rope.num_heads - (is_v ? rope.num_kv_heads : 0);
  const bool has_norm = rope.q_norm != nullptr || rope.k_norm != nullptr;
  const float* const norm = is_v ? nullptr : is_q ? rope.q_norm : rope.k_norm;
  const LaneUnits<W> units = UnitsOf<W>(p, lane);
  T* const source = rope.qkv.as<T>() + static_cast<int64_t>(index) * rope.head_dim;
  LaneValues<W> v, weight, table;
  if (norm != nullptr) LoadHead(units, norm, weight);

  device::GridWait();
  // Not earlier: the kernel after this one then begins with all before this one complete.
  device::GridRelease();
  const int position = rope.positions[token];
  const int64_t slot = is_q ? 0 : rope.slots[token];
  LoadHead(units, source, v);
  if constexpr (ROTATES) LoadTables(rope, units, position, table);
  float query_scale = 1;
  if (is_q && rope.query_scale != nullptr) query_scale = rope.query_scale[position];

  if (has_norm && !rope.norm_last) NormHead(p, norm != nullptr, weight, v);
  if constexpr (ROTATES) {
    if (!is_v) RotateHead(units, table, v);
  }
  if (has_norm && rope.norm_last) NormHead(p, norm != nullptr, weight, v);
  __syncwarp();  // every lane has loaded, absent pieces too, which are another lane's
  if (!valid) return;
  if (is_q && rope.query_scale != nullptr) ScaleHead(query_scale, v);
  T* target = source;
  if (!is_q) target = KeyAt<T>(rope.kv, slot, kv_head) + (is_v ? rope.kv.v_offset : 0);
  StoreHead(units, v, target);
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
  MINISGL_CHECK(params.value_dim() == params.head_dim && params.num_kv_heads > 0 &&
                    params.kv.value_slot_stride() == params.kv.slot_stride &&
                    params.kv.value_head_stride() == params.kv.head_stride,
                "values that are not laid out as keys are, or queries without them");
  const bool vectors = CanUseVectors(params);
  const int width = vectors ? 8 : 1;
  const int half = params.rotary_dim / 2;
  RopeKernelParams p = {.rope = params, .num_units = 0, .lane_bits = 0};
  p.num_units = half / width + CeilDiv(params.head_dim - 2 * half, 2 * width);
  while (1 << p.lane_bits < std::min(p.num_units, kWarpSize)) ++p.lane_bits;
  const int64_t threads = (params.num_tokens * (params.num_heads + 2 * params.num_kv_heads))
                          << p.lane_bits;
  MINISGL_CHECK(threads < int64_t{1} << 31, "{} threads for {} tokens", threads, params.num_tokens);
  const LaunchShape shape = {
      .grid = {static_cast<unsigned>(CeilDiv<int64_t>(threads, kRopeThreads))},
      .block = {kRopeThreads},
      .programmatic = true};
  return DispatchHalf(params.qkv.dtype, [&]<typename T>() {
    if (half == 0) {
      return vectors ? Launch(context, shape, RopeKvWriteKernel<T, 8, false>, p)
                     : Launch(context, shape, RopeKvWriteKernel<T, 1, false>, p);
    }
    return vectors ? Launch(context, shape, RopeKvWriteKernel<T, 8, true>, p)
                   : Launch(context, shape, RopeKvWriteKernel<T, 1, true>, p);
  });
}

}  // namespace minisgl::cuda
