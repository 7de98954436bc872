// CudaApi over the CUDA runtime. Compiled with the toolkit's headers. The runtime is linked
// statically and loads the driver by itself: without a driver every call returns an error.
#include <cuda_runtime.h>

#include <unordered_map>

#include "cuda_api.h"

namespace minisgl::cuda {
namespace {

constexpr bool Same(CudaError ours, cudaError_t theirs) { return ours == theirs; }
static_assert(Same(kCudaSuccess, cudaSuccess));
static_assert(Same(kCudaInvalidValue, cudaErrorInvalidValue));
static_assert(Same(kCudaMemoryAllocation, cudaErrorMemoryAllocation));
static_assert(Same(kCudaInitializationError, cudaErrorInitializationError));
static_assert(Same(kCudaStubLibrary, cudaErrorStubLibrary));
static_assert(Same(kCudaInsufficientDriver, cudaErrorInsufficientDriver));
static_assert(Same(kCudaCallRequiresNewerDriver, cudaErrorCallRequiresNewerDriver));
static_assert(Same(kCudaDevicesUnavailable, cudaErrorDevicesUnavailable));
static_assert(Same(kCudaInvalidDeviceFunction, cudaErrorInvalidDeviceFunction));
static_assert(Same(kCudaNoDevice, cudaErrorNoDevice));
static_assert(Same(kCudaInvalidDevice, cudaErrorInvalidDevice));
static_assert(Same(kCudaNoKernelImageForDevice, cudaErrorNoKernelImageForDevice));
static_assert(Same(kCudaEccUncorrectable, cudaErrorECCUncorrectable));
static_assert(Same(kCudaNvlinkUncorrectable, cudaErrorNvlinkUncorrectable));
static_assert(Same(kCudaJitCompilerNotFound, cudaErrorJitCompilerNotFound));
static_assert(Same(kCudaUnsupportedPtxVersion, cudaErrorUnsupportedPtxVersion));
static_assert(Same(kCudaJitCompilationDisabled, cudaErrorJitCompilationDisabled));
#if CUDART_VERSION >= 12060
static_assert(Same(kCudaContained, cudaErrorContained));
#endif
#if CUDART_VERSION >= 13000
static_assert(Same(kCudaTensorMemoryLeak, cudaErrorTensorMemoryLeak));
#endif
static_assert(Same(kCudaInvalidResourceHandle, cudaErrorInvalidResourceHandle));
static_assert(Same(kCudaIllegalAddress, cudaErrorIllegalAddress));
static_assert(Same(kCudaLaunchOutOfResources, cudaErrorLaunchOutOfResources));
static_assert(Same(kCudaLaunchTimeout, cudaErrorLaunchTimeout));
static_assert(Same(kCudaContextIsDestroyed, cudaErrorContextIsDestroyed));
static_assert(Same(kCudaAssert, cudaErrorAssert));
static_assert(Same(kCudaHardwareStackError, cudaErrorHardwareStackError));
static_assert(Same(kCudaIllegalInstruction, cudaErrorIllegalInstruction));
static_assert(Same(kCudaMisalignedAddress, cudaErrorMisalignedAddress));
static_assert(Same(kCudaInvalidAddressSpace, cudaErrorInvalidAddressSpace));
static_assert(Same(kCudaInvalidPc, cudaErrorInvalidPc));
static_assert(Same(kCudaLaunchFailure, cudaErrorLaunchFailure));
static_assert(Same(kCudaNotSupported, cudaErrorNotSupported));
static_assert(Same(kCudaSystemNotReady, cudaErrorSystemNotReady));
static_assert(Same(kCudaSystemDriverMismatch, cudaErrorSystemDriverMismatch));
static_assert(Same(kCudaCompatNotSupportedOnDevice, cudaErrorCompatNotSupportedOnDevice));
static_assert(Same(kCudaMpsConnectionFailed, cudaErrorMpsConnectionFailed));
static_assert(Same(kCudaMpsClientTerminated, cudaErrorMpsClientTerminated));
static_assert(Same(kCudaStreamCaptureUnsupported, cudaErrorStreamCaptureUnsupported));
static_assert(Same(kCudaStreamCaptureInvalidated, cudaErrorStreamCaptureInvalidated));
static_assert(Same(kCudaStreamCaptureUnjoined, cudaErrorStreamCaptureUnjoined));
static_assert(Same(kCudaExternalDevice, cudaErrorExternalDevice));
static_assert(Same(kCudaUnknown, cudaErrorUnknown));

cudaError_t Error(CudaError error) { return static_cast<cudaError_t>(error); }
cudaStream_t Stream(CudaStream stream) { return reinterpret_cast<cudaStream_t>(stream); }
cudaEvent_t Event(CudaEvent event) { return reinterpret_cast<cudaEvent_t>(event); }
cudaGraph_t Graph(CudaGraph graph) { return reinterpret_cast<cudaGraph_t>(graph); }
cudaGraphExec_t Exec(CudaGraphExec exec) { return reinterpret_cast<cudaGraphExec_t>(exec); }

class CudaRuntimeApi : public CudaApi {
 public:
  const char* ErrorName(CudaError error) override { return cudaGetErrorName(Error(error)); }
  const char* ErrorText(CudaError error) override { return cudaGetErrorString(Error(error)); }
  CudaError DriverVersion(int* version) override { return cudaDriverGetVersion(version); }
  CudaError RuntimeVersion(int* version) override { return cudaRuntimeGetVersion(version); }
  CudaError DeviceCount(int* count) override { return cudaGetDeviceCount(count); }

  CudaError SetDevice(int device) override {
    const CudaError error = cudaSetDevice(device);
    if (error != kCudaSuccess) return error;
    device_ = device;
    thread_device = device;
    return kCudaSuccess;
  }

  CudaError DeviceProperties(int device, CudaDeviceProperties* properties) override {
    cudaDeviceProp found;
    const CudaError error = cudaGetDeviceProperties(&found, device);
    if (error != kCudaSuccess) return error;
    *properties = {.name = found.name,
                   .compute_major = found.major,
                   .compute_minor = found.minor,
                   .num_multiprocessors = found.multiProcessorCount,
                   .shared_bytes_per_block_max = found.sharedMemPerBlockOptin,
                   .l2_bytes = static_cast<size_t>(found.l2CacheSize)};
    return kCudaSuccess;
  }

  CudaError EnablePeerAccess(int peer, bool* is_enabled) override {
    *is_enabled = false;
    int can = 0;
    const CudaError error = cudaDeviceCanAccessPeer(&can, device_, peer);
    if (error != kCudaSuccess || can == 0) return error;
    return Here([&] {
      cudaError_t enabled = cudaDeviceEnablePeerAccess(peer, 0);
      if (enabled == cudaErrorPeerAccessAlreadyEnabled) enabled = cudaSuccess;
      static_cast<void>(cudaGetLastError());  // which holds the error that is none
      *is_enabled = enabled == cudaSuccess;
      return enabled;
    });
  }

  CudaError MemoryInfo(size_t* free_bytes, size_t* total_bytes) override {
    return Here([&] { return cudaMemGetInfo(free_bytes, total_bytes); });
  }
  CudaError Malloc(void** pointer, size_t num_bytes) override {
    return Here([&] { return cudaMalloc(pointer, num_bytes); });
  }
  CudaError Free(void* pointer) override {
    return Here([&] { return cudaFree(pointer); });
  }
  CudaError MallocHost(void** pointer, size_t num_bytes) override {
    return Here([&] { return cudaMallocHost(pointer, num_bytes); });
  }
  CudaError FreeHost(void* pointer) override {
    return Here([&] { return cudaFreeHost(pointer); });
  }
  CudaError MemsetAsync(void* pointer, int value, size_t num_bytes, CudaStream stream) override {
    return Here([&] { return cudaMemsetAsync(pointer, value, num_bytes, Stream(stream)); });
  }
  CudaError CopyAsync(void* dst, const void* src, size_t num_bytes, CudaStream stream) override {
    return Here(
        [&] { return cudaMemcpyAsync(dst, src, num_bytes, cudaMemcpyDefault, Stream(stream)); });
  }

  CudaError StreamCreate(CudaStream* stream) override {
    return Here([&] {
      return cudaStreamCreateWithFlags(reinterpret_cast<cudaStream_t*>(stream),
                                       cudaStreamNonBlocking);
    });
  }
  CudaError StreamDestroy(CudaStream stream) override {
    return Here([&] { return cudaStreamDestroy(Stream(stream)); });
  }
  CudaError StreamSynchronize(CudaStream stream) override {
    return Here([&] { return cudaStreamSynchronize(Stream(stream)); });
  }
  CudaError StreamWaitEvent(CudaStream stream, CudaEvent event) override {
    return Here([&] { return cudaStreamWaitEvent(Stream(stream), Event(event), 0); });
  }
  CudaError EventCreate(CudaEvent* event, bool timing) override {
    return Here([&] {
      return cudaEventCreateWithFlags(reinterpret_cast<cudaEvent_t*>(event),
                                      timing ? cudaEventDefault : cudaEventDisableTiming);
    });
  }
  CudaError EventDestroy(CudaEvent event) override {
    return Here([&] { return cudaEventDestroy(Event(event)); });
  }
  CudaError EventRecord(CudaEvent event, CudaStream stream) override {
    return Here([&] { return cudaEventRecord(Event(event), Stream(stream)); });
  }
  CudaError EventSynchronize(CudaEvent event) override {
    return Here([&] { return cudaEventSynchronize(Event(event)); });
  }
  CudaError EventQuery(CudaEvent event, bool* is_reached) override {
    const CudaError error = Here([&] { return cudaEventQuery(Event(event)); });
    *is_reached = error == kCudaSuccess;
    return error == cudaErrorNotReady ? kCudaSuccess : error;
  }
  CudaError EventElapsedMs(float* ms, CudaEvent begin, CudaEvent end) override {
    return Here([&] { return cudaEventElapsedTime(ms, Event(begin), Event(end)); });
  }

  CudaError LaunchHostFunction(CudaStream stream, CudaHostFunction function, void* data) override {
    return Here([&] { return cudaLaunchHostFunc(Stream(stream), function, data); });
  }
  CudaError BeginCapture(CudaStream stream) override {
    return Here(
        [&] { return cudaStreamBeginCapture(Stream(stream), cudaStreamCaptureModeThreadLocal); });
  }
  CudaError EndCapture(CudaStream stream, CudaGraph* graph) override {
    return Here([&] {
      return cudaStreamEndCapture(Stream(stream), reinterpret_cast<cudaGraph_t*>(graph));
    });
  }
  CudaError GraphInstantiate(CudaGraphExec* exec, CudaGraph graph) override {
    return Here([&] {
      return cudaGraphInstantiate(reinterpret_cast<cudaGraphExec_t*>(exec), Graph(graph), 0);
    });
  }
  CudaError GraphUpload(CudaGraphExec exec, CudaStream stream) override {
    return Here([&] { return cudaGraphUpload(Exec(exec), Stream(stream)); });
  }
  CudaError GraphLaunch(CudaGraphExec exec, CudaStream stream) override {
    return Here([&] { return cudaGraphLaunch(Exec(exec), Stream(stream)); });
  }
  CudaError GraphDestroy(CudaGraph graph) override {
    return Here([&] { return cudaGraphDestroy(Graph(graph)); });
  }
  CudaError GraphExecDestroy(CudaGraphExec exec) override {
    return Here([&] { return cudaGraphExecDestroy(Exec(exec)); });
  }

  CudaError LaunchKernel(const void* kernel, const CudaLaunch& launch, void** arguments) override {
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(launch.grid.x, launch.grid.y, launch.grid.z);
    config.blockDim = dim3(launch.block.x, launch.block.y, launch.block.z);
    config.dynamicSmemBytes = launch.shared_bytes;
    config.stream = Stream(launch.stream);
    config.attrs = &attribute;
    config.numAttrs = launch.programmatic ? 1 : 0;
    return Here([&] { return cudaLaunchKernelExC(&config, kernel, arguments); });
  }

  CudaError SetSharedBytesMax(const void* kernel, size_t num_bytes) override {
    size_t& set = shared_bytes_max_[kernel];
    if (num_bytes <= set) return kCudaSuccess;
    const CudaError error = Here([&] {
      return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  static_cast<int>(num_bytes));
    });
    if (error == kCudaSuccess) set = num_bytes;
    return error;
  }
  CudaError SetSharedCarveout(const void* kernel, int percent) override {
    const auto [place, is_new] = carveouts_.try_emplace(kernel, percent);
    if (!is_new && place->second == percent) return kCudaSuccess;
    const CudaError error = Here([&] {
      return cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, percent);
    });
    if (error == kCudaSuccess) {
      place->second = percent;
    } else {
      carveouts_.erase(place);
    }
    return error;
  }
  std::string KernelSymbol([[maybe_unused]] const void* kernel) override {
#if CUDART_VERSION >= 12030
    const char* name = nullptr;
    const CudaError error = Here([&] { return cudaFuncGetName(&name, kernel); });
    if (error == kCudaSuccess && name != nullptr) return name;
#endif
    return "";
  }
  CudaError BlocksPerMultiprocessor(int* count, const void* kernel, int threads,
                                    size_t shared_bytes) override {
    return Here([&] {
      return cudaOccupancyMaxActiveBlocksPerMultiprocessor(count, kernel, threads, shared_bytes);
    });
  }
  CudaError LastError() override {
    return Here([] { return cudaGetLastError(); });
  }

 private:
  // CUDA's current device belongs to the thread, and loading and steps may run on different ones.
  template <typename Call>
  CudaError Here(const Call& call) {
    if (thread_device != device_) {
      const CudaError error = cudaSetDevice(device_);
      if (error != kCudaSuccess) return error;
      thread_device = device_;
    }
    return call();
  }

  static thread_local int thread_device;  // 0 is CUDA's initial device

  int device_ = 0;
  // Set so far, by kernel.
  std::unordered_map<const void*, size_t> shared_bytes_max_;
  std::unordered_map<const void*, int> carveouts_;
};

thread_local int CudaRuntimeApi::thread_device = 0;

}  // namespace

std::unique_ptr<CudaApi> MakeCudaRuntimeApi() { return std::make_unique<CudaRuntimeApi>(); }

}  // namespace minisgl::cuda
