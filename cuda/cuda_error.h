// The table of CUDA's errors: the class of each, and the Status it becomes.
//
// Classes:
//   kDoesNotFit      not enough memory: smaller settings may fit, and the device stays usable;
//   kNoUsableDevice  detected before anything is loaded;
//   kSticky          every later call of the process fails, so the program stops at once;
//   kOther           a fault of this program or of the driver; the device stays usable.
#pragma once

#include <span>
#include <string_view>

#include "cuda_api.h"

namespace minisgl::cuda {

enum class CudaFault { kDoesNotFit, kNoUsableDevice, kSticky, kOther };

struct CudaErrorClass {
  CudaError error;
  CudaFault fault;
  StatusCode code;
  const char* advice;  // advice to the user; follows "; " in messages
};

// All errors except those that are kOther with kInternal.
std::span<const CudaErrorClass> CudaErrorClasses();

// The class of `error`. REQUIRES an error, not kCudaSuccess.
CudaErrorClass ClassifyCudaError(CudaError error);
// True if `error` ends all use of the device; false for kCudaSuccess.
bool IsSticky(CudaError error);

// The Status for an error: "CALL on DEVICE: cudaErrorNoDevice (no CUDA-capable device is detected);
// ADVICE". `device` names the GPU: "cuda:0 (NVIDIA H200)".
Status CudaStatus(CudaApi* api, CudaError error, std::string_view call, std::string_view device);

}  // namespace minisgl::cuda
