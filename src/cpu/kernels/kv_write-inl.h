// Writes keys and values to the KV storage: as floats, as pairs of bf16 (KeepsPairs), or as bf16 at
// the strides of KvLayer. Compiled once for each instruction set (kernel_tables.cc).
#if defined(MINISGL_CPU_KV_WRITE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MINISGL_CPU_KV_WRITE_INL_H_
#undef MINISGL_CPU_KV_WRITE_INL_H_
#else
#define MINISGL_CPU_KV_WRITE_INL_H_
#endif

#include <cstring>

#include "cpu/kernels/kernels.h"
#include "cpu/kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace minisgl::cpu {
namespace HWY_NAMESPACE {
namespace kv_write {

// A token's keys and values in qkv.
struct TokenKv {
  HWY_INLINE TokenKv(const RopeKvWriteParams& p, int64_t token)
      : k(p.qkv.f32() + token * p.token_width() + int64_t{p.num_heads} * p.head_dim),
        v(k + int64_t{p.num_kv_heads} * p.head_dim) {}
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
  const int64_t offset = p.slots[token] % kv.page_size, value_dim = p.value_dim();
  float* const page = kv.base.f32() + p.slots[token] / kv.page_size * kv.page_stride;
  float* to_k = page + offset * keys.slot_stride;
  float* to_v = page + kv.v_offset + offset * kv.value_slot_stride();
  for (int64_t h = 0; h < p.num_kv_heads; ++h) {
    const float* const k = from.k + h * p.head_dim;
    for (int64_t e = 0; e < p.head_dim; ++e) to_k[e * keys.element_stride] = k[e];
    const float* const v = from.v + h * value_dim;
    for (int64_t e = 0; e < value_dim; ++e) to_v[e] = v[e];
    to_k += kv.head_stride;
    to_v += kv.value_head_stride();
  }
}

void WriteRows(const RopeKvWriteParams& p, int64_t token) {
  const KvLayer& kv = p.kv;
  const TokenKv from(p, token);
  const int64_t offset = p.slots[token] % kv.page_size, value_dim = p.value_dim();
  auto* const page = kv.base.as<uint16_t>() + p.slots[token] / kv.page_size * kv.page_stride;
  uint16_t* to_k = page + offset * kv.slot_stride;
  uint16_t* to_v = page + kv.v_offset + offset * kv.value_slot_stride();
  for (int64_t h = 0; h < p.num_kv_heads; ++h) {
    RoundElements(from.k + h * p.head_dim, p.head_dim, to_k);
    RoundElements(from.v + h * value_dim, value_dim, to_v);
    to_k += kv.head_stride;
    to_v += kv.value_head_stride();
  }
}

// Prefetches the lines that WritePairs is going to write.
HWY_INLINE void FetchPairs(const RopeKvWriteParams& p, int64_t token) {
  const KvLayer& kv = p.kv;
  const int64_t offset = p.slots[token] % kv.page_size, value_dim = p.value_dim();
  const uint16_t* keys = kv.base.as<uint16_t>() + p.slots[token] / kv.page_size * kv.page_stride;
  const uint16_t* values = keys + kv.v_offset + offset / 2 * 2 * value_dim;
  for (int64_t h = 0; h < p.num_kv_heads; ++h) {
    for (int64_t pair = 0; pair < p.head_dim / 2; ++pair) {
      PrefetchStream(keys + 2 * (pair * kv.page_size + offset));
    }
    for (int64_t e = 0; e < value_dim; e += kPanelWidth) PrefetchStream(values + 2 * e);
    keys += kv.head_stride;
    values += kv.value_head_stride();
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
  uint16_t* const page = kv.base.as<uint16_t>() + p.slots[token] / kv.page_size * kv.page_stride;
  const int64_t offset = p.slots[token] % kv.page_size, value_dim = p.value_dim();
  uint16_t* to_k = page + 2 * offset;
  uint16_t* to_v = page + kv.v_offset + offset / 2 * 2 * value_dim + offset % 2;
  for (int64_t h = 0; h < p.num_kv_heads; ++h) {
    uint16_t rounded[kPanelWidth];
    for (int64_t begin = 0; begin < p.head_dim; begin += kPanelWidth) {
      RoundElements(from.k + h * p.head_dim + begin, kPanelWidth, rounded);
      for (int64_t i = 0; i < kPanelWidth; i += 2) {
        memcpy(to_k + (begin + i) * kv.page_size, rounded + i, 2 * sizeof(uint16_t));
      }
    }
    for (int64_t begin = 0; begin < value_dim; begin += kPanelWidth) {
      RoundElements(from.v + h * value_dim + begin, kPanelWidth, rounded);
      for (int64_t i = 0; i < kPanelWidth; ++i) to_v[2 * (begin + i)] = rounded[i];
    }
    to_k += kv.head_stride;
    to_v += kv.value_head_stride();
  }
}

void WriteToken(const RopeKvWriteParams& p, int64_t token) {
  if (p.kv.base.dtype == DType::kF32) {
    WriteFloats(p, token);
  } else if (KeepsPairs(p.kv, p.head_dim, p.value_dim())) {
    WritePairs(p, token);
  } else {
    WriteRows(p, token);
  }
}

WriteKv GetWrite() { return WriteToken; }

}  // namespace kv_write
}  // namespace HWY_NAMESPACE
}  // namespace minisgl::cpu
HWY_AFTER_NAMESPACE();

#endif
