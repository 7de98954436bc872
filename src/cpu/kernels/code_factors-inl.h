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

#include "cpu/coded_matrix.h"
#include "cpu/kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace minisgl::cpu {
namespace HWY_NAMESPACE {

// Where the scales or offsets of a panel have those of a group, computed once for a matrix.
struct FactorLayout {
  explicit FactorLayout(const CodedMatrix& m)
      : type(m.scale_type), has_steps(m.factor_groups > 0), step_bytes(m.step_bytes()) {
    while (int64_t{1} << shift < m.factor_groups) ++shift;
  }
  DType type;
  bool has_steps;
  int shift = 0;  // log2 of CodedMatrix::factor_groups
  int64_t step_bytes;
};

// Those of a group and a vector of outputs, from `lane` of the panel on.
HWY_INLINE Floats FactorsAt(const FactorLayout& layout, const std::byte* of_panel, int64_t group,
                            int64_t lane) {
  const F32 d;
  const hn::Rebind<uint16_t, F32> d16;
  const int64_t at = (group >> layout.shift) * kPanelWidth + lane;
  const std::byte* const factors = of_panel + layout.step_bytes;
  Floats factor;
  if (layout.type == DType::kF32) {
    factor = hn::LoadU(d, reinterpret_cast<const float*>(factors) + at);
  } else {
    const auto bits = hn::LoadU(d16, reinterpret_cast<const uint16_t*>(factors) + at);
    if (layout.type == DType::kF16) {
      factor = hn::PromoteTo(d, hn::BitCast(hn::Rebind<hwy::float16_t, F32>(), bits));
    } else {
      const hn::RebindToUnsigned<F32> du;
      factor = hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du, bits)));
    }
  }
  if (!layout.has_steps) return factor;
  const hn::RebindToSigned<F32> di;
  const hn::Rebind<int8_t, F32> d8;
  const auto* const steps = reinterpret_cast<const int8_t*>(of_panel) + group * kPanelWidth + lane;
  return hn::Mul(factor, hn::ConvertTo(d, hn::PromoteTo(di, hn::LoadU(d8, steps))));
}

}  // namespace HWY_NAMESPACE
}  // namespace minisgl::cpu
HWY_AFTER_NAMESPACE();

#endif
