// Writes keys and values to the KV storage: as floats, as pairs of bf16 (KeepsPairs), as bf16 at
// the strides of KvLayer, or as codes of 8 bits in either order. Compiled once for each instruction
// set (kernel_tables.cc).
#if defined(MINISGL_CPU_KV_WRITE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MINISGL_CPU_KV_WRITE_INL_H_
#undef MINISGL_CPU_KV_WRITE_INL_H_
#else
#define MINISGL_CPU_KV_WRITE_INL_H_
#endif

#include <cstring>

#include "cpu/kernels/kernels.h"
#include "cpu/kernels/simd-inl.h"
#include "minisgl/tensor/e4m3_scale.h"

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

// The bits of the largest magnitude of `width` elements, a multiple of 16; of NaN if one is NaN.
HWY_INLINE uint32_t LargestBits(const float* HWY_RESTRICT from, int64_t width) {
  const hn::RebindToUnsigned<F32> du;
  const auto magnitude = hn::Set(du, 0x7FFFFFFFu);
  auto most = hn::Zero(du);
  for (int64_t e = 0; e < width; e += kLanes) {
    most = hn::Max(most, hn::And(hn::BitCast(du, hn::LoadU(F32(), from + e)), magnitude));
  }
  return hn::GetLane(hn::MaxOfLanes(du, most));
}

// The codes of `width` elements times `inverse`, as ToE4M3 makes them.
HWY_INLINE void MakeCodes(const float* HWY_RESTRICT from, int64_t width, float inverse,
                          uint8_t* HWY_RESTRICT to) {
  const F32 d;
  const hn::RebindToUnsigned<F32> du;
  const hn::RebindToSigned<F32> di;
  const hn::Rebind<uint8_t, F32> d8;
  const auto magic = hn::Set(d, 0x1.0p14f);
  for (int64_t e = 0; e < width; e += kLanes) {
    const auto x = hn::Mul(hn::LoadU(d, from + e), hn::Set(d, inverse));
    const auto sign = hn::And(hn::ShiftRight<24>(hn::BitCast(du, x)), hn::Set(du, 0x80));
    const auto size = hn::Min(hn::Abs(x), hn::Set(d, 448.0f));
    const auto bits = hn::BitCast(du, size);
    const auto odd = hn::And(hn::ShiftRight<20>(bits), hn::Set(du, 1));
    const auto nearest = hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7FFFF)));
    const auto normal = hn::Sub(hn::ShiftRight<20>(nearest), hn::Set(du, (127 - 7) << 3));
    const auto subnormal = hn::Sub(hn::BitCast(du, hn::Add(size, magic)), hn::BitCast(du, magic));
    const auto is_normal = hn::RebindMask(du, hn::Ge(size, hn::Set(d, 0x1.0p-6f)));
    const auto code = hn::Or(hn::IfThenElse(is_normal, normal, subnormal), sign);
    hn::StoreU(hn::DemoteTo(d8, hn::BitCast(di, code)), d8, to + e);
  }
}

// Writes a head as codes, of which every `step` bytes hold `unit` consecutive ones, and its scale.
HWY_INLINE void WriteHead(const float* HWY_RESTRICT from, int64_t width, int64_t unit, int64_t step,
                          uint8_t* to, uint8_t* scale) {
  uint8_t codes[kPanelWidth];
  *scale = E4M3ScaleOf(LargestBits(from, width));
  const uint32_t bits = E4M3InverseScaleBits(*scale);
  float inverse;
  memcpy(&inverse, &bits, sizeof(inverse));
  for (int64_t begin = 0; begin < width; begin += kPanelWidth) {
    if (*scale == kE4M3ScaleNaN) {
      memset(codes, 0, sizeof(codes));
    } else {
      MakeCodes(from + begin, kPanelWidth, inverse, codes);
    }
    uint8_t* const first = to + begin / unit * step;
    if (unit == 1) {
      for (int64_t i = 0; i < kPanelWidth; ++i) first[i * step] = codes[i];
    } else if (unit == 2) {
      for (int64_t i = 0; i < kPanelWidth; i += 2) memcpy(first + i / 2 * step, codes + i, 2);
    } else {
      memcpy(first, codes, sizeof(codes));
    }
  }
}

void WriteCodes(const RopeKvWriteParams& p, int64_t token) {
  const KvLayer& kv = p.kv;
  const TokenKv from(p, token);
  const bool pairs = KeepsCodePairs(kv, p.head_dim, p.value_dim());
  const int64_t offset = p.slots[token] % kv.page_size, value_dim = p.value_dim();
  uint8_t* const page = kv.base.as<uint8_t>() + p.slots[token] / kv.page_size * kv.page_stride;
  uint8_t* to_k = page + (pairs ? 2 * offset : offset * kv.slot_stride);
  uint8_t* to_v =
      page + kv.v_offset +
      (pairs ? offset / 2 * 2 * value_dim + offset % 2 : offset * kv.value_slot_stride());
  for (int64_t h = 0; h < p.num_kv_heads; ++h) {
    uint8_t* const scales = page + h * kv.page_size + offset;
    WriteHead(from.k + h * p.head_dim, p.head_dim, pairs ? 2 : kPanelWidth,
              pairs ? 2 * kv.page_size : kPanelWidth, to_k, scales + kv.k_scales);
    WriteHead(from.v + h * value_dim, value_dim, pairs ? 1 : kPanelWidth, pairs ? 2 : kPanelWidth,
              to_v, scales + kv.v_scales);
    to_k += kv.head_stride;
    to_v += kv.value_head_stride();
  }
}

void WriteToken(const RopeKvWriteParams& p, int64_t token) {
  if (p.kv.base.dtype == DType::kF32) {
    WriteFloats(p, token);
  } else if (p.kv.has_codes()) {
    WriteCodes(p, token);
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
