// Vector building blocks of the kernels: a block of a matrix product in registers, exp and the
// functions made of it. Compiled once for each instruction set; include after foreach_target.h.
//
// Code here and in the kernel files calls no function of the standard library and no lambda: the
// linker might keep the copy of an inline function that was compiled for a newer instruction set,
// which would crash on older machines.
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

// HWY_BEFORE_NAMESPACE for code that uses VNNI in the target AVX3_DL. The library defines that
// target by other instructions; every processor that has those has VNNI too. HWY_AFTER_NAMESPACE
// ends it.
#undef MINISGL_BEFORE_NAMESPACE_WITH_VNNI
#if HWY_TARGET == HWY_AVX3_DL
#define MINISGL_BEFORE_NAMESPACE_WITH_VNNI() \
  HWY_BEFORE_NAMESPACE();                    \
  _Pragma("GCC target(\"avx512vnni\")") static_assert(true, "for the semicolon")
#else
#define MINISGL_BEFORE_NAMESPACE_WITH_VNNI() HWY_BEFORE_NAMESPACE()
#endif

HWY_BEFORE_NAMESPACE();
namespace minisgl::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::CappedTag<float, 16>;
using Floats = hn::Vec<F32>;
inline constexpr int kLanes = static_cast<int>(hn::MaxLanes(F32()));
// True for the fallback, which has no vectors. No processor of the last 15 years needs it, so that
// its kernels are the fewest: one row at a time, read in one way. Results are the same.
inline constexpr bool kIsFallback = (HWY_TARGET & (HWY_SCALAR | HWY_EMU128)) != 0;

template <typename Int>
HWY_INLINE Int MinOf(Int a, Int b) {
  return a < b ? a : b;
}
template <typename Int>
HWY_INLINE Int MaxOf(Int a, Int b) {
  return a > b ? a : b;
}

// Vectors of sums for each row of a block of kRows rows: as many as the registers hold besides
// operands, at most one group of 64 columns. (x86 before AVX-512 has 16 registers, AVX-512 and
// NEON 32.)
template <int kRows>
constexpr int VectorsPerRow() {
#if HWY_TARGET == HWY_AVX3
  return kRows <= 6 ? 4 : 2;
#elif HWY_TARGET == HWY_NEON
  return kRows <= 3 ? 8 : 4;
#else
  return kIsFallback ? 4 : kRows == 1 ? 8 : kRows <= 3 ? 4 : 2;
#endif
}

// Prefetches data that is read once. Needed because the hardware prefetcher does not cross the end
// of a page. Into the second-level cache: the first is small and full of operands (Zen 4, eight
// rows: 15.2 GB/s into the first, 19.5 into the second, of 25).
HWY_INLINE void PrefetchStream(const void* p) { __builtin_prefetch(p, /*rw=*/0, /*locality=*/2); }

// The mask of the second element of a pair.
alignas(32) inline constexpr uint32_t kHighHalf[] = {0xFFFF0000u, 0xFFFF0000u, 0xFFFF0000u,
                                                     0xFFFF0000u, 0xFFFF0000u, 0xFFFF0000u,
                                                     0xFFFF0000u, 0xFFFF0000u};

template <class D>
HWY_INLINE hn::Vec<D> HighHalves(D du, hn::Vec<D> pair) {
#if HWY_TARGET == HWY_AVX2
  // The mask is a memory operand: the compiler would give it one of 16 registers and spill a sum.
  (void)du;
  hn::Vec<D> high;
  asm("vpand %2, %1, %0" : "=x"(high.raw) : "x"(pair.raw), "m"(kHighHalf));
  return high;
#else
  return hn::And(pair, hn::Set(du, kHighHalf[0]));
#endif
}

// Widens the first (kHalf 0) or the second (1) element of each pair of bf16; the first is in the
// low half.
template <int kHalf>
HWY_INLINE Floats WidenHalves(const uint32_t* pairs) {
  const F32 d;
  const hn::RebindToUnsigned<F32> du;
  const auto both = hn::LoadU(du, pairs);
  if constexpr (kHalf == 0) return hn::BitCast(d, hn::ShiftLeft<16>(both));
  return hn::BitCast(d, HighHalves(du, both));
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

// Some rows of x at one stride, addressed by the stride and a pointer for every three rows: with a
// pointer for each row the integer registers run out, and the compiler spills sums.
inline constexpr int kPointerRows = 3;
template <int kRows, typename T = float>
struct RowPointers {
  static constexpr int kPointers = (kRows + kPointerRows - 1) / kPointerRows;
  HWY_INLINE RowPointers(const T* x, size_t x_stride) : stride(x_stride) {
    MINISGL_UNROLL for (int i = 0; i < kPointers; ++i) {
      start[i] = x + static_cast<size_t>(i * kPointerRows) * x_stride;
    }
  }
  HWY_INLINE T At(int row, int offset) const {
    const T* const from = start[row / kPointerRows];
    return (from + static_cast<size_t>(row % kPointerRows) * stride)[offset];
  }
  HWY_INLINE void Advance(size_t count) {
    MINISGL_UNROLL for (int i = 0; i < kPointers; ++i) start[i] += count;
  }
  const T* start[kPointers];
  size_t stride;
};

// True if registers are scarce: x86 before AVX-512 has 16.
inline constexpr bool kFewRegisters = HWY_TARGET != HWY_AVX3 && HWY_TARGET != HWY_NEON;
// True if hoisting the loads of the next step would take registers from sums. One spilled sum costs
// a third of the speed (AVX2, 6 x 2 vectors: 81 instead of 120 GFLOP/s of 134).
template <int kRows, int kVectors>
inline constexpr bool kKeepsSteps = HWY_TARGET != HWY_AVX3 || (kRows >= 5 && kVectors >= 4);

// sum[r][v] += x[r * x_stride + k] * operand(k, v) for k = 0, 1, ... num_k - 1 in this order.
template <int kHalf, int kRows, int kVectors, class Operand>
HWY_INLINE void MultiplyAccumulateStep(const RowPointers<kRows>& x, const Operand& operand,
                                       size_t k, Floats (&sum)[kRows][kVectors]) {
  // If registers are scarce, hold the operand of which there are fewer vectors.
  if constexpr (kFewRegisters && kRows < kVectors) {
    Floats factor[kRows];
    MINISGL_UNROLL for (int r = 0; r < kRows; ++r) factor[r] = hn::Set(F32(), x.At(r, kHalf));
    MINISGL_UNROLL for (int v = 0; v < kVectors; ++v) {
      const Floats w = operand.template Load<kHalf>(k, v);
      MINISGL_UNROLL for (int r = 0; r < kRows; ++r) {
        sum[r][v] = hn::MulAdd(factor[r], w, sum[r][v]);
      }
    }
  } else {
    Floats w[kVectors];
    MINISGL_UNROLL for (int v = 0; v < kVectors; ++v) w[v] = operand.template Load<kHalf>(k, v);
    MINISGL_UNROLL for (int r = 0; r < kRows; ++r) {
      const Floats factor = hn::Set(F32(), x.At(r, kHalf));
      MINISGL_UNROLL for (int v = 0; v < kVectors; ++v) {
        sum[r][v] = hn::MulAdd(factor, w[v], sum[r][v]);
      }
    }
  }
  // Keeps the compiler from hoisting the next step's loads.
  if constexpr (kKeepsSteps<kRows, kVectors>) asm volatile("" ::: "memory");
}

template <int kRows, int kVectors, class Operand>
HWY_INLINE void MultiplyAccumulate(const float* HWY_RESTRICT x, size_t x_stride,
                                   const Operand& operand, size_t num_k,
                                   Floats (&sum)[kRows][kVectors]) {
  RowPointers<kRows> rows(x, x_stride);
  const size_t num_even = num_k & ~size_t{1};
#pragma GCC unroll 1
  for (size_t k = 0; k < num_even; k += 2) {
    MultiplyAccumulateStep<0>(rows, operand, k, sum);
    MultiplyAccumulateStep<1>(rows, operand, k, sum);
    rows.Advance(2);
  }
  if (num_even != num_k) MultiplyAccumulateStep<0>(rows, operand, num_even, sum);
}

template <int kRows, int kVectors>
HWY_INLINE void SetZero(Floats (&sum)[kRows][kVectors]) {
  MINISGL_UNROLL for (int r = 0; r < kRows; ++r) {
    MINISGL_UNROLL for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::Zero(F32());
  }
}

// exp(x) within 2 units in the last place; 0 below the smallest normal number, infinity above the
// range; NaN stays NaN. Method: x = n ln 2 + r with |r| <= ln(2) / 2, exp(r) by its Taylor
// polynomial of degree 7 (next term below 3e-9 of the sum), times 2^n as two factors, because
// 2^128 is out of range.
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
  // Eq, because Ne is false for NaN on some targets.
  return hn::IfThenElse(hn::Eq(x, x), result, x);
}

HWY_INLINE Floats Sigmoid(Floats x) {
  const F32 d;
  const Floats one = hn::Set(d, 1.0f);
  return hn::Div(one, hn::Add(one, Exp(hn::Neg(x))));
}

// tanh(x), relative error below 3e-7: 1 - 2 / (exp(2x) + 1). Near 0, where that cancels: x times a
// polynomial in x^2 (fitted to 5e-9 over |x| < 0.625).
HWY_INLINE Floats Tanh(Floats x) {
  const F32 d;
  const Floats one = hn::Set(d, 1.0f), two = hn::Set(d, 2.0f);
  const Floats z = hn::Mul(x, x);
  Floats p = hn::Set(d, -0.0057170447f);
  p = hn::MulAdd(p, z, hn::Set(d, 0.020650586f));
  p = hn::MulAdd(p, z, hn::Set(d, -0.0537434965f));
  p = hn::MulAdd(p, z, hn::Set(d, 0.133314908f));
  p = hn::MulAdd(p, z, hn::Set(d, -0.333332837f));
  const Floats near = hn::MulAdd(hn::Mul(x, z), p, x);
  const Floats far = hn::Sub(one, hn::Div(two, hn::Add(Exp(hn::Mul(two, x)), one)));
  return hn::IfThenElse(hn::Lt(hn::Abs(x), hn::Set(d, 0.625f)), near, far);
}

// Phi(-a) for a >= 0, the probability of the normal distribution below -a: relative error below
// 5e-7 if the result is a normal number. Phi(-a) = exp(-a^2 / 2) g(a); g is a polynomial in (a -
// 3.5) / (a + 3.5) over 1 + 0.75 a (fitted to 1e-8 over 0 <= a <= 13.4). a^2 is computed from a
// part of 12 bits, whose square is exact, and a rest: rounding a^2 would cost up to 5e-6.
HWY_INLINE Floats NormalTail(Floats a) {
  const F32 d;
  const hn::RebindToUnsigned<F32> du;
  a = hn::Min(a, hn::Set(d, 16.0f));  // where exp is 0
  const Floats high = hn::BitCast(d, hn::And(hn::BitCast(du, a), hn::Set(du, 0xFFFFF000u)));
  const Floats half = hn::Set(d, 0.5f);
  const Floats low_square = hn::Mul(hn::Sub(high, a), hn::Add(high, a));  // high^2 - a^2
  const Floats exponential =
      hn::Mul(Exp(hn::Neg(hn::Mul(half, hn::Mul(high, high)))), Exp(hn::Mul(half, low_square)));
  const Floats u = hn::Div(hn::Sub(a, hn::Set(d, 3.5f)), hn::Add(a, hn::Set(d, 3.5f)));
  Floats p = hn::Set(d, 0.000106578940f);
  p = hn::MulAdd(p, u, hn::Set(d, 0.000102349855f));
  p = hn::MulAdd(p, u, hn::Set(d, -0.000953916751f));
  p = hn::MulAdd(p, u, hn::Set(d, -0.000126229235f));
  p = hn::MulAdd(p, u, hn::Set(d, 0.00739212055f));
  p = hn::MulAdd(p, u, hn::Set(d, -0.0179301053f));
  p = hn::MulAdd(p, u, hn::Set(d, 0.0131260250f));
  p = hn::MulAdd(p, u, hn::Set(d, 0.0320542529f));
  p = hn::MulAdd(p, u, hn::Set(d, -0.120069355f));
  p = hn::MulAdd(p, u, hn::Set(d, 0.385501176f));
  const Floats g = hn::Div(p, hn::MulAdd(hn::Set(d, 0.75f), a, hn::Set(d, 1.0f)));
  return hn::Mul(exponential, g);
}

}  // namespace HWY_NAMESPACE
}  // namespace minisgl::cpu
HWY_AFTER_NAMESPACE();

#endif
