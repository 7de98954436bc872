// Helpers of the emulator's own tests: a thread's index, inside a kernel.
#pragma once

#include "device/device.h"
#include "emulator/emulator.h"

namespace minisgl::cuda {

inline int Thread() { return static_cast<int>(threadIdx.x); }
inline int Lane() { return Thread() % device::kWarpSize; }

}  // namespace minisgl::cuda
