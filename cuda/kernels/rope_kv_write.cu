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
#include "minisgl/tensor/e4m3_scale.h"

namespace minisgl::cuda {
namespace {

using device::kWarpSize;

// 64 tokens of a small model are then 128 blocks, and 7 blocks, of 72 registers for each thread,
// fit on a multiprocessor: 28 KB of heads in flight.
constexpr int kRopeThreads = 128;
constexpr int kRopeBlocks = 7;
// A head's elements are in the registers of at most one warp, 16 in each lane, 32 of a larger head.
constexpr int kHeadDim = 16 * kWarpSize;
constexpr int kHeadDimMax = 2 * kHeadDim;

// A head is divided into units of two pieces of W elements. Units that rotate hold the two halves
// of W pairs; units past `rot` hold two pieces that are copied, the last of which may be missing. W
// is 8 (16 bytes), or 1 if head_dim, rot/2 or a stride is not a multiple of 8. 2^lane_bits lanes
// share a head, and each has at most UNITS units. A value's units do not rotate.
struct RopeKernelParams {
  RopeKvWriteParams rope;
  int num_units, num_value_units;
  int lane_bits;
  int value_dim;    // 0: values are part of the keys
  int token_heads;  // heads of q, k and v
  int64_t token_width;
};

template <int HEAD_DIM, int W>
inline constexpr int kUnitsOf = HEAD_DIM / (2 * W * kWarpSize);

template <int W, int UNITS>
struct LaneUnits {
  struct Unit {
    int first, second;  // offsets of the pieces in the head; another piece's if absent
    bool has_first, has_second;
    bool rotates;
  };
  Unit unit[UNITS];
};

// The units of a lane, of a head of q or k, or of v. A lane may have fewer than UNITS, or none.
template <int W, int UNITS>
MINISGL_DEVICE LaneUnits<W, UNITS> UnitsOf(const RopeKernelParams& p, bool is_v, int lane) {
  const int half = is_v ? 0 : p.rope.rotary_dim / 2, num_rotating = half / W;
  const int num_units = is_v ? p.num_value_units : p.num_units;
  const int head_dim = is_v ? p.value_dim : p.rope.head_dim;
  LaneUnits<W, UNITS> units;
#pragma unroll
  for (int u = 0; u < UNITS; ++u) {
    const int index = lane + (u << p.lane_bits);
    const bool present = index < num_units, rotates = present && index < num_rotating;
    const int copied = 2 * half + (index - num_rotating) * 2 * W;
    const int first = !present ? 0 : rotates ? index * W : copied;
    const int second = rotates ? half + index * W : first + W;
    const bool has_second = present && second < head_dim;
    units.unit[u] = {first, has_second ? second : first, present, has_second, rotates};
  }
  return units;
}

// Two pieces for each unit of one lane: of a head, of the norm's weights, or of a row of the tables
// (cos, sin).
template <int W, int UNITS>
struct LaneValues {
  float first[UNITS][W];
  float second[UNITS][W];
};

// The pieces of a lane of `head`, which has head_dim elements; absent ones are 0. Here and in
// LoadTables every lane loads something: without branches, the compiler can issue all loads of a
// thread before it waits for one.
template <int W, int UNITS, typename T>
MINISGL_DEVICE void LoadHead(const LaneUnits<W, UNITS>& units, const T* head,
                             LaneValues<W, UNITS>& v) {
#pragma unroll
  for (int u = 0; u < UNITS; ++u) {
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
template <int W, int UNITS>
MINISGL_DEVICE void LoadTables(const RopeKvWriteParams& p, const LaneUnits<W, UNITS>& units,
                               int position, LaneValues<W, UNITS>& table) {
  const int64_t row = int64_t{position} * (p.rotary_dim / 2);
#pragma unroll
  for (int u = 0; u < UNITS; ++u) {
    const int64_t at = row + (units.unit[u].rotates ? units.unit[u].first : 0);
    LoadFloats(p.cos + at, table.first[u]);
    LoadFloats(p.sin + at, table.second[u]);
  }
}

// v *= weight / rms(v), over the head's lanes. Every lane of the warp must call this; without
// `has_weight`, v is left unchanged.
template <int W, int UNITS>
MINISGL_DEVICE void NormHead(const RopeKernelParams& p, bool has_weight,
                             const LaneValues<W, UNITS>& weight, LaneValues<W, UNITS>& v) {
  float sum = 0;
#pragma unroll
  for (int u = 0; u < UNITS; ++u) {
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
  for (int u = 0; u < UNITS; ++u) {
#pragma unroll
    for (int i = 0; i < W; ++i) {
      v.first[u][i] *= scale * weight.first[u][i];
      v.second[u][i] *= scale * weight.second[u][i];
    }
  }
}

template <int W, int UNITS>
MINISGL_DEVICE void RotateHead(const LaneUnits<W, UNITS>& units, const LaneValues<W, UNITS>& table,
                               LaneValues<W, UNITS>& v) {
#pragma unroll
  for (int u = 0; u < UNITS; ++u) {
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

template <int W, int UNITS>
MINISGL_DEVICE void ScaleHead(float scale, LaneValues<W, UNITS>& v) {
#pragma unroll
  for (int u = 0; u < UNITS; ++u) {
#pragma unroll
    for (int i = 0; i < W; ++i) {
      v.first[u][i] *= scale;
      v.second[u][i] *= scale;
    }
  }
}

template <int W, int UNITS, typename T>
MINISGL_DEVICE void StoreHead(const LaneUnits<W, UNITS>& units, const LaneValues<W, UNITS>& v,
                              T* head) {
#pragma unroll
  for (int u = 0; u < UNITS; ++u) {
    const auto& unit = units.unit[u];
    if (unit.has_first) StoreFloats(head + unit.first, v.first[u]);
    if (unit.has_second) StoreFloats(head + unit.second, v.second[u]);
  }
}

// The key of KV head `head` in a slot, or its value. Slots fit in 32 bits: 2^32 slots of 64
// elements of k and v would be 1 TB. A 32-bit division costs a fifth of a 64-bit one.
template <typename T>
MINISGL_DEVICE T* PlaceOf(const KvLayer& kv, int64_t slot, int head, bool is_v) {
  const uint32_t page_size = static_cast<uint32_t>(kv.page_size);
  const uint32_t page = static_cast<uint32_t>(slot) / page_size;
  const uint32_t offset = static_cast<uint32_t>(slot) % page_size;
  const int64_t slot_stride = is_v ? kv.v_slot_stride : kv.slot_stride;
  const int64_t head_stride = is_v ? kv.v_head_stride : kv.head_stride;
  return kv.base.as<T>() + page * kv.page_stride + offset * slot_stride + head * head_stride +
         (is_v ? kv.v_offset : 0);
}

// The bits of the largest magnitude of a head, over its lanes; of NaN if there is one. Every lane
// of the warp must call this.
template <int W, int UNITS>
MINISGL_DEVICE uint32_t LargestBits(const RopeKernelParams& p, const LaneValues<W, UNITS>& v) {
  uint32_t most = 0;
  const auto add = [&](float x) {
    const uint32_t bits = __builtin_bit_cast(uint32_t, x) & 0x7FFFFFFFu;
    most = bits > most ? bits : most;
  };
#pragma unroll
  for (int u = 0; u < UNITS; ++u) {
#pragma unroll
    for (int i = 0; i < W; ++i) {
      add(v.first[u][i]);
      add(v.second[u][i]);
    }
  }
  for (int offset = (1 << p.lane_bits) / 2; offset > 0; offset /= 2) {
    const uint32_t other = __shfl_xor_sync(0xffffffffu, most, offset);
    most = other > most ? other : most;
  }
  return most;
}

// A piece as codes. With a scale of NaN they are 0.
template <int W>
MINISGL_DEVICE void StoreCodes(uint8_t* to, const float (&x)[W], float inverse) {
  const auto code = [&](int i) { return inverse == inverse ? device::MulRn(x[i], inverse) : 0.0f; };
  if constexpr (W == 8) {
    device::Vec<uint32_t, 2> words;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      words[i] = device::PackE4M3(code(4 * i), code(4 * i + 1)) |
                 device::PackE4M3(code(4 * i + 2), code(4 * i + 3)) << 16;
    }
    device::StoreVec(reinterpret_cast<uint32_t*>(to), words);
  } else {
#pragma unroll
    for (int i = 0; i < W; ++i) to[i] = static_cast<uint8_t>(device::PackE4M3(code(i), 0) & 0xFF);
  }
}

// Writes a key or a value as codes, and its scale (KvLayer).
template <int W, int UNITS>
MINISGL_DEVICE void StoreCodedHead(const LaneUnits<W, UNITS>& units, const LaneValues<W, UNITS>& v,
                                   const KvLayer& kv, int64_t slot, int head, bool is_v, int lane,
                                   uint8_t scale) {
  const float inverse = device::BitsToFloat(E4M3InverseScaleBits(scale));
  uint8_t* const to = PlaceOf<uint8_t>(kv, slot, head, is_v);
#pragma unroll
  for (int u = 0; u < UNITS; ++u) {
    const auto& unit = units.unit[u];
    if (unit.has_first) StoreCodes(to + unit.first, v.first[u], inverse);
    if (unit.has_second) StoreCodes(to + unit.second, v.second[u], inverse);
  }
  if (lane != 0) return;
  const uint32_t page_size = static_cast<uint32_t>(kv.page_size);
  const uint32_t page = static_cast<uint32_t>(slot) / page_size;
  const uint32_t offset = static_cast<uint32_t>(slot) % page_size;
  kv.base.as<uint8_t>()[page * kv.page_stride + (is_v ? kv.v_scales : kv.k_scales) +
                        static_cast<uint32_t>(head) * page_size + offset] = scale;
}

// Grid (T * heads of q, k and v * lanes / 128), block 128: `lanes` lanes for each head of a token,
// 8 for a head of 128. No shared memory. Traffic: T * sizeof(T) * (2 H E + 2 HKV (E + EV)) bytes,
// and 4 * rot of the tables for each token (cached after its first head). 3 operations for an
// element that rotates, 4 more if it is normalised.
// CODES: keys and values are codes of 8 bits.
template <typename T, int W, int UNITS, bool ROTATES, bool CODES>
MINISGL_DEVICE void RopeKvWriteBlock(const RopeKernelParams& p) {
  const RopeKvWriteParams& rope = p.rope;
  const uint32_t token_heads = static_cast<uint32_t>(p.token_heads);
  const uint32_t thread = blockIdx.x * kRopeThreads + threadIdx.x;
  const uint32_t item = thread >> p.lane_bits;
  const int lane = static_cast<int>(thread & ((1u << p.lane_bits) - 1));
  // Threads past the end take part in the warps' sums: they load the last item.
  const uint32_t last = static_cast<uint32_t>(rope.num_tokens) * token_heads - 1;
  const bool valid = item <= last;
  const uint32_t index = valid ? item : last;
  const int64_t token = index / token_heads;
  const int head = static_cast<int>(index % token_heads);
  const bool is_q = head < rope.num_heads;
  const int first_v = rope.num_heads + rope.num_kv_heads;
  const bool is_v = head >= first_v;
  const int kv_head = head - (is_v ? first_v : rope.num_heads);
  const bool has_norm = rope.q_norm != nullptr || rope.k_norm != nullptr;
  const float* const norm = is_v ? nullptr : is_q ? rope.q_norm : rope.k_norm;
  const LaneUnits<W, UNITS> units = UnitsOf<W, UNITS>(p, is_v, lane);
  const int64_t in_token = is_v ? int64_t{first_v} * rope.head_dim + int64_t{kv_head} * p.value_dim
                                : int64_t{head} * rope.head_dim;
  T* const source = rope.qkv.as<T>() + token * p.token_width + in_token;
  LaneValues<W, UNITS> v, weight, table;
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
  [[maybe_unused]] uint32_t most = 0;
  if constexpr (CODES) most = LargestBits(p, v);
  __syncwarp();  // every lane has loaded, absent pieces too, which are another lane's
  if (!valid) return;
  if (is_q && rope.query_scale != nullptr) ScaleHead(query_scale, v);
  if constexpr (CODES) {
    if (!is_q) {
      StoreCodedHead(units, v, rope.kv, slot, kv_head, is_v, lane, E4M3ScaleOf(most));
      return;
    }
  }
  T* const target = is_q ? source : PlaceOf<T>(rope.kv, slot, kv_head, is_v);
  StoreHead(units, v, target);
}

template <typename T, int W, int UNITS, bool ROTATES>
MINISGL_KERNEL void MINISGL_LAUNCH_BOUNDS(kRopeThreads, (W == 8 && UNITS == 1 ? kRopeBlocks : 1))
    RopeKvWriteKernel(RopeKernelParams p) {
  RopeKvWriteBlock<T, W, UNITS, ROTATES, false>(p);
}

template <typename T, int W, int UNITS, bool ROTATES>
MINISGL_KERNEL void MINISGL_LAUNCH_BOUNDS(kRopeThreads, 1) RopeKvCodesKernel(RopeKernelParams p) {
  RopeKvWriteBlock<T, W, UNITS, ROTATES, true>(p);
}

bool CanUseVectors(const RopeKernelParams& params) {
  const RopeKvWriteParams& p = params.rope;
  int64_t multiples_of_8 = p.head_dim | p.rotary_dim / 2 | params.token_width;
  if (p.num_kv_heads > 0) {
    multiples_of_8 |= p.kv.page_stride | p.kv.slot_stride | p.kv.head_stride;
    if (params.value_dim > 0) {
      multiples_of_8 |= params.value_dim | p.kv.v_offset | p.kv.v_slot_stride | p.kv.v_head_stride;
    }
  }
  return multiples_of_8 % 8 == 0 && IsAligned16(p.qkv.data) && IsAligned16(p.kv.base.data) &&
         IsAligned16(p.cos) && IsAligned16(p.sin) && IsAligned16(p.q_norm) && IsAligned16(p.k_norm);
}

template <typename T, int W, bool ROTATES>
CudaError LaunchUnits(const LaunchContext& context, const LaunchShape& shape,
                      const RopeKernelParams& p) {
  const bool is_small = std::max(p.rope.head_dim, p.value_dim) <= kHeadDim;
  if (p.rope.kv.has_codes()) {
    return is_small
               ? Launch(context, shape, RopeKvCodesKernel<T, W, kUnitsOf<kHeadDim, W>, ROTATES>, p)
               : Launch(context, shape, RopeKvCodesKernel<T, W, kUnitsOf<kHeadDimMax, W>, ROTATES>,
                        p);
  }
  if (is_small) {
    return Launch(context, shape, RopeKvWriteKernel<T, W, kUnitsOf<kHeadDim, W>, ROTATES>, p);
  }
  return Launch(context, shape, RopeKvWriteKernel<T, W, kUnitsOf<kHeadDimMax, W>, ROTATES>, p);
}

}  // namespace

CudaError LaunchRopeKvWrite(const LaunchContext& context, const RopeKvWriteParams& params) {
  RopeKernelParams p = {.rope = params,
                        .num_units = 0,
                        .num_value_units = 0,
                        .lane_bits = 0,
                        .value_dim = params.value_dim(),
                        .token_heads = params.num_heads + params.num_kv_heads,
                        .token_width = params.token_width()};
  p.rope.kv.v_slot_stride = params.kv.value_slot_stride();
  p.rope.kv.v_head_stride = params.kv.value_head_stride();
  if (p.value_dim > 0) p.token_heads += params.num_kv_heads;
  const int head_dim = std::max(params.head_dim, p.value_dim);
  MINISGL_CHECK(head_dim <= kHeadDimMax, "heads of {} elements; {} at most", head_dim, kHeadDimMax);
  const bool vectors = CanUseVectors(p);
  const int width = vectors ? 8 : 1;
  const int half = params.rotary_dim / 2;
  p.num_units = half / width + CeilDiv(params.head_dim - 2 * half, 2 * width);
  p.num_value_units = CeilDiv(p.value_dim, 2 * width);
  while (1 << p.lane_bits < std::min(std::max(p.num_units, p.num_value_units), kWarpSize)) {
    ++p.lane_bits;
  }
  const int64_t threads = (params.num_tokens * p.token_heads) << p.lane_bits;
  MINISGL_CHECK(threads < int64_t{1} << 31, "{} threads for {} tokens", threads, params.num_tokens);
  const LaunchShape shape = {
      .grid = {static_cast<unsigned>(CeilDiv<int64_t>(threads, kRopeThreads))},
      .block = {kRopeThreads},
      .programmatic = true};
  return DispatchHalf(params.qkv.dtype, [&]<typename T>() {
    if (half == 0) {
      return vectors ? LaunchUnits<T, 8, false>(context, shape, p)
                     : LaunchUnits<T, 1, false>(context, shape, p);
    }
    return vectors ? LaunchUnits<T, 8, true>(context, shape, p)
                   : LaunchUnits<T, 1, true>(context, shape, p);
  });
}

}  // namespace minisgl::cuda
