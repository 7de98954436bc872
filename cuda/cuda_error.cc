// See cuda_error.h.
#include "cuda_error.h"

namespace minisgl::cuda {
namespace {

constexpr char kSmaller[] = "use smaller settings, or free memory of the GPU (nvidia-smi lists it)";
constexpr char kCheckDriver[] = "check that nvidia-smi works here";
constexpr char kUpdateDriver[] = "update the NVIDIA driver, or build with an older CUDA toolkit";
constexpr char kOtherArchitecture[] =
    "build with this GPU's architecture in the option gpu_archs, or run on the CPU";
constexpr char kAnotherProcess[] =
    "another process may have exclusive use of the GPU, or it needs a reset; check nvidia-smi";
constexpr char kHardware[] =
    "the GPU or its link has a fault: check dmesg for Xid; start the program again on another GPU, "
    "or after a reset";
constexpr char kStartAgain[] =
    "this process cannot use the GPU any more: start the program again; if the error persists, "
    "check dmesg for Xid";
constexpr char kReport[] = "this is a fault of the program or the driver; please report it";

using enum CudaFault;
using enum StatusCode;

constexpr CudaErrorClass kClasses[] = {
    {kCudaMemoryAllocation, kDoesNotFit, kOutOfMemory, kSmaller},

    {kCudaInitializationError, kNoUsableDevice, kUnavailable, kCheckDriver},
    {kCudaStubLibrary, kNoUsableDevice, kUnavailable,
     "a stub of libcuda.so was loaded: take it out of LD_LIBRARY_PATH"},
    {kCudaInsufficientDriver, kNoUsableDevice, kUnavailable, kUpdateDriver},
    {kCudaCallRequiresNewerDriver, kNoUsableDevice, kUnavailable, kUpdateDriver},
    {kCudaDevicesUnavailable, kNoUsableDevice, kUnavailable, kAnotherProcess},
    {kCudaNoDevice, kNoUsableDevice, kUnavailable,
     "check that nvidia-smi lists a GPU, and CUDA_VISIBLE_DEVICES"},
    {kCudaInvalidDevice, kNoUsableDevice, kUnavailable,
     "nvidia-smi lists the GPUs; CUDA_VISIBLE_DEVICES may hide some"},
    {kCudaInvalidDeviceFunction, kNoUsableDevice, kUnavailable, kOtherArchitecture},
    {kCudaNoKernelImageForDevice, kNoUsableDevice, kUnavailable, kOtherArchitecture},
    {kCudaJitCompilerNotFound, kNoUsableDevice, kUnavailable, kOtherArchitecture},
    {kCudaUnsupportedPtxVersion, kNoUsableDevice, kUnavailable, kUpdateDriver},
    {kCudaJitCompilationDisabled, kNoUsableDevice, kUnavailable, kOtherArchitecture},
    {kCudaSystemNotReady, kNoUsableDevice, kUnavailable,
     "a service the GPU needs (nvidia-fabricmanager, say) may not be running"},
    {kCudaSystemDriverMismatch, kNoUsableDevice, kUnavailable,
     "the driver's library and its kernel module differ: restart the machine, or the container"},
    {kCudaCompatNotSupportedOnDevice, kNoUsableDevice, kUnavailable,
     "take the CUDA compatibility package out of LD_LIBRARY_PATH, or update the NVIDIA driver"},
    {kCudaMpsConnectionFailed, kNoUsableDevice, kUnavailable,
     "the MPS server does not answer: start it, or unset CUDA_MPS_PIPE_DIRECTORY"},

    {kCudaEccUncorrectable, kSticky, kUnavailable, kHardware},
    {kCudaNvlinkUncorrectable, kSticky, kUnavailable, kHardware},
    {kCudaContained, kSticky, kUnavailable, kHardware},
    {kCudaIllegalAddress, kSticky, kInternal, kStartAgain},
    {kCudaLaunchTimeout, kSticky, kInternal,
     "the GPU also drives a display, whose watchdog stops long kernels: use another GPU"},
    {kCudaContextIsDestroyed, kSticky, kInternal, kStartAgain},
    {kCudaAssert, kSticky, kInternal, kStartAgain},
    {kCudaHardwareStackError, kSticky, kInternal, kStartAgain},
    {kCudaIllegalInstruction, kSticky, kInternal, kStartAgain},
    {kCudaMisalignedAddress, kSticky, kInternal, kStartAgain},
    {kCudaInvalidAddressSpace, kSticky, kInternal, kStartAgain},
    {kCudaInvalidPc, kSticky, kInternal, kStartAgain},
    {kCudaLaunchFailure, kSticky, kInternal, kStartAgain},
    {kCudaTensorMemoryLeak, kSticky, kInternal, kStartAgain},
    {kCudaMpsClientTerminated, kSticky, kInternal, kStartAgain},
    {kCudaExternalDevice, kSticky, kInternal, kStartAgain},
    // Occurs if the driver lost the device, for example after a suspend.
    {kCudaUnknown, kSticky, kInternal, kStartAgain},
};

}  // namespace

std::span<const CudaErrorClass> CudaErrorClasses() { return kClasses; }

CudaErrorClass ClassifyCudaError(CudaError error) {
  MINISGL_CHECK(error != kCudaSuccess, "success has no class of errors");
  for (const CudaErrorClass& known : kClasses) {
    if (known.error == error) return known;
  }
  return {error, kOther, kInternal, kReport};
}

bool IsSticky(CudaError error) {
  return error != kCudaSuccess && ClassifyCudaError(error).fault == CudaFault::kSticky;
}

Status CudaStatus(CudaApi* api, CudaError error, std::string_view call, std::string_view device) {
  const CudaErrorClass known = ClassifyCudaError(error);
  return MakeStatus(known.code, "{} on {}: {} ({}); {}", call, device, api->ErrorName(error),
                    api->ErrorText(error), known.advice);
}

}  // namespace minisgl::cuda
