// What the emulator's own tests share: a thread's place, inside a kernel.
#pragma once

#include "device/device.h"
#include "emulator/emulator.h"

namespace minisgl {

inline int Thread() { return static_cast<int>(threadIdx.x); }
inline int Lane() { return Thread() % device::kWarpSize; }

}  // namespace minisgl
