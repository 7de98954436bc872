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

Result<std::vector<std::unique_ptr<DeviceOps>>> MakeGpuRanks(int num_ranks,
                                                             const CudaOpsConfig& config,
                                                             int64_t one_shot_bytes) {
  CudaRanksConfig ranks = {.ops = config,
                           .wait_ms = 1'000'000,
                           .one_shot_bytes = one_shot_bytes,
                           .one_shot_bytes_of_two = one_shot_bytes};
  emulator::EmulatedCudaConfig emulated;
  emulated.devices.resize(static_cast<size_t>(num_ranks));
  for (int rank = 0; rank < num_ranks; ++rank) ranks.devices.push_back(rank);
  MINISGL_ASSIGN_OR_RETURN(const DebugSwitches debug, ReadDebugSwitches());
  return MakeCudaRanksOver(
      [&] { return std::make_shared<emulator::EmulatedCudaApi>(emulated); },
      [](const MatmulSetup& setup) -> Result<std::unique_ptr<MatmulLibrary>> {
        auto* const api = static_cast<emulator::EmulatedCudaApi*>(setup.api);
        return std::unique_ptr<MatmulLibrary>(new emulator::EmulatedMatmul(api));
      },
      ranks, debug);
}

}  // namespace minisgl::cuda
