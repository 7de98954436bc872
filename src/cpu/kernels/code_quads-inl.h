// What products of integers with codes of 4 and 6 bits are made of (linear_codes_int8.cc): codes
// widened to bytes, their scales and offsets, and sums of their products with x. Compiled once for
// each instruction set (simd-inl.h).
#if defined(MINISGL_CPU_CODE_QUADS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MINISGL_CPU_CODE_QUADS_INL_H_
#undef MINISGL_CPU_CODE_QUADS_INL_H_
#else
#define MINISGL_CPU_CODE_QUADS_INL_H_
#endif

#include <cstdint>

#include "cpu/coded_matrix.h"
#include "cpu/kernels/code_factors-inl.h"
#include "cpu/kernels/simd-inl.h"
#include "minisgl/tensor/weight_format.h"

MINISGL_BEFORE_NAMESPACE_WITH_VNNI();
namespace minisgl::cpu {
namespace HWY_NAMESPACE {

// The instructions: with VNNI a dot product of bytes, without it pairs of products.
#undef MINISGL_CODE_DOTS
#undef MINISGL_CODE_PAIRS
#if HWY_TARGET == HWY_AVX3_DL
#define MINISGL_CODE_DOTS 1
#elif HWY_TARGET == HWY_AVX3
#define MINISGL_CODE_PAIRS(NAME) _mm512_##NAME
#elif HWY_TARGET == HWY_AVX2
#define MINISGL_CODE_PAIRS(NAME) _mm256_##NAME
#elif HWY_TARGET == HWY_SSE4
#define MINISGL_CODE_PAIRS(NAME) _mm_##NAME
#endif

using QuadTag = hn::RebindToUnsigned<F32>;
using Quads = hn::Vec<QuadTag>;  // a quad of each output of a vector
using QuadInts = hn::Vec<hn::RebindToSigned<F32>>;

// The sums of the products of a vector of outputs while they are added.
#if defined(MINISGL_CODE_PAIRS)
using QuadSums = hn::Vec<hn::Repartition<int16_t, F32>>;
#else
using QuadSums = QuadInts;
#endif

// The sum of the products of the two 16-bit integers of each lane.
HWY_INLINE QuadInts MultiplyPairs(QuadInts a, QuadInts b) {
#if defined(MINISGL_CODE_DOTS)
  return QuadInts{_mm512_madd_epi16(a.raw, b.raw)};
#elif defined(MINISGL_CODE_PAIRS)
  return QuadInts{MINISGL_CODE_PAIRS(madd_epi16)(a.raw, b.raw)};
#else
  const QuadInts low =
      hn::Mul(hn::ShiftRight<16>(hn::ShiftLeft<16>(a)), hn::ShiftRight<16>(hn::ShiftLeft<16>(b)));
  return hn::Add(low, hn::Mul(hn::ShiftRight<16>(a), hn::ShiftRight<16>(b)));
#endif
}

// Sums that have nothing added yet, and the integers of complete ones; both with the same `before`,
// which is added to the integers.
HWY_INLINE QuadSums BeginSums(QuadInts before) {
#if defined(MINISGL_CODE_PAIRS)
  (void)before;
  return hn::Zero(hn::Repartition<int16_t, F32>());
#else
  return before;
#endif
}
HWY_INLINE QuadInts EndSums(QuadSums sums, QuadInts before) {
#if defined(MINISGL_CODE_PAIRS)
  const QuadInts ones = hn::Set(hn::RebindToSigned<F32>(), 0x00010001);
  return hn::Add(MultiplyPairs(QuadInts{sums.raw}, ones), before);
#else
  (void)before;
  return sums;
#endif
}

// sums += the products of quads of codes with one quad of x, in every lane.
HWY_INLINE void AddProducts(Quads codes, QuadInts x, QuadSums* sums) {
#if defined(MINISGL_CODE_DOTS)
  // Assembler, because GCC 12 compiles the intrinsic to a copy and a store of every sum.
  asm("vpdpbusd %2, %1, %0" : "+v"(sums->raw) : "v"(codes.raw), "v"(x.raw));
#elif defined(MINISGL_CODE_PAIRS)
  const auto products = MINISGL_CODE_PAIRS(maddubs_epi16)(codes.raw, x.raw);
  sums->raw = MINISGL_CODE_PAIRS(add_epi16)(sums->raw, products);
  // Keeps the compiler from reordering the additions, as in linear_int8.cc.
  asm("" : "+v"(sums->raw));
#else
  const hn::RebindToSigned<F32> di;
  const QuadInts words = hn::BitCast(di, codes), byte = hn::Set(di, 0xFF);
  // Bytes of x from the lowest on, moved to the top for their sign.
  const QuadInts of_x[] = {hn::ShiftLeft<24>(x), hn::ShiftLeft<16>(x), hn::ShiftLeft<8>(x), x};
  const QuadInts of_codes[] = {words, hn::ShiftRight<8>(words), hn::ShiftRight<16>(words),
                               hn::ShiftRight<24>(words)};
  MINISGL_UNROLL for (int i = 0; i < 4; ++i) {
    *sums = hn::Add(*sums, hn::Mul(hn::And(of_codes[i], byte), hn::ShiftRight<24>(of_x[i])));
  }
#endif
}

// The two quads of a word of codes: its inputs with even indices, and the others.
struct QuadPair {
  Quads even, odd;
};

// The integers of e2m1's codes, 2 number + kSignedOffset.
inline constexpr int32_t kSignedOffset = 12;
alignas(16) inline constexpr uint8_t kSignedIntegers[] = {12, 13, 14, 15, 16, 18, 20, 24,
                                                          12, 11, 10, 9,  8,  6,  4,  0};

// The integer of the code in each byte.
HWY_INLINE Quads SignedIntegers(Quads codes) {
#if HWY_TARGET == HWY_SCALAR
  uint32_t integers = 0;
  for (int shift = 0; shift < 32; shift += 8) {
    integers |= uint32_t{kSignedIntegers[hn::GetLane(codes) >> shift & 0xF]} << shift;
  }
  return hn::Set(QuadTag(), integers);
#else
  const hn::Repartition<uint8_t, F32> d8;
  const auto table = hn::LoadDup128(d8, kSignedIntegers);
  return hn::BitCast(QuadTag(), hn::TableLookupBytes(table, hn::BitCast(d8, codes)));
#endif
}

// Forms of codes. With 4 bits: numbers that count up, with zero points or with offsets, or e2m1.
// With 6 bits: the first two.
enum class CodeForm { kCounting, kWithOffsets, kSigned, kCounting6, kWithOffsets6 };

constexpr bool IsOf6Bits(CodeForm form) {
  return form == CodeForm::kCounting6 || form == CodeForm::kWithOffsets6;
}
constexpr bool HasOffsets(CodeForm form) {
  return form == CodeForm::kWithOffsets || form == CodeForm::kWithOffsets6;
}

inline constexpr int64_t kWordBytes = kPanelWidth * 4;  // of a panel's outputs
// The words of a panel's quantized block, and the bytes of its codes.
inline constexpr int kBlockWords = kQuantBlock / 8;
constexpr int64_t BlockBytes(CodeForm form) {
  return (IsOf6Bits(form) ? kBlockWords * 3 / 2 : kBlockWords) * kWordBytes;
}

// The quads of word kWord of half a block (of 6 bits, with the upper bits, which follow two words)
// of each output of a vector; `half` is where it begins, from the first output on.
template <CodeForm kForm, int kWord>
HWY_INLINE QuadPair WidenWord(const uint32_t* half) {
  constexpr int kWidth = static_cast<int>(kPanelWidth);
  const QuadTag du;
  const Quads nibbles = hn::Set(du, 0x0F0F0F0F);
  const Quads words = hn::LoadU(du, half + kWord * kWidth);
  const Quads even = hn::And(words, nibbles), odd = hn::And(hn::ShiftRight<4>(words), nibbles);
  if constexpr (kForm == CodeForm::kSigned) return {SignedIntegers(even), SignedIntegers(odd)};
  if constexpr (!IsOf6Bits(kForm)) return {even, odd};
  const Quads upper = hn::LoadU(du, half + 2 * kWidth);
  const Quads mask = hn::Set(du, 0x30303030);
  if constexpr (kWord == 0) {
    return {hn::OrAnd(even, hn::ShiftLeft<4>(upper), mask),
            hn::OrAnd(odd, hn::ShiftLeft<2>(upper), mask)};
  } else {
    return {hn::OrAnd(even, upper, mask), hn::OrAnd(odd, hn::ShiftRight<2>(upper), mask)};
  }
}

// Where a panel's words, from some lane on, and its scales begin.
struct PanelCodes {
  const uint32_t* words;
  const std::byte* scales;
  const int8_t* zeros;       // null: all are 0
  const std::byte* offsets;  // null: there are none
  int64_t lane;
};

// The layout of a matrix of codes in CodeOrder::kWords, computed once for all panels.
struct CodesLayout {
  explicit CodesLayout(const CodedMatrix& m)
      : codes(m.codes(0)),
        panel_bytes(m.panel_bytes()),
        num_inputs(m.num_in),
        num_words((m.num_in + 7) / 8 + (m.has_6_bits() ? (m.num_in + 7) / 8 % 2 : 0)),
        num_panels(m.num_panels()),
        num_groups(m.num_groups()),
        group_inputs(m.group_inputs),
        factors(m),
        first_number(static_cast<int32_t>(m.numbers[0])) {}

  HWY_INLINE PanelCodes At(int64_t panel, int64_t lane) const {
    return {reinterpret_cast<const uint32_t*>(codes + panel * panel_bytes) + lane,
            factors.scales_of(panel), factors.zeros == nullptr ? nullptr : factors.zeros_of(panel),
            factors.offsets == nullptr ? nullptr : factors.offsets_of(panel), lane};
  }

  const std::byte* codes;
  int64_t panel_bytes;            // of codes
  int64_t num_inputs, num_words;  // a panel of 6 bits has an even number of words
  int64_t num_panels, num_groups, group_inputs;
  FactorLayout factors;
  int32_t first_number;  // of counting codes
};

// The scales of a vector of outputs; of e2m1, of its doubled numbers.
template <CodeForm kForm>
HWY_INLINE Floats ScalesAt(const CodesLayout& layout, const PanelCodes& at, int64_t group) {
  const Floats scale = FactorsAt(layout.factors, at.scales, group, at.lane);
  return kForm == CodeForm::kSigned ? hn::Mul(scale, hn::Set(F32(), 0.5f)) : scale;
}

// What the integers of a vector of outputs are to be moved by: the negative zero points, each as
// two equal 16-bit integers; or the bits of the offsets, which are f32.
template <CodeForm kForm>
HWY_INLINE QuadInts ShiftsAt(const CodesLayout& layout, const PanelCodes& at, int64_t group) {
  const hn::RebindToSigned<F32> di;
  if constexpr (HasOffsets(kForm)) {
    return hn::BitCast(di, FactorsAt(layout.factors, at.offsets, group, at.lane));
  } else {
    constexpr bool kSigned = kForm == CodeForm::kSigned;
    QuadInts shifts = hn::Set(di, kSigned ? -kSignedOffset : layout.first_number);
    if (!kSigned && at.zeros != nullptr) {
      const hn::Rebind<int8_t, F32> d8;
      const int8_t* const zeros = at.zeros + group * kPanelWidth + at.lane;
      shifts = hn::Sub(shifts, hn::PromoteTo(di, hn::LoadU(d8, zeros)));
    }
    return hn::Or(hn::And(shifts, hn::Set(di, 0xFFFF)), hn::ShiftLeft<16>(shifts));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace minisgl::cpu
HWY_AFTER_NAMESPACE();

#endif
