// A full or broken GPU: an engine that does not fit reports settings that would, and a process
// whose kernel faulted reports it at once and does not disturb others. For a real GPU.
#include "gpu/fault_process.h"

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>

#include "gpu/gpu_fixture.h"
#include "gpu/gpu_models.h"
#include "minisgl/engine/device_engine.h"

namespace minisgl::cuda {

// Makes a kernel read or write an address that is not mapped, or a misaligned one.
int RunFaultProcess(const std::string& fault) {
  constexpr int64_t kWidth = 1024;
  auto made = MakeGpu({});
  if (!made.ok()) {
    std::printf("%s\n", made.status().message().c_str());
    return kFaultNotReported;
  }
  std::unique_ptr<DeviceOps> ops = std::move(made).value();
  {
    const GpuArray rows(ops.get(), std::vector<int32_t>{0});
    const GpuArray x(ops.get(), DType::kBF16, std::vector<float>(kWidth, 1.0f));
    const GpuArray out(ops.get(), size_t{kWidth} * 2);
    ConstActivationPtr from = x.ptr(DType::kBF16);
    ActivationPtr to = out.ptr(DType::kBF16);
    const auto nowhere = reinterpret_cast<void*>(uintptr_t{64} << 40);
    if (fault == "read") from = {nowhere, DType::kBF16};
    if (fault == "write") to = {nowhere, DType::kBF16};
    if (fault == "misaligned") from = {static_cast<const char*>(from.data) + 1, DType::kBF16};
    const auto begin = std::chrono::steady_clock::now();
    ops->GatherRows({from, rows.i32(), to, 1, kWidth});
    const Status status = ops->Synchronize();
    const Status again = ops->Synchronize();
    const auto allocated = ops->Allocate(1);
    std::printf("%s\n", status.message().c_str());
    if (status.code() != StatusCode::kInternal || again.message() != status.message() ||
        allocated.ok() || ops->status().message() != status.message()) {
      return kFaultNotReported;
    }
    if (std::chrono::steady_clock::now() - begin > std::chrono::minutes(5)) return kFaultTooLate;
  }
  ops.reset();  // does not hang, and does not abort
  return kFaultReported;
}

namespace {

using GpuFaultTest = GpuTest;

constexpr uint64_t kMiB = uint64_t{1} << 20;

// Allocates all device memory except about `left` bytes.
std::vector<std::shared_ptr<void>> TakeAllBut(DeviceOps* ops, uint64_t left) {
  std::vector<std::shared_ptr<void>> pieces;
  for (uint64_t share = 1; share <= 1024;) {
    const uint64_t free_bytes = ops->MemoryInfo().free_bytes;
    if (free_bytes < left + 2 * kMiB) break;
    auto memory = ops->Allocate((free_bytes - left) / share);
    if (memory.ok()) {
      pieces.push_back(std::move(memory).value());
      continue;
    }
    MINISGL_CHECK(memory.status().code() == StatusCode::kOutOfMemory, "{}",
                  memory.status().message());
    share *= 2;  // no single piece is that large
  }
  return pieces;
}

int RunSelf(const std::string& fault) {
  const pid_t child = fork();
  if (child == 0) {
    execl("/proc/self/exe", "test_gpu", kFaultOption, fault.c_str(), nullptr);
    _exit(127);
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status)) return -1;
  return WEXITSTATUS(status);
}

TEST_F(GpuFaultTest, AFullDeviceIsReportedWithSettingsThatFit) {
  const auto model = MakeGpuTinyModel();
  const auto holder = Make();
  auto ballast = TakeAllBut(holder.get(), 1024 * kMiB);
  ASSERT_FALSE(ballast.empty());
  auto ops = Make();
  const auto plan =
      PlanMemory(model->config, {.num_pages = 1'000'000, .memory_ratio = 0.9}, 0, ops.get());
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.status().code(), StatusCode::kOutOfMemory) << plan.status().message();
  EXPECT_NE(plan.status().message().find("these fit: "), std::string::npos)
      << plan.status().message();
  ballast.clear();
}

// The memory was free when it was planned and is taken afterwards: by the time of the workspace, or
// of the keys and values.
TEST_F(GpuFaultTest, LostMemoryIsReportedAndTheNextEngineStarts) {
  const auto model = MakeGpuTinyModel();
  const auto holder = Make();
  for (const uint64_t left : {16 * kMiB, 512 * kMiB}) {
    auto ops = Make();
    const ModelEngineOptions options{.num_pages = 100'000, .memory_ratio = 0.9};
    const auto plan = PlanMemory(model->config, options, 0, ops.get());
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    auto ballast = TakeAllBut(holder.get(), left);
    ASSERT_FALSE(ballast.empty());
    const auto engine =
        MakeDeviceEngine(model->config, *model->checkpoint, *plan, std::move(ops), {});
    ASSERT_FALSE(engine.ok()) << left;
    EXPECT_EQ(engine.status().code(), StatusCode::kOutOfMemory) << engine.status().message();
    ballast.clear();
    EngineDriver driver(*model, {.max_running_requests = 2, .graph_max_rows = 2}, Make());
    EXPECT_EQ(driver.Generate(driver.AddRow({1, 2, 3}), 8, 4).size(), 4u);
  }
}

TEST_F(GpuFaultTest, AKernelThatFaultsEndsItsProcessAndNoOther) {
  const auto model = MakeGpuTinyModel();
  EngineDriver driver(*model, {.max_running_requests = 2, .graph_max_rows = 2}, Make());
  const auto before = driver.Generate(driver.AddRow({1, 2, 3}), 8, 4);
  for (const char* const fault : {"read", "write", "misaligned"}) {
    EXPECT_EQ(RunSelf(fault), kFaultReported) << fault;
  }
  EXPECT_TRUE(SameResults(driver.Generate(driver.AddRow({1, 2, 3}), 8, 4), before));
}

}  // namespace
}  // namespace minisgl::cuda
