// ThreadPool: every chunk once, results visible to the caller, and no waiting for threads that have
// nothing to do; exceptions, and machines that have fewer threads to give.
#include "minisgl/base/thread_pool.h"

#include <gtest/gtest.h>

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <new>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "minisgl/base/log.h"

namespace minisgl {
namespace {

// Until a pool counts as hung.
constexpr std::chrono::seconds kPatience(120);

TEST(ThreadPoolTest, RunsEveryChunkOnceAndPublishesPlainWrites) {
  for (int num_threads : {1, 2, 3, 8}) {
    ThreadPool pool(num_threads);
    EXPECT_EQ(pool.num_threads(), num_threads);
    for (int64_t num_chunks : {0, 1, 2, 7, 100, 1000}) {
      std::vector<int> runs(num_chunks, 0);
      pool.ParallelFor(num_chunks, [&](int64_t chunk, int thread) {
        EXPECT_GE(thread, 0);
        EXPECT_LT(thread, num_threads);
        ++runs[chunk];
      });
      EXPECT_EQ(runs, std::vector<int>(num_chunks, 1));
    }
  }
}

TEST(ThreadPoolTest, RangesRunEveryChunkOnce) {
  for (int num_threads : {1, 2, 3, 8}) {
    ThreadPool pool(num_threads);
    for (int64_t num_chunks : {0, 1, 2, 7, 100, 1000}) {
      std::vector<int> runs(num_chunks, 0);
      pool.ParallelForRanges(num_chunks, [&](int64_t chunk, int) { ++runs[chunk]; });
      EXPECT_EQ(runs, std::vector<int>(num_chunks, 1));
    }
  }
}

// A loop does not find chunks that a loop which threw left in the ranges.
TEST(ThreadPoolTest, RangesAreWholeAfterAnException) {
  ThreadPool pool(3);
  for (int64_t thrower : {0, 40, 99}) {
    EXPECT_THROW(pool.ParallelForRanges(100,
                                        [&](int64_t chunk, int) {
                                          if (chunk == thrower) throw std::runtime_error("chunk");
                                        }),
                 std::runtime_error);
    std::vector<int> runs(50, 0);
    pool.ParallelForRanges(50, [&](int64_t chunk, int) { ++runs[chunk]; });
    EXPECT_EQ(runs, std::vector<int>(50, 1));
  }
}

// Each thread goes through its own range in order, then through the rest of a slow thread's range
// from its end.
TEST(ThreadPoolTest, AThreadOfRangesTakesNeighboursAndThenHelps) {
  ThreadPool pool(2);
  std::vector<std::vector<int64_t>> chunks(2);
  std::atomic<int> done = 0;
  std::atomic<int> arrived = 0;
  std::atomic<int64_t> slow = -1;  // the thread's first chunk that waits for all others
  pool.ParallelForRanges(100, [&](int64_t chunk, int thread) {
    chunks[static_cast<size_t>(thread)].push_back(chunk);
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    const auto wait = [&](const auto& until) {
      while (!until() && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
    };
    if (chunks[static_cast<size_t>(thread)].size() == 1) {
      ++arrived;
      wait([&] { return arrived == 2; });
      int64_t none = -1;
      if (slow.compare_exchange_strong(none, chunk)) wait([&] { return done == 99; });
    }
    ++done;
  });
  ASSERT_TRUE(slow == 0 || slow == 50) << slow;
  const size_t slow_thread = slow == 0 ? 0 : 1;
  EXPECT_EQ(chunks[slow_thread], std::vector<int64_t>{slow});
  std::vector<int64_t> expected(50);
  const int64_t other = slow == 0 ? 50 : 0;
  std::iota(expected.begin(), expected.end(), other);
  for (int64_t chunk = slow + 49; chunk > slow; --chunk) expected.push_back(chunk);
  EXPECT_EQ(chunks[1 - slow_thread], expected);
}

// Workers are pinned, each to one usable CPU; the caller is left alone.
TEST(ThreadPoolTest, PinnedWorkersStayOnOneCoreEach) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  ThreadPool pool(3, /*pin=*/true);
  std::vector<int> num_cpus(3, 0);
  std::atomic<int> arrived{0};
  pool.ParallelFor(3, [&](int64_t, int thread) {
    ++arrived;
    while (arrived < 3) std::this_thread::yield();  // a chunk for each thread
    cpu_set_t mine;
    ASSERT_EQ(sched_getaffinity(0, sizeof(mine), &mine), 0);
    num_cpus[thread] = CPU_COUNT(&mine);
  });
  EXPECT_EQ(num_cpus, (std::vector<int>{CPU_COUNT(&before), 1, 1}));
}

// Workers run on the processors that are named; the caller is left alone.
TEST(ThreadPoolTest, WorkersStayOnTheirProcessors) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  int first = 0;
  while (!CPU_ISSET(first, &before)) ++first;
  ThreadPool pool(3, /*pin=*/false, {first});
  std::vector<cpu_set_t> sets(3);
  std::atomic<int> arrived{0};
  pool.ParallelFor(3, [&](int64_t, int thread) {
    ++arrived;
    while (arrived < 3) std::this_thread::yield();  // a chunk for each thread
    ASSERT_EQ(sched_getaffinity(0, sizeof(sets[0]), &sets[thread]), 0);
  });
  EXPECT_TRUE(CPU_EQUAL(&sets[0], &before));
  for (const int worker : {1, 2}) {
    EXPECT_EQ(CPU_COUNT(&sets[worker]), 1);
    EXPECT_TRUE(CPU_ISSET(first, &sets[worker]));
  }
}

TEST(ThreadPoolTest, AThreadNumberIsHeldByOneThreadAtATime) {
  ThreadPool pool(4);
  std::vector<std::vector<int64_t>> chunks(4);  // plain: the number protects it
  pool.ParallelFor(5000, [&](int64_t chunk, int thread) { chunks[thread].push_back(chunk); });
  size_t total = 0;
  for (const auto& list : chunks) total += list.size();
  EXPECT_EQ(total, 5000u);
}

// Thousands of short loops back to back: late threads of one loop meet the next.
TEST(ThreadPoolTest, ShortLoopsInSuccession) {
  ThreadPool pool(4);
  std::vector<int64_t> sums(16);
  for (int64_t loop = 0; loop < 5000; ++loop) {
    const int64_t num_chunks = 2 + loop % 15;
    pool.ParallelFor(num_chunks, [&sums, loop](int64_t chunk, int) { sums[chunk] = loop + chunk; });
    for (int64_t chunk = 0; chunk < num_chunks; ++chunk) ASSERT_EQ(sums[chunk], loop + chunk);
  }
}

TEST(ThreadPoolTest, WakesAfterSleeping) {
  ThreadPool pool(3);
  for (int loop = 0; loop < 5; ++loop) {
    std::this_thread::sleep_for(std::chrono::milliseconds(3));
    std::atomic<int> count = 0;
    pool.ParallelFor(50, [&](int64_t, int) { ++count; });
    EXPECT_EQ(count, 50);
  }
}

TEST(ThreadPoolTest, ManyMoreThreadsThanCores) {
  ThreadPool pool(40);
  std::atomic<int64_t> sum = 0;
  for (int loop = 0; loop < 20; ++loop) {
    pool.ParallelFor(200, [&](int64_t chunk, int) { sum += chunk; });
  }
  EXPECT_EQ(sum, 20 * 199 * 100);
}

// A thread that lost its core delays the chunk it holds; the others take the rest meanwhile.
TEST(ThreadPoolTest, SlowChunkDoesNotHoldBackTheOthers) {
  ThreadPool pool(2);
  std::atomic<int> done = 0;
  std::atomic<int> done_before_slow_end = 0;
  pool.ParallelFor(100, [&](int64_t chunk, int) {
    if (chunk == 0) {
      const auto deadline = std::chrono::steady_clock::now() + kPatience;
      while (done < 99 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
      done_before_slow_end = done.load();
    }
    ++done;
  });
  EXPECT_EQ(done_before_slow_end, 99);
}

// Each thread in turn throws the first chunk that it gets, while the others hold theirs: nobody may
// be left in the body once the exception is out.
TEST(ThreadPoolTest, AnExceptionOnAnyThreadReachesTheCallerOnceNothingRuns) {
  for (const int num_threads : {1, 2, 4}) {
    ThreadPool pool(num_threads);
    for (int thrower = 0; thrower < num_threads; ++thrower) {
      std::atomic<int> arrived = 0, inside = 0;
      std::string message;
      try {
        pool.ParallelFor(num_threads, [&](int64_t, int thread) {
          ++inside;
          ++arrived;
          while (arrived < num_threads) std::this_thread::yield();  // each thread has one chunk
          if (thread == thrower) {
            --inside;
            throw std::runtime_error("thread " + std::to_string(thread));
          }
          std::this_thread::sleep_for(std::chrono::milliseconds(2));
          --inside;
        });
      } catch (const std::runtime_error& error) {
        message = error.what();
      }
      EXPECT_EQ(inside, 0);
      EXPECT_EQ(message, "thread " + std::to_string(thrower));
      std::atomic<int> count = 0;
      pool.ParallelFor(100, [&](int64_t, int) { ++count; });
      EXPECT_EQ(count, 100);
    }
  }
}

TEST(ThreadPoolTest, OfManyExceptionsOneIsThrown) {
  ThreadPool pool(3);
  for (int loop = 0; loop < 200; ++loop) {
    EXPECT_THROW(pool.ParallelFor(20, [](int64_t, int) { throw std::bad_alloc(); }),
                 std::bad_alloc);
  }
  EXPECT_THROW(pool.ParallelFor(20, [](int64_t chunk, int) { throw chunk; }), int64_t);
  std::atomic<int> count = 0;
  pool.ParallelFor(50, [&](int64_t, int) { ++count; });
  EXPECT_EQ(count, 50);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// Room for the stacks of a few threads only.
[[noreturn]] void RunWhereThreadsDoNotFit() {
  std::ifstream statm("/proc/self/statm");
  rlim_t pages = 0;
  statm >> pages;
  const rlim_t bytes = pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE)) + (rlim_t{200} << 20);
  const rlimit limit = {bytes, bytes};
  setrlimit(RLIMIT_AS, &limit);
  std::string warning;
  SetLogSink([&](LogLevel level, const std::string& line) {
    if (level == LogLevel::kWarning) warning = line;
  });
  ThreadPool pool(1024);
  std::atomic<int> count = 0;
  pool.ParallelFor(5000,
                   [&](int64_t, int thread) { count += thread < pool.num_threads() ? 1 : 0; });
  const std::string told = "only " + std::to_string(pool.num_threads()) + " of 1024 threads";
  SetLogSink(nullptr);
  const bool good = pool.num_threads() >= 1 && pool.num_threads() < 1024 && count == 5000 &&
                    warning.find(told) != std::string::npos;
  std::_Exit(good ? 0 : 1);
}

TEST(ThreadPoolDeathTest, GoesOnWithTheThreadsThereAre) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(RunWhereThreadsDoNotFit(), testing::ExitedWithCode(0), "");
}
#endif

double CpuSeconds() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
         1e-6 * static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

TEST(ThreadPoolTest, IdleThreadsUseNoCpu) {
  ThreadPool pool(4);
  pool.ParallelFor(8, [](int64_t, int) {});
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const double before = CpuSeconds();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_LT(CpuSeconds() - before, 0.05);
}

}  // namespace
}  // namespace minisgl
