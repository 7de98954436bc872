// A file of events for another program: a regular file, a FIFO, a descriptor such as /dev/fd/3.
//
// A thread writes it, so that a slow reader delays nothing. Events wait in memory for it; if more
// than kWaitingBytesMax wait, or the reader has left, the file ends there with a warning
// (base/log.h). So the file always holds the first events, without a gap.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "minisgl/base/status.h"
#include "term/output.h"

namespace minisgl::report {

class EventFile {
 public:
  static constexpr size_t kWaitingBytesMax = size_t{64} << 20;

  // `name` is for warnings. The file is emptied before the first write.
  EventFile(std::unique_ptr<term::Output> output, std::string name,
            size_t waiting_bytes_max = kWaitingBytesMax);
  // Drops what waits.
  ~EventFile();

  const term::Output& output() const { return *output_; }
  // Takes whole lines, and returns at once. Called from one thread.
  void Write(std::string_view lines);
  // Waits until all is written, for at most `patience` in which the reader takes nothing; after
  // that, warns. kIoError if a write failed, except because the reader has left; kOutOfMemory if
  // memory ran out. REQUIRES no Write after it.
  Status Finish(std::chrono::milliseconds patience);

 private:
  // The thread: a lack of memory ends the file, and not the run.
  void Loop() noexcept;
  void WriteAll();
  void EndWith(Status* failure) noexcept;
  // Writes `text`, as much as the reader takes before `is_dropped_`. Returns false if no more is to
  // be written.
  bool WriteAsRead(std::string_view text);
  void EndEarly(std::string_view why);

  const std::unique_ptr<term::Output> output_;
  const std::string name_;
  const size_t waiting_bytes_max_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable wakes_, progresses_;
  std::string waiting_;
  size_t num_waiting_ = 0;   // bytes in waiting_, and bytes taken from it but not yet written
  bool is_over_ = false;     // no more is written: a failure, a reader that left or is too slow
  bool is_dropped_ = false;  // the rest is not written
  bool ends_ = false;
  Status status_;
  Status out_of_memory_;  // made before it is needed, because its text takes memory
  std::thread thread_;    // starts with the first Write
};

}  // namespace minisgl::report
