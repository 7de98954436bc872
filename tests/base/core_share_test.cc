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

// A core that another process wants, too: each has it for 4 ms in turn, unless it yields.
struct ContendedCore {
  static constexpr int64_t kMs = 1'000'000;
  int64_t now_ns = 1'000 * kMs, got_ns = now_ns;
  int64_t num_losses = 0, num_lost_chunks = 0, num_yields = 0;
  bool is_wanted = true;

  void Lose() {
    ++num_losses;  // the system counts a yield, too
    now_ns += is_wanted ? 4 * kMs : 0;
    got_ns = now_ns;
  }
  void RunChunk() {
    now_ns += kMs / 10;
    if (!is_wanted || now_ns - got_ns < 4 * kMs) return;
    ++num_lost_chunks;
    Lose();
  }
  void Yield() {
    ++num_yields;
    Lose();
  }
};
ContendedCore* g_core = nullptr;

// A loss reveals that the core is contended; learning how long the core is kept takes about ten
// more. Chunks take nearly all of the time: without giving up the core all losses interrupt one.
TEST(CoreShareTest, AContendedCoreIsGivenUpBetweenChunks) {
  ContendedCore core;
  g_core = &core;
  const base::CoreSystem system = {[] { return g_core->now_ns; }, [] { return g_core->num_losses; },
                                   [] { g_core->Yield(); }};
  base::CoreShare share(system);
  share.BeginLoop({}, 0);
  const auto run = [&](int num_chunks) {
    for (int i = 0; i < num_chunks; ++i) {
      core.RunChunk();
      share.BetweenChunks();
    }
  };
  run(1000);
  EXPECT_LE(core.num_lost_chunks, 11);
  EXPECT_GE(core.num_yields, 10);
  const int64_t learned = core.num_lost_chunks;
  run(10'000);
  EXPECT_EQ(core.num_lost_chunks, learned);
  // A tenth of a second after nothing else wants the core, it is kept.
  core.is_wanted = false;
  run(1000);
  const int64_t yields = core.num_yields;
  run(10'000);
  EXPECT_EQ(core.num_yields, yields);
}

// The same beside a thread that never sleeps, however long it takes on a busy machine.
TEST(CoreShareTest, TheSystemTellsThatACoreIsContended) {
  const std::vector<int> cpus = base::AffinityCpus();
  ASSERT_FALSE(cpus.empty());
  std::atomic<bool> done = false;
  std::thread neighbour([&] {
    RunOnlyOn({cpus[0]});
    while (!done.load(std::memory_order_relaxed)) {
    }
  });
  int num_given = 0;
  bool tells = true;
  std::thread([&] {
    RunOnlyOn({cpus[0]});
    std::vector<base::CoreShare> shares(1);
    shares[0].BeginLoop(shares, 0);
    const auto start = Clock::now();
    // Without an end of this loop the core is not given up: the suite's time ends the case.
    while (num_given < 10 && tells) {
      const auto begin = Clock::now();
      while (Clock::now() - begin < microseconds(100)) {
      }
      const auto between = Clock::now();
      shares[0].BetweenChunks();
      num_given += Clock::now() - between > milliseconds(1);
      tells = NumLosses() > 0 || Clock::now() - start < std::chrono::minutes(1);
    }
  }).join();
  done = true;
  neighbour.join();
  if (!tells) GTEST_SKIP() << "this system does not report that a core was lost";
  EXPECT_EQ(num_given, 10);
}

}  // namespace
}  // namespace minisgl
