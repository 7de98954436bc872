// The CUDA functions of device_ops.h, with the real runtime and cuBLASLt.
#include <memory>
#include <utility>

#include "cublas_lt.h"
#include "cuda_ops.h"
#include "minisgl/device_ops.h"
#include "probe.h"

namespace minisgl {

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
