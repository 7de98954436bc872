// Scales, zeros and offsets of a matrix of codes (coded_matrix.h), widened, and the weights that
// they make of numbers, for the kernels of processors with AVX512-BF16.
#pragma once

#include "cpu/target_set.h"

#if MINISGL_HAS_BF16_DOT

#include <cstddef>
#include <cstdint>

#include "cpu/coded_matrix.h"
#include "cpu/factor_layout.h"
#include "cpu/kernels/bf16_dot.h"
#include "cpu/kernels/e4m3_bf16.h"

MINISGL_BF16_DOT_BEGIN
namespace minisgl::cpu::bf16_dot {

// The factors of a group and the outputs of a panel, whose scales or offsets begin at `of_panel`.
inline __m512 LoadFactors(const FactorLayout& layout, const std::byte* of_panel, int64_t group) {
  // Masks, because GCC 12 warns of the forms without.
  constexpr __mmask16 kAll = 0xFFFF;
  const int64_t at = (group >> layout.shift) * kPanelWidth;
  const std::byte* const factors = of_panel + layout.step_bytes;
  __m512 factor;
  if (layout.type == DType::kF32) {
    factor = _mm512_loadu_ps(reinterpret_cast<const float*>(factors) + at);
  } else {
    const __m256i bits = _mm256_loadu_si256(
        reinterpret_cast<const __m256i*>(factors + at * int64_t{sizeof(uint16_t)}));
    if (layout.type == DType::kF16) {
      factor = _mm512_maskz_cvtph_ps(kAll, bits);
    } else {
      factor = _mm512_castsi512_ps(
          _mm512_maskz_slli_epi32(kAll, _mm512_maskz_cvtepu16_epi32(kAll, bits), 16));
    }
  }
  if (layout.steps == ScaleSteps::kNone) return factor;
  const __m128i steps =
      _mm_loadu_si128(reinterpret_cast<const __m128i*>(of_panel + group * kPanelWidth));
  if (layout.steps == ScaleSteps::kIntegers) {
    return _mm512_mul_ps(factor,
                         _mm512_maskz_cvtepi32_ps(kAll, _mm512_maskz_cvtepi8_epi32(kAll, steps)));
  }
  const __m512 numbers = WidenE4M3(steps);
  return layout.steps == ScaleSteps::kE4M3 ? _mm512_mul_ps(numbers, factor)
                                           : _mm512_div_ps(numbers, factor);
}

// How the numbers of codes are moved: not, by a zero before they are scaled, by an offset after.
enum class Shift { kNone, kZero, kOffset };

inline Shift ShiftOf(const CodedMatrix& m) {
  return m.has_zeros ? Shift::kZero : m.has_offsets ? Shift::kOffset : Shift::kNone;
}

// The zeros of a group and the outputs of a panel, whose zeros begin at `of_panel`.
inline __m512 LoadZeros(const int8_t* of_panel, int64_t group) {
  constexpr __mmask16 kAll = 0xFFFF;
  const __m128i bytes =
      _mm_loadu_si128(reinterpret_cast<const __m128i*>(of_panel + group * kPanelWidth));
  return _mm512_maskz_cvtepi32_ps(kAll, _mm512_maskz_cvtepi8_epi32(kAll, bytes));
}

template <Shift kShift>
inline __m512 WeightsOf(__m512 numbers, __m512 scale, __m512 shift) {
  if (kShift == Shift::kZero) numbers = _mm512_sub_ps(numbers, shift);
  numbers = _mm512_mul_ps(numbers, scale);
  return kShift == Shift::kOffset ? _mm512_add_ps(numbers, shift) : numbers;
}

}  // namespace minisgl::cpu::bf16_dot
MINISGL_BF16_DOT_END

#endif
