// The output of a matrix product of many rows. Compiled once for each instruction set (simd-inl.h).
#if defined(MINISGL_CPU_LINEAR_OUTPUT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MINISGL_CPU_LINEAR_OUTPUT_INL_H_
#undef MINISGL_CPU_LINEAR_OUTPUT_INL_H_
#else
#define MINISGL_CPU_LINEAR_OUTPUT_INL_H_
#endif

#include <cstdint>

#include "cpu/kernels/kernels.h"
#include "cpu/kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace minisgl::cpu {
namespace HWY_NAMESPACE {

// Prefetches lines that are going to be written: `rows` rows of `width` floats, `stride` apart.
// Into the second-level cache: rows are often a power of two apart and would evict each other from
// the first.
HWY_INLINE void FetchOutputs(const float* out, int64_t stride, int64_t rows, int64_t width) {
  constexpr int64_t kLineFloats = 16;
  for (int64_t r = 0; r < rows; ++r, out += stride) {
    for (int64_t i = 0; i < width; i += kLineFloats) {
      __builtin_prefetch(out + i, /*rw=*/1, /*locality=*/2);
    }
  }
}

// out = sums (+ bias), for `width` outputs from `column` of the group on. `sums` is [rows, stride].
HWY_INLINE void StoreOutputs(const LinearBlock& linear, const float* sums, int64_t stride,
                             int64_t column, int64_t width) {
  const F32 d;
  const float* const bias =
      linear.bias == nullptr ? nullptr : linear.bias + linear.group * kGroupWidth + column;
  for (int64_t r = 0; r < linear.num_rows; ++r, sums += stride) {
    float* const to = linear.out + r * linear.out_stride + column;
    int64_t i = 0;
    for (; i + kLanes <= width; i += kLanes) {
      const Floats sum = hn::Load(d, sums + i);
      hn::StoreU(bias == nullptr ? sum : hn::Add(sum, hn::LoadU(d, bias + i)), d, to + i);
    }
    for (; i < width; ++i) to[i] = bias == nullptr ? sums[i] : sums[i] + bias[i];
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace minisgl::cpu
HWY_AFTER_NAMESPACE();

#endif
