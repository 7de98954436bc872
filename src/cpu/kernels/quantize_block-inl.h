// Quantizing a block of x to int8, for the kernels whose products are of integers. Compiled once
// for each instruction set (simd-inl.h).
#if defined(MINISGL_CPU_QUANTIZE_BLOCK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MINISGL_CPU_QUANTIZE_BLOCK_INL_H_
#undef MINISGL_CPU_QUANTIZE_BLOCK_INL_H_
#else
#define MINISGL_CPU_QUANTIZE_BLOCK_INL_H_
#endif

#include <cstdint>

#include "cpu/kernels/kernels.h"
#include "cpu/kernels/simd-inl.h"
#include "tensor/quantize.h"

HWY_BEFORE_NAMESPACE();
namespace minisgl::cpu {
namespace HWY_NAMESPACE {

using Ints = hn::Vec<hn::RebindToSigned<F32>>;

// Quantizes kQuantBlock values by the rules of quantize.h: sets the q's, returns the scale.
HWY_INLINE float QuantizeBlock(const float* x, int32_t* HWY_RESTRICT q) {
  const F32 d;
  const hn::RebindToSigned<F32> di;
  // Magnitudes as integers, so that a NaN counts as the largest.
  Ints largest = hn::Zero(di);
  for (int64_t i = 0; i < kQuantBlock; i += kLanes) {
    const auto bits = hn::BitCast(di, hn::LoadU(d, x + i));
    largest = hn::Max(largest, hn::And(bits, hn::Set(di, 0x7FFFFFFF)));
  }
  const int32_t largest_bits = hn::GetLane(hn::MaxOfLanes(di, largest));
  const float magnitude = hn::GetLane(hn::BitCast(d, hn::Set(di, largest_bits)));
  const bool finite = largest_bits < 0x7F800000;
  if (!finite || magnitude < tensor::kQuantSmallest) {
    for (int64_t i = 0; i < kQuantBlock; ++i) q[i] = 0;
    return finite ? 0.0f : hn::GetLane(hn::BitCast(d, hn::Set(di, 0x7FC00000)));
  }
  const Floats inverse = hn::Set(d, 127.0f / magnitude);
  for (int64_t i = 0; i < kQuantBlock; i += kLanes) {
    hn::Store(hn::NearestInt(hn::Mul(hn::LoadU(d, x + i), inverse)), di, q + i);
  }
  return magnitude / 127.0f;
}

// The same for block `block` of a row of `num_in` values, the last padded with zeros.
HWY_INLINE float QuantizeBlockOf(const float* x, int64_t num_in, int64_t block,
                                 int32_t* HWY_RESTRICT q) {
  const int64_t first = block * kQuantBlock;
  if (first + kQuantBlock <= num_in) return QuantizeBlock(x + first, q);
  HWY_ALIGN float last[kQuantBlock];
  for (int64_t i = 0; i < kQuantBlock; ++i) last[i] = first + i < num_in ? x[first + i] : 0.0f;
  return QuantizeBlock(last, q);
}

}  // namespace HWY_NAMESPACE
}  // namespace minisgl::cpu
HWY_AFTER_NAMESPACE();

#endif
