// Attention of texts whose tokens see each other, with a number added to each score that depends on
// the head and on the distance of the key (AttentionParams::distance_bias). Everything else is as
// attention_pictures.cuh has it.
//
// Heads that are not wide have an instance for kDistanceHeadDim alone, because all published models
// have these (HasDistances). Traffic: 4 bytes more for each score, mostly from the
// first-level cache: a tile's scores read neighbouring numbers. Operations: one multiply-add more
// for each score.
#pragma once

#include "kernels/attention_pictures.cuh"

namespace minisgl::cuda {

// Grid, block and shared memory: attention_extend.cuh.
template <typename T, int D, bool LARGE>
MINISGL_KERNEL void MINISGL_LAUNCH_BOUNDS((ExtendShape<D, LARGE>::kThreads),
                                          (ExtendShape<D, LARGE>::kBlocks))
    DistanceExtendKernel(AttentionArguments<T> args, int stages,
                         TileKeyEnds<TileKeys::kDistances> ends) {
  device::GridRelease();
  device::GridWait();
  ExtendBlock<T, D, LARGE, TileKeys::kDistances> block(args, stages, ends);
  const int32_t num_works = block.NumWorks();
  for (int32_t work = static_cast<int32_t>(blockIdx.x); work < num_works;
       work += static_cast<int32_t>(gridDim.x)) {
    if (block.FindWork(work)) block.Run();
    __syncthreads();  // shared memory may be written again
  }
}

// The same of attention_wide.cuh.
template <typename T, int F>
MINISGL_KERNEL void MINISGL_LAUNCH_BOUNDS((WideShape<F, false>::kThreads),
                                          (WideShape<F, false>::kBlocks))
    DistanceWideKernel(WideArguments<T> args, int stages, TileKeyEnds<TileKeys::kDistances> ends) {
  device::GridRelease();
  device::GridWait();
  WideBlock<T, F, false, TileKeys::kDistances> block(args, stages, ends);
  const int32_t num_works = block.NumWorks();
  for (int32_t work = static_cast<int32_t>(blockIdx.x); work < num_works;
       work += static_cast<int32_t>(gridDim.x)) {
    if (block.FindWork(work)) block.Run();
    __syncthreads();  // shared memory may be written again
  }
}

inline TileKeyEnds<TileKeys::kDistances> DistanceEnds(const AttentionParams& params) {
  return {params.key_end, params.distance_bias + params.distance_origin, params.distance_stride,
          1 / params.scale};
}

template <typename T>
CudaError LaunchDistanceExtend(const LaunchContext& context, AttentionArguments<T> arguments,
                               ExtendChoice choice, const ExtendWork& work,
                               const AttentionParams& params) {
  if (!HasDistances(params.head_dim, params.head_dim)) return kCudaInvalidValue;
  arguments.list = arguments.plan.extend_list;
  const auto launch = [&]<bool LARGE>() {
    const LaunchShape shape = PictureShape<ExtendShape<kDistanceHeadDim, LARGE>>(
        context, work, arguments.num_kv_heads, choice.stages);
    return Launch(context, shape, DistanceExtendKernel<T, kDistanceHeadDim, LARGE>, arguments,
                  choice.stages, DistanceEnds(params));
  };
  return choice.large ? launch.template operator()<true>() : launch.template operator()<false>();
}

template <typename T>
CudaError LaunchDistanceWide(const LaunchContext& context, WideArguments<T> arguments,
                             ExtendChoice choice, const ExtendWork& work,
                             const AttentionParams& params) {
  arguments.rows.list = arguments.rows.plan.extend_list;
  return DispatchWide(choice.fragments, /*in_keys=*/false, [&]<int F, bool>() {
    const LaunchShape shape = PictureShape<WideShape<F, false>>(
        context, work, arguments.rows.num_kv_heads, choice.stages);
    return Launch(context, shape, DistanceWideKernel<T, F>, arguments, choice.stages,
                  DistanceEnds(params));
  });
}

}  // namespace minisgl::cuda
