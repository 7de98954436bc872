// Attention with numbers of distances, of bf16: see attention_distances.cuh.
#include "kernels/attention_distances.cuh"

namespace minisgl::cuda {

template CudaError LaunchDistanceExtend<device::bf16>(const LaunchContext& context,
                                                      AttentionArguments<device::bf16> arguments,
                                                      ExtendChoice choice, const ExtendWork& work,
                                                      const AttentionParams& params);
template CudaError LaunchDistanceWide<device::bf16>(const LaunchContext& context,
                                                    WideArguments<device::bf16> arguments,
                                                    ExtendChoice choice, const ExtendWork& work,
                                                    const AttentionParams& params);

}  // namespace minisgl::cuda
