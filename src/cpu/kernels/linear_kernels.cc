// The choice of the linear kernel for dense weights, and of what expands codes for it.
#include "cpu/kernels/kernels.h"

namespace minisgl::cpu {

LinearKernel FindLinearKernel(CpuTarget target, DType dtype) {
  const auto index = static_cast<size_t>(target);
  if (dtype == DType::kBF16) {
    if (HasTiles(target)) return AmxLinearKernel();
    if (target == CpuTarget::kAmxStandIn) return AmxStandInLinearKernel();
    if (target == CpuTarget::kAvx512Bf16) return Bf16DotLinearKernel();
  }
  return WidenedLinearKernels()[index]();
}

MultiplyCodes FindE4M3Multiply(CpuTarget target, DType expanded_type) {
  if (expanded_type == DType::kBF16) {
    return target == CpuTarget::kAvx512Bf16 ? E4M3Bf16Multiply() : nullptr;
  }
  return E4M3Multiplies()[static_cast<size_t>(target)]();
}

void MultiplyE4M3Rows(const LinearBlock& linear, MultiplyCodes multiply) {
  if (linear.num_rows <= kE4M3Rows) return multiply(linear);
  LinearBlock part = linear;
  part.num_rows = (linear.num_rows + 1) / 2;
  multiply(part);
  part.x += part.num_rows * part.x_stride;
  part.out += part.num_rows * part.out_stride;
  part.num_rows = linear.num_rows - part.num_rows;
  multiply(part);
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
