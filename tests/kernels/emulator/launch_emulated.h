// Launching a kernel on the emulator. CudaApi::LaunchKernel is called as for a real launch and runs
// the kernel (EmulatedCudaApi: at once, or records it during a capture). Included by
// kernels/launch.h.
#pragma once

#include <utility>

#include "cuda_api.h"
#include "emulator/launch_support.h"

namespace minisgl::cuda {

template <typename... Params>
CudaError Launch(const LaunchContext& context, const LaunchShape& shape, void (*kernel)(Params...),
                 Params... arguments) {
  if (shape.grid.x == 0 || shape.grid.y == 0 || shape.grid.z == 0) return kCudaSuccess;
  emulator::PendingKernel pending{emulator::KernelName(__PRETTY_FUNCTION__),
                                  [=] { kernel(arguments...); }};
  void* pointers[] = {&arguments..., nullptr};
  // The context's observer may launch a kernel in between.
  emulator::PendingKernel* const outer = std::exchange(emulator::CurrentPendingKernel(), &pending);
  const CudaError error =
      QueueKernel(context, shape, reinterpret_cast<const void*>(kernel), pointers);
  emulator::CurrentPendingKernel() = outer;
  return error;
}

}  // namespace minisgl::cuda
