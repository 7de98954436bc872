// Attention of wide heads, of f16: see attention_wide.cuh.
#include "kernels/attention_wide.cuh"

namespace minisgl::cuda {

template CudaError LaunchWide<device::f16>(const LaunchContext& context,
                                           WideArguments<device::f16> arguments, bool in_keys,
                                           ExtendChoice choice, const ExtendWork& work);

}  // namespace minisgl::cuda
