// Attention of rows that extend, of f16: see attention_extend.cuh.
#include "kernels/attention_extend.cuh"

namespace minisgl::cuda {

template CudaError LaunchExtend<device::f16>(const LaunchContext& context,
                                             const AttentionArguments<device::f16>& arguments,
                                             int32_t head_dim, ExtendChoice choice,
                                             int64_t max_tiles, bool decode_rows);

}  // namespace minisgl::cuda
