// The names and texts of the CUDA runtime's errors.
#pragma once

#include <iterator>

#include "cuda_api.h"

namespace minisgl::cuda::emulator {

inline constexpr CudaError kCudaStreamCaptureUnsupported = 900;

struct ErrorText {
  CudaError error;
  const char* name;
  const char* text;
};
inline constexpr ErrorText kErrors[] = {
    {kCudaSuccess, "cudaSuccess", "no error"},
    {kCudaInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {kCudaMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {kCudaInitializationError, "cudaErrorInitializationError", "initialization error"},
    {kCudaInsufficientDriver, "cudaErrorInsufficientDriver",
     "CUDA driver version is insufficient for CUDA runtime version"},
    {kCudaNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {kCudaInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {kCudaNoKernelImageForDevice, "cudaErrorNoKernelImageForDevice",
     "no kernel image is available for execution on the device"},
    {kCudaEccUncorrectable, "cudaErrorECCUncorrectable", "uncorrectable ECC error encountered"},
    {kCudaIllegalAddress, "cudaErrorIllegalAddress", "an illegal memory access was encountered"},
    {kCudaHardwareStackError, "cudaErrorHardwareStackError", "hardware stack error"},
    {kCudaIllegalInstruction, "cudaErrorIllegalInstruction",
     "an illegal instruction was encountered"},
    {kCudaMisalignedAddress, "cudaErrorMisalignedAddress", "misaligned address"},
    {kCudaInvalidAddressSpace, "cudaErrorInvalidAddressSpace",
     "operation not supported on global/shared address space"},
    {kCudaInvalidPc, "cudaErrorInvalidPc", "invalid program counter"},
    {kCudaLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {kCudaSystemDriverMismatch, "cudaErrorSystemDriverMismatch",
     "system has unsupported display driver / cuda driver combination"},
    {kCudaCompatNotSupportedOnDevice, "cudaErrorCompatNotSupportedOnDevice",
     "forward compatibility was attempted on non supported HW"},
    {kCudaStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {kCudaStreamCaptureUnjoined, "cudaErrorStreamCaptureUnjoined",
     "capturing stream has unjoined work"},
    {kCudaStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
    {kCudaUnknown, "cudaErrorUnknown", "unknown error"},
};

inline const ErrorText& TextOf(CudaError error) {
  for (const ErrorText& text : kErrors) {
    if (text.error == error) return text;
  }
  return kErrors[std::size(kErrors) - 1];
}

}  // namespace minisgl::cuda::emulator
