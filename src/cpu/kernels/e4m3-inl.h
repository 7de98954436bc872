// Numbers of type e4m3. A code is a sign, four bits of the exponent and three of the significand.
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
inline constexpr float kHalfFactor = 256;

// The numbers of a vector of codes, none of which is NaN.
HWY_INLINE Floats WidenE4M3(const void* codes) {
  const hn::Rebind<int16_t, F32> d16;
  const hn::Rebind<int8_t, F32> d8;
  const hn::Rebind<hwy::float16_t, F32> df16;
  const auto words = hn::PromoteTo(d16, hn::LoadU(d8, static_cast<const int8_t*>(codes)));
  // The mask leaves one of the copies of the sign.
  const auto halves = hn::And(hn::ShiftLeft<7>(words), hn::Set(d16, static_cast<int16_t>(0xBF80)));
  return hn::Mul(hn::PromoteTo(F32(), hn::BitCast(df16, halves)), hn::Set(F32(), kHalfFactor));
}

// The bits of a code at the place of an f32's are its number divided by this. That of a subnormal
// code is a subnormal number, whose product takes some processors more than a hundred cycles.
inline constexpr float kMovedFactor = 0x1.0p120f;

using E4M3Words = hn::Vec<hn::RebindToUnsigned<F32>>;

// Masks for words of two codes: the bits of both, each moved within 16 bits to the place of a
// bf16's, and the second code.
struct PairMasks {
  HWY_INLINE PairMasks()
      : moved(hn::Set(hn::RebindToUnsigned<F32>(), 0x87F087F0u)),
        second(hn::Set(hn::RebindToUnsigned<F32>(), 0xFFFF0000u)) {}
  // For loops in which the compiler would load them again for each use.
  HWY_INLINE void KeepInRegisters() {
#if HWY_TARGET == HWY_AVX2
    asm("" : "+x"(moved.raw), "+x"(second.raw));
#endif
  }
  E4M3Words moved, second;
};

// Two inputs, of a vector of outputs.
struct InputPair {
  Floats first, second;
};

// The divided numbers of the first two (kPair 0) or the last two (1) codes of quads, one of each
// output, in CodeOrder::kSplitQuads.
template <int kPair>
HWY_INLINE InputPair MovePair(E4M3Words quads, PairMasks masks) {
  const hn::RebindToUnsigned<F32> du;
  // The masks leave one of the copies of the sign.
#if HWY_TARGET == HWY_SCALAR
  const hn::RebindToSigned<F32> di;
  const E4M3Words second = kPair == 0 ? hn::ShiftLeft<8>(quads) : quads;
  const E4M3Words first = hn::ShiftLeft<16>(second);
  const auto mask = hn::And(masks.moved, masks.second);
  const E4M3Words moved[] = {hn::BitCast(du, hn::ShiftRight<4>(hn::BitCast(di, first))),
                             hn::BitCast(du, hn::ShiftRight<4>(hn::BitCast(di, second)))};
  return {hn::BitCast(F32(), hn::And(moved[0], mask)), hn::BitCast(F32(), hn::And(moved[1], mask))};
#else
  const hn::Repartition<int16_t, F32> d16;
  auto codes = hn::BitCast(d16, quads);
  if constexpr (kPair == 0) codes = hn::ShiftLeft<8>(codes);
  const E4M3Words pair = hn::And(hn::BitCast(du, hn::ShiftRight<4>(codes)), masks.moved);
  return {hn::BitCast(F32(), hn::ShiftLeft<16>(pair)),
          hn::BitCast(F32(), hn::And(pair, masks.second))};
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace minisgl::cpu
HWY_AFTER_NAMESPACE();

#endif
