// See fault_process.h. On the emulator tests/cuda tests the faults of kernels.
#include "gpu/fault_process.h"

namespace minisgl::cuda {

int RunFaultProcess(const std::string&) { return kFaultNotReported; }

}  // namespace minisgl::cuda
