// The kernels of attention over codes of 8 bits: see attention_codes.cuh.
#pragma once

#include <algorithm>

#include "kernels/attention_wide.cuh"

namespace minisgl::cuda {

template <typename T, int F, int CODES>
MINISGL_KERNEL void MINISGL_LAUNCH_BOUNDS((WideShape<F, false, CODES>::kThreads),
                                          (WideShape<F, false, CODES>::kBlocks))
    CodedKernel(CodedArguments<T> args, int stages) {
  device::GridRelease();
  device::GridWait();
  WideBlock<T, F, false, TileKeys::kCausal, CODES> block(args, stages);
  const int32_t num_works = block.NumWorks();
  for (int32_t work = static_cast<int32_t>(blockIdx.x); work < num_works;
       work += static_cast<int32_t>(gridDim.x)) {
    if (block.FindWork(work)) block.Run();
    __syncthreads();  // shared memory may be written again
  }
}

// By key_end and first_key.
template <typename T, int F, int CODES>
MINISGL_KERNEL void MINISGL_LAUNCH_BOUNDS((WideShape<F, false, CODES>::kThreads),
                                          (WideShape<F, false, CODES>::kBlocks))
    CodedPictureKernel(CodedArguments<T> args, int stages) {
  device::GridRelease();
  device::GridWait();
  WideBlock<T, F, false, TileKeys::kEnds, CODES> block(args, stages,
                                                       {args.key_end, args.first_key});
  const int32_t num_works = block.NumWorks();
  for (int32_t work = static_cast<int32_t>(blockIdx.x); work < num_works;
       work += static_cast<int32_t>(gridDim.x)) {
    if (block.FindWork(work)) block.Run();
    __syncthreads();  // shared memory may be written again
  }
}

// Calls f.operator()<F, CODES>() for heads of at most `width` elements.
template <typename Function>
auto DispatchCoded(int fragments, int32_t width, const Function& f) {
  const auto of_width = [&]<int F>() {
    if (width <= 128) return f.template operator()<F, 128>();
    return width <= 256 ? f.template operator()<F, 256>() : f.template operator()<F, 512>();
  };
  if (fragments == 1) return of_width.template operator()<1>();
  return fragments == 2 ? of_width.template operator()<2>() : of_width.template operator()<4>();
}

template <typename T>
CudaError LaunchCoded(const LaunchContext& context, CodedArguments<T> arguments,
                      ExtendChoice choice, const ExtendWork& work) {
  const DeviceAttentionPlan& plan = arguments.rows.plan;
  arguments.rows.list = work.decode_rows ? plan.decode_list : plan.extend_list;
  const int32_t width = std::max(arguments.key_dim, arguments.value_dim);
  return DispatchCoded(choice.fragments, width, [&]<int F, int CODES>() {
    using Shape = WideShape<F, false, CODES>;
    const int64_t tiles = work.max_tiles * arguments.rows.num_kv_heads;
    const int64_t at_once = int64_t{context.num_multiprocessors} * Shape::kBlocks;
    const int64_t blocks = std::min(tiles + work.max_cut_items, std::max(tiles, at_once));
    const LaunchShape shape = {.grid = {static_cast<unsigned>(blocks)},
                               .block = {Shape::kThreads},
                               .shared_bytes = Shape::SharedBytes(choice.stages),
                               .programmatic = true};
    return arguments.key_end == nullptr
               ? Launch(context, shape, CodedKernel<T, F, CODES>, arguments, choice.stages)
               : Launch(context, shape, CodedPictureKernel<T, F, CODES>, arguments, choice.stages);
  });
}

}  // namespace minisgl::cuda
