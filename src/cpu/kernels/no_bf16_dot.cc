// What stands for the kernels of AVX512-BF16 in a build without them, whose files are not compiled.
#include "cpu/kernels/attention_bf16.h"
#include "cpu/kernels/kernels.h"

#if !MINISGL_HAS_BF16_DOT

namespace minisgl::cpu {

const Bf16Products* AttentionBf16Products() { return nullptr; }
ExpandPanel Bf16ExpandPanel() { return nullptr; }
LineKernels Bf16LineKernels() { return {}; }
void ExpandLinedPanel(const CodedMatrix&, int64_t, DType, std::byte*) {}
LinearKernel Bf16DotLinearKernel() { return {}; }
MultiplyCodes E4M3Bf16Multiply() { return nullptr; }

}  // namespace minisgl::cpu

#endif
