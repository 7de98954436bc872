// The data that a launch on the emulator passes from the launcher to the CudaApi.
#pragma once

#include <functional>
#include <string>

namespace minisgl::cuda::emulator {

// The kernel of the launch in progress: its name, and the function of each thread.
struct PendingKernel {
  std::string name;
  std::function<void()> body;
};
// This OS thread's launch; null if none is in progress.
PendingKernel*& CurrentPendingKernel();

// The part of __PRETTY_FUNCTION__ that differs between kernels: their parameters.
std::string KernelName(const char* pretty_function);

}  // namespace minisgl::cuda::emulator
