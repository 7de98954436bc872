// The choice of the linear kernel for a target and a weight format.
#include "cpu/kernels/kernels.h"

namespace minisgl::cpu {

LinearKernel FindLinearKernel(CpuTarget target, const WeightFormat& format) {
  const auto index = static_cast<size_t>(target);
  if (format.quantization == Quantization::kInt8) return Int8LinearKernels()[index]();
  if (format.dtype == DType::kBF16) {
    if (target == CpuTarget::kAmx) return AmxLinearKernel();
    if (target == CpuTarget::kAmxStandIn) return AmxStandInLinearKernel();
    if (target == CpuTarget::kAvx512Bf16) return Bf16DotLinearKernel();
  }
  return WidenedLinearKernels()[index]();
}

}  // namespace minisgl::cpu
