// Expands panels of codes (coded_matrix.h) to dense panels (packed_matrix.h) of f32 or bf16: the
// weights (number - zero) * scale, or number * scale + offset, in f32, rounded to nearest. Compiled
// once for each instruction set (kernel_tables.cc).
#if defined(MINISGL_CPU_EXPAND_CODES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MINISGL_CPU_EXPAND_CODES_INL_H_
#undef MINISGL_CPU_EXPAND_CODES_INL_H_
#else
#define MINISGL_CPU_EXPAND_CODES_INL_H_
#endif

#include "cpu/kernels/code_factors-inl.h"
#include "cpu/kernels/e4m3-inl.h"
#include "cpu/kernels/kernels.h"
#include "cpu/kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace minisgl::cpu {
namespace HWY_NAMESPACE {
namespace expand_codes {

constexpr int kVectors = static_cast<int>(kPanelWidth) / kLanes;  // of a panel
// Prefetch distance. The panels of a matrix follow each other.
constexpr int64_t kBytesAhead = 2048;
using Ints = hn::Vec<hn::RebindToSigned<F32>>;
using Words = hn::Vec<hn::RebindToUnsigned<F32>>;

// The numbers of some codes: each has Load(input, v), the numbers of vector `v` of the panel,
// divided by kFactor.

// Codes of 4 bits whose numbers are `first`, first + 1, ...
struct CountingCodes4 {
  static constexpr float kFactor = 1;
  const uint32_t* words;
  float first;
  HWY_INLINE const std::byte* At(int64_t input) const {
    return reinterpret_cast<const std::byte*>(words + input / 8 * kPanelWidth);
  }
  HWY_INLINE Floats Load(int64_t input, int v) const {
    const hn::RebindToUnsigned<F32> du;
    const hn::RebindToSigned<F32> di;
    const Words word = hn::LoadU(du, words + input / 8 * kPanelWidth + v * kLanes);
    const Words code =
        hn::And(hn::ShiftRightSame(word, static_cast<int>(input % 8 * 4)), hn::Set(du, 15));
    return hn::Add(hn::ConvertTo(F32(), hn::BitCast(di, code)), hn::Set(F32(), first));
  }
};

// Codes of 4 bits with a sign, as e2m1: the numbers of the last eight are those of the first,
// negated.
struct SignedCodes4 {
  static constexpr float kFactor = 1;
  const uint32_t* words;
  const float* numbers;
  HWY_INLINE const std::byte* At(int64_t input) const {
    return reinterpret_cast<const std::byte*>(words + input / 8 * kPanelWidth);
  }
  HWY_INLINE Floats Load(int64_t input, int v) const {
    const F32 d;
    const hn::RebindToUnsigned<F32> du;
    const uint32_t* const from = words + input / 8 * kPanelWidth + v * kLanes;
    const int shift = static_cast<int>(input % 8 * 4);
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2
    const Words word = hn::LoadU(du, from);
    const auto index =
        hn::IndicesFromVec(d, hn::And(hn::ShiftRightSame(word, shift), hn::Set(du, 7)));
    const Floats magnitude = hn::TableLookupLanes(hn::LoadU(d, numbers), index);
    const Words sign = hn::And(hn::ShiftLeftSame(word, 28 - shift), hn::Set(du, 0x80000000u));
    return hn::BitCast(d, hn::Or(hn::BitCast(du, magnitude), sign));
#else
    (void)du;
    float found[kLanes];
    for (int lane = 0; lane < kLanes; ++lane) found[lane] = numbers[from[lane] >> shift & 15];
    return hn::LoadU(d, found);
#endif
  }
};

// Codes of 6 bits whose numbers are `first`, first + 1, ...
struct CountingCodes6 {
  static constexpr float kFactor = 1;
  const uint32_t* words;
  float first;
  HWY_INLINE const uint32_t* UnitOf(int64_t input) const {
    return words + input / 16 * 3 * kPanelWidth;
  }
  HWY_INLINE const std::byte* At(int64_t input) const {
    return reinterpret_cast<const std::byte*>(UnitOf(input) + input % 16 / 8 * kPanelWidth);
  }
  HWY_INLINE Floats Load(int64_t input, int v) const {
    const hn::RebindToUnsigned<F32> du;
    const hn::RebindToSigned<F32> di;
    const auto k = static_cast<int>(input % 16);
    const uint32_t* const from = UnitOf(input) + v * kLanes;
    const Words lower = hn::ShiftRightSame(hn::LoadU(du, from + k / 8 * kPanelWidth), k % 8 * 4);
    const Words upper = hn::ShiftRightSame(hn::LoadU(du, from + 2 * kPanelWidth),
                                           k % 8 / 2 * 8 + k / 8 * 4 + k % 2 * 2);
    const Words code =
        hn::Or(hn::And(lower, hn::Set(du, 15)), hn::ShiftLeft<4>(hn::And(upper, hn::Set(du, 3))));
    return hn::Add(hn::ConvertTo(F32(), hn::BitCast(di, code)), hn::Set(F32(), first));
  }
};

// Bytes of a panel's input, widened to words.
struct Int8Codes {
  static constexpr float kFactor = 1;
  const int8_t* bytes;
  HWY_INLINE const std::byte* At(int64_t input) const {
    return reinterpret_cast<const std::byte*>(bytes + input * kPanelWidth);
  }
  HWY_INLINE Floats Load(int64_t input, int v) const {
    const hn::Rebind<int8_t, F32> d8;
    const int8_t* const from = bytes + input * kPanelWidth + v * kLanes;
    return hn::ConvertTo(F32(), hn::PromoteTo(hn::RebindToSigned<F32>(), hn::LoadU(d8, from)));
  }
};

// The numbers of codes of type e4m3, each in a word of 32 bits. Of a subnormal code the moved bits
// would be a subnormal number (e4m3-inl.h), so that it is made of an integer instead.
HWY_INLINE Floats E4M3Numbers(Words codes) {
  const F32 d;
  const hn::RebindToUnsigned<F32> du;
  const hn::RebindToSigned<F32> di;
  const Words magnitude = hn::And(codes, hn::Set(du, 0x7F));
  const Words sign = hn::ShiftLeft<24>(hn::And(codes, hn::Set(du, 0x80)));
  const Words normal = hn::Add(hn::ShiftLeft<20>(magnitude), hn::Set(du, 120u << 23));
  const Floats subnormal =
      hn::Mul(hn::ConvertTo(d, hn::BitCast(di, magnitude)), hn::Set(d, 0x1.0p-9f));
  const auto is_normal = hn::Gt(hn::BitCast(di, magnitude), hn::Set(di, 7));
  const Floats number =
      hn::IfThenElse(hn::RebindMask(d, is_normal), hn::BitCast(d, normal), subnormal);
  return hn::BitCast(d, hn::Or(hn::BitCast(du, number), sign));
}

struct E4M3Codes {
  static constexpr float kFactor = 1;
  const uint8_t* bytes;
  HWY_INLINE const std::byte* At(int64_t input) const {
    return reinterpret_cast<const std::byte*>(bytes + input * kPanelWidth);
  }
  HWY_INLINE Floats Load(int64_t input, int v) const {
    const hn::RebindToUnsigned<F32> du;
    const hn::Rebind<uint8_t, F32> d8;
    return E4M3Numbers(hn::PromoteTo(du, hn::LoadU(d8, bytes + input * kPanelWidth + v * kLanes)));
  }
};

// The same in CodeOrder::kSplitQuads.
struct E4M3Quads {
  static constexpr float kFactor = 1;
  const uint32_t* quads;
  HWY_INLINE const std::byte* At(int64_t input) const {
    return reinterpret_cast<const std::byte*>(quads + input / kQuadInputs * kPanelWidth);
  }
  HWY_INLINE Floats Load(int64_t input, int v) const {
    const hn::RebindToUnsigned<F32> du;
    const Words quad = hn::LoadU(du, quads + input / kQuadInputs * kPanelWidth + v * kLanes);
    return E4M3Numbers(hn::ShiftRightSame(quad, static_cast<int>(SplitQuadPlace(input) * 8)));
  }
};

// The scale and the zero or offset of a group, of one vector of the panel.
struct CodeFactors {
  Floats scale, zero, offset;
  bool has_offset;
  HWY_INLINE Floats Weight(Floats number) const {
    const Floats product = hn::Mul(hn::Sub(number, zero), scale);
    return has_offset ? hn::Add(product, offset) : product;
  }
};

HWY_INLINE CodeFactors CodeFactorsAt(const FactorLayout& of, int64_t panel, int64_t group, int v) {
  const F32 d;
  const int64_t lane = v * kLanes;
  CodeFactors its = {FactorsAt(of, of.scales_of(panel), group, lane), hn::Zero(d), hn::Zero(d),
                     of.offsets != nullptr};
  if (of.zeros != nullptr) {
    const hn::Rebind<int8_t, F32> d8;
    const hn::RebindToSigned<F32> di;
    const int8_t* const from = of.zeros_of(panel) + group * kPanelWidth + lane;
    its.zero = hn::ConvertTo(d, hn::PromoteTo(di, hn::LoadU(d8, from)));
  }
  if (its.has_offset) its.offset = FactorsAt(of, of.offsets_of(panel), group, lane);
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
  const FactorLayout layout(m);
  for (int64_t group = 0, begin = 0; begin < m.num_in; ++group, begin += m.group_inputs) {
    const int64_t end = MinOf(begin + m.group_inputs, m.num_in);
    for (int v = 0; v < kVectors; ++v) {
      CodeFactors its = CodeFactorsAt(layout, panel, group, v);
      its.scale = hn::Mul(its.scale, hn::Set(F32(), Codes::kFactor));
      int64_t input = begin;
      for (; input + 2 <= end; input += 2) {
        PrefetchStream(codes.At(input) + kBytesAhead);
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

// Expands a matrix in CodeOrder::kSplitQuads with CodedMatrix::moves_bits.
template <class Writer>
HWY_NOINLINE void ExpandSplitQuads(const CodedMatrix& m, int64_t panel, const Writer& writer) {
  const hn::RebindToUnsigned<F32> du;
  const FactorLayout layout(m);
  const PairMasks masks;
  const auto* const quads = reinterpret_cast<const uint32_t*>(m.codes(panel));
  for (int64_t group = 0, begin = 0; begin < m.num_in; ++group, begin += m.group_inputs) {
    const int64_t end = MinOf(begin + m.group_inputs, m.num_in);
    for (int v = 0; v < kVectors; ++v) {
      const Floats scale = hn::Mul(FactorsAt(layout, layout.scales_of(panel), group, v * kLanes),
                                   hn::Set(F32(), kMovedFactor));
      for (int64_t input = begin; input < end; input += kQuadInputs) {
        const uint32_t* const from = quads + input / kQuadInputs * kPanelWidth + v * kLanes;
        PrefetchStream(reinterpret_cast<const std::byte*>(from) + kBytesAhead);
        const Words quad = hn::LoadU(du, from);
        const InputPair first = MovePair<0>(quad, masks);
        writer.Store(input, v, hn::Mul(first.first, scale), hn::Mul(first.second, scale),
                     input + 1 < end);
        if (input + 2 >= end) break;
        const InputPair last = MovePair<1>(quad, masks);
        writer.Store(input + 2, v, hn::Mul(last.first, scale), hn::Mul(last.second, scale),
                     input + 3 < end);
      }
    }
  }
}

template <class Writer>
HWY_INLINE void ExpandTo(const CodedMatrix& m, int64_t panel, const Writer& writer) {
  const std::byte* const codes = m.codes(panel);
  const auto* const words = reinterpret_cast<const uint32_t*>(codes);
  switch (m.kind) {
    case CodeKind::kCounting4:
      return ExpandGroups(m, panel, CountingCodes4{words, m.numbers[0]}, writer);
    case CodeKind::kSigned4:
      return ExpandGroups(m, panel, SignedCodes4{words, m.numbers.data()}, writer);
    case CodeKind::kCounting6:
      return ExpandGroups(m, panel, CountingCodes6{words, m.numbers[0]}, writer);
    case CodeKind::kInt8:
      return ExpandGroups(m, panel, Int8Codes{reinterpret_cast<const int8_t*>(codes)}, writer);
    case CodeKind::kE4M3:
      if (m.order == CodeOrder::kSplitQuads) {
        if (m.moves_bits) return ExpandSplitQuads(m, panel, writer);
        return ExpandGroups(m, panel, E4M3Quads{words}, writer);
      }
      return ExpandGroups(m, panel, E4M3Codes{reinterpret_cast<const uint8_t*>(codes)}, writer);
  }
}

void Expand(const CodedMatrix& m, int64_t panel, DType dtype, std::byte* out) {
  if (dtype == DType::kBF16) {
    ExpandTo(m, panel, Bf16Writer{reinterpret_cast<uint32_t*>(out)});
  } else {
    ExpandTo(m, panel, F32Writer{reinterpret_cast<float*>(out)});
  }
}

ExpandPanel GetExpandPanel() { return Expand; }

}  // namespace expand_codes
}  // namespace HWY_NAMESPACE
}  // namespace minisgl::cpu
HWY_AFTER_NAMESPACE();

#endif
