// Attention of rows that extend, of f16: see attention_extend.cuh.
#include "kernels/attention_extend.cuh"

namespace minisgl::cuda {

template CudaError LaunchExtend<device::f16>(const LaunchContext& context,
                                             AttentionArguments<device::f16> arguments,
                                             int32_t head_dim, ExtendChoice choice,
                                             const ExtendWork& work);

}  // namespace minisgl::cuda
