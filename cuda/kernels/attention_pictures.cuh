// Extend attention of steps with pictures whose tokens see each other, and of layers that draft: a
// token sees the keys from AttentionParams::first_key to key_end, which may be after its own.
// Everything else is as attention_extend.cuh and attention_wide.cuh have it, of which these are
// instances, over the same plan: the items of a tile cover all keys of its row.
//
// These kernels stand apart from the kernels of causal attention, whose instances stay as they are.
#pragma once

#include <algorithm>

#include "kernels/attention_extend.cuh"
#include "kernels/attention_wide.cuh"

namespace minisgl::cuda {

// Grid, block, shared memory and traffic: attention_extend.cuh. `key_end`: 4 bytes for each token.
template <typename T, int D, bool LARGE>
MINISGL_KERNEL void MINISGL_LAUNCH_BOUNDS((ExtendShape<D, LARGE>::kThreads),
                                          (ExtendShape<D, LARGE>::kBlocks))
    PictureExtendKernel(AttentionArguments<T> args, int stages, const int32_t* key_end,
                        int32_t first_key) {
  device::GridRelease();
  device::GridWait();
  ExtendBlock<T, D, LARGE, TileKeys::kEnds> block(args, stages, {key_end, first_key});
  const int32_t num_works = block.NumWorks();
  for (int32_t work = static_cast<int32_t>(blockIdx.x); work < num_works;
       work += static_cast<int32_t>(gridDim.x)) {
    if (block.FindWork(work)) block.Run();
    __syncthreads();  // shared memory may be written again
  }
}

// The same of attention_wide.cuh.
template <typename T, int F, bool IN_KEYS>
MINISGL_KERNEL void MINISGL_LAUNCH_BOUNDS((WideShape<F, IN_KEYS>::kThreads),
                                          (WideShape<F, IN_KEYS>::kBlocks))
    PictureWideKernel(WideArguments<T> args, int stages, const int32_t* key_end,
                      int32_t first_key) {
  device::GridRelease();
  device::GridWait();
  WideBlock<T, F, IN_KEYS, TileKeys::kEnds> block(args, stages, {key_end, first_key});
  const int32_t num_works = block.NumWorks();
  for (int32_t work = static_cast<int32_t>(blockIdx.x); work < num_works;
       work += static_cast<int32_t>(gridDim.x)) {
    if (block.FindWork(work)) block.Run();
    __syncthreads();  // shared memory may be written again
  }
}

// As many blocks as there are works, or as run at once if they suffice for the tiles.
template <typename Shape>
LaunchShape PictureShape(const LaunchContext& context, const ExtendWork& work, int32_t num_kv_heads,
                         int stages) {
  const int64_t tiles = work.max_tiles * num_kv_heads;
  const int64_t at_once = int64_t{context.num_multiprocessors} * Shape::kBlocks;
  const int64_t blocks = std::min(tiles + work.max_cut_items, std::max(tiles, at_once));
  return {.grid = {static_cast<unsigned>(blocks)},
          .block = {Shape::kThreads},
          .shared_bytes = Shape::SharedBytes(stages),
          .programmatic = true};
}

template <typename T>
CudaError LaunchPictureExtend(const LaunchContext& context, AttentionArguments<T> arguments,
                              int32_t head_dim, ExtendChoice choice, const ExtendWork& work,
                              const int32_t* key_end, int32_t first_key) {
  arguments.list = arguments.plan.extend_list;
  const auto launch = [&]<int D, bool LARGE>() {
    const LaunchShape shape =
        PictureShape<ExtendShape<D, LARGE>>(context, work, arguments.num_kv_heads, choice.stages);
    return Launch(context, shape, PictureExtendKernel<T, D, LARGE>, arguments, choice.stages,
                  key_end, first_key);
  };
  return DispatchHeadDim(head_dim, [&]<int D>() {
    return choice.large ? launch.template operator()<D, true>()
                        : launch.template operator()<D, false>();
  });
}

template <typename T>
CudaError LaunchPictureWide(const LaunchContext& context, WideArguments<T> arguments, bool in_keys,
                            ExtendChoice choice, const ExtendWork& work, const int32_t* key_end,
                            int32_t first_key) {
  arguments.rows.list = arguments.rows.plan.extend_list;
  return DispatchWide(choice.fragments, in_keys, [&]<int F, bool IN_KEYS>() {
    const LaunchShape shape = PictureShape<WideShape<F, IN_KEYS>>(
        context, work, arguments.rows.num_kv_heads, choice.stages);
    return Launch(context, shape, PictureWideKernel<T, F, IN_KEYS>, arguments, choice.stages,
                  key_end, first_key);
  });
}

}  // namespace minisgl::cuda
