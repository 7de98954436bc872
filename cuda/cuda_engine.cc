// What device_ops.h promises of CUDA, over the real runtime and cuBLASLt.
#include <utility>

#include "cublas_lt.h"
#include "cuda_ops.h"
#include "minisgl/device_ops.h"
#include "probe.h"

namespace minisgl {

// MINISGL_CUDA_ARCHS: what the kernels were compiled for, as RunsOn reads it.
Result<CudaDevice> ProbeCuda(int index) {
  const std::unique_ptr<CudaApi> api = MakeCudaRuntimeApi();
  return ProbeCudaOver(api.get(), index, MINISGL_CUDA_ARCHS);
}

Result<std::unique_ptr<DeviceOps>> MakeCudaOps(const CudaOpsConfig& config) {
  MINISGL_ASSIGN_OR_RETURN(std::unique_ptr<DeviceOps> ops,
                           MakeCudaOpsOver(MakeCudaRuntimeApi(), LoadCublasLt, config));
  // Used later, but a library that is not there should be known before weights are read.
  MINISGL_RETURN_IF_ERROR(FindCublasLt());
  return ops;
}

}  // namespace minisgl
