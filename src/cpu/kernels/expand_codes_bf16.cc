// Expands panels of codes (coded_matrix.h) to panels of bf16, with the rounding instruction of
// AVX512-BF16. It takes subnormal numbers as 0, as the products with these panels do. Runs on
// CpuTarget::kAvx512Bf16 and kAmx only.
#include "cpu/kernels/kernels.h"

#include "cpu/kernels/bf16_dot.h"
#include "cpu/kernels/e4m3_bf16.h"
#include "cpu/kernels/load_factors.h"

MINISGL_BF16_DOT_BEGIN
namespace minisgl::cpu {
namespace {

constexpr int64_t kPairBytes = kPanelWidth * 4;  // of a pair of inputs in a panel
// Prefetch distance. The panels of a matrix follow each other.
constexpr int64_t kBytesAhead = 4096;

using bf16_dot::Shift;

// What a group's weights are computed with: a scale, and a zero, an offset or neither.
struct GroupFactors {
  __m512 scale, shift;
};

inline GroupFactors FactorsOf(const FactorLayout& of, int64_t panel, int64_t group) {
  GroupFactors factors = {bf16_dot::LoadFactors(of, of.scales_of(panel), group),
                          _mm512_setzero_ps()};
  if (of.zeros != nullptr) factors.shift = bf16_dot::LoadZeros(of.zeros_of(panel), group);
  if (of.offsets != nullptr) {
    factors.shift = bf16_dot::LoadFactors(of, of.offsets_of(panel), group);
  }
  return factors;
}

template <Shift kShift>
inline __m512 Weight(__m512 number, const GroupFactors& factors) {
  return bf16_dot::WeightsOf<kShift>(number, factors.scale, factors.shift);
}

// Rounds two inputs of a panel and stores their pairs. `order` interleaves the halves of a vector.
inline void StorePair(__m512 even, __m512 odd, __m512i order, std::byte* out) {
  const auto halves = (__m512i)_mm512_cvtne2ps_pbh(odd, even);
  _mm512_storeu_si512(out, _mm512_permutexvar_epi16(order, halves));
}

// --- 4 bits --------------------------------------------------------------------------------------

// Expands the first `num_pairs` pairs of the inputs of a word.
template <Shift kShift>
inline void ExpandWord(__m512i codes, __m512 numbers, const GroupFactors& factors, __m512i order,
                       int64_t num_pairs, std::byte* out) {
  // The permutation reads the lowest four bits of a word alone.
  MINISGL_UNROLL for (int p = 0; p < 4; ++p) {
    if (p >= num_pairs) break;
    const __m512 even =
        _mm512_permutexvar_ps(_mm512_srli_epi32(codes, static_cast<unsigned>(8 * p)), numbers);
    const __m512 odd =
        _mm512_permutexvar_ps(_mm512_srli_epi32(codes, static_cast<unsigned>(8 * p + 4)), numbers);
    StorePair(Weight<kShift>(even, factors), Weight<kShift>(odd, factors), order,
              out + p * kPairBytes);
  }
}

template <Shift kShift>
void Expand4Bits(const CodedMatrix& m, int64_t panel, std::byte* out) {
  constexpr int64_t kWordInputs = 8;
  const __m512 numbers = _mm512_loadu_ps(m.numbers.data());
  const __m512i order = bf16_dot::InterleavedHalves();
  const FactorLayout layout(m);
  const std::byte* words = m.codes(panel);
  for (int64_t group = 0, begin = 0; begin < m.num_in; ++group, begin += m.group_inputs) {
    const GroupFactors factors = FactorsOf(layout, panel, group);
    const int64_t end = begin + m.group_inputs < m.num_in ? begin + m.group_inputs : m.num_in;
    int64_t input = begin;
    for (; input + kWordInputs <= end; input += kWordInputs) {
      __builtin_prefetch(words + kBytesAhead, /*rw=*/0, /*locality=*/3);
      ExpandWord<kShift>(_mm512_loadu_si512(words), numbers, factors, order, 4, out);
      words += kPairBytes;
      out += 4 * kPairBytes;
    }
    if (input == end) continue;
    ExpandWord<kShift>(_mm512_loadu_si512(words), numbers, factors, order, (end - input + 1) / 2,
                       out);
  }
}

// --- 6 bits --------------------------------------------------------------------------------------

// The number of an input of a unit, which is `kInput` of its 16.
template <int kInput>
inline __m512 NumberOf6Bits(const std::byte* unit, __m512 first) {
  // Masks, because GCC 12 warns of the forms without.
  constexpr __mmask16 kAll = 0xFFFF;
  constexpr unsigned kLowerShift = kInput % 8 * 4;
  constexpr unsigned kUpperShift = kInput % 8 / 2 * 8 + kInput / 8 * 4 + kInput % 2 * 2;
  const __m512i lower = _mm512_maskz_srli_epi32(
      kAll, _mm512_loadu_si512(unit + kInput / 8 * kPairBytes), kLowerShift);
  const __m512i upper =
      _mm512_maskz_srli_epi32(kAll, _mm512_loadu_si512(unit + 2 * kPairBytes), kUpperShift);
  const __m512i code = _mm512_or_si512(
      _mm512_and_si512(lower, _mm512_set1_epi32(15)),
      _mm512_maskz_slli_epi32(kAll, _mm512_and_si512(upper, _mm512_set1_epi32(3)), 4));
  return _mm512_add_ps(_mm512_maskz_cvtepi32_ps(kAll, code), first);
}

// Expands the first `num_pairs` pairs of the inputs of a unit, from pair kPair on.
template <Shift kShift, int kPair = 0>
inline void ExpandUnit(const std::byte* unit, __m512 first, const GroupFactors& factors,
                       __m512i order, int64_t num_pairs, std::byte* out) {
  if constexpr (kPair < 8) {
    if (kPair >= num_pairs) return;
    StorePair(Weight<kShift>(NumberOf6Bits<2 * kPair>(unit, first), factors),
              Weight<kShift>(NumberOf6Bits<2 * kPair + 1>(unit, first), factors), order,
              out + kPair * kPairBytes);
    ExpandUnit<kShift, kPair + 1>(unit, first, factors, order, num_pairs, out);
  }
}

// REQUIRES groups of whole units, or one.
template <Shift kShift>
void Expand6Bits(const CodedMatrix& m, int64_t panel, std::byte* out) {
  constexpr int64_t kUnitInputs = 16, kUnitBytes = 3 * kPairBytes;
  const __m512 first = _mm512_set1_ps(m.numbers[0]);
  const __m512i order = bf16_dot::InterleavedHalves();
  const FactorLayout layout(m);
  const std::byte* unit = m.codes(panel);
  for (int64_t group = 0, begin = 0; begin < m.num_in; ++group, begin += m.group_inputs) {
    const GroupFactors factors = FactorsOf(layout, panel, group);
    const int64_t end = begin + m.group_inputs < m.num_in ? begin + m.group_inputs : m.num_in;
    for (int64_t input = begin; input < end; input += kUnitInputs, unit += kUnitBytes) {
      __builtin_prefetch(unit + kBytesAhead, /*rw=*/0, /*locality=*/3);
      ExpandUnit<kShift>(unit, first, factors, order, (end - input + 1) / 2, out);
      out += kUnitInputs / 2 * kPairBytes;
    }
  }
}

// --- 8 bits --------------------------------------------------------------------------------------

// The numbers of two inputs of a panel, times 1 / kFactor.
struct Int8Words {
  static constexpr float kFactor = 1;
  static inline void Load(__m512i words, __m512* even, __m512* odd) {
    *even = _mm512_cvtepi32_ps(_mm512_cvtepi16_epi32(_mm512_castsi512_si256(words)));
    *odd = _mm512_cvtepi32_ps(_mm512_cvtepi16_epi32(_mm512_extracti64x4_epi64(words, 1)));
  }
};

struct E4M3Words {
  static constexpr float kFactor = bf16_dot::kE4M3Factor;
  static inline void Load(__m512i words, __m512* even, __m512* odd) {
    bf16_dot::E4M3Numbers(words, even, odd);
  }
};

template <class Numbers, Shift kShift>
void ExpandBytes(const CodedMatrix& m, int64_t panel, std::byte* out) {
  const __m512i order = bf16_dot::InterleavedHalves();
  const FactorLayout layout(m);
  const std::byte* bytes = m.codes(panel);
  for (int64_t group = 0, begin = 0; begin < m.num_in; ++group, begin += m.group_inputs) {
    GroupFactors factors = FactorsOf(layout, panel, group);
    factors.scale = _mm512_mul_ps(factors.scale, _mm512_set1_ps(Numbers::kFactor));
    const int64_t end = begin + m.group_inputs < m.num_in ? begin + m.group_inputs : m.num_in;
    for (int64_t input = begin; input < end; input += 2) {
      if (input % 4 == 0) __builtin_prefetch(bytes + kBytesAhead, /*rw=*/0, /*locality=*/3);
      const bool has_odd = input + 1 < end;
      const __m256i codes =
          has_odd
              ? _mm256_loadu_si256(reinterpret_cast<const __m256i*>(bytes))
              : _mm256_zextsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes)));
      __m512 even, odd;
      Numbers::Load(_mm512_cvtepi8_epi16(codes), &even, &odd);
      odd = has_odd ? Weight<kShift>(odd, factors) : _mm512_setzero_ps();
      StorePair(Weight<kShift>(even, factors), odd, order, out);
      bytes += 2 * kPanelWidth;
      out += kPairBytes;
    }
  }
}

template <Shift kShift>
void ExpandShifted(const CodedMatrix& m, int64_t panel, std::byte* out) {
  if (m.has_4_bits()) return Expand4Bits<kShift>(m, panel, out);
  if (m.has_6_bits()) return Expand6Bits<kShift>(m, panel, out);
  ExpandBytes<Int8Words, kShift>(m, panel, out);
}

void Expand(const CodedMatrix& m, int64_t panel, DType, std::byte* out) {
  if (m.kind == CodeKind::kE4M3) return ExpandBytes<E4M3Words, Shift::kNone>(m, panel, out);
  switch (bf16_dot::ShiftOf(m)) {
    case Shift::kNone:
      return ExpandShifted<Shift::kNone>(m, panel, out);
    case Shift::kZero:
      return ExpandShifted<Shift::kZero>(m, panel, out);
    case Shift::kOffset:
      return ExpandShifted<Shift::kOffset>(m, panel, out);
  }
}

}  // namespace

ExpandPanel Bf16ExpandPanel() { return Expand; }

}  // namespace minisgl::cpu
MINISGL_BF16_DOT_END
