// What a launch on the emulator hands from the host door to the table of CUDA's calls.
#pragma once

#include <functional>
#include <string>

namespace minisgl::emulator {

// The kernel of a launch that is being asked for: its name, and what each thread runs.
struct PendingKernel {
  std::string name;
  std::function<void()> body;
};
// Of this OS thread; null while no launch is being asked for.
PendingKernel*& CurrentPendingKernel();

// The part of __PRETTY_FUNCTION__ that tells kernels apart: their parameters.
std::string KernelName(const char* pretty_function);

}  // namespace minisgl::emulator
