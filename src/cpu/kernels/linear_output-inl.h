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

// Stores less than a vector of one row's outputs, from `column` on: out = (out or 0) + sums (+
// bias). Like the vector code it adds to 0 in the first block: a sum may be -0, if its products
// underflow.
HWY_NOINLINE inline void StoreSome(const SummedOutputs& to, const float* sums, float* out,
                                   int64_t column) {
  for (int64_t i = 0; column + i < to.num_columns; ++i) {
    float value = (to.adds ? out[column + i] : 0.0f) + sums[i];
    if (to.bias != nullptr) value += to.bias[column + i];
    out[column + i] = value;
  }
}

// The same for vectors of outputs, from `column` on, of all rows.
template <int kRows, int kVectors>
HWY_INLINE void StoreSums(const SummedOutputs& to, const Floats (&sum)[kRows][kVectors],
                          int64_t column) {
  const F32 d;
  MINISGL_UNROLL for (int v = 0; v < kVectors; ++v) {
    const int64_t at = column + v * kLanes;
    if (HWY_UNLIKELY(at + kLanes > to.num_columns)) {
      HWY_ALIGN float lanes[kRows][kLanes];
      MINISGL_UNROLL for (int r = 0; r < kRows; ++r) hn::Store(sum[r][v], d, lanes[r]);
      for (int r = 0; r < kRows; ++r) StoreSome(to, lanes[r], to.out + r * to.out_stride, at);
      continue;
    }
    const Floats bias = to.bias == nullptr ? hn::Zero(d) : hn::LoadU(d, to.bias + at);
    MINISGL_UNROLL for (int r = 0; r < kRows; ++r) {
      float* const out = to.out + r * to.out_stride + at;
      const Floats before = to.adds ? hn::LoadU(d, out) : hn::Zero(d);
      hn::StoreU(hn::Add(hn::Add(before, sum[r][v]), bias), d, out);
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
