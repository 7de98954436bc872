// Attention of rows that extend, of bf16, and the choice of its kernel: see attention_extend.cuh.
#include "kernels/attention_extend.cuh"

namespace minisgl::cuda {
namespace {

size_t SharedBytes(int32_t head_dim, bool large, int stages) {
  size_t num_bytes = 0;
  DispatchHeadDim(head_dim, [&]<int D>() {
    num_bytes = large ? ExtendShape<D, true>::SharedBytes(stages)
                      : ExtendShape<D, false>::SharedBytes(stages);
    return kCudaSuccess;
  });
  return num_bytes;
}

}  // namespace

ExtendChoice SmallExtend(int32_t head_dim, size_t shared_bytes_max) {
  return {.large = false, .stages = SharedBytes(head_dim, false, 2) <= shared_bytes_max ? 2 : 1};
}

ExtendChoice ChooseExtend(int32_t head_dim, int32_t group, int64_t num_tokens, int64_t num_rows,
                          size_t shared_bytes_max) {
  if (HasLongRows(group, num_tokens, num_rows)) {
    for (const int stages : {2, 1}) {
      if (SharedBytes(head_dim, true, stages) <= shared_bytes_max) {
        return {.large = true, .stages = stages};
      }
    }
  }
  return SmallExtend(head_dim, shared_bytes_max);
}

template CudaError LaunchExtend<device::bf16>(const LaunchContext& context,
                                              AttentionArguments<device::bf16> arguments,
                                              int32_t head_dim, ExtendChoice choice,
                                              const ExtendWork& work);

}  // namespace minisgl::cuda
