// The CUDA functions of device_ops.h, with the real runtime and cuBLASLt.
#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

#include "cublas_lt.h"
#include "cuda_ops.h"
#include "minisgl/device_ops.h"
#include "probe.h"

namespace minisgl {
namespace {

// For ranks, before the first call to CUDA. A kernel of one rank waits for kernels of others, so no
// call may wait for kernels when something runs first, and no two streams may share a queue of the
// device: of two ranks on one device that are more than its usual eight.
void PrepareProcess() {
  static const bool done = [] {
    setenv("CUDA_MODULE_LOADING", "EAGER", /*overwrite=*/0);
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", /*overwrite=*/0);
    return true;
  }();
  static_cast<void>(done);
}

// For NCCL, before it is loaded, unless the user has set them. Connections are made at the start,
// not by the first sum of a kind. Sums in the switch between GPUs (NVLS) are left out, because two
// of them of the same numbers may differ.
void PrepareNccl() {
  setenv("NCCL_RUNTIME_CONNECT", "0", /*overwrite=*/0);
  setenv("NCCL_NVLS_ENABLE", "0", /*overwrite=*/0);
}

// Ranks compute some values alike, each for itself.
Status CheckAlike(const std::vector<CudaDevice>& devices) {
  for (const CudaDevice& device : devices) {
    if (device.name == devices[0].name) continue;
    return UsageError(
        "cuda:{} is {} and cuda:{} {}: ranks of one model need devices of one kind; name such",
        devices[0].index, devices[0].name, device.index, device.name);
  }
  return Status();
}

}  // namespace

int CountCudaDevices() {
  PrepareProcess();
  int count = 0;
  const cuda::CudaError error = cuda::MakeCudaRuntimeApi()->DeviceCount(&count);
  return error == cuda::kCudaSuccess ? count : 0;
}

Result<std::vector<std::unique_ptr<DeviceOps>>> MakeCudaRanks(const CudaRanksConfig& config) {
  PrepareProcess();
  MINISGL_ASSIGN_OR_RETURN(const cuda::DebugSwitches debug, cuda::ReadDebugSwitches());
  std::vector<CudaDevice> devices;
  for (const int index : config.devices) {
    MINISGL_ASSIGN_OR_RETURN(CudaDevice device, ProbeCuda(index));
    devices.push_back(std::move(device));
  }
  MINISGL_RETURN_IF_ERROR(CheckAlike(devices));
  if (config.nccl) PrepareNccl();
  MINISGL_ASSIGN_OR_RETURN(auto ranks,
                           cuda::MakeCudaRanksOver([] { return cuda::MakeCudaRuntimeApi(); },
                                                   cuda::LoadCublasLt, config, debug));
  const std::unique_ptr<cuda::CudaApi> api = cuda::MakeCudaRuntimeApi();
  MINISGL_RETURN_IF_ERROR(cuda::FindCublasLt(api.get()));
  return ranks;
}

// MINISGL_CUDA_ARCHS: the architectures that the kernels were compiled for, in the form of RunsOn.
Result<CudaDevice> ProbeCuda(int index) {
  const std::unique_ptr<cuda::CudaApi> api = cuda::MakeCudaRuntimeApi();
  return cuda::ProbeCudaOver(api.get(), index, MINISGL_CUDA_ARCHS);
}

Result<std::unique_ptr<DeviceOps>> MakeCudaOps(const CudaOpsConfig& config) {
  MINISGL_ASSIGN_OR_RETURN(const cuda::DebugSwitches debug, cuda::ReadDebugSwitches());
  const std::shared_ptr<cuda::CudaApi> api = cuda::MakeCudaRuntimeApi();
  MINISGL_ASSIGN_OR_RETURN(std::unique_ptr<DeviceOps> ops,
                           cuda::MakeCudaOpsOver(api, cuda::LoadCublasLt, config, debug));
  // A missing library should be reported before weights are read, although it is used later.
  MINISGL_RETURN_IF_ERROR(cuda::FindCublasLt(api.get()));
  return ops;
}

}  // namespace minisgl
