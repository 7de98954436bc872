// The choice of the linear kernel, and of what expands codes for it, for a target and a weight
// format.
#include "cpu/kernels/kernels.h"

namespace minisgl::cpu {

LinearKernel FindLinearKernel(CpuTarget target, const WeightFormat& format) {
  const auto index = static_cast<size_t>(target);
  if (format.quantization == Quantization::kInt8) return Int8LinearKernels()[index]();
  if (format.dtype == DType::kBF16) {
    if (HasTiles(target)) return AmxLinearKernel();
    if (target == CpuTarget::kAmxStandIn) return AmxStandInLinearKernel();
    if (target == CpuTarget::kAvx512Bf16) return Bf16DotLinearKernel();
  }
  return WidenedLinearKernels()[index]();
}

ExpandPanel FindExpandPanel(CpuTarget target, CodeOrder order, DType dtype) {
  if (order == CodeOrder::kLines) {
    return HasTiles(target) ? ExpandLinedPanel : ExpandLinedPanelInSoftware;
  }
  if (order == CodeOrder::kQuads) return ExpandQuadsPanel;
  const bool has_rounding = HasTiles(target) || target == CpuTarget::kAvx512Bf16;
  if (has_rounding && dtype == DType::kBF16) return Bf16ExpandPanel();
  return ExpandPanelGetters()[static_cast<size_t>(target)]();
}

}  // namespace minisgl::cpu
