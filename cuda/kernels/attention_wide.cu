// Attention of wide heads, of bf16, and the choice of its kernel: see attention_wide.cuh.
#include "kernels/attention_wide.cuh"

namespace minisgl::cuda {

ExtendChoice ChooseWide(bool in_keys, int fragments, size_t shared_bytes_max) {
  for (; fragments > 1; fragments /= 2) {
    for (const int stages : {2, 1}) {
      const size_t num_bytes = DispatchWide(fragments, in_keys, [&]<int F, bool IN_KEYS>() {
        return WideShape<F, IN_KEYS>::SharedBytes(stages);
      });
      if (num_bytes <= shared_bytes_max) return {.stages = stages, .fragments = fragments};
    }
  }
  const size_t num_bytes =
      in_keys ? WideShape<1, true>::SharedBytes(2) : WideShape<1, false>::SharedBytes(2);
  return {.stages = num_bytes <= shared_bytes_max ? 2 : 1, .fragments = 1};
}

template CudaError LaunchWide<device::bf16>(const LaunchContext& context,
                                            WideArguments<device::bf16> arguments, bool in_keys,
                                            ExtendChoice choice, const ExtendWork& work);

}  // namespace minisgl::cuda
