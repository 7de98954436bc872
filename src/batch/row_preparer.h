// Makes the prompts of large rows on a thread of its own, so that a run goes on with other rows and
// looks after signals meanwhile. One row at a time, in the order in which they came.
//
// Used by one thread, which may be any.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "batch/row.h"
#include "batch/row_prompt.h"
#include "batch/row_window.h"

namespace minisgl::batch {

// Frees what of a row only its prompt needed.
void DropPrompt(Row* row);

class RowPreparer {
 public:
  struct Prepared {
    ReadyRow ready;
    std::optional<RowError> error;  // why it has no prompts
  };

  // `prompts` outlives this.
  explicit RowPreparer(const PromptBuilder* prompts) : prompts_(*prompts) {}
  RowPreparer(const RowPreparer&) = delete;
  RowPreparer& operator=(const RowPreparer&) = delete;
  // Waits for the row at work, which is cancelled.
  ~RowPreparer();

  // A row without prompts yet.
  void Add(ReadyRow row);
  // The next row that is finished; none where there is none within `wait`. Throws what making its
  // prompts threw.
  std::optional<Prepared> Take(std::chrono::milliseconds wait);
  // Gives up all rows that were not taken, without waiting, and returns what is known of them
  // besides their prompts, in their order. Nothing may be added any more.
  std::vector<Row> Cancel();

  // Of the rows that were not taken.
  bool empty() const { return jobs_.empty(); }
  int64_t num_answers() const { return num_answers_; }
  size_t bytes() const { return bytes_; }

 private:
  struct Job {
    ReadyRow ready;
    Row told;  // the row without what only the prompt needs
    std::optional<RowError> error;
    std::exception_ptr thrown;
    bool is_done = false;
  };

  void Work();

  const PromptBuilder& prompts_;
  std::list<std::shared_ptr<Job>> jobs_;  // not taken; of the caller's thread
  int64_t num_answers_ = 0;
  size_t bytes_ = 0;

  std::atomic<bool> cancelled_{false};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::list<std::shared_ptr<Job>> waiting_;  // guarded by mutex_, as is_done of every job
  std::thread thread_;                       // from the first row on
};

}  // namespace minisgl::batch
