// Failures of every call to CUDA: which call reports the error, whether it is kept, what still
// works, and that nothing leaks.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <span>

#include "cuda_error.h"
#include "cuda_ops_fixture.h"
#include "long_form.h"
#include "slow.h"

namespace minisgl::cuda {
namespace {

constexpr CudaError kOtherError = kCudaInvalidValue;
constexpr CudaError kStickyError = kCudaIllegalAddress;

class CudaFaultsTest : public CudaOpsFixture {
 protected:
  // An operation that launches one kernel.
  void Gather(DeviceOps* ops) {
    if (memory_ == nullptr) memory_ = *ops->Allocate(1024);
    auto* const bytes = static_cast<std::byte*>(memory_.get());
    ops->GatherRows({.x = {bytes, DType::kBF16},
                     .rows = reinterpret_cast<const int32_t*>(bytes + 512),
                     .out = {bytes + 768, DType::kBF16},
                     .num_rows = 1,
                     .width = 8});
  }
  void TearDown() override {
    memory_ = nullptr;
    EXPECT_EQ(api_->live(), EmulatedCudaApi::Live());
  }

  std::shared_ptr<void> memory_;
};

TEST_F(CudaFaultsTest, NameAndMemoryAreTheDevices) {
  auto ops = MakeReserved();
  EXPECT_EQ(ops->Name(), "cuda:0 (Emulated GPU, sm_90)");
  const DeviceMemoryInfo info = ops->MemoryInfo();
  EXPECT_EQ(info.total_bytes, uint64_t{8} << 30);
  EXPECT_EQ(info.total_bytes - info.free_bytes, ops->ReservedBytes(SmallLimits()));
}

TEST_F(CudaFaultsTest, ActivationsInF32AreRefused) {
  const auto ops = Make({.activation_dtype = DType::kF32});
  ASSERT_FALSE(ops.ok());
  EXPECT_EQ(ops.status().code(), StatusCode::kUsage);
}

// Uses everything that can fail once; returns the first Status that is not OK, or status().
Status UseEverything(const std::function<Result<std::unique_ptr<DeviceOps>>()>& make,
                     Status* kept) {
  auto made = make();
  if (!made.ok()) return made.status();
  DeviceOps* const ops = made->get();
  Status first;
  const auto see = [&](const Status& status) {
    if (first.ok()) first = status;
  };
  const Status reserved = ops->Reserve(SmallLimits());
  see(reserved);
  static_cast<void>(ops->MemoryInfo());
  const auto memory = ops->Allocate(4096);
  see(memory.status());
  const auto host = ops->AllocateHost(4096);
  see(host.status());
  const auto event = ops->MakeEvent();
  see(event.status());
  const std::vector<std::byte> bytes(8 * 40 * 2);
  const TensorView view = {.data = bytes.data(), .dtype = DType::kBF16, .shape = {8, 40}};
  const auto matrix = ops->PackMatrix({&view, 1}, DType::kBF16);
  see(matrix.status());
  if (matrix.ok()) see(ops->PackEmbedding(view, DType::kBF16).status());
  const std::vector<std::vector<WeightTensor>> two(2, {view});
  const auto experts = ops->PackExperts(two, DType::kBF16);
  see(experts.status());
  if (memory.ok() && host.ok() && matrix.ok()) {
    std::byte* const device = static_cast<std::byte*>(memory->get());
    see(ops->Upload(device, bytes.data(), bytes.size()));
    ops->CopyToDevice(device, host->get(), 4096);
    ops->CopyOnDevice(device, device + 1024, 1024);
    const LinearParams linear = {.x = {device, DType::kBF16},
                                 .weight = &*matrix,
                                 .bias = reinterpret_cast<const float*>(device + 1024),
                                 .out = {device + 2048, DType::kF32},
                                 .num_tokens = 10};
    const GatherRowsParams gather = {.x = {device, DType::kBF16},
                                     .rows = reinterpret_cast<const int32_t*>(device + 1024),
                                     .out = {device + 2048, DType::kBF16},
                                     .num_rows = 2,
                                     .width = 40};
    const ExpertLinearParams expert_linear = {
        .x = {device, DType::kBF16},
        .weights = experts.ok() ? &*experts : nullptr,
        .bias = nullptr,
        .experts = reinterpret_cast<const int32_t*>(device + 1024),  // zeros
        .out = {device + 2048, DType::kBF16},
        .num_tokens = 2,
        .num_chosen = 1,
        .x_per_choice = false};
    if (reserved.ok()) ops->Linear(linear);
    if (reserved.ok() && experts.ok()) ops->ExpertLinear(expert_linear);
    ops->GatherRows(gather);
    const Status begun = ops->BeginCapture();
    see(begun);
    if (begun.ok()) {
      if (reserved.ok()) ops->Linear(linear);
      ops->GatherRows(gather);
      const auto graph = ops->EndCapture();
      see(graph.status());
      if (graph.ok()) ops->Replay(graph->get());
    }
    ops->CopyToHost(host->get(), device, 4096);
  }
  if (event.ok()) {
    ops->Record(event->get());
    static_cast<void>(ops->IsReached(event->get()));
    see(ops->status());
    see(ops->Wait(event->get()));
    EXPECT_TRUE(ops->IsReached(event->get()));
    if (ops->status().ok()) see(ops->ElapsedMs(event->get(), event->get()).status());
  }
  see(ops->Synchronize());
  see(ops->status());
  *kept = ops->status();
  return first;
}

TEST_F(CudaFaultsTest, UsingEverythingWorksAndLeaksNothing) {
  Status kept;
  const Status status = UseEverything([this] { return Make(); }, &kept);
  EXPECT_TRUE(status.ok()) << status.message();
}

// Every call that UseEverything makes fails in turn, with an error of each class.
TEST_F(CudaFaultsTest, EveryCallMayFailInEveryWay) {
  MarkSlow("a start for each call and way");
  const char* const kCalls[] = {
      "SetDevice",   "DeviceProperties", "MemoryInfo",       "Malloc",          "MallocHost",
      "MemsetAsync", "CopyAsync",        "StreamCreate",     "StreamWaitEvent", "StreamSynchronize",
      "EventCreate", "EventRecord",      "EventSynchronize", "EventElapsedMs",  "BeginCapture",
      "EndCapture",  "EventQuery",       "GraphInstantiate", "GraphLaunch",     "LaunchKernel",
      "GraphUpload", "SetSharedCarveout"};
  Status kept;
  ASSERT_TRUE(UseEverything([this] { return Make(); }, &kept).ok());
  std::map<std::string, int> count;
  for (const char* call : kCalls) count[call] = api_->num_calls(call);
  for (const auto& [call, calls] : count) {
    ASSERT_GT(calls, 0) << call;
    for (const CudaError error : {CudaError{kCudaMemoryAllocation}, kStickyError, kOtherError,
                                  CudaError{kCudaEccUncorrectable}}) {
      // Where a call fails does not depend on the class; two of them at every place are enough,
      // and in the short form one after the first.
      const bool everywhere = error == kCudaMemoryAllocation || error == kStickyError;
      const int step = ShortOrLong(2, 1);
      const int second = error == kStickyError ? 2 : 1 + step;
      for (int n = 1; n <= (everywhere ? calls : 1); n = n == 1 ? second : n + step) {
        SCOPED_TRACE(call + " " + std::to_string(n) + " error " + std::to_string(error));
        api_ = MakeEmulatedApi();
        api_->FailAt(call, n, error);
        kept = Status();
        const Status status = UseEverything([this] { return Make(); }, &kept);
        const CudaErrorClass expected = ClassifyCudaError(error);
        const bool in_destructor = call == "StreamSynchronize" && status.ok();
        if (in_destructor) continue;
        EXPECT_EQ(status.code(), expected.code) << status.message();
        EXPECT_NE(status.message().find(api_->ErrorName(error)), std::string::npos);
        EXPECT_NE(status.message().find("cuda:0"), std::string::npos);
        EXPECT_EQ(api_->live(), EmulatedCudaApi::Live());
      }
    }
  }
}

TEST_F(CudaFaultsTest, AFailedAllocationIsReportedAndNothingIsLost) {
  for (int n = 1; n <= 6; ++n) {
    SCOPED_TRACE(n);
    api_ = MakeEmulatedApi();
    auto ops = MakeUnreserved();
    api_->FailAt("Malloc", n, kCudaMemoryAllocation);
    int failures = 0;
    const std::vector<std::byte> bytes(80);
    const TensorView view = {.data = bytes.data(), .dtype = DType::kBF16, .shape = {5, 8}};
    const std::vector<std::function<Status()>> uses = {
        [&] { return ops->Reserve(SmallLimits()); }, [&] { return ops->Allocate(100).status(); },
        [&] {
          return ops->PackMatrix({&view, 1}, DType::kBF16).status();
        },
        [&] {
          const std::vector<std::vector<WeightTensor>> experts(3, {view});
          return ops->PackExperts(experts, DType::kBF16).status();
        }};
    for (const auto& use : uses) {
      const Status status = use();
      if (status.ok()) continue;
      ++failures;
      EXPECT_EQ(status.code(), StatusCode::kOutOfMemory);
      EXPECT_EQ(ExitCode(status.code()), 75);
      EXPECT_TRUE(ops->status().ok());
      EXPECT_TRUE(use().ok());  // with smaller settings it may fit
    }
    EXPECT_EQ(failures, 1);
    Gather(ops.get());
    EXPECT_TRUE(ops->Synchronize().ok());
    memory_ = nullptr;
  }
}

TEST_F(CudaFaultsTest, AReserveThatFailsTakesNothing) {
  auto ops = MakeUnreserved();
  const auto before = api_->live();
  matmul_error_ = Status(StatusCode::kUnavailable, "cuBLAS cannot be loaded");
  EXPECT_EQ(ops->Reserve(SmallLimits()).code(), StatusCode::kUnavailable);
  EXPECT_EQ(api_->live(), before);
  matmul_error_ = Status();
  for (int n = 2; n <= 3; ++n) {
    api_->FailAt("Malloc", n, kCudaMemoryAllocation);
    EXPECT_EQ(ops->Reserve(SmallLimits()).code(), StatusCode::kOutOfMemory);
    EXPECT_EQ(api_->live(), before);
  }
  const size_t bytes_before = api_->device_bytes();
  EXPECT_TRUE(ops->Reserve(SmallLimits()).ok());
  EXPECT_EQ(api_->device_bytes() - bytes_before, ops->ReservedBytes(SmallLimits()));
}

TEST_F(CudaFaultsTest, ReserveZeroesTheWorkspaceOfAttention) {
  class RememberingApi : public EmulatedCudaApi {
   public:
    CudaError Malloc(void** pointer, size_t num_bytes) override {
      const CudaError error = EmulatedCudaApi::Malloc(pointer, num_bytes);
      last = std::span(static_cast<const std::byte*>(*pointer), num_bytes);
      return error;
    }
    std::span<const std::byte> last;
  };
  const auto api = std::make_shared<RememberingApi>();
  api_ = api;
  auto ops = MakeReserved();
  ASSERT_TRUE(ops->Synchronize().ok());
  DeviceLimits without_experts = SmallLimits();
  without_experts.num_experts = 0;
  EXPECT_EQ(api->last.size(), ops->ReservedBytes(without_experts) - kMatmulWorkspaceBytes);
  EXPECT_TRUE(std::all_of(api->last.begin(), api->last.end(),
                          [](std::byte byte) { return byte == std::byte{0}; }));
}

TEST_F(CudaFaultsTest, TheFirstErrorIsKeptAndLaterCallsDoNothing) {
  auto ops = MakeReserved();
  Gather(ops.get());
  auto event = ops->MakeEvent();
  const auto host = ops->AllocateHost(16);
  ASSERT_TRUE(event.ok() && host.ok());
  ops->Record(event->get());
  ASSERT_TRUE(ops->status().ok());
  api_->FailAt("LaunchKernel", 1, kOtherError);
  Gather(ops.get());
  const Status first = ops->status();
  EXPECT_EQ(first.code(), StatusCode::kInternal);
  EXPECT_NE(first.message().find("GatherRows"), std::string::npos) << first.message();

  api_->FailAt("LaunchKernel", 1, kCudaLaunchFailure);
  const auto calls = [this] {
    int sum = 0;
    for (const char* call : {"LaunchKernel", "CopyAsync", "EventRecord", "EventSynchronize",
                             "StreamSynchronize", "Malloc", "MallocHost", "BeginCapture"}) {
      sum += api_->num_calls(call);
    }
    return sum;
  };
  const int before = calls();
  Gather(ops.get());
  ops->CopyToHost(host->get(), memory_.get(), 16);
  ops->CopyToDevice(memory_.get(), host->get(), 16);
  ops->Record(event->get());
  for (const Status& status :
       {ops->Wait(event->get()), ops->Synchronize(), ops->Allocate(1).status(),
        ops->AllocateHost(1).status(), ops->Upload(memory_.get(), host->get(), 16),
        ops->BeginCapture(), ops->MakeEvent().status(), ops->Reserve(SmallLimits()),
        ops->status()}) {
    EXPECT_EQ(status.message(), first.message());
  }
  EXPECT_EQ(calls(), before);
}

// A kernel's error is reported by the next wait.
TEST_F(CudaFaultsTest, AStickyErrorThatAWaitBringsIsKept) {
  auto ops = MakeReserved();
  auto event = ops->MakeEvent();
  ASSERT_TRUE(event.ok());
  Gather(ops.get());
  ops->Record(event->get());
  api_->FailAt("EventSynchronize", 1, kCudaEccUncorrectable);
  const Status status = ops->Wait(event->get());
  EXPECT_EQ(ExitCode(status.code()), 69);
  EXPECT_NE(status.message().find("Emulated GPU"), std::string::npos);
  EXPECT_NE(status.message().find("dmesg"), std::string::npos);
  EXPECT_EQ(ops->status().message(), status.message());
}

TEST_F(CudaFaultsTest, AStickyErrorThatAnAllocationBringsIsKept) {
  auto ops = MakeReserved();
  api_->FailAt("Malloc", 1, kStickyError);
  EXPECT_FALSE(ops->Allocate(10).ok());
  EXPECT_EQ(ExitCode(ops->status().code()), 70);
}

TEST_F(CudaFaultsTest, ErrorsOfReleasingAreIgnored) {
  for (const char* call :
       {"Free", "FreeHost", "EventDestroy", "StreamDestroy", "GraphDestroy", "GraphExecDestroy"}) {
    SCOPED_TRACE(call);
    api_ = MakeEmulatedApi();
    api_->FailAt(call, 1, kOtherError, /*forever=*/true);
    Status kept;
    const Status status = UseEverything([this] { return Make(); }, &kept);
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_GE(api_->num_calls(call), 1);
    EXPECT_EQ(api_->live(), EmulatedCudaApi::Live());
  }
}

class CudaCaptureFaultsTest : public CudaFaultsTest {
 protected:
  // A capture of two kernels, with `fault` set up before.
  Result<std::unique_ptr<DeviceGraph>> Capture(DeviceOps* ops,
                                               const std::function<void()>& fault = nullptr) {
    if (memory_ == nullptr) memory_ = *ops->Allocate(1024);
    if (fault) fault();
    MINISGL_RETURN_IF_ERROR(ops->BeginCapture());
    Gather(ops);
    Gather(ops);
    return ops->EndCapture();
  }
};

TEST_F(CudaCaptureFaultsTest, ACaptureThatFailsLeavesTheDeviceUsable) {
  auto ops = MakeReserved();
  for (const std::string call :
       {"BeginCapture", "LaunchKernel", "EndCapture", "GraphInstantiate"}) {
    for (const CudaError error :
         {CudaError{kCudaMemoryAllocation}, CudaError{kCudaStreamCaptureInvalidated}}) {
      SCOPED_TRACE(call + " " + std::to_string(error));
      const auto graph = Capture(ops.get(), [&] { api_->FailAt(call, 1, error); });
      ASSERT_FALSE(graph.ok());
      EXPECT_EQ(graph.status().code(), ClassifyCudaError(error).code);
      EXPECT_NE(graph.status().message().find(api_->ErrorText(error)), std::string::npos);
      EXPECT_TRUE(ops->status().ok());
      EXPECT_EQ(api_->live().graphs, 0);
      EXPECT_EQ(api_->live().graph_execs, 0);
    }
  }
  const auto graph = Capture(ops.get());
  ASSERT_TRUE(graph.ok()) << graph.status().message();
  ops->Replay(graph->get());
  EXPECT_TRUE(ops->Synchronize().ok());
}

TEST_F(CudaCaptureFaultsTest, OperationsMayEndWithinACapture) {
  auto ops = MakeReserved();
  ASSERT_TRUE(ops->BeginCapture().ok());
  ops = nullptr;
  EXPECT_EQ(api_->num_calls("EndCapture"), 1);
}

TEST_F(CudaCaptureFaultsTest, AfterAFailureInACaptureTheRestOfItIsSkipped) {
  auto ops = MakeReserved();
  const auto graph = Capture(ops.get(), [&] { api_->FailAt("LaunchKernel", 1, kOtherError); });
  EXPECT_FALSE(graph.ok());
  EXPECT_EQ(api_->num_calls("LaunchKernel"), 1);
  EXPECT_EQ(api_->num_calls("EndCapture"), 1);
}

TEST_F(CudaCaptureFaultsTest, AProductThatFailsInACaptureFailsTheCapture) {
  auto ops = MakeReserved();
  const std::vector<std::byte> bytes(160);
  const TensorView view = {.data = bytes.data(), .dtype = DType::kBF16, .shape = {8, 8}};
  const auto matrix = ops->PackMatrix({&view, 1}, DType::kBF16);
  const auto memory = ops->Allocate(16384);
  ASSERT_TRUE(matrix.ok() && memory.ok());
  matmul_->FailAt(1, Status(StatusCode::kInternal, "no such product"));
  ASSERT_TRUE(ops->BeginCapture().ok());
  ops->Linear({.x = {memory->get(), DType::kBF16},
               .weight = &*matrix,
               .bias = nullptr,
               .out = {static_cast<std::byte*>(memory->get()) + 8192, DType::kF32},
               .num_tokens = kLibraryTokens});
  const auto graph = ops->EndCapture();
  ASSERT_FALSE(graph.ok());
  EXPECT_NE(graph.status().message().find("no such product"), std::string::npos);
  EXPECT_TRUE(ops->status().ok());
}

TEST_F(CudaCaptureFaultsTest, AStickyErrorInACaptureIsKept) {
  for (const std::string call :
       {"BeginCapture", "LaunchKernel", "EndCapture", "GraphInstantiate"}) {
    SCOPED_TRACE(call);
    api_ = MakeEmulatedApi();
    auto ops = MakeReserved();
    const auto graph = Capture(ops.get(), [&] { api_->FailAt(call, 1, kStickyError); });
    ASSERT_FALSE(graph.ok());
    EXPECT_EQ(graph.status().code(), StatusCode::kInternal);
    EXPECT_EQ(ops->status().code(), StatusCode::kInternal);
    memory_ = nullptr;
  }
}

}  // namespace
}  // namespace minisgl::cuda
