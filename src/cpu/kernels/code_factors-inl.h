// Scales and offsets of a matrix of codes (coded_matrix.h), widened. Compiled once for each
// instruction set (simd-inl.h).
#if defined(MINISGL_CPU_CODE_FACTORS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MINISGL_CPU_CODE_FACTORS_INL_H_
#undef MINISGL_CPU_CODE_FACTORS_INL_H_
#else
#define MINISGL_CPU_CODE_FACTORS_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "cpu/factor_layout.h"
#include "cpu/kernels/e4m3-inl.h"
#include "cpu/kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace minisgl::cpu {
namespace HWY_NAMESPACE {

// A vector of factors of type kType, from element `at` on.
template <DType kType>
HWY_INLINE Floats WidenFactors(const std::byte* factors, int64_t at) {
  const F32 d;
  if constexpr (kType == DType::kF32) {
    return hn::LoadU(d, reinterpret_cast<const float*>(factors) + at);
  } else {
    const hn::Rebind<uint16_t, F32> d16;
    const auto bits = hn::LoadU(d16, reinterpret_cast<const uint16_t*>(factors) + at);
    if constexpr (kType == DType::kF16) {
      return hn::PromoteTo(d, hn::BitCast(hn::Rebind<hwy::float16_t, F32>(), bits));
    } else {
      const hn::RebindToUnsigned<F32> du;
      return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du, bits)));
    }
  }
}

// The factors of a group and a vector of outputs, from `lane` of the panel on.
HWY_INLINE Floats FactorsAt(const FactorLayout& layout, const std::byte* of_panel, int64_t group,
                            int64_t lane) {
  const F32 d;
  const int64_t at = (group >> layout.shift) * kPanelWidth + lane;
  const std::byte* const factors = of_panel + layout.step_bytes;
  Floats factor;
  if (layout.type == DType::kF32) {
    factor = WidenFactors<DType::kF32>(factors, at);
  } else if (layout.type == DType::kF16) {
    factor = WidenFactors<DType::kF16>(factors, at);
  } else {
    factor = WidenFactors<DType::kBF16>(factors, at);
  }
  if (layout.steps == ScaleSteps::kNone) return factor;
  const auto* const steps = reinterpret_cast<const int8_t*>(of_panel) + group * kPanelWidth + lane;
  if (layout.steps == ScaleSteps::kIntegers) {
    const hn::RebindToSigned<F32> di;
    const hn::Rebind<int8_t, F32> d8;
    return hn::Mul(factor, hn::ConvertTo(d, hn::PromoteTo(di, hn::LoadU(d8, steps))));
  }
  const Floats numbers = WidenE4M3(steps);
  return layout.steps == ScaleSteps::kE4M3 ? hn::Mul(numbers, factor) : hn::Div(numbers, factor);
}

// Calls visit(element of the panel, lane) for kVectors vectors of outputs that begin in `lane` of
// `panel`: the panels are `panel_bytes` apart.
template <int kVectors, class Visit>
HWY_INLINE void ForVectors(const std::byte* panel, int64_t panel_bytes, const Visit& visit) {
#pragma GCC unroll 16
  for (int v = 0; v < kVectors; ++v) {
    visit(panel + v * kLanes / kPanelWidth * panel_bytes, v * kLanes % kPanelWidth, v * kLanes);
  }
}

// Stores FactorsAt of kVectors vectors of outputs, from `lane` of `panel` on. The kinds of factors
// are told apart once for all vectors.
template <int kVectors>
HWY_INLINE void StoreFactors(const FactorLayout& layout, const std::byte* panel, int64_t group,
                             int64_t lane, float* out) {
  const F32 d;
  const int64_t at = (group >> layout.shift) * kPanelWidth + lane;
  const auto store = [&]<DType kType>() HWY_ATTR {
    ForVectors<kVectors>(panel + layout.step_bytes, layout.panel_bytes,
                         [&](const std::byte* factors, int64_t in_panel, int v) HWY_ATTR {
                           hn::StoreU(WidenFactors<kType>(factors, at + in_panel), d, out + v);
                         });
  };
  if (layout.type == DType::kF32) {
    store.template operator()<DType::kF32>();
  } else if (layout.type == DType::kF16) {
    store.template operator()<DType::kF16>();
  } else {
    store.template operator()<DType::kBF16>();
  }
  if (layout.steps == ScaleSteps::kNone) return;
  const auto apply = [&](const auto& combine) HWY_ATTR {
    ForVectors<kVectors>(
        panel, layout.panel_bytes, [&](const std::byte* steps, int64_t in_panel, int v) HWY_ATTR {
          const auto* const step =
              reinterpret_cast<const int8_t*>(steps) + group * kPanelWidth + lane + in_panel;
          hn::StoreU(combine(hn::LoadU(d, out + v), step), d, out + v);
        });
  };
  if (layout.steps == ScaleSteps::kIntegers) {
    apply([&](Floats factor, const int8_t* step) HWY_ATTR {
      const hn::RebindToSigned<F32> di;
      const hn::Rebind<int8_t, F32> d8;
      return hn::Mul(factor, hn::ConvertTo(d, hn::PromoteTo(di, hn::LoadU(d8, step))));
    });
  } else if (layout.steps == ScaleSteps::kE4M3) {
    apply([&](Floats factor, const int8_t* step)
              HWY_ATTR { return hn::Mul(WidenE4M3(step), factor); });
  } else {
    apply([&](Floats factor, const int8_t* step)
              HWY_ATTR { return hn::Div(WidenE4M3(step), factor); });
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace minisgl::cpu
HWY_AFTER_NAMESPACE();

#endif
