// Launching a kernel on the emulator. CudaApi::LaunchKernel is called as for a real launch and runs
// the kernel (EmulatedCudaApi: at once, or records it during a capture). Included by
// kernels/launch.h.
#pragma once

#include "cuda_api.h"
#include "emulator/launch_support.h"

namespace minisgl::cuda {

template <typename... Params>
CudaError Launch(const LaunchContext& context, const LaunchShape& shape, void (*kernel)(Params...),
                 Params... arguments) {
  if (shape.grid.x == 0 || shape.grid.y == 0 || shape.grid.z == 0) return kCudaSuccess;
  const void* const function = reinterpret_cast<const void*>(kernel);
  CudaError error = BeginLaunch(context, shape, function);
  if (error != kCudaSuccess) return error;
  emulator::PendingKernel pending{emulator::KernelName(__PRETTY_FUNCTION__),
                                  [=] { kernel(arguments...); }};
  void* pointers[] = {&arguments..., nullptr};
  emulator::CurrentPendingKernel() = &pending;
  error = context.api->LaunchKernel(function,
                                    {.grid = shape.grid,
                                     .block = shape.block,
                                     .shared_bytes = shape.shared_bytes,
                                     .stream = context.stream,
                                     .programmatic = shape.programmatic && context.programmatic},
                                    pointers);
  emulator::CurrentPendingKernel() = nullptr;
  return error == kCudaSuccess ? EndLaunch(context, function) : error;
}

}  // namespace minisgl::cuda
