// The settings that all launches of a device share, chosen by its properties.
#pragma once

#include "cuda_api.h"
#include "debug_switches.h"
#include "kernels/launch.h"

namespace minisgl::cuda {

LaunchContext MakeLaunchContext(CudaApi* api, CudaStream stream,
                                const CudaDeviceProperties& properties, const DebugSwitches& debug);

}  // namespace minisgl::cuda
