// Builds the prompts of large rows on a separate thread, so that the run meanwhile continues with
// other rows and reacts to signals. Rows are processed one at a time, in the order in which they
// were added.
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

// Frees the parts of a row that only its prompt needed.
void DropPrompt(Row* row);

// What the values of the prompts' pictures count for beside the bytes of rows. They are far larger
// than what names them, and a run needs many rows at once: a sixteenth, divided among those that
// hold them now.
size_t WeightOfPictures(const std::vector<Prompt>& prompts);

class RowPreparer {
 public:
  struct Prepared {
    ReadyRow ready;
    std::optional<RowError> error;  // why there are no prompts
  };

  // `prompts` must outlive this.
  explicit RowPreparer(const PromptBuilder* prompts) : prompts_(*prompts) {}
  RowPreparer(const RowPreparer&) = delete;
  RowPreparer& operator=(const RowPreparer&) = delete;
  // Cancels the row in progress and waits for it.
  ~RowPreparer();

  // Adds a row without prompts.
  void Add(ReadyRow row);
  // Returns the next finished row, or nullopt if none finishes within `wait`; its bytes have the
  // weight of its pictures, too. Rethrows the
  // exception that building its prompts threw.
  std::optional<Prepared> Take(std::chrono::milliseconds wait);
  // Cancels all rows that were not taken, without waiting, and returns them in order, without their
  // prompts. Add must not be called afterwards.
  std::vector<Row> Cancel();

  // True if a row with this id was added and not yet taken.
  bool Has(const Json& id) const;
  // These three count the rows that were not taken yet.
  bool empty() const { return jobs_.empty(); }
  int64_t num_answers() const { return num_answers_; }
  size_t bytes() const { return bytes_; }

 private:
  struct Job {
    ReadyRow ready;
    Row without_prompt;  // what is returned if the job is cancelled
    size_t weight = 0;   // of its pictures
    std::optional<RowError> error;
    std::exception_ptr thrown;
    bool is_done = false;
  };

  void Work();

  const PromptBuilder& prompts_;
  std::list<std::shared_ptr<Job>> jobs_;  // not yet taken; used only by the caller's thread
  int64_t num_answers_ = 0;
  size_t bytes_ = 0;

  std::atomic<bool> cancelled_{false};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::list<std::shared_ptr<Job>> waiting_;  // guarded by mutex_, like is_done of every job
  size_t done_weight_ = 0;                   // of the jobs that are done; the same
  std::thread thread_;                       // started by the first Add
};

}  // namespace minisgl::batch
