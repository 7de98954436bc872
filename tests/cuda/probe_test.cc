// The probe on machines with and without a usable GPU.
#include "probe.h"

#include <gtest/gtest.h>

#include <string>

#include "cuda_error.h"
#include "cuda_ops_fixture.h"

namespace minisgl::cuda {
namespace {

constexpr char kArchs[] = "sm_80 sm_90a sm_100 sm_120";

void ExpectUnavailable(EmulatedCudaApi* api, const std::string& words, int index = 0) {
  const auto probed = ProbeCudaOver(api, index, kArchs);
  ASSERT_FALSE(probed.ok());
  EXPECT_EQ(probed.status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(ExitCode(probed.status().code()), 69);
  EXPECT_NE(probed.status().message().find(words), std::string::npos) << probed.status().message();
  EXPECT_EQ(probed.status().message().find('\n'), std::string::npos);
  EXPECT_EQ(api->live(), EmulatedCudaApi::Live());
}

EmulatedCudaConfig WithCapability(int major, int minor) {
  EmulatedCudaConfig config;
  config.devices[0].properties.compute_major = major;
  config.devices[0].properties.compute_minor = minor;
  return config;
}

TEST(ProbeTest, ReportsTheDevice) {
  const auto api = MakeEmulatedApi();
  const auto probed = ProbeCudaOver(api.get(), 0, kArchs);
  ASSERT_TRUE(probed.ok()) << probed.status().message();
  EXPECT_EQ(probed->index, 0);
  EXPECT_EQ(probed->name, "Emulated GPU");
  EXPECT_EQ(probed->compute_major, 9);
  EXPECT_EQ(probed->compute_minor, 0);
  EXPECT_EQ(probed->driver_version, 13000);
  EXPECT_EQ(probed->runtime_version, 13000);
  EXPECT_EQ(probed->num_multiprocessors, 4);
  EXPECT_EQ(probed->memory.total_bytes, uint64_t{8} << 30);
  EXPECT_EQ(probed->memory.free_bytes, uint64_t{8} << 30);
  EXPECT_EQ(api->num_calls("LaunchKernel"), 1);
  EXPECT_EQ(api->live(), EmulatedCudaApi::Live());
}

TEST(ProbeTest, LooksAtTheDeviceAskedFor) {
  EmulatedCudaConfig config;
  config.devices.resize(3);
  config.devices[2].properties.name = "The third";
  const auto api = MakeEmulatedApi(config);
  const auto probed = ProbeCudaOver(api.get(), 2, kArchs);
  ASSERT_TRUE(probed.ok());
  EXPECT_EQ(probed->name, "The third");
}

TEST(ProbeTest, NoDriver) {
  const auto api = MakeEmulatedApi({.driver_version = 0});
  ExpectUnavailable(api.get(), "no NVIDIA driver");
}

TEST(ProbeTest, DriverOfAnOlderMajorVersion) {
  const auto api = MakeEmulatedApi({.driver_version = 12080});
  ExpectUnavailable(api.get(), "supports CUDA 12.8, this program was built with CUDA 13.0");
  ExpectUnavailable(api.get(), api->ErrorText(kCudaInsufficientDriver));
}

TEST(ProbeTest, DriverOfAnOlderMinorVersionServes) {
  const auto api = MakeEmulatedApi({.driver_version = 13000, .runtime_version = 13020});
  EXPECT_TRUE(ProbeCudaOver(api.get(), 0, kArchs).ok());
}

TEST(ProbeTest, NoDevice) {
  const auto api = MakeEmulatedApi({.devices = {}});
  ExpectUnavailable(api.get(), "cudaErrorNoDevice");
  ExpectUnavailable(api.get(), api->ErrorText(kCudaNoDevice));
}

TEST(ProbeTest, IndexPastTheDevices) {
  const auto api = MakeEmulatedApi();
  ExpectUnavailable(api.get(), "there is no cuda:1: 1 GPU is found", 1);
  ExpectUnavailable(api.get(), "there is no cuda:-1", -1);
}

TEST(ProbeTest, ArchitectureThisProgramWasNotBuiltFor) {
  const auto api = MakeEmulatedApi(WithCapability(7, 5));
  ExpectUnavailable(api.get(), "compute capability 7.5, and this program was built for sm_80");
  ExpectUnavailable(api.get(), api->ErrorText(kCudaNoKernelImageForDevice));
}

TEST(ProbeTest, KernelThatLeavesAWrongResult) {
  // The copy silently does nothing: the host does not get the kernel's result.
  class SilentCopies : public EmulatedCudaApi {
   public:
    CudaError CopyAsync(void*, const void*, size_t, CudaStream) override { return kCudaSuccess; }
  } api;
  ExpectUnavailable(&api, "wrong result");
}

// Every call of the probe fails with every error that a machine can cause.
struct ProbeFault {
  const char* call;
  CudaError error;
};
class ProbeFaultTest : public ::testing::TestWithParam<ProbeFault> {};

TEST_P(ProbeFaultTest, IsUnavailableWithCudasMessageAndLeaksNothing) {
  const auto api = MakeEmulatedApi();
  api->FailAt(GetParam().call, 1, GetParam().error);
  ExpectUnavailable(api.get(), api->ErrorText(GetParam().error));
}

std::vector<ProbeFault> AllProbeFaults() {
  std::vector<ProbeFault> faults;
  for (const char* call :
       {"DriverVersion", "RuntimeVersion", "DeviceCount", "DeviceProperties", "SetDevice",
        "MemoryInfo", "StreamCreate", "Malloc", "LaunchKernel", "CopyAsync", "StreamSynchronize"}) {
    for (const CudaError error : {2, 3, 35, 100, 209, 214, 700, 719, 803, 804, 999}) {
      faults.push_back({call, error});
    }
  }
  return faults;
}

INSTANTIATE_TEST_SUITE_P(All, ProbeFaultTest, ::testing::ValuesIn(AllProbeFaults()),
                         [](const auto& tested) {
                           return tested.param.call + std::to_string(tested.param.error);
                         });

TEST(RunsOnTest, CodeRunsOnLaterMinorVersions) {
  EXPECT_TRUE(RunsOn("sm_80", 8, 0));
  EXPECT_TRUE(RunsOn("sm_80 sm_90a", 8, 9));
  EXPECT_FALSE(RunsOn("sm_86 sm_90a", 8, 0));
  EXPECT_FALSE(RunsOn("sm_80 sm_90a", 7, 5));
}

TEST(RunsOnTest, AnArchitectureWithAnARunsOnItselfOnly) {
  EXPECT_TRUE(RunsOn("sm_90a", 9, 0));
  EXPECT_FALSE(RunsOn("sm_90a", 9, 1));
  EXPECT_FALSE(RunsOn("sm_90a", 10, 0));
  EXPECT_FALSE(RunsOn("sm_80 sm_90a", 10, 0));
  // With the PTX of the plain one behind it, as toolkits that know no later architecture build.
  EXPECT_TRUE(RunsOn("sm_80 sm_90a sm_90", 9, 0));
  EXPECT_TRUE(RunsOn("sm_80 sm_90a sm_90", 12, 0));
}

TEST(RunsOnTest, PtxOfTheLastServesAllLaterOnes) {
  EXPECT_TRUE(RunsOn("sm_80 sm_120", 12, 1));
  EXPECT_TRUE(RunsOn("sm_80 sm_120", 13, 0));
  EXPECT_FALSE(RunsOn("sm_80 sm_120", 9, 0));
  EXPECT_TRUE(RunsOn("sm_80", 12, 0));
}

TEST(RunsOnTest, NoArchitectureRunsNowhere) {
  EXPECT_FALSE(RunsOn("", 8, 0));
  EXPECT_FALSE(RunsOn("sm_", 8, 0));
}

}  // namespace
}  // namespace minisgl::cuda
