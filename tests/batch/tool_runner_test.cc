// Calls of tools on threads: their order, how many run at once, and their end.
#include "batch/tool_runner.h"

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

namespace minisgl::batch {
namespace {

// Waits until the test lets it pass, or the runner stops the call.
class Gate {
 public:
  void Open() {
    const std::lock_guard lock(mutex_);
    is_open_ = true;
    changed_.notify_all();
  }
  void CountOne() {
    const std::lock_guard lock(mutex_);
    ++count_;
    changed_.notify_all();
  }
  void WaitForCount(int count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return count_ >= count; });
  }
  // False if the call was stopped.
  bool Wait(const std::function<bool()>& stops) {
    std::unique_lock lock(mutex_);
    while (!is_open_) {
      if (stops()) return false;
      changed_.wait_for(lock, std::chrono::milliseconds(5));
    }
    return true;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_open_ = false;
  int count_ = 0;
};

ToolCall Call(const std::string& name) { return {name, "{}", ""}; }

// Results of `count` rows, waiting for each.
std::vector<ToolRunner::Finished> TakeAll(ToolRunner* runner, Gate* notified, int count) {
  std::vector<ToolRunner::Finished> all;
  for (int i = 1; i <= count; ++i) {
    notified->WaitForCount(i);
    while (auto finished = runner->Take()) all.push_back(std::move(*finished));
  }
  return all;
}

TEST(ToolRunnerTest, CallsOfAnAnswerAreRunInTheirOrder) {
  Gate notified;
  ToolRunner runner([](const ToolCall& call, const auto&) { return "to " + call.name; }, 4,
                    [&] { notified.CountOne(); });
  EXPECT_FALSE(runner.Take());
  runner.Add(7, {Call("a"), Call("b"), Call("c")});
  const auto all = TakeAll(&runner, &notified, 1);
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].row, 7);
  EXPECT_EQ(all[0].texts, (std::vector<std::string>{"to a", "to b", "to c"}));
  EXPECT_EQ(runner.num_rows(), 0);
}

TEST(ToolRunnerTest, NoMoreRunAtOnceThanAreAllowed) {
  for (const int at_once : {1, 3}) {
    Gate notified, gate, begun;
    std::atomic<int> running = 0, most = 0;
    ToolRunner runner(
        [&](const ToolCall& call, const std::function<bool()>& stops) {
          const int now = ++running;
          int before = most;
          while (before < now && !most.compare_exchange_weak(before, now)) {
          }
          begun.CountOne();
          gate.Wait(stops);
          --running;
          return call.name;
        },
        at_once, [&] { notified.CountOne(); });
    for (int row = 0; row < 10; ++row) runner.Add(row, {Call("a")});
    EXPECT_EQ(runner.num_rows(), 10);
    begun.WaitForCount(at_once);
    gate.Open();
    EXPECT_EQ(TakeAll(&runner, &notified, 10).size(), 10u);
    EXPECT_EQ(most, at_once);
  }
}

TEST(ToolRunnerTest, CancelledCallsAreStoppedAndForgotten) {
  Gate notified, gate, begun;
  std::atomic<int> stopped = 0;
  ToolRunner runner(
      [&](const ToolCall& call, const std::function<bool()>& stops) {
        if (call.name != "long") return call.name;
        begun.CountOne();
        if (!gate.Wait(stops)) ++stopped;
        return call.name;
      },
      1, [&] { notified.CountOne(); });
  runner.Add(1, {Call("long"), Call("never")});
  runner.Add(2, {Call("waiting")});
  runner.Add(3, {Call("last")});
  begun.WaitForCount(1);
  runner.Cancel(2);
  runner.Cancel(1);
  runner.Cancel(99);
  const auto all = TakeAll(&runner, &notified, 1);
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].row, 3);
  EXPECT_EQ(stopped, 1);
  EXPECT_EQ(runner.num_rows(), 0);
}

TEST(ToolRunnerTest, TheEndStopsWhatRunsAndDropsWhatWaits) {
  Gate gate, begun;
  std::atomic<int> calls = 0, stopped = 0;
  {
    ToolRunner runner(
        [&](const ToolCall& call, const std::function<bool()>& stops) {
          ++calls;
          begun.CountOne();
          if (!gate.Wait(stops)) ++stopped;
          return call.name;
        },
        2, nullptr);
    for (int row = 0; row < 5; ++row) runner.Add(row, {Call("a"), Call("b")});
    begun.WaitForCount(2);
  }
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(stopped, 2);
}

TEST(ToolRunnerTest, AnExceptionReachesTheOneWhoTakes) {
  Gate notified;
  ToolRunner runner([](const ToolCall&, const auto&) -> std::string { throw std::bad_alloc(); }, 1,
                    [&] { notified.CountOne(); });
  runner.Add(1, {Call("a")});
  notified.WaitForCount(1);
  EXPECT_THROW(runner.Take(), std::bad_alloc);
  EXPECT_EQ(runner.num_rows(), 0);
}

TEST(ToolRunnerTest, TheCallsOfAnAnswerAreBounded) {
  Gate notified;
  std::atomic<int> calls = 0;
  ToolRunner runner(
      [&](const ToolCall&, const auto&) {
        ++calls;
        return std::string("x");
      },
      1, [&] { notified.CountOne(); });
  runner.Add(1, std::vector<ToolCall>(1000, Call("a")));
  const auto all = TakeAll(&runner, &notified, 1);
  ASSERT_EQ(all.at(0).texts.size(), 1000u);
  EXPECT_EQ(calls, 128);
  EXPECT_EQ(all[0].texts[127], "x");
  EXPECT_NE(all[0].texts[128].find("too many calls"), std::string::npos);
}

}  // namespace
}  // namespace minisgl::batch
