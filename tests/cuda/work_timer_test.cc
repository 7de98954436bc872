// WorkTimer on the emulated device, and the choice among ways by their time.
#include "work_timer.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cuda_ops_fixture.h"

namespace minisgl::cuda {
namespace {

class WorkTimerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(api_->StreamCreate(&stream_), kCudaSuccess);
    ASSERT_EQ(api_->Malloc(&scratch_, 64), kCudaSuccess);
  }
  // Returns the result of one measurement of `num_copies` copies.
  double Measure(int num_copies, bool queues = true) {
    const auto timer = MakeWorkTimer(api_.get(), scratch_, 64);
    return timer->Measure(stream_, [&] {
      for (int i = 0; i < num_copies; ++i) {
        EXPECT_EQ(api_->MemsetAsync(scratch_, 1, 64, stream_), kCudaSuccess);
      }
      return queues;
    });
  }

  const std::shared_ptr<EmulatedCudaApi> api_ = MakeEmulatedApi();
  CudaStream stream_ = nullptr;
  void* scratch_ = nullptr;
};

TEST_F(WorkTimerTest, MeasuresTheWorkAlone) {
  const double one = Measure(1), five = Measure(5);
  EXPECT_GT(one, 0);
  EXPECT_GT(five, one);
  EXPECT_EQ(Measure(1), one);
  EXPECT_LT(Measure(1, /*queues=*/false), 0);
}

TEST_F(WorkTimerTest, AnErrorOfCudaIsNoTime) {
  const auto before = api_->live();
  for (const std::string call :
       {"EventCreate", "MemsetAsync", "EventRecord", "EventSynchronize", "EventElapsedMs"}) {
    api_->FailAt(call, 1, kCudaMemoryAllocation);
    EXPECT_LT(Measure(0), 0) << call;
    EXPECT_EQ(api_->live(), before) << call;
  }
  EXPECT_GT(Measure(1), 0);
}

TEST_F(WorkTimerTest, TheClockAdvances) {
  const auto timer = MakeWorkTimer(api_.get(), scratch_, 64);
  const double before = timer->NowMs();
  EXPECT_GE(timer->NowMs(), before);
}

// Ways take what `ms` says, in turn for each run of a way.
class ScriptedTimer : public WorkTimer {
 public:
  double Measure(CudaStream, const std::function<bool()>& queue) override {
    return queue() ? ms.at(static_cast<size_t>(num_runs++)) : -1;
  }
  double NowMs() override { return 0; }
  std::vector<double> ms;
  int num_runs = 0;
};

TEST(WayChooserTest, TheFastestRunCountsExceptTheFirst) {
  ScriptedTimer timer;
  timer.ms = {1, 5, 4, 6, /*way 1:*/ 9, 9, 3, 9};
  WayChooser chooser(&timer, 1);
  const WayChooser::Choice choice = chooser.Choose(2, nullptr, [](int) { return true; });
  EXPECT_EQ(choice.way, 1);
  EXPECT_TRUE(choice.is_timed);
}

TEST(WayChooserTest, OfWaysThatTakeTheSameTheFirstIsTaken) {
  ScriptedTimer timer;
  timer.ms = std::vector<double>(12, 2);
  WayChooser chooser(&timer, 1);
  EXPECT_EQ(chooser.Choose(3, nullptr, [](int) { return true; }).way, 0);
}

TEST(WayChooserTest, IfNothingCanBeMeasuredTheFirstWayIsTakenAndNotCalledTimed) {
  ScriptedTimer timer;
  WayChooser chooser(&timer, 1);
  const WayChooser::Choice choice = chooser.Choose(3, nullptr, [](int) { return false; });
  EXPECT_EQ(choice.way, 0);
  EXPECT_FALSE(choice.is_timed);
}

TEST(WayChooserTest, OneWayIsNotMeasured) {
  ScriptedTimer timer;
  WayChooser chooser(&timer, 0);
  EXPECT_TRUE(chooser.Choose(1, nullptr, [](int) { return true; }).is_timed);
  EXPECT_EQ(timer.num_runs, 0);
}

}  // namespace
}  // namespace minisgl::cuda
