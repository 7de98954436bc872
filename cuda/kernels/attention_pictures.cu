// Attention of steps with pictures, of bf16: see attention_pictures.cuh.
#include "kernels/attention_pictures.cuh"

namespace minisgl::cuda {

template CudaError LaunchPictureExtend<device::bf16>(const LaunchContext& context,
                                                     AttentionArguments<device::bf16> arguments,
                                                     int32_t head_dim, ExtendChoice choice,
                                                     const ExtendWork& work, const int32_t* key_end,
                                                     int32_t first_key);
template CudaError LaunchPictureWide<device::bf16>(const LaunchContext& context,
                                                   WideArguments<device::bf16> arguments,
                                                   bool in_keys, ExtendChoice choice,
                                                   const ExtendWork& work, const int32_t* key_end,
                                                   int32_t first_key);

}  // namespace minisgl::cuda
