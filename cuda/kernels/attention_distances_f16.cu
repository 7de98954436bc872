// Attention with numbers of distances, of f16: see attention_distances.cuh.
#include "kernels/attention_distances.cuh"

namespace minisgl::cuda {

template CudaError LaunchDistanceExtend<device::f16>(const LaunchContext& context,
                                                     AttentionArguments<device::f16> arguments,
                                                     ExtendChoice choice, const ExtendWork& work,
                                                     const AttentionParams& params);
template CudaError LaunchDistanceWide<device::f16>(const LaunchContext& context,
                                                   WideArguments<device::f16> arguments,
                                                   ExtendChoice choice, const ExtendWork& work,
                                                   const AttentionParams& params);

}  // namespace minisgl::cuda
