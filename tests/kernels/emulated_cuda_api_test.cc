// The emulated CudaApi: memory, streams, events, graphs, injected failures.
#include "emulator/emulated_cuda_api.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

#include "device/device.h"
#include "emulator/emulated_matmul.h"
#include "emulator/emulator.h"
#include "kernels/launch.h"

namespace minisgl::cuda {
namespace {

using namespace device;
using emulator::EmulatedCudaApi;
using emulator::EmulatedMatmul;
using emulator::Fault;

MINISGL_KERNEL void MINISGL_LAUNCH_BOUNDS(64, 1) AddOne(int* values, int count) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) values[i] += 1;
}

MINISGL_KERNEL void UseShared(int* out, int count) {
  SharedArena arena;
  const Shared<int> s = arena.Take<int>(count);
  s[count - 1] = 1;
  out[0] = s[count - 1];
}

template <typename T>
T* Allocate(EmulatedCudaApi* api, size_t count) {
  void* pointer = nullptr;
  EXPECT_EQ(api->Malloc(&pointer, count * sizeof(T)), kCudaSuccess);
  return static_cast<T*>(pointer);
}

CudaError LaunchAddOne(EmulatedCudaApi* api, CudaStream stream, int* values, int count) {
  return Launch({.api = api, .stream = stream},
                {.grid = {static_cast<unsigned>(count + 63) / 64}, .block = {64}}, AddOne, values,
                count);
}

TEST(EmulatedCudaApi, MemoryIsCountedFilledAndLimited) {
  EmulatedCudaApi api({.devices = {{.total_bytes = 1000}}});
  unsigned char* const a = Allocate<unsigned char>(&api, 600);
  EXPECT_EQ(a[0], 0xCD);
  EXPECT_EQ(a[599], 0xCD);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a) % 256, 0u);
  EXPECT_TRUE(emulator::InGlobal(a, 600));
  EXPECT_FALSE(emulator::InGlobal(a, 601));
  size_t free_bytes = 0, total_bytes = 0;
  EXPECT_EQ(api.MemoryInfo(&free_bytes, &total_bytes), kCudaSuccess);
  EXPECT_EQ(free_bytes, 400u);
  EXPECT_EQ(total_bytes, 1000u);
  void* more = nullptr;
  EXPECT_EQ(api.Malloc(&more, 401), kCudaMemoryAllocation);
  EXPECT_EQ(more, nullptr);
  EXPECT_EQ(api.Free(a), kCudaSuccess);
  EXPECT_FALSE(emulator::InGlobal(a, 1));
  EXPECT_THROW((void)api.Free(a), Fault);
  EXPECT_EQ(api.device_bytes_peak(), 600u);
  EXPECT_EQ(api.live(), EmulatedCudaApi::Live());
}

TEST(EmulatedCudaApi, CopiesAndFillsAreChecked) {
  EmulatedCudaApi api;
  int* const device = Allocate<int>(&api, 4);
  std::vector<int> host = {1, 2, 3, 4};
  EXPECT_EQ(api.CopyAsync(device, host.data(), 16, nullptr), kCudaSuccess);
  EXPECT_EQ(api.MemsetAsync(device + 1, 0, 8, nullptr), kCudaSuccess);
  EXPECT_EQ(api.CopyAsync(host.data(), device, 16, nullptr), kCudaSuccess);
  EXPECT_EQ(host, (std::vector<int>{1, 0, 0, 4}));
  EXPECT_THROW((void)api.CopyAsync(device + 1, host.data(), 16, nullptr), Fault);
  EXPECT_THROW((void)api.MemsetAsync(device, 0, 17, nullptr), Fault);
  EXPECT_EQ(api.MemsetAsync(host.data(), 0, 4, nullptr), kCudaInvalidValue);
}

TEST(EmulatedCudaApi, LiveCounts) {
  EmulatedCudaApi api;
  void* host = nullptr;
  CudaStream stream = nullptr;
  CudaEvent event = nullptr;
  CudaGraph graph = nullptr;
  CudaGraphExec exec = nullptr;
  int* const device = Allocate<int>(&api, 1);
  ASSERT_EQ(api.MallocHost(&host, 8), kCudaSuccess);
  ASSERT_EQ(api.StreamCreate(&stream), kCudaSuccess);
  ASSERT_EQ(api.EventCreate(&event, false), kCudaSuccess);
  ASSERT_EQ(api.BeginCapture(stream), kCudaSuccess);
  ASSERT_EQ(api.EndCapture(stream, &graph), kCudaSuccess);
  ASSERT_EQ(api.GraphInstantiate(&exec, graph), kCudaSuccess);
  EXPECT_EQ(api.live(), (EmulatedCudaApi::Live{1, 1, 1, 1, 1, 1}));
  EXPECT_EQ(api.GraphExecDestroy(exec), kCudaSuccess);
  EXPECT_EQ(api.GraphDestroy(graph), kCudaSuccess);
  EXPECT_EQ(api.EventDestroy(event), kCudaSuccess);
  EXPECT_EQ(api.StreamDestroy(stream), kCudaSuccess);
  EXPECT_EQ(api.FreeHost(host), kCudaSuccess);
  EXPECT_EQ(api.Free(device), kCudaSuccess);
  EXPECT_EQ(api.live(), EmulatedCudaApi::Live());
  EXPECT_THROW((void)api.StreamSynchronize(stream), Fault);
  EXPECT_THROW((void)api.EventDestroy(event), Fault);
  EXPECT_THROW((void)api.GraphLaunch(exec, nullptr), Fault);
}

TEST(EmulatedCudaApi, CaptureRecordsAndReplays) {
  for (const bool lazy : {false, true}) {
    EmulatedCudaApi api({.lazy = lazy});
    CudaStream stream = nullptr;
    CudaGraph graph = nullptr;
    CudaGraphExec exec = nullptr;
    int* const values = Allocate<int>(&api, 100);
    int* const copy = Allocate<int>(&api, 100);
    ASSERT_EQ(api.StreamCreate(&stream), kCudaSuccess);
    ASSERT_EQ(api.MemsetAsync(values, 0, 400, stream), kCudaSuccess);
    ASSERT_EQ(api.BeginCapture(stream), kCudaSuccess);
    ASSERT_EQ(LaunchAddOne(&api, stream, values, 100), kCudaSuccess);
    ASSERT_EQ(api.CopyAsync(copy, values, 400, stream), kCudaSuccess);
    ASSERT_EQ(LaunchAddOne(&api, stream, values, 50), kCudaSuccess);
    ASSERT_EQ(api.EndCapture(stream, &graph), kCudaSuccess);
    ASSERT_EQ(api.GraphInstantiate(&exec, graph), kCudaSuccess);
    ASSERT_EQ(api.GraphDestroy(graph), kCudaSuccess);
    ASSERT_EQ(api.StreamSynchronize(stream), kCudaSuccess);
    EXPECT_EQ(values[0], 0);  // recorded, not run
    ASSERT_EQ(api.GraphLaunch(exec, stream), kCudaSuccess);
    ASSERT_EQ(api.GraphLaunch(exec, stream), kCudaSuccess);
    EXPECT_EQ(values[0], lazy ? 0 : 4);
    ASSERT_EQ(api.StreamSynchronize(stream), kCudaSuccess);
    EXPECT_EQ(values[0], 4);
    EXPECT_EQ(values[99], 2);
    EXPECT_EQ(copy[0], 3);
    EXPECT_EQ(copy[99], 2);
  }
}

TEST(EmulatedCudaApi, ForbiddenCallsBreakACapture) {
  EmulatedCudaApi api;
  CudaStream stream = nullptr;
  CudaGraph graph = nullptr;
  void* pointer = nullptr;
  ASSERT_EQ(api.StreamCreate(&stream), kCudaSuccess);
  ASSERT_EQ(api.BeginCapture(stream), kCudaSuccess);
  EXPECT_NE(api.Malloc(&pointer, 4), kCudaSuccess);
  EXPECT_EQ(api.EndCapture(stream, &graph), kCudaStreamCaptureInvalidated);
  EXPECT_EQ(graph, nullptr);
  // The stream is as before.
  EXPECT_EQ(api.Malloc(&pointer, 4), kCudaSuccess);
  ASSERT_EQ(api.BeginCapture(stream), kCudaSuccess);
  EXPECT_EQ(api.EndCapture(stream, &graph), kCudaSuccess);
}

TEST(EmulatedCudaApi, LazyStreamsRunWhenWaitedFor) {
  EmulatedCudaApi api({.lazy = true});
  CudaStream compute = nullptr, copies = nullptr;
  CudaEvent ready = nullptr, copied = nullptr;
  void* host = nullptr;
  ASSERT_EQ(api.StreamCreate(&compute), kCudaSuccess);
  ASSERT_EQ(api.StreamCreate(&copies), kCudaSuccess);
  ASSERT_EQ(api.EventCreate(&ready, true), kCudaSuccess);
  ASSERT_EQ(api.EventCreate(&copied, true), kCudaSuccess);
  ASSERT_EQ(api.MallocHost(&host, 4), kCudaSuccess);
  int* const values = Allocate<int>(&api, 1);
  int* const pinned = static_cast<int*>(host);
  *pinned = 5;
  ASSERT_EQ(api.CopyAsync(values, pinned, 4, compute), kCudaSuccess);
  ASSERT_EQ(LaunchAddOne(&api, compute, values, 1), kCudaSuccess);
  ASSERT_EQ(api.EventRecord(ready, compute), kCudaSuccess);
  ASSERT_EQ(LaunchAddOne(&api, compute, values, 1), kCudaSuccess);
  ASSERT_EQ(api.StreamWaitEvent(copies, ready), kCudaSuccess);
  ASSERT_EQ(api.CopyAsync(pinned, values, 4, copies), kCudaSuccess);
  ASSERT_EQ(api.EventRecord(copied, copies), kCudaSuccess);
  EXPECT_EQ(*pinned, 5);
  *pinned = 8;  // too early: the copy has yet to read it
  ASSERT_EQ(api.EventSynchronize(copied), kCudaSuccess);
  EXPECT_EQ(*pinned, 9);
  float ms = 0;
  EXPECT_EQ(api.EventElapsedMs(&ms, ready, copied), kCudaSuccess);
  EXPECT_GT(ms, 0);
  ASSERT_EQ(api.StreamSynchronize(compute), kCudaSuccess);
  EXPECT_EQ(*values, 10);
}

TEST(EmulatedCudaApi, WaitForAnEventNeverRecorded) {
  EmulatedCudaApi api;
  CudaEvent event = nullptr;
  ASSERT_EQ(api.EventCreate(&event, false), kCudaSuccess);
  EXPECT_THROW((void)api.EventSynchronize(event), Fault);
  EXPECT_THROW((void)api.StreamWaitEvent(nullptr, event), Fault);
}

TEST(EmulatedCudaApi, FailuresOnDemand) {
  EmulatedCudaApi api;
  int* const values = Allocate<int>(&api, 1);
  *values = 0;
  api.FailAt("LaunchKernel", 2, kCudaNoKernelImageForDevice);
  EXPECT_EQ(LaunchAddOne(&api, nullptr, values, 1), kCudaSuccess);
  EXPECT_EQ(LaunchAddOne(&api, nullptr, values, 1), kCudaNoKernelImageForDevice);
  EXPECT_EQ(api.LastError(), kCudaNoKernelImageForDevice);
  EXPECT_EQ(api.LastError(), kCudaSuccess);
  EXPECT_EQ(LaunchAddOne(&api, nullptr, values, 1), kCudaSuccess);
  EXPECT_EQ(*values, 2);
  EXPECT_EQ(api.num_calls("LaunchKernel"), 3);

  void* pointer = nullptr;
  api.FailAt("Malloc", 1, kCudaMemoryAllocation, true);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(api.Malloc(&pointer, 1), kCudaMemoryAllocation);
  api.StopFailing();
  EXPECT_EQ(api.Malloc(&pointer, 1), kCudaSuccess);
}

TEST(EmulatedCudaApi, SomeErrorsStay) {
  EmulatedCudaApi api;
  int* const values = Allocate<int>(&api, 1);
  *values = 0;
  api.FailAt("StreamSynchronize", 1, kCudaIllegalAddress);
  EXPECT_EQ(api.StreamSynchronize(nullptr), kCudaIllegalAddress);
  EXPECT_EQ(LaunchAddOne(&api, nullptr, values, 1), kCudaIllegalAddress);
  EXPECT_EQ(*values, 0);
  EXPECT_EQ(api.LastError(), kCudaIllegalAddress);
  EXPECT_EQ(api.LastError(), kCudaIllegalAddress);
  EXPECT_EQ(api.Free(values), kCudaIllegalAddress);
  EXPECT_EQ(api.live(), EmulatedCudaApi::Live());  // released all the same
  EXPECT_STREQ(api.ErrorName(kCudaIllegalAddress), "cudaErrorIllegalAddress");
}

TEST(EmulatedCudaApi, DevicesAreAsConfigured) {
  EmulatedCudaApi none({.devices = {}});
  int count = 1;
  EXPECT_EQ(none.DeviceCount(&count), kCudaNoDevice);
  EXPECT_EQ(count, 0);
  EmulatedCudaApi no_driver({.driver_version = 0});
  EXPECT_EQ(no_driver.DeviceCount(&count), kCudaInsufficientDriver);
  EmulatedCudaApi one;
  CudaDeviceProperties properties;
  EXPECT_EQ(one.DeviceCount(&count), kCudaSuccess);
  EXPECT_EQ(count, 1);
  EXPECT_EQ(one.SetDevice(1), kCudaInvalidDevice);
  EXPECT_EQ(one.DeviceProperties(0, &properties), kCudaSuccess);
  EXPECT_EQ(properties.compute_major, 9);
  EXPECT_EQ(properties.num_multiprocessors, 4);
}

TEST(EmulatedCudaApi, SharedMemoryMustBeRaised) {
  EmulatedCudaApi api;
  int* const out = Allocate<int>(&api, 1);
  const LaunchContext context{.api = &api};
  const auto launch = [&](int count) {
    *out = 0;
    return Launch(context, {.block = {1}, .shared_bytes = static_cast<size_t>(count) * 4},
                  UseShared, out, count);
  };
  EXPECT_EQ(launch(12 * 1024), kCudaSuccess);
  EXPECT_EQ(launch(227 * 256), kCudaSuccess);  // Launch raises the limit
  EXPECT_EQ(*out, 1);
  EXPECT_EQ(launch(227 * 256 + 1), kCudaInvalidValue);
  EXPECT_EQ(*out, 0);
  api.FailAt("SetSharedBytesMax", 1, kCudaInvalidDevice);
  EXPECT_EQ(launch(227 * 256), kCudaInvalidDevice);
}

TEST(EmulatedCudaApi, LaunchesOutOfRangeAreRefused) {
  EmulatedCudaApi api;
  int* const out = Allocate<int>(&api, 1);
  const LaunchContext context{.api = &api};
  EXPECT_EQ(Launch(context, {.block = {1025}}, AddOne, out, 1), kCudaInvalidValue);
  EXPECT_EQ(Launch(context, {.grid = {1, 65536}}, AddOne, out, 1), kCudaInvalidValue);
  EXPECT_EQ(Launch(context, {.grid = {0}}, AddOne, out, 1), kCudaSuccess);  // nothing to do
}

TEST(EmulatedCudaApi, AKernelsFaultNamesItsParameters) {
  EmulatedCudaApi api;
  int* const out = Allocate<int>(&api, 1);
  try {
    (void)Launch({.api = &api}, {.block = {1}, .shared_bytes = 16}, UseShared, out, 5);
    FAIL() << "not caught";
  } catch (const Fault& fault) {
    EXPECT_NE(std::string(fault.what()).find("kernel (int*, int)"), std::string::npos)
        << fault.what();
  }
}

TEST(EmulatedMatmul, ProductsOfEachType) {
  EmulatedCudaApi api;
  EmulatedMatmul matmul(&api);
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    for (const DType out_dtype : {dtype, DType::kF32}) {
      const auto bits = [&](float x) {
        return dtype == DType::kBF16 ? FloatToBf16(x) : FloatToF16(x);
      };
      uint16_t* const x = Allocate<uint16_t>(&api, 2 * 5);
      uint16_t* const weight = Allocate<uint16_t>(&api, 3 * 5);
      void* const out = Allocate<float>(&api, 2 * 3);
      for (int i = 0; i < 10; ++i) x[i] = bits(static_cast<float>(i));
      for (int i = 0; i < 15; ++i) weight[i] = bits(static_cast<float>(i % 4));
      const MatmulShape shape{2, 3, 5, dtype, out_dtype};
      ASSERT_TRUE(matmul.Prepare(shape).ok());
      ASSERT_TRUE(matmul.Matmul(shape, x, weight, out, nullptr).ok());
      for (int t = 0; t < 2; ++t) {
        for (int o = 0; o < 3; ++o) {
          int sum = 0;
          for (int k = 0; k < 5; ++k) sum += (t * 5 + k) * ((o * 5 + k) % 4);
          const int at = t * 3 + o;
          const float got = out_dtype == DType::kF32 ? static_cast<float*>(out)[at]
                            : out_dtype == DType::kBF16
                                ? Bf16ToFloat(static_cast<uint16_t*>(out)[at])
                                : F16ToFloat(static_cast<uint16_t*>(out)[at]);
          EXPECT_EQ(got, static_cast<float>(sum));
        }
      }
      const MatmulShape too_large{2, 3, 6, dtype, out_dtype};
      EXPECT_THROW((void)matmul.Matmul(too_large, x, weight, out, nullptr), Fault);
    }
  }
  matmul.FailAt(1, MakeStatus(StatusCode::kInternal, "on demand"));
  EXPECT_FALSE(matmul.Matmul({1, 1, 1}, nullptr, nullptr, nullptr, nullptr).ok());
}

}  // namespace
}  // namespace minisgl::cuda
