// Attention over codes of 8 bits, of bf16: see attention_codes.cuh.
#include "kernels/attention_codes_launch.cuh"

namespace minisgl::cuda {

template CudaError LaunchCoded<device::bf16>(const LaunchContext& context,
                                             CodedArguments<device::bf16> arguments,
                                             ExtendChoice choice, const ExtendWork& work);

}  // namespace minisgl::cuda
