// CoreShare: threads that compute together part where they were left on one CPU, and give a core
// that another process wants between chunks.
#include "base/core_share.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "base/thread_affinity.h"

namespace minisgl {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;
using std::chrono::milliseconds;

void RunOnlyOn(const std::vector<int>& cpus) {
  ASSERT_TRUE(base::CpuSet(cpus).Apply(pthread_self()));
}

int64_t NumLosses() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_nivcsw;
}

TEST(CoreShareTest, AThreadLeavesTheCpuOfAnother) {
  const std::vector<int> cpus = base::AffinityCpus();
  if (cpus.size() < 2) GTEST_SKIP() << "this machine lets the test use one CPU";
  std::vector<base::CoreShare> shares(2);
  // The system may move it back in the same instant, and does where the other CPUs are busy; but
  // not again and again.
  bool parted = false;
  for (int i = 0; i < 500 && !parted; ++i) {
    std::thread([&] {
      RunOnlyOn({cpus[0]});
      shares[0].BeginLoop(shares, 0);
      EXPECT_EQ(sched_getcpu(), cpus[0]);
    }).join();
    std::thread([&] {
      RunOnlyOn({cpus[0]});
      RunOnlyOn(cpus);
      shares[1].BeginLoop(shares, 1);
      parted = sched_getcpu() != cpus[0];
      EXPECT_EQ(base::AffinityCpus(), cpus);
    }).join();
    std::this_thread::sleep_for(milliseconds(10));
  }
  EXPECT_TRUE(parted);
}

TEST(CoreShareTest, CpusOfThreadsAreNotFree) {
  const std::vector<int> cpus = base::AffinityCpus();
  ASSERT_FALSE(cpus.empty());
  std::vector<base::CoreShare> shares(2);
  EXPECT_EQ(base::CoreShare::FreeCpus(cpus, shares), cpus);
  std::thread([&] {
    RunOnlyOn({cpus.back()});
    shares[1].BeginLoop(shares, 1);
  }).join();
  std::vector<int> others = cpus;
  others.pop_back();
  EXPECT_EQ(base::CoreShare::FreeCpus(cpus, shares), others);
  EXPECT_TRUE(base::CoreShare::FreeCpus({cpus.back()}, shares).empty());
}

// The thread's one CPU is taken, by another as well.
TEST(CoreShareTest, WithoutAFreeCpuAThreadStays) {
  const std::vector<int> cpus = base::AffinityCpus();
  ASSERT_FALSE(cpus.empty());
  std::vector<base::CoreShare> shares(2);
  for (size_t index : {0, 1}) {
    std::thread([&] {
      RunOnlyOn({cpus[0]});
      shares[index].BeginLoop(shares, index);
      EXPECT_EQ(sched_getcpu(), cpus[0]);
      EXPECT_EQ(base::AffinityCpus(), std::vector<int>{cpus[0]});
    }).join();
  }
}

struct Contention {
  int num_given = 0;     // times that the core was given up between chunks
  int num_lost = 0;      // chunks during which it was lost
  int64_t num_told = 0;  // losses that the system reports
};

// Runs chunks of 100 us on `cpu` beside a thread that never sleeps, until the core was given up ten
// times.
Contention RunContended(int cpu) {
  std::atomic<bool> done = false;
  std::thread neighbour([&] {
    RunOnlyOn({cpu});
    while (!done.load(std::memory_order_relaxed)) {
    }
  });
  Contention found;
  std::thread([&] {
    RunOnlyOn({cpu});
    std::vector<base::CoreShare> shares(1);
    shares[0].BeginLoop(shares, 0);
    const auto end = Clock::now() + std::chrono::seconds(10);
    while (found.num_given < 10 && Clock::now() < end) {
      const auto begin = Clock::now();
      while (Clock::now() - begin < microseconds(100)) {
      }
      const auto between = Clock::now();
      found.num_lost += between - begin > milliseconds(1);
      shares[0].BetweenChunks();
      found.num_given += Clock::now() - between > milliseconds(1);
    }
    found.num_told = NumLosses();
  }).join();
  done = true;
  neighbour.join();
  return found;
}

// A loss reveals that the core is contended; learning how long the core is kept takes about ten
// more. Chunks take nearly all of the time: without giving up the core all losses interrupt one.
// Other processes of a busy machine may interrupt more, so the best of three runs counts.
TEST(CoreShareTest, AContendedCoreIsGivenUpBetweenChunks) {
  const std::vector<int> cpus = base::AffinityCpus();
  ASSERT_FALSE(cpus.empty());
  Contention best;
  for (int run = 0; run < 3; ++run) {
    const Contention found = RunContended(cpus[0]);
    if (found.num_told == 0) GTEST_SKIP() << "this system does not report that a core was lost";
    if (run == 0 || found.num_lost < best.num_lost) best = found;
    if (best.num_given == 10 && best.num_lost <= 20) break;
  }
  EXPECT_EQ(best.num_given, 10) << best.num_lost << " chunks were interrupted";
  EXPECT_LE(best.num_lost, 20);
}

}  // namespace
}  // namespace minisgl
