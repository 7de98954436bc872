// See probe.h. The checks are ordered so that the reported reason is the first cause.
#include "probe.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "cuda_error.h"
#include "kernels/kernels.h"

namespace minisgl::cuda {
namespace {

constexpr uint32_t kTestWord = 0x5A17C0DE;
constexpr int kTestWords = 1000;  // more than one block, and not a multiple of one

std::string VersionText(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

// Any error here, whatever its class, means that the device cannot be used.
Status Unusable(CudaApi* api, CudaError error, std::string_view call, std::string_view device) {
  return Status(StatusCode::kUnavailable, CudaStatus(api, error, call, device).message());
}

// Frees the test's resources on every return.
struct TestResources {
  CudaApi* api;
  CudaStream stream = nullptr;
  void* words = nullptr;
  ~TestResources() {
    if (stream != nullptr) static_cast<void>(api->StreamDestroy(stream));
    if (words != nullptr) static_cast<void>(api->Free(words));
  }
};

// Runs one kernel and checks its result.
Status TestKernel(CudaApi* api, std::string_view device) {
  TestResources test{.api = api};
  std::array<uint32_t, kTestWords> found = {};
  CudaError error = api->StreamCreate(&test.stream);
  if (error != kCudaSuccess) return Unusable(api, error, "cudaStreamCreate", device);
  error = api->Malloc(&test.words, sizeof(found));
  if (error != kCudaSuccess) return Unusable(api, error, "cudaMalloc", device);
  const LaunchContext context{.api = api, .stream = test.stream};
  error = LaunchFill(context, static_cast<uint32_t*>(test.words), kTestWord, kTestWords);
  if (error != kCudaSuccess) return Unusable(api, error, "a test kernel", device);
  error = api->CopyAsync(found.data(), test.words, sizeof(found), test.stream);
  if (error != kCudaSuccess) return Unusable(api, error, "cudaMemcpyAsync", device);
  error = api->StreamSynchronize(test.stream);
  if (error != kCudaSuccess) return Unusable(api, error, "a test kernel", device);
  for (const uint32_t word : found) {
    if (word == kTestWord) continue;
    return MakeStatus(StatusCode::kUnavailable,
                      "a test kernel on {} had a wrong result ({:#x} instead of {:#x}); check the "
                      "driver, and dmesg for Xid",
                      device, word, kTestWord);
  }
  return Status();
}

Status CheckDriver(CudaApi* api, CudaDevice* device) {
  const std::string name = fmt::format("cuda:{}", device->index);
  CudaError error = api->DriverVersion(&device->driver_version);
  if (error != kCudaSuccess) return Unusable(api, error, "cudaDriverGetVersion", name);
  error = api->RuntimeVersion(&device->runtime_version);
  if (error != kCudaSuccess) return Unusable(api, error, "cudaRuntimeGetVersion", name);
  if (device->driver_version == 0) {
    return Status(StatusCode::kUnavailable,
                  "no NVIDIA driver found (libcuda.so.1 is missing); install it, or give the "
                  "container access to the GPU");
  }
  // Within a major version every driver serves every runtime.
  if (device->driver_version / 1000 < device->runtime_version / 1000) {
    return MakeStatus(
        StatusCode::kUnavailable,
        "the NVIDIA driver supports CUDA {}, this program was built with CUDA {}: {} ({}); update "
        "the driver, or build with an older CUDA toolkit",
        VersionText(device->driver_version), VersionText(device->runtime_version),
        api->ErrorName(kCudaInsufficientDriver), api->ErrorText(kCudaInsufficientDriver));
  }
  int count = 0;
  error = api->DeviceCount(&count);
  if (error == kCudaSuccess && count == 0) error = kCudaNoDevice;
  if (error != kCudaSuccess) return Unusable(api, error, "cudaGetDeviceCount", name);
  if (device->index < 0 || device->index >= count) {
    return MakeStatus(StatusCode::kUnavailable,
                      "there is no cuda:{}: {} GPU{} found, from cuda:0 on; nvidia-smi lists them, "
                      "and CUDA_VISIBLE_DEVICES may hide some",
                      device->index, count, count == 1 ? " is" : "s are");
  }
  return Status();
}

}  // namespace

bool RunsOn(std::string_view architectures, int major, int minor) {
  while (!architectures.empty()) {
    std::string_view name = architectures.substr(0, architectures.find(' '));
    architectures.remove_prefix(std::min(architectures.size(), name.size() + 1));
    const bool is_last = architectures.empty();
    const bool exact = name.ends_with('a');
    name.remove_prefix(std::min<size_t>(name.size(), 3));  // "sm_"
    int number = 0;
    if (std::from_chars(name.data(), name.data() + name.size(), number).ec != std::errc()) continue;
    const int code_major = number / 10, code_minor = number % 10;
    if (major == code_major && (exact ? minor == code_minor : minor >= code_minor)) return true;
    if (is_last && !exact && major > code_major) return true;
  }
  return false;
}

Result<CudaDevice> ProbeCudaOver(CudaApi* api, int index, std::string_view architectures) {
  CudaDevice device;
  device.index = index;
  MINISGL_RETURN_IF_ERROR(CheckDriver(api, &device));

  std::string name = fmt::format("cuda:{}", index);
  CudaDeviceProperties properties;
  CudaError error = api->DeviceProperties(index, &properties);
  if (error != kCudaSuccess) return Unusable(api, error, "cudaGetDeviceProperties", name);
  device.name = properties.name;
  device.compute_major = properties.compute_major;
  device.compute_minor = properties.compute_minor;
  device.num_multiprocessors = properties.num_multiprocessors;
  name = fmt::format("cuda:{} ({})", index, properties.name);
  if (!RunsOn(architectures, device.compute_major, device.compute_minor)) {
    return MakeStatus(
        StatusCode::kUnavailable,
        "{} has compute capability {}.{}, and this program was built for {}: {} ({}); "
        "build with its architecture in the option gpu_archs",
        name, device.compute_major, device.compute_minor, architectures,
        api->ErrorName(kCudaNoKernelImageForDevice), api->ErrorText(kCudaNoKernelImageForDevice));
  }

  error = api->SetDevice(index);
  if (error != kCudaSuccess) return Unusable(api, error, "cudaSetDevice", name);
  size_t free_bytes = 0, total_bytes = 0;
  error = api->MemoryInfo(&free_bytes, &total_bytes);
  if (error != kCudaSuccess) return Unusable(api, error, "cudaMemGetInfo", name);
  device.memory = {.free_bytes = free_bytes, .total_bytes = total_bytes};
  MINISGL_RETURN_IF_ERROR(TestKernel(api, name));
  return device;
}

}  // namespace minisgl::cuda
