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

// A rank that does not answer is found soon, because the time on a GPU is short.
Result<std::vector<std::unique_ptr<DeviceOps>>> MakeGpuRanks(int num_ranks,
                                                             const CudaOpsConfig& config,
                                                             int64_t one_shot_bytes) {
  return MakeCudaRanks({.ops = config,
                        .devices = std::vector<int>(static_cast<size_t>(num_ranks)),
                        .wait_ms = 60'000,
                        .one_shot_bytes = one_shot_bytes,
                        .one_shot_bytes_of_two = one_shot_bytes});
}

}  // namespace minisgl::cuda
