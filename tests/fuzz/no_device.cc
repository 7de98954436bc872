// In place of the engines' operations, in fuzz targets of the command line's parts: what they fuzz
// loads no model, and the kernels would take clang++ a quarter of an hour to compile with all
// checks.
#include "minisgl/device_ops.h"
#include "minisgl/ops.h"

namespace minisgl {

Result<std::unique_ptr<Ops>> MakeCpuOps(const CpuOpsConfig&) {
  return MakeStatus(StatusCode::kUnavailable, "this fuzz target has no CPU engine");
}

std::optional<uint64_t> CpuScratchBytes(const CpuScratchLimits&) { return 0; }

std::unique_ptr<Ops> MakeNaiveOps(DType) { return nullptr; }

Result<CudaDevice> ProbeCuda(int) {
  return MakeStatus(StatusCode::kUnavailable, "this fuzz target has no CUDA engine");
}

Result<std::unique_ptr<DeviceOps>> MakeCudaOps(const CudaOpsConfig&) {
  return MakeStatus(StatusCode::kUnavailable, "this fuzz target has no CUDA engine");
}

}  // namespace minisgl
