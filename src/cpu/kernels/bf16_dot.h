// What linear_bf16.cc and attention_bf16.cc share: they use the dot-product instruction of
// AVX512-BF16, for which the SIMD library has no function. The targets with it have VBMI, too
// (targets.cc).
//
// Code for that instruction set is between MINISGL_BF16_DOT_BEGIN and MINISGL_BF16_DOT_END. Include
// all headers before, or the compiler would compile their functions for it too.
#pragma once

#include "cpu/target_set.h"

#if MINISGL_HAS_BF16_DOT

#include <immintrin.h>

#include <cstdint>

#define MINISGL_BF16_DOT_BEGIN \
  _Pragma("GCC push_options")  \
      _Pragma("GCC target(\"avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512bf16\")")
#define MINISGL_BF16_DOT_END _Pragma("GCC pop_options")
#define MINISGL_UNROLL _Pragma("GCC unroll 16")
#define MINISGL_INLINE __attribute__((always_inline)) inline

MINISGL_BF16_DOT_BEGIN
namespace minisgl::cpu::bf16_dot {

inline constexpr int kLanes = 16;

template <int kRows, int kVectors>
inline void SetZero(__m512 (&sum)[kRows][kVectors]) {
  MINISGL_UNROLL for (int r = 0; r < kRows; ++r) {
    MINISGL_UNROLL for (int v = 0; v < kVectors; ++v) sum[r][v] = _mm512_setzero_ps();
  }
}

// out = (out or nothing) + sums (+ bias), for the first `left` of a vector of outputs.
inline void StoreSums(__m512 sum, int64_t left, bool adds, const float* bias, float* out) {
  if (left <= 0) return;
  const auto mask = static_cast<__mmask16>(left >= kLanes ? 0xFFFF : (uint32_t{1} << left) - 1);
  if (adds) sum = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, out), sum);
  if (bias != nullptr) sum = _mm512_add_ps(sum, _mm512_maskz_loadu_ps(mask, bias));
  _mm512_mask_storeu_ps(out, mask, sum);
}

}  // namespace minisgl::cpu::bf16_dot
MINISGL_BF16_DOT_END

#endif
