#include "runtime/background_work.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <latch>
#include <mutex>
#include <vector>

namespace minisgl::runtime {
namespace {

using Scratch = std::vector<std::byte>*;

TEST(BackgroundWorkTest, UrgentWorkRunsOnAllThreads) {
  constexpr int kThreads = 3;
  const auto work = MakeWorkThreads(kThreads);
  std::latch all_run(kThreads), done(kThreads);
  std::atomic<int> num_scratches = 0;
  for (int i = 0; i < kThreads; ++i) {
    work->Post(/*is_urgent=*/true, [&](Scratch scratch) {
      all_run.arrive_and_wait();  // not before each has a thread
      if (scratch->empty()) ++num_scratches;
      scratch->resize(1);
      done.count_down();
    });
  }
  done.wait();
  EXPECT_EQ(num_scratches, kThreads);
}

TEST(BackgroundWorkTest, OtherWorkRunsInOrderAndAloneBesideUrgentWork) {
  const auto work = MakeWorkThreads(4);
  constexpr int kPieces = 40;
  std::latch done(2 * kPieces);
  std::mutex mutex;
  std::vector<int> order;
  std::atomic<int> num_running = 0, most_running = 0;
  for (int i = 0; i < kPieces; ++i) {
    work->Post(/*is_urgent=*/false, [&, i](Scratch) {
      most_running = std::max<int>(most_running, ++num_running);
      {
        const std::lock_guard lock(mutex);
        order.push_back(i);
      }
      --num_running;
      done.count_down();
    });
    work->Post(/*is_urgent=*/true, [&](Scratch) { done.count_down(); });
  }
  done.wait();
  EXPECT_EQ(most_running, 1);
  for (int i = 0; i < kPieces; ++i) EXPECT_EQ(order[static_cast<size_t>(i)], i);
}

TEST(BackgroundWorkTest, UrgentWorkGoesFirst) {
  std::vector<int> order;
  const auto work = MakeWorkThreads(1);
  std::latch begun(1), go_on(1), done(2);
  work->Post(false, [&](Scratch) {
    begun.count_down();
    go_on.wait();
  });
  begun.wait();
  work->Post(false, [&](Scratch) {
    order.push_back(2);
    done.count_down();
  });
  work->Post(true, [&](Scratch) {
    order.push_back(1);
    done.count_down();
  });
  go_on.count_down();
  done.wait();
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
}

}  // namespace
}  // namespace minisgl::runtime
