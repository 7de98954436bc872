// Interfaces for all calls that this program makes to CUDA and cuBLASLt. Tests replace them, and
// can make any call fail without a device.
//
// This needs no header of CUDA. Handles are opaque; CudaError holds CUDA's own numbers, 0 for
// success. Any thread may call, but only one at a time: the device set by SetDevice is current in
// whichever thread calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

// fmt 9 assumes that nvcc lacks constexpr; its own constexpr functions then call functions that are
// not.
#if defined(__NVCC__) && !defined(FMT_USE_CONSTEXPR)
#define FMT_USE_CONSTEXPR 1
#endif

#include "minisgl/base/status.h"
#include "minisgl/tensor/dtype.h"

namespace minisgl::cuda {

using CudaError = int;
inline constexpr CudaError kCudaSuccess = 0;

// CUDA's names (cudaError...) and numbers.
enum CudaErrorCode : CudaError {
  kCudaInvalidValue = 1,
  kCudaMemoryAllocation = 2,
  kCudaInitializationError = 3,
  kCudaStubLibrary = 34,
  kCudaInsufficientDriver = 35,
  kCudaCallRequiresNewerDriver = 36,
  kCudaDevicesUnavailable = 46,
  kCudaInvalidDeviceFunction = 98,
  kCudaNoDevice = 100,
  kCudaInvalidDevice = 101,
  kCudaNoKernelImageForDevice = 209,
  kCudaEccUncorrectable = 214,
  kCudaNvlinkUncorrectable = 220,
  kCudaJitCompilerNotFound = 221,
  kCudaUnsupportedPtxVersion = 222,
  kCudaJitCompilationDisabled = 223,
  kCudaContained = 226,
  kCudaInvalidResourceHandle = 400,
  kCudaIllegalAddress = 700,
  kCudaLaunchOutOfResources = 701,
  kCudaLaunchTimeout = 702,
  kCudaContextIsDestroyed = 709,
  kCudaAssert = 710,
  kCudaHardwareStackError = 714,
  kCudaIllegalInstruction = 715,
  kCudaMisalignedAddress = 716,
  kCudaInvalidAddressSpace = 717,
  kCudaInvalidPc = 718,
  kCudaLaunchFailure = 719,
  kCudaTensorMemoryLeak = 721,
  kCudaNotSupported = 801,
  kCudaSystemNotReady = 802,
  kCudaSystemDriverMismatch = 803,
  kCudaCompatNotSupportedOnDevice = 804,
  kCudaMpsConnectionFailed = 805,
  kCudaMpsClientTerminated = 810,
  kCudaStreamCaptureUnsupported = 900,
  kCudaStreamCaptureInvalidated = 901,
  kCudaStreamCaptureUnjoined = 904,
  kCudaExternalDevice = 911,
  kCudaUnknown = 999,
};

// A function that the host runs in the order of a stream. It must not call CUDA.
using CudaHostFunction = void (*)(void* data);

using CudaStream = struct CudaStreamTag*;
using CudaEvent = struct CudaEventTag*;
using CudaGraph = struct CudaGraphTag*;
using CudaGraphExec = struct CudaGraphExecTag*;

struct CudaDim3 {
  unsigned x = 1, y = 1, z = 1;
};

struct CudaLaunch {
  CudaDim3 grid, block;
  size_t shared_bytes = 0;
  CudaStream stream = nullptr;
  bool programmatic = false;  // may begin before the previous kernel has ended (GridWait)
};

struct CudaDeviceProperties {
  std::string name;
  int compute_major = 0, compute_minor = 0;
  int num_multiprocessors = 0;
  size_t shared_bytes_per_block_max = 0;  // with the dynamic limit raised
  size_t l2_bytes = 0;
};

class CudaApi {
 public:
  virtual ~CudaApi() = default;
  virtual const char* ErrorName(CudaError error) = 0;
  virtual const char* ErrorText(CudaError error) = 0;
  virtual CudaError DriverVersion(int* version) = 0;  // 0 if there is no driver
  virtual CudaError RuntimeVersion(int* version) = 0;
  virtual CudaError DeviceCount(int* count) = 0;
  virtual CudaError SetDevice(int device) = 0;
  virtual CudaError DeviceProperties(int device, CudaDeviceProperties* properties) = 0;
  // Lets the current device use the memory of `peer`, another device; `is_enabled`: it can.
  virtual CudaError EnablePeerAccess(int peer, bool* is_enabled) = 0;
  virtual CudaError MemoryInfo(size_t* free_bytes, size_t* total_bytes) = 0;

  virtual CudaError Malloc(void** pointer, size_t num_bytes) = 0;
  virtual CudaError Free(void* pointer) = 0;
  virtual CudaError MallocHost(void** pointer, size_t num_bytes) = 0;
  virtual CudaError FreeHost(void* pointer) = 0;
  virtual CudaError MemsetAsync(void* pointer, int value, size_t num_bytes, CudaStream stream) = 0;
  // The pointers decide the direction.
  virtual CudaError CopyAsync(void* dst, const void* src, size_t num_bytes, CudaStream stream) = 0;

  virtual CudaError StreamCreate(CudaStream* stream) = 0;  // not synchronised with the default one
  virtual CudaError StreamDestroy(CudaStream stream) = 0;
  virtual CudaError StreamSynchronize(CudaStream stream) = 0;
  virtual CudaError StreamWaitEvent(CudaStream stream, CudaEvent event) = 0;
  virtual CudaError EventCreate(CudaEvent* event, bool timing) = 0;
  virtual CudaError EventDestroy(CudaEvent event) = 0;
  virtual CudaError EventRecord(CudaEvent event, CudaStream stream) = 0;
  virtual CudaError EventSynchronize(CudaEvent event) = 0;
  // Returns at once: sets `is_reached` to whether the device has reached the event's last record.
  virtual CudaError EventQuery(CudaEvent event, bool* is_reached) = 0;
  virtual CudaError EventElapsedMs(float* ms, CudaEvent begin, CudaEvent end) = 0;

  // Queues function(data). Skipped by CUDA after a sticky error.
  virtual CudaError LaunchHostFunction(CudaStream stream, CudaHostFunction function,
                                       void* data) = 0;

  virtual CudaError BeginCapture(CudaStream stream) = 0;  // thread-local mode
  virtual CudaError EndCapture(CudaStream stream, CudaGraph* graph) = 0;
  virtual CudaError GraphInstantiate(CudaGraphExec* exec, CudaGraph graph) = 0;
  // Allocates now what the first launch would allocate.
  virtual CudaError GraphUpload(CudaGraphExec exec, CudaStream stream) = 0;
  virtual CudaError GraphLaunch(CudaGraphExec exec, CudaStream stream) = 0;
  virtual CudaError GraphDestroy(CudaGraph graph) = 0;
  virtual CudaError GraphExecDestroy(CudaGraphExec exec) = 0;

  // `kernel`: the kernel's address; `arguments`: the addresses of its arguments.
  virtual CudaError LaunchKernel(const void* kernel, const CudaLaunch& launch,
                                 void** arguments) = 0;
  // Raises the limit on the dynamic shared memory of a block of `kernel`.
  virtual CudaError SetSharedBytesMax(const void* kernel, size_t num_bytes) = 0;
  // Asks for `percent` of a multiprocessor's first-level memory as shared memory while `kernel`
  // runs; the rest is its L1 cache. A hint. Asking again for the same costs no call to CUDA.
  virtual CudaError SetSharedCarveout(const void* kernel, int percent) = 0;
  // The kernel's symbol; "" if CUDA does not tell it.
  virtual std::string KernelSymbol(const void* kernel) = 0;
  // Number of blocks of `kernel` that run on a multiprocessor at once.
  virtual CudaError BlocksPerMultiprocessor(int* count, const void* kernel, int threads,
                                            size_t shared_bytes) = 0;
  // Returns and clears the error of the last launch; a sticky error is not cleared.
  virtual CudaError LastError() = 0;
};

// The scales of a product whose x and weight are of type e4m3.
enum class MatmulScales : uint8_t {
  kNone,     // not of that type
  kVectors,  // x: [T], weight: [N]; one factor of each for out[t, n]
  kBlocks,   // x: [ceil(K / 128), T], weight: [ceil(N / 128), MatmulBlockStride(K)]; one factor of
             // each for the sum over 128 neighbouring inputs
};
inline constexpr int64_t kMatmulBlock = 128;
// Blocks of inputs from a row of blocks of the weight to the next one.
constexpr int64_t MatmulBlockStride(int64_t num_in) {
  return ((num_in + kMatmulBlock - 1) / kMatmulBlock + 3) / 4 * 4;
}
// What such a product needs, by NVIDIA's manual of cublasLtMatmul: K and the bytes of N outputs and
// of the output's stride are multiples of 16, and so are all addresses; of kBlocks T and N are
// multiples of 4. A GPU of compute capability 9.0, and cuBLAS 12.9 or later.
inline constexpr int64_t kScaledMatmulAlignment = 16;
inline constexpr int64_t kBlocksMatmulUnit = 4;

// out[T, N] = x[T, K] * weight[N, K]^T, all row-major; sums in f32.
struct MatmulShape {
  int64_t num_tokens = 0;                     // T
  int64_t num_out = 0;                        // N
  int64_t num_in = 0;                         // K
  DType dtype = DType::kBF16;                 // type of x and weight
  DType out_dtype = DType::kBF16;             // or kF32
  int64_t out_stride = 0;                     // elements from token to token of the output; 0: N
  MatmulScales scales = MatmulScales::kNone;  // others: `dtype` is kE4M3

  int64_t row_stride() const { return out_stride == 0 ? num_out : out_stride; }
};

struct ScaledOperands {
  const void* x = nullptr;
  const float* x_scales = nullptr;
  const void* weight = nullptr;
  const float* weight_scales = nullptr;
};

// cuBLASLt, reached at run time.
class MatmulLibrary {
 public:
  virtual ~MatmulLibrary() = default;
  // Chooses and keeps the algorithm for products of `shape`, for all numbers of tokens in the same
  // bucket. In deterministic mode one algorithm serves every num_tokens of a (N, K). Does not time.
  virtual Status Prepare(const MatmulShape& shape) = 0;
  // Queues one product, after Prepare if that was not called. The first product of few tokens in a
  // bucket may compute `out` several times, to choose among algorithms by their time, and then
  // waits for the device.
  virtual Status Matmul(const MatmulShape& shape, const void* x, const void* weight, void* out,
                        CudaStream stream) = 0;
  // The same of e4m3 with scales. REQUIRES HasScaledMatmul.
  virtual Status ScaledMatmul(const MatmulShape& shape, const ScaledOperands& in, void* out,
                              CudaStream stream) = 0;
  // True if this GPU and this version of the library have products of e4m3 with scales.
  virtual bool HasScaledMatmul() const = 0;
  // Between SetCapturing(true) and SetCapturing(false), no algorithm is chosen, because the library
  // cannot while a stream is captured: a product fails whose shape had none before.
  virtual void SetCapturing(bool capturing) = 0;
};

struct MatmulSetup {
  CudaApi* api = nullptr;  // outlives the library
  void* workspace = nullptr;
  size_t workspace_bytes = 0;
  bool deterministic = false;
  bool times_algorithms = false;  // ignored if deterministic
  int compute_major = 0, compute_minor = 0;
  std::string device;        // the kind of GPU, which kept choices are for
  std::string cache_folder;  // keeps the choices for the next start; "": nothing does
};

// The real implementations. LoadCublasLt returns kUnavailable, with the reason, if the library
// cannot be loaded.
std::unique_ptr<CudaApi> MakeCudaRuntimeApi();
Result<std::unique_ptr<MatmulLibrary>> LoadCublasLt(const MatmulSetup& setup);

}  // namespace minisgl::cuda
