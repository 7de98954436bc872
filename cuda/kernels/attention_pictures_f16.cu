// Attention of steps with pictures, of f16: see attention_pictures.cuh.
#include "kernels/attention_pictures.cuh"

namespace minisgl::cuda {

template CudaError LaunchPictureExtend<device::f16>(const LaunchContext& context,
                                                    AttentionArguments<device::f16> arguments,
                                                    int32_t head_dim, ExtendChoice choice,
                                                    const ExtendWork& work, const int32_t* key_end,
                                                    int32_t first_key);
template CudaError LaunchPictureWide<device::f16>(const LaunchContext& context,
                                                  WideArguments<device::f16> arguments,
                                                  bool in_keys, ExtendChoice choice,
                                                  const ExtendWork& work, const int32_t* key_end,
                                                  int32_t first_key);

}  // namespace minisgl::cuda
