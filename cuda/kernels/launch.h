// Launching a kernel through CudaApi: one call, with its error checked.
#pragma once

#include <cstddef>

#include "cuda_api.h"

namespace minisgl::cuda {

struct LaunchContext {
  CudaApi* api = nullptr;
  CudaStream stream = nullptr;
  int num_multiprocessors = 1;
  size_t shared_bytes_max = 48 * 1024;  // for a block, with the limit raised
  bool programmatic = false;            // programmatic dependent launch may be used
};

struct LaunchShape {
  CudaDim3 grid, block;
  size_t shared_bytes = 0;
  // True if the kernel calls GridWait before it reads the results of earlier kernels.
  bool programmatic = false;
};

#ifndef MINISGL_EMULATOR
template <typename... Params>
CudaError Launch(const LaunchContext& context, const LaunchShape& shape, void (*kernel)(Params...),
                 Params... arguments) {
  if (shape.grid.x == 0 || shape.grid.y == 0 || shape.grid.z == 0) return kCudaSuccess;
  const void* const function = reinterpret_cast<const void*>(kernel);
  if (shape.shared_bytes > 48 * 1024) {
    const CudaError error = context.api->SetSharedBytesMax(function, shape.shared_bytes);
    if (error != kCudaSuccess) return error;
  }
  void* pointers[] = {&arguments...};
  return context.api->LaunchKernel(function,
                                   {.grid = shape.grid,
                                    .block = shape.block,
                                    .shared_bytes = shape.shared_bytes,
                                    .stream = context.stream,
                                    .programmatic = shape.programmatic && context.programmatic},
                                   pointers);
}
#endif

}  // namespace minisgl::cuda

#ifdef MINISGL_EMULATOR
#include "emulator/launch_emulated.h"
#endif
