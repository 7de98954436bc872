// Algorithms of cuBLASLt chosen by their time: the one that is used, choices kept for the next
// start, and when none is timed.
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cublas_lt_fixture.h"
#include "minisgl/base/log.h"
#include "temporary_folder.h"

namespace minisgl::cuda {
namespace {

// The state of the timers of a test. Time passes on the host only while something is measured.
struct FakeTime {
  std::vector<double> ms;      // of each candidate
  double host_ms_a_run = 0.5;  // that measuring takes
  double now_ms = 0;
  int num_measured = 0;
};

class FakeTimer : public WorkTimer {
 public:
  FakeTimer(FakeTime* time, FakeCublasLtSeen** seen) : time_(time), seen_(seen) {}
  double Measure(CudaStream, const std::function<bool()>& queue) override {
    ++time_->num_measured;
    time_->now_ms += time_->host_ms_a_run;
    return queue() ? time_->ms.at((*seen_)->candidate) : -1;
  }
  double NowMs() override { return time_->now_ms; }

 private:
  FakeTime* const time_;
  FakeCublasLtSeen** const seen_;
};

class TimedAlgorithmsTest : public CublasLtTest {
 protected:
  void SetUp() override {
    SetLogSink([this](LogLevel level, const std::string& line) {
      if (level == LogLevel::kWarning) warnings_.push_back(line);
    });
    time_.ms = {5, 3, 1, 2};
  }
  void TearDown() override {
    CublasLtTest::TearDown();
    SetLogSink(nullptr);
  }

  void OpenTimed(MatmulSetup setup = {.times_algorithms = true}) {
    CublasLtTest::Open(setup, std::make_unique<FakeTimer>(&time_, &seen_));
    seen_->num_candidates = static_cast<int>(time_.ms.size());
    time_.num_measured = 0;
  }
  void OpenKept(const std::string& device = "GPU") {
    OpenTimed({.times_algorithms = true, .device = device, .cache_folder = folder_.Path("cache")});
  }
  void Close() { library_ = nullptr; }

  // The candidate that computes such a product.
  int Candidate(int64_t num_tokens = 40, int64_t num_out = 3) {
    EXPECT_TRUE(Multiply({.num_tokens = num_tokens, .num_out = num_out, .num_in = 2}).ok());
    return static_cast<int>(seen_->candidate);
  }
  // The path of the only file kept.
  std::string Kept() const {
    std::string path;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.Path("cache"))) {
      if (entry.path().filename() == ".minisgl-products.lock") continue;
      EXPECT_EQ(path, "");
      path = entry.path().string();
    }
    return path;
  }

  const TemporaryFolder folder_;
  FakeTime time_;
  std::vector<std::string> warnings_;
};

TEST_F(TimedAlgorithmsTest, TheFastestOfEightIsTaken) {
  time_.ms = {5, 4, 3, 2, 2, 1, 2, 3, 0};  // one more than is asked for
  ASSERT_NO_FATAL_FAILURE(OpenTimed());
  EXPECT_EQ(Candidate(), 5);
  EXPECT_EQ(seen_->num_asked, 8);
  EXPECT_EQ(time_.num_measured, 8 * 4);
  EXPECT_EQ(Candidate(), 5);
  EXPECT_EQ(Candidate(33), 5);  // the same bucket
  EXPECT_EQ(num_choices(), 1);
  EXPECT_EQ(time_.num_measured, 8 * 4);
}

TEST_F(TimedAlgorithmsTest, OneThatFailsIsPassedOver) {
  ASSERT_NO_FATAL_FAILURE(OpenTimed());
  seen_->failing_candidate = 2;
  EXPECT_EQ(Candidate(), 3);
  seen_->failing_candidate = 0;
  EXPECT_EQ(Candidate(48), 2);
}

TEST_F(TimedAlgorithmsTest, NothingIsTimedThatNeedNotBe) {
  ASSERT_NO_FATAL_FAILURE(OpenTimed({.times_algorithms = false}));
  EXPECT_EQ(Candidate(), 0);
  ASSERT_NO_FATAL_FAILURE(OpenTimed({.deterministic = true, .times_algorithms = true}));
  EXPECT_EQ(Candidate(), 0);
  ASSERT_NO_FATAL_FAILURE(OpenTimed());
  EXPECT_EQ(Candidate(513), 0);  // more tokens than a graph has
  EXPECT_EQ(seen_->num_asked, 1);
  seen_->num_candidates = 1;
  EXPECT_EQ(Candidate(), 0);
  EXPECT_EQ(time_.num_measured, 0);
  seen_->num_candidates = 4;
  EXPECT_EQ(Candidate(512), 2);
}

TEST_F(TimedAlgorithmsTest, ACaptureTimesNothing) {
  ASSERT_NO_FATAL_FAILURE(OpenTimed());
  const MatmulShape shape = {.num_tokens = 40, .num_out = 3, .num_in = 2};
  ASSERT_TRUE(library_->Prepare(shape).ok());
  library_->SetCapturing(true);
  EXPECT_EQ(Candidate(), 0);
  library_->SetCapturing(false);
  EXPECT_EQ(time_.num_measured, 0);
  EXPECT_EQ(Candidate(), 2);
}

// 300 ms: the first way of the first product takes more than that.
TEST_F(TimedAlgorithmsTest, AfterItsTimeTheFirstChoiceStays) {
  time_.host_ms_a_run = 60;
  ASSERT_NO_FATAL_FAILURE(OpenKept());
  EXPECT_EQ(Candidate(), 1);  // the faster of two
  EXPECT_EQ(time_.num_measured, 2 * 4);
  EXPECT_EQ(Candidate(48), 0);
  EXPECT_EQ(time_.num_measured, 2 * 4);
  // Neither is kept: the next start times them.
  time_.host_ms_a_run = 1;
  ASSERT_NO_FATAL_FAILURE(OpenKept());
  EXPECT_EQ(Candidate(), 2);
  EXPECT_EQ(Candidate(48), 2);
}

TEST_F(TimedAlgorithmsTest, TheNextStartReadsWhatWasChosen) {
  ASSERT_NO_FATAL_FAILURE(OpenKept());
  EXPECT_EQ(Candidate(), 2);
  EXPECT_EQ(Candidate(48), 2);
  Close();
  time_.ms = {1, 1, 5, 1};
  ASSERT_NO_FATAL_FAILURE(OpenKept());
  const int checks = seen_->num_checks;
  EXPECT_EQ(Candidate(33), 2);
  EXPECT_EQ(Candidate(48), 2);
  EXPECT_EQ(seen_->num_checks, checks + 2);
  EXPECT_EQ(num_choices(), 0);
  EXPECT_EQ(time_.num_measured, 0);
  EXPECT_EQ(Candidate(40, 5), 0);  // another shape
  EXPECT_EQ(num_choices(), 1);
  // Both are there at the third start.
  ASSERT_NO_FATAL_FAILURE(OpenKept());
  EXPECT_EQ(Candidate(40, 5), 0);
  EXPECT_EQ(Candidate(), 2);
  EXPECT_EQ(num_choices(), 0);
  EXPECT_TRUE(warnings_.empty());
}

TEST_F(TimedAlgorithmsTest, ChoicesHoldForOneDeviceAndOneVersionOfTheLibrary) {
  ASSERT_NO_FATAL_FAILURE(OpenKept());
  EXPECT_EQ(Candidate(), 2);
  ASSERT_NO_FATAL_FAILURE(OpenKept("another GPU"));
  EXPECT_EQ(Candidate(), 2);
  EXPECT_EQ(num_choices(), 1);
  Close();
  seen_->version = 130'100;
  ASSERT_NO_FATAL_FAILURE(OpenKept());
  EXPECT_EQ(Candidate(), 2);
  EXPECT_EQ(num_choices(), 1);
  Close();
  seen_->version = 130'000;
  ASSERT_NO_FATAL_FAILURE(OpenKept());
  EXPECT_EQ(Candidate(), 2);
  EXPECT_EQ(num_choices(), 0);
}

TEST_F(TimedAlgorithmsTest, OneThatTheLibraryRefusesIsChosenAnew) {
  ASSERT_NO_FATAL_FAILURE(OpenKept());
  EXPECT_EQ(Candidate(), 2);
  ASSERT_NO_FATAL_FAILURE(OpenKept());
  seen_->refused_candidate = 2;
  seen_->failing_candidate = 2;
  EXPECT_EQ(Candidate(), 3);
  EXPECT_EQ(num_choices(), 1);
  ASSERT_NO_FATAL_FAILURE(OpenKept());
  EXPECT_EQ(Candidate(), 3);
  EXPECT_EQ(num_choices(), 0);
}

// As of a file that was written where the program reserved more.
TEST_F(TimedAlgorithmsTest, OneThatNeedsMoreWorkspaceIsChosenAnew) {
  ASSERT_NO_FATAL_FAILURE(OpenKept());
  EXPECT_EQ(Candidate(), 2);
  ASSERT_NO_FATAL_FAILURE(OpenKept());
  seen_->needed_bytes = kWorkspaceBytes;
  EXPECT_EQ(Candidate(), 2);
  EXPECT_EQ(num_choices(), 0);
  ASSERT_NO_FATAL_FAILURE(OpenKept());
  seen_->needed_bytes = kWorkspaceBytes + 1;
  EXPECT_EQ(Candidate(), 2);
  EXPECT_EQ(num_choices(), 1);
}

TEST_F(TimedAlgorithmsTest, ADamagedFileIsWrittenAnewWithOneWarning) {
  ASSERT_NO_FATAL_FAILURE(OpenKept());
  EXPECT_EQ(Candidate(), 2);
  Close();
  std::filesystem::resize_file(Kept(), std::filesystem::file_size(Kept()) - 10);
  ASSERT_NO_FATAL_FAILURE(OpenKept());
  EXPECT_EQ(Candidate(), 2);
  EXPECT_EQ(num_choices(), 1);
  Close();
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_NE(warnings_[0].find(Kept()), std::string::npos) << warnings_[0];
  ASSERT_NO_FATAL_FAILURE(OpenKept());
  EXPECT_EQ(Candidate(), 2);
  EXPECT_EQ(num_choices(), 0);
  EXPECT_EQ(warnings_.size(), 1u);
}

}  // namespace
}  // namespace minisgl::cuda
