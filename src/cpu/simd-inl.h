// Vector building blocks of the kernels, compiled once for each instruction set (include after
// foreach_target.h): a block of a matrix product in registers, and exp.
//
// Code here and in the kernel files calls no function of the standard library and no lambda: an
// inline function that the linker keeps from the copy for a newer instruction set would crash older
// machines.
#if defined(MINISGL_CPU_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MINISGL_CPU_SIMD_INL_H_
#undef MINISGL_CPU_SIMD_INL_H_
#else
#define MINISGL_CPU_SIMD_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>

#define MINISGL_UNROLL _Pragma("GCC unroll 16")

HWY_BEFORE_NAMESPACE();
namespace minisgl {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::CappedTag<float, 16>;
using Floats = hn::Vec<F32>;
inline constexpr int kLanes = static_cast<int>(hn::MaxLanes(F32()));

template <typename Int>
HWY_INLINE Int MinOf(Int a, Int b) {
  return a < b ? a : b;
}
template <typename Int>
HWY_INLINE Int MaxOf(Int a, Int b) {
  return a > b ? a : b;
}

// Vectors of one row of a block that kRows rows share: as many as the registers hold besides
// operands, at most one group of 64 columns. (x86 before AVX-512 has 16 registers, AVX-512 and
// NEON 32.)
template <int kRows>
constexpr int VectorsPerRow() {
#if HWY_TARGET == HWY_AVX3
  return 4;
#elif HWY_TARGET == HWY_NEON
  return kRows <= 3 ? 8 : 4;
#else
  return kRows == 1 ? 8 : kRows <= 3 ? 4 : 2;
#endif
}

// Operands of MultiplyAccumulate: Load<kHalf>(k, v) is vector v of row k + kHalf; k is even.

// f32 rows at a constant stride from a pointer for each vector.
template <int kVectors>
struct StridedOperand {
  const float* start[kVectors];
  size_t stride;
  template <int kHalf>
  HWY_INLINE Floats Load(size_t k, int v) const {
    return hn::LoadU(F32(), start[v] + (k + kHalf) * stride);
  }
};

// f32 rows anywhere: row k begins at rows[k].
template <int kVectors>
struct ScatteredOperand {
  const float* const* rows;
  size_t column;
  template <int kHalf>
  HWY_INLINE Floats Load(size_t k, int v) const {
    return hn::LoadU(F32(), rows[k + kHalf] + column + static_cast<size_t>(v) * kLanes);
  }
};

// sum[r][v] += x[r * x_stride + k] * operand(k, v) for k = 0, 1, ... num_k - 1 in this order.
template <int kHalf, int kRows, int kVectors, class Operand>
HWY_INLINE void MultiplyAccumulateStep(const float* HWY_RESTRICT x, size_t x_stride,
                                       const Operand& operand, size_t k,
                                       Floats (&sum)[kRows][kVectors]) {
  Floats w[kVectors];
  MINISGL_UNROLL for (int v = 0; v < kVectors; ++v) w[v] = operand.template Load<kHalf>(k, v);
  MINISGL_UNROLL for (int r = 0; r < kRows; ++r) {
    const Floats factor = hn::Set(F32(), x[r * x_stride + k + kHalf]);
    MINISGL_UNROLL for (int v = 0; v < kVectors; ++v) {
      sum[r][v] = hn::MulAdd(factor, w[v], sum[r][v]);
    }
  }
  // Keeps the compiler from moving the next step's loads up, for which 16 registers do not suffice:
  // one sum that lives in memory costs a third of the speed (AVX2, 6 x 2 vectors: 81 instead of 120
  // GFLOP/s of 134).
  asm volatile("" ::: "memory");
}

template <int kRows, int kVectors, class Operand>
HWY_INLINE void MultiplyAccumulate(const float* HWY_RESTRICT x, size_t x_stride,
                                   const Operand& operand, size_t num_k,
                                   Floats (&sum)[kRows][kVectors]) {
  const size_t num_even = num_k & ~size_t{1};
  for (size_t k = 0; k < num_even; k += 2) {
    MultiplyAccumulateStep<0>(x, x_stride, operand, k, sum);
    MultiplyAccumulateStep<1>(x, x_stride, operand, k, sum);
  }
  if (num_even != num_k) MultiplyAccumulateStep<0>(x, x_stride, operand, num_even, sum);
}

template <int kRows, int kVectors>
HWY_INLINE void SetZero(Floats (&sum)[kRows][kVectors]) {
  MINISGL_UNROLL for (int r = 0; r < kRows; ++r) {
    MINISGL_UNROLL for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::Zero(F32());
  }
}

// exp(x) within 2 units in the last place; below the least normal number 0, above the range
// infinity; NaN stays. Method: x = n ln 2 + r with |r| <= ln(2) / 2, exp(r) by its Taylor
// polynomial of degree 7 (next term below 3e-9 of the sum), times 2^n in two factors, as n = 128
// alone is out of range.
HWY_INLINE Floats Exp(Floats x) {
  const F32 d;
  const hn::RebindToSigned<F32> di;
  const Floats lowest = hn::Set(d, -87.3365402f), highest = hn::Set(d, 88.7228394f);
  const Floats clamped = hn::Min(hn::Max(x, lowest), highest);
  const Floats n = hn::Round(hn::Mul(clamped, hn::Set(d, 1.44269504f)));
  // ln 2 in two parts: the first has 15 bits, so n times it is exact.
  Floats r = hn::NegMulAdd(n, hn::Set(d, 0.693145751953125f), clamped);
  r = hn::NegMulAdd(n, hn::Set(d, 1.42860677e-6f), r);

  Floats p = hn::Set(d, 1.0f / 5040);
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f / 720));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f / 120));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f / 24));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f / 6));
  p = hn::MulAdd(p, r, hn::Set(d, 0.5f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f));

  const auto exponent = hn::ConvertTo(di, n);
  const auto half = hn::ShiftRight<1>(exponent);
  const auto bias = hn::Set(di, 127);
  const Floats scale1 = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(half, bias)));
  const Floats scale2 = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(hn::Sub(exponent, half), bias)));
  Floats result = hn::Mul(hn::Mul(p, scale1), scale2);
  result = hn::IfThenElse(hn::Lt(x, lowest), hn::Zero(d), result);
  result = hn::IfThenElse(hn::Gt(x, highest), hn::Inf(d), result);
  return hn::IfThenElse(hn::Ne(x, x), x, result);
}

HWY_INLINE Floats Sigmoid(Floats x) {
  const F32 d;
  const Floats one = hn::Set(d, 1.0f);
  return hn::Div(one, hn::Add(one, Exp(hn::Neg(x))));
}

// 1 - 2 / (exp(2x) + 1): absolute error about 1e-7.
HWY_INLINE Floats Tanh(Floats x) {
  const F32 d;
  const Floats one = hn::Set(d, 1.0f), two = hn::Set(d, 2.0f);
  return hn::Sub(one, hn::Div(two, hn::Add(Exp(hn::Mul(two, x)), one)));
}

}  // namespace HWY_NAMESPACE
}  // namespace minisgl
HWY_AFTER_NAMESPACE();

#endif
