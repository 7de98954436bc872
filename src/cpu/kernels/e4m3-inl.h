// Numbers of type e4m3 by the conversion of f16 to f32, which some instruction sets have.
// Compiled once for each instruction set (simd-inl.h).
#if defined(MINISGL_CPU_E4M3_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MINISGL_CPU_E4M3_INL_H_
#undef MINISGL_CPU_E4M3_INL_H_
#else
#define MINISGL_CPU_E4M3_INL_H_
#endif

#include <cstdint>

#include "cpu/coded_matrix.h"
#include "cpu/kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace minisgl::cpu {
namespace HWY_NAMESPACE {

// The bits of a code at the place of an f16's are its number divided by this, subnormal ones
// included, which are widened as fast as others.
inline constexpr float kE4M3Factor = 256;

// The divided numbers of a vector of codes, none of which is NaN, as the bits of f16.
template <class Int16Tag>
HWY_INLINE hn::Vec<Int16Tag> HalvesOfE4M3(Int16Tag d16, const void* codes) {
  const hn::Rebind<int8_t, Int16Tag> d8;
  const auto words = hn::PromoteTo(d16, hn::LoadU(d8, static_cast<const int8_t*>(codes)));
  // Of the copies of the sign, one is left.
  return hn::And(hn::ShiftLeft<7>(words), hn::Set(d16, static_cast<int16_t>(0xBF80)));
}

// The numbers of a vector of codes.
HWY_INLINE Floats WidenE4M3(const void* codes) {
  const hn::Rebind<int16_t, F32> d16;
  const hn::Rebind<hwy::float16_t, F32> df16;
  return hn::Mul(hn::PromoteTo(F32(), hn::BitCast(df16, HalvesOfE4M3(d16, codes))),
                 hn::Set(F32(), kE4M3Factor));
}

#undef MINISGL_E4M3_HALVES
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2
#define MINISGL_E4M3_HALVES 1

// Of a panel's outputs.
using PanelHalvesTag = hn::CappedTag<int16_t, kPanelWidth>;

// The divided numbers of a vector of outputs, from output `lane` of a panel on; `panel`: the codes
// of an input of the panel.
HWY_INLINE Floats E4M3Halves(const uint8_t* panel, int lane) {
  const hn::Rebind<hwy::float16_t, F32> df16;
  const PanelHalvesTag d16;
  // The compiler computes them once for all vectors of the panel.
  const auto halves = HalvesOfE4M3(d16, panel);
#if HWY_TARGET == HWY_AVX2
  const hn::Half<decltype(d16)> dh;
  const auto half = lane == 0 ? hn::LowerHalf(dh, halves) : hn::UpperHalf(dh, halves);
  return hn::PromoteTo(F32(), hn::BitCast(df16, half));
#else
  (void)lane;
  return hn::PromoteTo(F32(), hn::BitCast(df16, halves));
#endif
}
#endif

}  // namespace HWY_NAMESPACE
}  // namespace minisgl::cpu
HWY_AFTER_NAMESPACE();

#endif
