// Attention over codes of 8 bits, of f16: see attention_codes.cuh.
#include "kernels/attention_codes_launch.cuh"

namespace minisgl::cuda {

template CudaError LaunchCoded<device::f16>(const LaunchContext& context,
                                            CodedArguments<device::f16> arguments,
                                            ExtendChoice choice, const ExtendWork& work);

}  // namespace minisgl::cuda
