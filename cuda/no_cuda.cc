// The CUDA functions of device_ops.h in a build without CUDA: they return the reason.
#include "minisgl/device_ops.h"

namespace minisgl {
namespace {

Status NoCuda() {
  return Status(StatusCode::kUnavailable,
                "this build has no CUDA engine; build it where nvcc is found, with -Dcuda=enabled");
}

}  // namespace

Result<CudaDevice> ProbeCuda(int) { return NoCuda(); }

Result<std::unique_ptr<DeviceOps>> MakeCudaOps(const CudaOpsConfig&) { return NoCuda(); }

int CountCudaDevices() { return 0; }

Result<std::vector<std::unique_ptr<DeviceOps>>> MakeCudaRanks(const CudaRanksConfig&) {
  return NoCuda();
}

}  // namespace minisgl
