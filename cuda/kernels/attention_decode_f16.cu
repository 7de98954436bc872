// Decode attention of f16: see attention_decode.cuh.
#include "kernels/attention_decode.cuh"

namespace minisgl::cuda {

template CudaError LaunchDecode<device::f16>(const LaunchContext& context,
                                             const AttentionArguments<device::f16>& arguments,
                                             int32_t head_dim, int32_t num_decode_rows,
                                             int32_t max_splits);

}  // namespace minisgl::cuda
