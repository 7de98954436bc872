// Writes keys and values to the KV storage: as floats, as pairs of bf16 (KeepsPairs), or as bf16 at
// the strides of KvLayer.
#include "cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/kernels/kv_write.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cstring>

#include "cpu/kernels/kernels.h"
#include "cpu/kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace minisgl::cpu {
namespace HWY_NAMESPACE {

// A token's keys and values in qkv.
struct TokenKv {
  HWY_INLINE TokenKv(const RopeKvWriteParams& p, int64_t token)
      : width(int64_t{p.num_kv_heads} * p.head_dim),
        k(p.qkv.f32() + token * (int64_t{p.num_heads} * p.head_dim + 2 * width) +
          int64_t{p.num_heads} * p.head_dim),
        v(k + width) {}
  int64_t width;
  const float* k;
  const float* v;
};

// Rounds to the nearest bf16, ties to even; NaN stays NaN.
HWY_INLINE hn::Vec<hn::Rebind<uint16_t, F32>> RoundToBf16(Floats x) {
  const hn::RebindToUnsigned<F32> du;
  const hn::RebindToSigned<F32> di;
  const auto bits = hn::BitCast(du, x);
  const auto is_odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1));
  const auto nearest = hn::Add(bits, hn::Add(is_odd, hn::Set(du, 0x7FFF)));
  const auto quiet = hn::Or(bits, hn::Set(du, 0x400000));
  const auto rounded = hn::IfThenElse(hn::RebindMask(du, hn::Eq(x, x)), nearest, quiet);
  return hn::DemoteTo(hn::Rebind<uint16_t, F32>(), hn::BitCast(di, hn::ShiftRight<16>(rounded)));
}

// Rounds `width` consecutive elements to bf16.
HWY_INLINE void RoundElements(const float* HWY_RESTRICT from, int64_t width,
                              uint16_t* HWY_RESTRICT to) {
  const hn::Rebind<uint16_t, F32> d16;
  int64_t e = 0;
  for (; e + kLanes <= width; e += kLanes) {
    hn::StoreU(RoundToBf16(hn::LoadU(F32(), from + e)), d16, to + e);
  }
  for (; e < width; ++e) to[e] = hn::GetLane(RoundToBf16(hn::Set(F32(), from[e])));
}

void WriteFloats(const RopeKvWriteParams& p, int64_t token) {
  const KvLayer& kv = p.kv;
  const KeyLayout keys(kv, p.head_dim);
  const TokenKv from(p, token);
  const int64_t offset = p.slots[token] % kv.page_size;
  float* head = kv.base.f32() + p.slots[token] / kv.page_size * kv.page_stride;
  for (int64_t h = 0; h < p.num_kv_heads; ++h, head += kv.head_stride) {
    const float* const k = from.k + h * p.head_dim;
    const float* const v = from.v + h * p.head_dim;
    float* const to_k = head + offset * keys.slot_stride;
    float* const to_v = head + offset * kv.slot_stride + kv.v_offset;
    for (int64_t e = 0; e < p.head_dim; ++e) to_k[e * keys.element_stride] = k[e];
    for (int64_t e = 0; e < p.head_dim; ++e) to_v[e] = v[e];
  }
}

void WriteRows(const RopeKvWriteParams& p, int64_t token) {
  const KvLayer& kv = p.kv;
  const TokenKv from(p, token);
  auto* head = kv.base.as<uint16_t>() + p.slots[token] / kv.page_size * kv.page_stride +
               p.slots[token] % kv.page_size * kv.slot_stride;
  for (int64_t h = 0; h < p.num_kv_heads; ++h, head += kv.head_stride) {
    RoundElements(from.k + h * p.head_dim, p.head_dim, head);
    RoundElements(from.v + h * p.head_dim, p.head_dim, head + kv.v_offset);
  }
}

// Prefetches the lines that WritePairs is going to write.
HWY_INLINE void FetchPairs(const RopeKvWriteParams& p, int64_t token) {
  const KvLayer& kv = p.kv;
  const uint16_t* head = kv.base.as<uint16_t>() + p.slots[token] / kv.page_size * kv.page_stride;
  const int64_t offset = p.slots[token] % kv.page_size;
  for (int64_t h = 0; h < p.num_kv_heads; ++h, head += kv.head_stride) {
    const uint16_t* const values = head + kv.v_offset + offset / 2 * 2 * p.head_dim;
    for (int64_t pair = 0; pair < p.head_dim / 2; ++pair) {
      PrefetchStream(head + 2 * (pair * kv.page_size + offset));
    }
    for (int64_t e = 0; e < p.head_dim; e += kPanelWidth) PrefetchStream(values + 2 * e);
  }
}

// Writes each half of a pair of values separately: another thread may be writing the other half.
void WritePairs(const RopeKvWriteParams& p, int64_t token) {
  const KvLayer& kv = p.kv;
  // The next token is most likely written by this thread, and in another page if rows decode.
  if (token + 1 < p.num_tokens &&
      p.slots[token + 1] / kv.page_size != p.slots[token] / kv.page_size) {
    FetchPairs(p, token + 1);
  }
  const TokenKv from(p, token);
  uint16_t* head = kv.base.as<uint16_t>() + p.slots[token] / kv.page_size * kv.page_stride;
  const int64_t offset = p.slots[token] % kv.page_size;
  for (int64_t h = 0; h < p.num_kv_heads; ++h, head += kv.head_stride) {
    uint16_t* const to_k = head + 2 * offset;
    uint16_t* const to_v = head + kv.v_offset + offset / 2 * 2 * p.head_dim + offset % 2;
    for (int64_t begin = 0; begin < p.head_dim; begin += kPanelWidth) {
      uint16_t rounded[kPanelWidth];
      RoundElements(from.k + h * p.head_dim + begin, kPanelWidth, rounded);
      for (int64_t i = 0; i < kPanelWidth; i += 2) {
        memcpy(to_k + (begin + i) * kv.page_size, rounded + i, 2 * sizeof(uint16_t));
      }
      RoundElements(from.v + h * p.head_dim + begin, kPanelWidth, rounded);
      for (int64_t i = 0; i < kPanelWidth; ++i) to_v[2 * (begin + i)] = rounded[i];
    }
  }
}

void WriteToken(const RopeKvWriteParams& p, int64_t token) {
  if (p.kv.base.dtype == DType::kF32) {
    WriteFloats(p, token);
  } else if (KeepsPairs(p.kv, p.head_dim)) {
    WritePairs(p, token);
  } else {
    WriteRows(p, token);
  }
}

WriteKv GetWrite() { return WriteToken; }

}  // namespace HWY_NAMESPACE
}  // namespace minisgl::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace minisgl::cpu {

const PerTarget<GetWriteKv>& WriteKvGetters() {
  static constexpr PerTarget<GetWriteKv> kTable = MINISGL_PER_TARGET(GetWrite);
  return kTable;
}

}  // namespace minisgl::cpu
#endif
