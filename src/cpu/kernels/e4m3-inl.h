// Numbers of type e4m3 by the conversion of f16 to f32, for the instruction sets that have it.
// Compiled once for each instruction set (simd-inl.h).
#if defined(MINISGL_CPU_E4M3_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MINISGL_CPU_E4M3_INL_H_
#undef MINISGL_CPU_E4M3_INL_H_
#else
#define MINISGL_CPU_E4M3_INL_H_
#endif

#include <cstdint>

#include "cpu/kernels/kernels.h"
#include "cpu/kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace minisgl::cpu {
namespace HWY_NAMESPACE {

#undef MINISGL_E4M3_HALVES
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2
#define MINISGL_E4M3_HALVES 1

// The bits of a code at the place of an f16's are its number divided by this, subnormal ones
// included, which are widened as fast as others.
inline constexpr float kE4M3Factor = 256;

// The divided numbers of an input of a panel, of type f16; `panel`: its codes.
using PanelHalves = hn::CappedTag<int16_t, kPanelWidth>;
HWY_INLINE hn::Vec<PanelHalves> HalvesOfPanel(const uint8_t* panel) {
  const hn::CappedTag<int8_t, kPanelWidth> d8;
  const PanelHalves d16;
  const auto words = hn::PromoteTo(d16, hn::LoadU(d8, reinterpret_cast<const int8_t*>(panel)));
  // Of the copies of the sign, one is left.
  return hn::And(hn::ShiftLeft<7>(words), hn::Set(d16, static_cast<int16_t>(0xBF80)));
}

// Those of a vector of outputs, from output `lane` of the panel on.
HWY_INLINE Floats E4M3Halves(const uint8_t* panel, int lane) {
  const hn::Rebind<hwy::float16_t, F32> df16;
  // The compiler computes them once for all vectors of the panel.
  const auto halves = HalvesOfPanel(panel);
#if HWY_TARGET == HWY_AVX2
  const PanelHalves d16;
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
