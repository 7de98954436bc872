// See gpu_device.h: the first GPU of this machine.
#include <cstdlib>

#include "gpu/gpu_device.h"

namespace minisgl::cuda {

bool IsSlow() { return std::getenv("MINISGL_SMALL_TESTS") != nullptr; }

const Status& GpuStatus() {
  static const Status status = ProbeCuda(0).status();
  return status;
}

Result<std::unique_ptr<DeviceOps>> MakeGpu(const CudaOpsConfig& config) {
  return MakeCudaOps(config);
}

}  // namespace minisgl::cuda
