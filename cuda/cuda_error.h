// What an error of CUDA means for this program, and the Status it becomes: one table.
//
// Four classes. What does not fit may fit with smaller settings, and nothing is lost. No usable
// device is found out before anything is loaded. After a sticky error every later call of the
// process fails, so the program stops at once. Any other is a fault of this program or of the
// driver, and leaves the device usable.
#pragma once

#include <span>
#include <string_view>

#include "cuda_api.h"

namespace minisgl {

enum class CudaFault { kDoesNotFit, kNoUsableDevice, kSticky, kOther };

struct CudaErrorClass {
  CudaError error;
  CudaFault fault;
  StatusCode code;
  const char* advice;  // what to do, after "; "
};

// Every error that is not just kOther with kInternal.
std::span<const CudaErrorClass> CudaErrorClasses();

// The class of `error`, which is not kCudaSuccess.
CudaErrorClass ClassifyCudaError(CudaError error);
// Whether `error` (or success, which is not) ends all use of the device.
bool IsSticky(CudaError error);

// "CALL on DEVICE: cudaErrorNoDevice (no CUDA-capable device is detected); what to do". `device`
// names the GPU: "cuda:0 (NVIDIA H200)".
Status CudaStatus(CudaApi* api, CudaError error, std::string_view call, std::string_view device);

}  // namespace minisgl
