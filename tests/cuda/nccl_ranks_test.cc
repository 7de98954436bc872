// Communicators on threads of their own, without devices: sums, and what ends their waits.
#include "nccl_ranks.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "fake_nccl_fixture.h"

namespace minisgl::cuda {
namespace {

class NcclRanksTest : public FakeNcclTest {
 protected:
  NcclRanksTest() {
    nccl_->enqueue = [](int, void*, void*, size_t, const std::function<void()>& work) { work(); };
  }
  std::shared_ptr<NcclRanks> Make(int32_t num_ranks, int64_t wait_ms = 1'000'000) {
    std::vector<int> devices;
    for (int32_t rank = 0; rank < num_ranks; ++rank) devices.push_back(rank);
    const auto library = LoadFakeNccl();
    EXPECT_TRUE(library.ok()) << library.status().message();
    auto ranks = NcclRanks::Make(*library, devices, wait_ms, &alarm_);
    EXPECT_TRUE(ranks.ok()) << ranks.status().message();
    return *std::move(ranks);
  }
  bool IsAlarmed() { return std::atomic_ref<uint32_t>(alarm_).load() != 0; }
  void RaiseAlarm() { std::atomic_ref<uint32_t>(alarm_).store(1); }

  alignas(4) uint32_t alarm_ = 0;
};

TEST_F(NcclRanksTest, ThreadsSumInTheOrderOfRanks) {
  constexpr int32_t kRanks = 4;
  const auto ranks = Make(kRanks);
  std::vector<std::thread> threads;
  std::atomic<int> num_wrong{0};
  for (int32_t rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      for (int round = 0; round < 300; ++round) {
        std::vector<float> x(1 + round % 7, static_cast<float>(rank * 1000 + round));
        ranks->Begin(rank);
        const Status status = ranks->Sum(rank, ActivationPtr(x.data(), DType::kF32),
                                         static_cast<int64_t>(x.size()), nullptr);
        ranks->End(rank, ranks->num_begun(rank));
        num_wrong += status.ok() && x.back() == static_cast<float>(6000 + 4 * round) ? 0 : 1;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(num_wrong, 0);
  EXPECT_EQ(nccl_->num_aborted, 0);
  EXPECT_FALSE(IsAlarmed());
}

// The alarm of another part of the program ends the wait; graphs that live on do not hold it up.
TEST_F(NcclRanksTest, AnAlarmEndsWaitsAndLaterSums) {
  std::atomic<bool> has_graphs = true;
  nccl_->has_graphs = [&] { return has_graphs.load(); };
  auto ranks = Make(2);
  float x = 1;
  const auto sum = [&] { return ranks->Sum(0, ActivationPtr(&x, DType::kF32), 1, nullptr); };
  ranks->Begin(0);
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    RaiseAlarm();
  });
  EXPECT_TRUE(sum().ok());  // rank 1 never comes
  other.join();
  EXPECT_EQ(sum().message(), "NCCL's sums have ended");
  int32_t faulty = -1;
  EXPECT_TRUE(ranks->Fault(&faulty).ok());
  has_graphs = false;
  ranks = nullptr;
  EXPECT_EQ(nccl_->num_aborted, 2);
}

// Only a rank with work waits, and each end of work begins the time anew.
TEST_F(NcclRanksTest, AnIdleRankIsNotGivenUp) {
  const auto ranks = Make(2, /*wait_ms=*/400);
  // Returns after the time has passed for the thread that watches the ranks.
  const auto pass = [&](int64_t ms) {
    nccl_->now_ms += ms;
    const int64_t before = nccl_->num_looks;
    while (nccl_->num_looks < before + 2 && !IsAlarmed()) std::this_thread::yield();
  };
  for (int i = 0; i < 4; ++i) {
    ranks->Begin(1);
    ranks->Begin(1);
    pass(1000);  // the first look does not count: its time may be from before the work
    pass(150);
    ranks->End(1, ranks->num_begun(1) - 1);  // one of two pieces of work
  }
  ranks->End(1, ranks->num_begun(1));
  nccl_->now_ms += 100'000;
  EXPECT_FALSE(IsAlarmed());
  ranks->Begin(1);
  pass(1000);
  pass(399);
  EXPECT_FALSE(IsAlarmed());
  pass(1);
  while (!IsAlarmed()) std::this_thread::yield();
  int32_t faulty = -1;
  EXPECT_EQ(ranks->Fault(&faulty).message(),
            "waited 0 s in NCCL for another device, which does not answer; check nvidia-smi and "
            "dmesg for Xid, and start again without that device");
  EXPECT_EQ(faulty, 1);
}

}  // namespace
}  // namespace minisgl::cuda
