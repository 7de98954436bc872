// Launching a kernel through CudaApi: one call, with its error checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "cuda_api.h"

namespace minisgl::cuda {

// Is called around every launch of a context. An error that it returns is the launch's.
class LaunchObserver {
 public:
  virtual ~LaunchObserver() = default;
  virtual CudaError BeforeLaunch() = 0;
  // `kernel` was queued.
  virtual CudaError AfterLaunch(const void* kernel) = 0;
};

struct LaunchContext {
  CudaApi* api = nullptr;
  CudaStream stream = nullptr;
  int num_multiprocessors = 1;
  size_t shared_bytes_max = 48 * 1024;  // for a block, with the limit raised
  bool programmatic = false;            // programmatic dependent launch may be used
  // Percent of a multiprocessor's first-level memory to use as shared memory; negative: CUDA's
  // choice for each kernel. If neighbours in a stream differ, a multiprocessor has to be empty
  // before it changes, and programmatic dependent launch overlaps nothing.
  int shared_carveout = -1;
  // Most bytes that a kernel asks for in the second-level cache for a later kernel; 0: none.
  int64_t prefetch_bytes = 0;
  // Products of few rows with so many bytes of weights or more take gemv_ring.cu, and may begin
  // with a norm.
  int64_t ring_bytes_min = std::numeric_limits<int64_t>::max();
  // Upper bound on the length of decode attention's splits, in multiples of AttentionSplitKeys; a
  // power of two. With 1 a row's result depends on no other row.
  int32_t split_times_max = 1;
  // Products of few rows in bf16 (gemv_ends.cu, gemv_ring_ends.cu):
  bool product_ends = false;  // by kernels made for what stands behind the sums
  bool l2_hint = false;       // loads of weights ask for the lines beside them
  bool whole_lines = false;   // copies of a large matrix's weights take whole lines of its rows
  // Most bytes of weights that a product fetches for products behind the attention that follows it.
  int64_t far_bytes = 0;
  LaunchObserver* observer = nullptr;
};

struct LaunchShape {
  CudaDim3 grid, block;
  size_t shared_bytes = 0;
  // True if the kernel calls GridWait before it reads the results of earlier kernels.
  bool programmatic = false;
};

// Queues `kernel`, with the timing and the checks that the context asks for. `arguments`: a pointer
// to each.
inline CudaError QueueKernel(const LaunchContext& context, const LaunchShape& shape,
                             const void* kernel, void** arguments) {
  if (shape.shared_bytes > 48 * 1024) {
    const CudaError error = context.api->SetSharedBytesMax(kernel, shape.shared_bytes);
    if (error != kCudaSuccess) return error;
  }
  if (context.shared_carveout >= 0) {
    const CudaError error = context.api->SetSharedCarveout(kernel, context.shared_carveout);
    if (error != kCudaSuccess) return error;
  }
  if (context.observer != nullptr) {
    const CudaError error = context.observer->BeforeLaunch();
    if (error != kCudaSuccess) return error;
  }
  const CudaError error =
      context.api->LaunchKernel(kernel,
                                {.grid = shape.grid,
                                 .block = shape.block,
                                 .shared_bytes = shape.shared_bytes,
                                 .stream = context.stream,
                                 .programmatic = shape.programmatic && context.programmatic},
                                arguments);
  if (error != kCudaSuccess || context.observer == nullptr) return error;
  return context.observer->AfterLaunch(kernel);
}

#ifndef MINISGL_EMULATOR
template <typename... Params>
CudaError Launch(const LaunchContext& context, const LaunchShape& shape, void (*kernel)(Params...),
                 Params... arguments) {
  if (shape.grid.x == 0 || shape.grid.y == 0 || shape.grid.z == 0) return kCudaSuccess;
  void* pointers[] = {&arguments...};
  return QueueKernel(context, shape, reinterpret_cast<const void*>(kernel), pointers);
}
#endif

}  // namespace minisgl::cuda

#ifdef MINISGL_EMULATOR
#include "emulator/launch_emulated.h"
#endif
