// Runs the calls of tools in answers on threads of its own, so that a slow tool keeps neither the
// run nor other rows waiting.
//
// The calls of one answer are run one after another, in their order; answers in the order in which
// they come. Used by one thread, which may be any.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "minisgl/text/tool_calls.h"

namespace minisgl::batch {

class ToolRunner {
 public:
  // Runs a call and returns the text that answers it. While it runs, it asks `stops` many times a
  // second, and ends soon after that is true. Called on several threads.
  using Run = std::function<std::string(const ToolCall& call, const std::function<bool()>& stops)>;

  // The results of the calls in the answer to a row, in their order.
  struct Finished {
    int64_t row = 0;
    std::vector<std::string> texts;
  };

  // At most `at_once` calls run at the same time. `notify` (may be empty) is called on another
  // thread when an answer of Take is there.
  ToolRunner(Run run, int64_t at_once, std::function<void()> notify);
  ToolRunner(const ToolRunner&) = delete;
  ToolRunner& operator=(const ToolRunner&) = delete;
  // Stops the calls that run, and waits for their end.
  ~ToolRunner();

  // REQUIRES that no calls of this row are here.
  void Add(int64_t row, std::vector<ToolCall> calls);
  // Results that are there, or nullopt. Rethrows what `run` threw.
  std::optional<Finished> Take();
  // Drops the calls of the row, and stops the one that runs, without waiting for its end.
  void Cancel(int64_t row);

  // Rows whose results were not taken.
  int64_t num_rows() const;

 private:
  struct Job {
    int64_t row = 0;
    std::vector<ToolCall> calls;
    std::vector<std::string> texts;
    std::exception_ptr thrown;
    bool is_cancelled = false;  // guarded by mutex_
  };

  void Work();
  void RunJob(Job* job);
  bool IsCancelled(const Job& job);

  const Run run_;
  const int64_t at_once_;
  const std::function<void()> notify_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int64_t, std::shared_ptr<Job>> jobs_;  // that were not taken, by row; guarded by mutex_
  std::deque<std::shared_ptr<Job>> waiting_;      // the same; of these, which no thread has
  std::deque<std::shared_ptr<Job>> done_;         // the same; which are done
  int64_t num_idle_ = 0;                          // threads without a job; the same
  bool ends_ = false;                             // the same
  std::vector<std::thread> threads_;              // started as they are needed
};

}  // namespace minisgl::batch
