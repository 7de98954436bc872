// The device that the suite `gpu` runs on: a GPU in one executable, the emulator in the other, with
// the same tests. Linked with gpu_device_real.cc or gpu_device_emulated.cc.
#pragma once

#include <memory>

#include "minisgl/device_ops.h"

namespace minisgl {

// Emulated kernels are slow, and so are those of a GPU under compute-sanitizer, for which
// $MINISGL_SMALL_TESTS is set: then tests take fewer and smaller cases.
bool IsSlow();

// Why nothing can be run here, or OK. Asked once.
const Status& GpuStatus();

Result<std::unique_ptr<DeviceOps>> MakeGpu(const CudaOpsConfig& config);

}  // namespace minisgl
