// The times of operations: the names that they are counted under, when a time is taken, and reports
// of failing calls to CUDA.
#include "kernel_timer.h"

#include <algorithm>
#include <map>

#include "cuda_error.h"
#include "cuda_ops_fixture.h"

namespace minisgl::cuda {
namespace {

class KernelTimerTest : public QueuedOpsFixture {
 protected:
  void Open(bool lazy = false) {
    Close();
    api_ = MakeEmulatedApi({.lazy = lazy});
    profile_ = std::make_shared<KernelProfile>();
    profile_->KeepSpans();
    OpenReserved({.profile = profile_});
  }
  void TearDown() override {
    Close();
    EXPECT_EQ(api_->live(), EmulatedCudaApi::Live());
  }

  // The counts by the operation's name, without the kernel's.
  std::map<std::string, int64_t> Counts() const {
    std::map<std::string, int64_t> counts;
    for (const KernelProfile::Row& row : profile_->Rows()) {
      counts[row.name.substr(0, row.name.find(':'))] += row.count;
    }
    return counts;
  }

  std::shared_ptr<KernelProfile> profile_;
};

TEST_F(KernelTimerTest, OperationsAreCountedByNameAndShape) {
  const auto start = std::chrono::steady_clock::now();
  Open();
  EXPECT_FALSE(ops_->RunsGraphs());
  for (int i = 0; i < 3; ++i) Gather();
  Multiply(1);
  Multiply(kLibraryTokens);
  ops_->CopyOnDevice(At(0), At(64), 64);
  EXPECT_TRUE(profile_->Rows().empty());  // nothing was waited for
  ASSERT_TRUE(ops_->Synchronize().ok());
  const std::map<std::string, int64_t> wanted = {
      {"GatherRows", 3}, {"Linear [8, 40]", 2}, {"cudaMemcpyAsync on the device", 1}};
  EXPECT_EQ(Counts(), wanted);
  // The emulator's clock: a microsecond each for the kernel and the event after it.
  for (const KernelProfile::Row& row : profile_->Rows()) {
    EXPECT_NEAR(row.total_ms / static_cast<double>(row.count), 0.002, 1e-5) << row.name;
  }
  EXPECT_NEAR(profile_->empty_ms(), 0.002, 1e-5);
  const auto spans = profile_->TakeSpans();
  ASSERT_EQ(spans.size(), 6u);
  auto last = start;
  for (const KernelProfile::Span& span : spans) {
    EXPECT_GE(span.begin, last);
    EXPECT_GT(span.end, span.begin);
    last = span.end;
  }
  EXPECT_EQ(spans.back().name, "cudaMemcpyAsync on the device");
  EXPECT_TRUE(profile_->TakeSpans().empty());
}

TEST_F(KernelTimerTest, AWaitTakesWhatItsEventCovers) {
  Open(/*lazy=*/true);
  const auto event = ops_->MakeEvent();
  ASSERT_TRUE(event.ok());
  Gather();
  ops_->Record(event->get());
  Gather();
  ASSERT_TRUE(ops_->Wait(event->get()).ok());
  EXPECT_EQ(Counts()["GatherRows"], 1);
  ASSERT_TRUE(ops_->Wait(event->get()).ok());
  EXPECT_EQ(Counts()["GatherRows"], 1);
  ASSERT_TRUE(ops_->Synchronize().ok());
  EXPECT_EQ(Counts()["GatherRows"], 2);
}

// A pause stands before the first operation, and not before those that the device has to do yet.
TEST_F(KernelTimerTest, ThePauseIsQueuedWhereTheDeviceWaits) {
  for (const bool lazy : {true, false}) {
    Open(lazy);
    const int before = api_->num_calls("LaunchKernel");
    for (int i = 0; i < 5; ++i) Gather();
    EXPECT_EQ(api_->num_calls("LaunchKernel") - before, lazy ? 6 : 10);
    ASSERT_TRUE(ops_->Synchronize().ok());
    EXPECT_EQ(Counts()["GatherRows"], 5);
    Gather();
    EXPECT_EQ(api_->num_calls("LaunchKernel") - before, lazy ? 8 : 12);
  }
}

TEST_F(KernelTimerTest, EventsAreUsedAgain) {
  Open();
  Gather();
  ASSERT_TRUE(ops_->Synchronize().ok());
  const int events = api_->live().events;
  for (int i = 0; i < 20; ++i) {
    Gather();
    ASSERT_TRUE(ops_->Synchronize().ok());
  }
  EXPECT_EQ(api_->live().events, events);
}

TEST_F(KernelTimerTest, WithoutAProfileNothingIsRecorded) {
  OpenReserved({});
  EXPECT_TRUE(ops_->RunsGraphs());
  const int before = api_->num_calls("EventRecord");  // of packing a matrix
  Gather();
  EXPECT_EQ(api_->num_calls("LaunchKernel"), 1);
  EXPECT_EQ(api_->num_calls("EventRecord"), before);
}

TEST_F(KernelTimerTest, EveryFailingCallIsReported) {
  const auto use = [this] {
    auto made = Make({.profile = std::make_shared<KernelProfile>()});
    if (!made.ok()) return made.status();
    ops_ = std::move(made).value();
    Status status = ops_->Reserve(SmallLimits());
    if (!status.ok()) return status;
    auto memory = ops_->Allocate(4096);
    if (!memory.ok()) return memory.status();
    memory_ = *memory;
    for (int i = 0; i < 2; ++i) Gather();
    return ops_->Synchronize();
  };
  ASSERT_TRUE(use().ok());
  for (const char* const call :
       {"EventCreate", "EventRecord", "EventQuery", "EventElapsedMs", "LaunchKernel"}) {
    const int calls = api_->num_calls(call);
    ASSERT_GT(calls, 0) << call;
    for (int n = 1; n <= calls; ++n) {
      SCOPED_TRACE(std::string(call) + " " + std::to_string(n));
      Close();
      api_ = MakeEmulatedApi();
      api_->FailAt(call, n, kCudaIllegalAddress);
      const Status status = use();
      EXPECT_EQ(status.code(), StatusCode::kInternal);
      EXPECT_NE(status.message().find("cudaErrorIllegalAddress"), std::string::npos)
          << status.message();
    }
    api_ = MakeEmulatedApi();
    memory_ = nullptr;
    ASSERT_TRUE(use().ok());
  }
}

}  // namespace
}  // namespace minisgl::cuda
