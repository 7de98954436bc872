// Replaces the operations of the engines in fuzz targets for parts of the command line. These
// targets load no model, and clang++ would take a quarter of an hour to compile the kernels with
// all checks.
#include "minisgl/device_ops.h"
#include "minisgl/ops.h"

namespace minisgl {

Result<std::unique_ptr<Ops>> MakeCpuOps(const CpuOpsConfig&) {
  return MakeStatus(StatusCode::kUnavailable, "this fuzz target has no CPU engine");
}

std::optional<uint64_t> CpuScratchBytes(const CpuScratchLimits&) { return 0; }

bool CpuRoundsInputsOfCodes(const std::string&, const WeightFormat&) { return false; }

std::unique_ptr<Ops> MakeNaiveOps(DType, const HostRank&) { return nullptr; }

namespace {

Status NoCuda() {
  return MakeStatus(StatusCode::kUnavailable, "this fuzz target has no CUDA engine");
}

}  // namespace

Result<CudaDevice> ProbeCuda(int) { return NoCuda(); }

Result<std::unique_ptr<DeviceOps>> MakeCudaOps(const CudaOpsConfig&) { return NoCuda(); }

int CountCudaDevices() { return 0; }

Result<std::vector<std::unique_ptr<DeviceOps>>> MakeCudaRanks(const CudaRanksConfig&) {
  return NoCuda();
}

}  // namespace minisgl
