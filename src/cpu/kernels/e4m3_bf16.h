// Codes of type e4m3 as weights in bf16, for the kernels of processors with AVX512-BF16.
#pragma once

#include "cpu/target_set.h"

#if MINISGL_HAS_BF16_DOT

#include <cstdint>

#include "cpu/kernels/bf16_dot.h"

MINISGL_BF16_DOT_BEGIN
namespace minisgl::cpu::bf16_dot {

// The order of words that interleaves the halves of a vector.
inline __m512i InterleavedHalves() {
  alignas(64) uint16_t order[32];
  for (uint16_t lane = 0; lane < 16; ++lane) {
    order[2 * lane] = lane;
    order[2 * lane + 1] = static_cast<uint16_t>(lane + 16);
  }
  return _mm512_load_si512(order);
}

// The bits of a code of type e4m3 at the place of an f16's are its number divided by this,
// subnormal ones included, which are widened as fast as others.
inline constexpr float kE4M3Factor = 256;

// The divided numbers of the codes of two inputs of a panel, sign-extended.
inline void E4M3Numbers(__m512i words, __m512* even, __m512* odd) {
  // The mask leaves one of the copies of the sign.
  const __m512i halves = _mm512_and_si512(_mm512_slli_epi16(words, 7),
                                          _mm512_set1_epi16(static_cast<int16_t>(0xBF80)));
  *even = _mm512_cvtph_ps(_mm512_castsi512_si256(halves));
  *odd = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(halves, 1));
}

// The numbers of 16 codes, none of which is NaN.
inline __m512 WidenE4M3(__m128i codes) {
  const __m256i halves = _mm256_and_si256(_mm256_slli_epi16(_mm256_cvtepi8_epi16(codes), 7),
                                          _mm256_set1_epi16(static_cast<int16_t>(0xBF80)));
  // A mask, because GCC 12 warns of the form without.
  return _mm512_mul_ps(_mm512_maskz_cvtph_ps(0xFFFF, halves), _mm512_set1_ps(kE4M3Factor));
}

// Rounds two vectors to one.
inline __m512i Rounded(__m512 low, __m512 high) { return (__m512i)_mm512_cvtne2ps_pbh(high, low); }

// The weights of two inputs of a panel, rounded to bf16, as pairs. `scale`: times kE4M3Factor;
// `order`: InterleavedHalves().
inline __m512i E4M3Pairs(__m256i codes, __m512 scale, __m512i order) {
  __m512 even, odd;
  E4M3Numbers(_mm512_cvtepi8_epi16(codes), &even, &odd);
  const __m512i halves = Rounded(_mm512_mul_ps(even, scale), _mm512_mul_ps(odd, scale));
  return _mm512_permutexvar_epi16(order, halves);
}

// Keeps a constant in a register: the compiler would make it anew for each use.
inline __m512i InRegister(__m512i value) {
  asm("" : "+v"(value));
  return value;
}

// A code is a sign, four bits e of the exponent and three bits m of the significand: its number is
// (1 + m / 8) 2^(e - 7), or, if e is 0, m 2^-9.
inline constexpr int kE4M3TableSize = 32;
struct E4M3Constants {
  constexpr E4M3Constants() {
    for (int i = 0; i < kE4M3TableSize; ++i) {
      normal[i] = static_cast<float>((8 + i % 8) << i / 8) * 0x1.0p-10f;
    }
    for (int i = 0; i < 16; ++i) subnormal[i] = static_cast<float>(i % 8) * 0x1.0p-9f;
  }
  alignas(64) float normal[kE4M3TableSize] = {};  // of the lowest five bits, as if e was never 0
  alignas(64) float subnormal[16] = {};
};
inline constexpr E4M3Constants kE4M3;

// The numbers of codes without their sign, divided by kE4M3Factor.
struct E4M3MagnitudeConstants {
  constexpr E4M3MagnitudeConstants() {
    for (int code = 0; code < 128; ++code) {
      const int significand = code < 8 ? code : 8 + code % 8, exponent = code < 8 ? 1 : code / 8;
      divided[code] = static_cast<float>(significand << exponent) * 0x1.0p-18f;
    }
  }
  alignas(64) float divided[128] = {};
};
inline constexpr E4M3MagnitudeConstants kE4M3Magnitudes;

// The weights of all codes without their sign, under one scale: the bytes of bf16's apart, so that
// an instruction looks up those of 64 codes.
class E4M3ByteTable {
 public:
  // `scale`: times kE4M3Factor. The products and their rounding are those of E4M3Pairs.
  MINISGL_INLINE explicit E4M3ByteTable(float scale) {
    const __m512 factor = _mm512_set1_ps(scale);
    const __m512i lower = LowerBytes();
    const __m512i upper = _mm512_add_epi8(lower, _mm512_set1_epi8(1));
    __m512i words[4];  // of 32 codes each
    MINISGL_UNROLL for (int i = 0; i < 4; ++i) {
      const __m512 low = _mm512_load_ps(kE4M3Magnitudes.divided + 32 * i);
      const __m512 high = _mm512_load_ps(kE4M3Magnitudes.divided + 32 * i + 16);
      words[i] = Rounded(_mm512_mul_ps(low, factor), _mm512_mul_ps(high, factor));
    }
    MINISGL_UNROLL for (int i = 0; i < 2; ++i) {
      lower_[i] = _mm512_permutex2var_epi8(words[2 * i], lower, words[2 * i + 1]);
      upper_[i] = _mm512_permutex2var_epi8(words[2 * i], upper, words[2 * i + 1]);
    }
  }

  // The weights of four inputs of a panel, as two vectors of pairs. `order`: PairsInLanes().
  MINISGL_INLINE void Find(__m512i codes, __m512i order, __m512i (&pairs)[2]) const {
    codes = _mm512_permutexvar_epi8(order, codes);
    const __m512i lower = _mm512_permutex2var_epi8(lower_[0], codes, lower_[1]);
    __m512i upper = _mm512_permutex2var_epi8(upper_[0], codes, upper_[1]);
    constexpr int kXorOfAnd = 0x78;
    upper = _mm512_ternarylogic_epi32(upper, codes, _mm512_set1_epi8(-128), kXorOfAnd);
    pairs[0] = _mm512_unpacklo_epi8(lower, upper);
    pairs[1] = _mm512_unpackhi_epi8(lower, upper);
  }

  // The order of the codes of four inputs that gives a lane of 16 bytes those of four outputs:
  // pairs of the first two inputs, then of the last two.
  static __m512i PairsInLanes() {
    alignas(64) uint8_t order[64];
    for (int i = 0; i < 64; ++i) {
      const int output = i / 16 * 4 + i % 8 / 2, input = i % 16 / 8 * 2 + i % 2;
      order[i] = static_cast<uint8_t>(input * 16 + output);
    }
    return _mm512_load_si512(order);
  }

 private:
  static __m512i LowerBytes() {
    alignas(64) uint8_t order[64];
    for (int i = 0; i < 64; ++i) order[i] = static_cast<uint8_t>(2 * i);
    return _mm512_load_si512(order);
  }

  __m512i lower_[2], upper_[2];  // of 64 codes each
};

// The weights of codes under one scale, in fewer registers.
class E4M3Table {
 public:
  // False if a product with one of these scales may be less than the least normal number or
  // more than the largest one, so that there is no table.
  static bool AreFor(__m512 scales) {
    const __m512 magnitude = _mm512_abs_ps(scales);
    const __mmask16 is_small =
        _mm512_cmp_ps_mask(magnitude, _mm512_set1_ps(0x1.0p117f), _CMP_LE_OQ);
    return _mm512_mask_cmp_ps_mask(is_small, magnitude, _mm512_set1_ps(0x1.0p-117f), _CMP_GE_OQ) ==
           0xFFFF;
  }

  explicit E4M3Table(float scale) {
    const __m512 factor = _mm512_set1_ps(scale);
    const __m512 low = _mm512_mul_ps(_mm512_load_ps(kE4M3.normal), factor);
    table_ = Rounded(low, _mm512_mul_ps(_mm512_load_ps(kE4M3.normal + 16), factor));
    const __m512 subnormal = _mm512_mul_ps(_mm512_load_ps(kE4M3.subnormal), factor);
    subnormal_table_ = Rounded(subnormal, subnormal);
  }

  // The weights of 32 codes: the table has those of the lowest five bits, to which the two others
  // of the exponent and the sign are added.
  MINISGL_INLINE __m512i Find(__m256i codes) const {
    const __m512i words = _mm512_cvtepi8_epi16(codes);
    const __mmask32 is_subnormal = _mm512_testn_epi16_mask(words, exponent_);
    __m512i weights = _mm512_permutexvar_epi16(words, table_);
    weights = _mm512_mask_permutexvar_epi16(weights, is_subnormal, words, subnormal_table_);
    const __m512i others = _mm512_and_si512(_mm512_slli_epi16(words, 4), added_);
    return _mm512_add_epi16(weights, others);
  }

 private:
  __m512i table_, subnormal_table_;
  __m512i exponent_ = InRegister(_mm512_set1_epi16(0x78));
  __m512i added_ = InRegister(_mm512_set1_epi16(static_cast<int16_t>(0x8600)));
};

}  // namespace minisgl::cpu::bf16_dot
MINISGL_BF16_DOT_END

#endif
