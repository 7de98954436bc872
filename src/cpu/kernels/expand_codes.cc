// Expands panels of codes (coded_matrix.h) to dense panels (packed_matrix.h): the weights
// (number - zero) * scale, in f32, rounded to the type of the panel to nearest.
#include "cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/kernels/expand_codes.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "cpu/kernels/kernels.h"
#include "cpu/kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace minisgl::cpu {
namespace HWY_NAMESPACE {

constexpr int kVectors = static_cast<int>(kPanelWidth) / kLanes;  // of a panel
using Ints = hn::Vec<hn::RebindToSigned<F32>>;
using Words = hn::Vec<hn::RebindToUnsigned<F32>>;

// The numbers of some codes: each has Load(input, v), the numbers of vector `v` of the panel.

// Codes of 4 bits are indices into a table, which is in registers if they are wide enough.
struct Codes4 {
  const uint32_t* words;
  const float* numbers;
  HWY_INLINE Floats Load(int64_t input, int v) const {
    const F32 d;
    const hn::RebindToUnsigned<F32> du;
    const uint32_t* const from = words + input / 8 * kPanelWidth + v * kLanes;
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2
    const Words codes = hn::And(
        hn::ShiftRightSame(hn::LoadU(du, from), static_cast<int>(input % 8 * 4)), hn::Set(du, 15));
#if HWY_TARGET == HWY_AVX3
    return hn::TableLookupLanes(hn::LoadU(d, numbers), hn::IndicesFromVec(d, codes));
#else
    const auto index = hn::IndicesFromVec(d, hn::And(codes, hn::Set(du, 7)));
    const Floats low = hn::TableLookupLanes(hn::LoadU(d, numbers), index);
    const Floats high = hn::TableLookupLanes(hn::LoadU(d, numbers + 8), index);
    const hn::RebindToSigned<F32> di;
    const auto is_high = hn::Gt(hn::BitCast(di, codes), hn::Set(di, 7));
    return hn::IfThenElse(hn::RebindMask(d, is_high), high, low);
#endif
#else
    float found[kLanes];
    for (int lane = 0; lane < kLanes; ++lane) {
      found[lane] = numbers[from[lane] >> input % 8 * 4 & 15];
    }
    (void)du;
    return hn::LoadU(d, found);
#endif
  }
};

// Bytes of a panel's input, widened to words.
struct Int8Codes {
  const int8_t* bytes;
  HWY_INLINE Floats Load(int64_t input, int v) const {
    const hn::Rebind<int8_t, F32> d8;
    const int8_t* const from = bytes + input * kPanelWidth + v * kLanes;
    return hn::ConvertTo(F32(), hn::PromoteTo(hn::RebindToSigned<F32>(), hn::LoadU(d8, from)));
  }
};

// The bits of a code, moved, are an f32 that is 2^-120 of the number; subnormal ones included, but
// those take the processor long, so that they are made of an integer instead.
struct E4M3Codes {
  const uint8_t* bytes;
  HWY_INLINE Floats Load(int64_t input, int v) const {
    const F32 d;
    const hn::RebindToUnsigned<F32> du;
    const hn::RebindToSigned<F32> di;
    const hn::Rebind<uint8_t, F32> d8;
    const uint8_t* const from = bytes + input * kPanelWidth + v * kLanes;
    const Words code = hn::PromoteTo(du, hn::LoadU(d8, from));
    const Words magnitude = hn::And(code, hn::Set(du, 0x7F));
    const Words sign = hn::ShiftLeft<24>(hn::And(code, hn::Set(du, 0x80)));
    const Words normal = hn::Add(hn::ShiftLeft<20>(magnitude), hn::Set(du, 120u << 23));
    const Floats subnormal =
        hn::Mul(hn::ConvertTo(d, hn::BitCast(di, magnitude)), hn::Set(d, 0x1.0p-9f));
    const auto is_normal = hn::Gt(hn::BitCast(di, magnitude), hn::Set(di, 7));
    const Floats number =
        hn::IfThenElse(hn::RebindMask(d, is_normal), hn::BitCast(d, normal), subnormal);
    return hn::BitCast(d, hn::Or(hn::BitCast(du, number), sign));
  }
};

// The scales and zeros of a group, of one vector of the panel.
struct CodeFactors {
  Floats scale, zero;
  HWY_INLINE Floats Weight(Floats number) const { return hn::Mul(hn::Sub(number, zero), scale); }
};

HWY_INLINE CodeFactors FactorsAt(const CodedMatrix& m, int64_t panel, int64_t group, int v) {
  const F32 d;
  const int64_t at = group * kPanelWidth + v * kLanes;
  CodeFactors its;
  if (m.scale_type == DType::kF32) {
    its.scale = hn::LoadU(d, reinterpret_cast<const float*>(m.scales(panel)) + at);
  } else {
    const hn::RebindToUnsigned<F32> du;
    const hn::Rebind<uint16_t, F32> d16;
    const auto* const from = reinterpret_cast<const uint16_t*>(m.scales(panel)) + at;
    its.scale = hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du, hn::LoadU(d16, from))));
  }
  its.zero = hn::Zero(d);
  if (m.has_zeros) {
    const hn::Rebind<int8_t, F32> d8;
    const hn::RebindToSigned<F32> di;
    its.zero = hn::ConvertTo(d, hn::PromoteTo(di, hn::LoadU(d8, m.zeros(panel) + at)));
  }
  return its;
}

// Rounds to bf16, to nearest, ties to even, in the high half of each word; the low half is left.
// REQUIRES no NaN.
HWY_INLINE Words RoundedHigh(Floats x) {
  const hn::RebindToUnsigned<F32> du;
  const Words bits = hn::BitCast(du, x);
  const Words is_odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1));
  return hn::Add(bits, hn::Add(is_odd, hn::Set(du, 0x7FFF)));
}

// Writers: each stores the weights of two neighbouring inputs, or of a last one.
struct F32Writer {
  float* out;
  HWY_INLINE void Store(int64_t input, int v, Floats even, Floats odd, bool has_odd) const {
    float* const to = out + input * kPanelWidth + v * kLanes;
    hn::StoreU(even, F32(), to);
    if (has_odd) hn::StoreU(odd, F32(), to + kPanelWidth);
  }
};
struct F16Writer {
  hwy::float16_t* out;
  HWY_INLINE void Store(int64_t input, int v, Floats even, Floats odd, bool has_odd) const {
    hwy::float16_t* const to = out + input * kPanelWidth + v * kLanes;
    StoreOne(even, to);
    if (has_odd) StoreOne(odd, to + kPanelWidth);
  }
  static HWY_INLINE void StoreOne(Floats x, hwy::float16_t* to) {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_NEON
    const hn::Rebind<hwy::float16_t, F32> d16;
    hn::StoreU(hn::DemoteTo(d16, x), d16, to);
#else
    // Without an instruction the library does not round to nearest.
    float lanes[kLanes];
    hn::StoreU(x, F32(), lanes);
    for (int lane = 0; lane < kLanes; ++lane) {
      reinterpret_cast<uint16_t*>(to)[lane] = FloatToF16(lanes[lane]);
    }
#endif
  }
};
struct Bf16Writer {
  uint32_t* out;
  HWY_INLINE void Store(int64_t input, int v, Floats even, Floats odd, bool has_odd) const {
    const hn::RebindToUnsigned<F32> du;
    Words pair = hn::ShiftRight<16>(RoundedHigh(even));
    if (has_odd) pair = hn::Or(pair, hn::And(RoundedHigh(odd), hn::Set(du, 0xFFFF0000u)));
    hn::StoreU(pair, du, out + input / 2 * kPanelWidth + v * kLanes);
  }
};

template <class Codes, class Writer>
HWY_NOINLINE void ExpandGroups(const CodedMatrix& m, int64_t panel, const Codes& codes,
                               const Writer& writer) {
  for (int64_t group = 0; group < m.num_groups(); ++group) {
    const int64_t begin = group * m.group_inputs, end = MinOf(begin + m.group_inputs, m.num_in);
    for (int v = 0; v < kVectors; ++v) {
      const CodeFactors its = FactorsAt(m, panel, group, v);
      int64_t input = begin;
      for (; input + 2 <= end; input += 2) {
        writer.Store(input, v, its.Weight(codes.Load(input, v)),
                     its.Weight(codes.Load(input + 1, v)), true);
      }
      if (input < end) {
        const Floats last = its.Weight(codes.Load(input, v));
        writer.Store(input, v, last, last, false);
      }
    }
  }
}

template <class Writer>
HWY_INLINE void ExpandTo(const CodedMatrix& m, int64_t panel, const Writer& writer) {
  const std::byte* const codes = m.codes(panel);
  switch (m.kind) {
    case CodeKind::k4Bits:
      return ExpandGroups(
          m, panel, Codes4{reinterpret_cast<const uint32_t*>(codes), m.numbers.data()}, writer);
    case CodeKind::kInt8:
      return ExpandGroups(m, panel, Int8Codes{reinterpret_cast<const int8_t*>(codes)}, writer);
    case CodeKind::kE4M3:
      return ExpandGroups(m, panel, E4M3Codes{reinterpret_cast<const uint8_t*>(codes)}, writer);
  }
}

void Expand(const CodedMatrix& m, int64_t panel, DType dtype, std::byte* out) {
  switch (dtype) {
    case DType::kBF16:
      return ExpandTo(m, panel, Bf16Writer{reinterpret_cast<uint32_t*>(out)});
    case DType::kF16:
      return ExpandTo(m, panel, F16Writer{reinterpret_cast<hwy::float16_t*>(out)});
    default:
      return ExpandTo(m, panel, F32Writer{reinterpret_cast<float*>(out)});
  }
}

ExpandPanel GetExpandPanel() { return Expand; }

}  // namespace HWY_NAMESPACE
}  // namespace minisgl::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace minisgl::cpu {

const PerTarget<ExpandPanelGetter>& ExpandPanelGetters() {
  static constexpr PerTarget<ExpandPanelGetter> kTable = MINISGL_PER_TARGET(GetExpandPanel);
  return kTable;
}

}  // namespace minisgl::cpu
#endif
