// What device_ops.h promises of CUDA, in a build without it: the reason there is none.
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

}  // namespace minisgl
