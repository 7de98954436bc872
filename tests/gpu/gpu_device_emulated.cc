// See gpu_device.h: the thread-block emulator, and products in plain loops.
#include "cuda_ops.h"
#include "emulator/emulated_cuda_api.h"
#include "emulator/emulated_matmul.h"
#include "gpu/gpu_device.h"

namespace minisgl::cuda {

bool IsSlow() { return true; }

const Status& GpuStatus() {
  static const Status status;
  return status;
}

Result<std::unique_ptr<DeviceOps>> MakeGpu(const CudaOpsConfig& config) {
  const auto api = std::make_shared<emulator::EmulatedCudaApi>();
  MINISGL_ASSIGN_OR_RETURN(const DebugSwitches debug, ReadDebugSwitches());
  return MakeCudaOpsOver(
      api,
      [api](const MatmulSetup&) -> Result<std::unique_ptr<MatmulLibrary>> {
        return std::unique_ptr<MatmulLibrary>(new emulator::EmulatedMatmul(api.get()));
      },
      config, debug);
}

}  // namespace minisgl::cuda
