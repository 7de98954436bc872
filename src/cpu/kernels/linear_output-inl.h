// The outputs of matrix products. Compiled once for each instruction set (simd-inl.h).
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

// Where the sums of a block of inputs go, of some rows and outputs.
struct SummedOutputs {
  float* out;
  int64_t out_stride;
  int64_t num_columns;
  bool adds;          // not the first block of inputs: add to `out`
  const float* bias;  // null unless it is the last block
};

// out = (out or 0) + sums (+ bias) of `rows` rows of `width` sums, whole vectors, from `column` on.
// Adds to 0 in the first block: a sum may be -0, if its products underflow. One function for
// all numbers of rows and vectors: it runs once for 256 inputs.
HWY_NOINLINE inline void AddToOutputs(const SummedOutputs& to, const float* sums, int64_t rows,
                                      int64_t width, int64_t column) {
  const F32 d;
  const int64_t left = MinOf(width, to.num_columns - column);
  const float* const bias = to.bias == nullptr ? nullptr : to.bias + column;
  for (int64_t r = 0; r < rows; ++r, sums += width) {
    float* const out = to.out + r * to.out_stride + column;
    int64_t i = 0;
    for (; i + kLanes <= left; i += kLanes) {
      const Floats before = to.adds ? hn::LoadU(d, out + i) : hn::Zero(d);
      const Floats sum = hn::Add(before, hn::Load(d, sums + i));
      hn::StoreU(bias == nullptr ? sum : hn::Add(sum, hn::LoadU(d, bias + i)), d, out + i);
    }
    for (; i < left; ++i) {
      const float sum = (to.adds ? out[i] : 0.0f) + sums[i];
      out[i] = bias == nullptr ? sum : sum + bias[i];
    }
  }
}

// The same for sums in registers.
template <int kRows, int kVectors>
HWY_INLINE void StoreSums(const SummedOutputs& to, const Floats (&sum)[kRows][kVectors],
                          int64_t column) {
  HWY_ALIGN float sums[kRows][kVectors * kLanes];
  MINISGL_UNROLL for (int r = 0; r < kRows; ++r) {
    MINISGL_UNROLL for (int v = 0; v < kVectors; ++v) {
      hn::Store(sum[r][v], F32(), sums[r] + v * kLanes);
    }
  }
  AddToOutputs(to, sums[0], kRows, kVectors * kLanes, column);
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
