// The device of the suite `gpu`: a GPU in one executable, the emulator in the other, with the same
// tests. Linked with gpu_device_real.cc or gpu_device_emulated.cc.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "minisgl/device_ops.h"

namespace minisgl::cuda {

// True if tests should run fewer and smaller cases: on the emulator, and on a GPU under
// compute-sanitizer, for which $MINISGL_SMALL_TESTS is set.
bool IsSlow();

// OK, or why nothing can run on this machine. Computed once.
const Status& GpuStatus();

Result<std::unique_ptr<DeviceOps>> MakeGpu(const CudaOpsConfig& config);
// Ranks that exchange: on the emulator on a device each, on a GPU all on the first.
Result<std::vector<std::unique_ptr<DeviceOps>>> MakeGpuRanks(int num_ranks,
                                                             const CudaOpsConfig& config,
                                                             int64_t one_shot_bytes);

}  // namespace minisgl::cuda
