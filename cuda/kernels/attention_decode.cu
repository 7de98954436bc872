// Decode attention of bf16: see attention_decode.cuh.
#include "kernels/attention_decode.cuh"

namespace minisgl::cuda {

template CudaError LaunchDecode<device::bf16>(const LaunchContext& context,
                                              const AttentionArguments<device::bf16>& arguments,
                                              int32_t head_dim, int32_t num_decode_rows,
                                              int32_t max_splits);

}  // namespace minisgl::cuda
