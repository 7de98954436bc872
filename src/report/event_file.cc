#include "report/event_file.h"

#include <fmt/core.h>
#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <new>
#include <utility>

#include "minisgl/base/log.h"
#include "minisgl/base/utf8.h"

namespace minisgl::report {
namespace {

// A pipe that is ready takes at least PIPE_BUF bytes (4096 on Linux) without waiting.
constexpr size_t kPieceBytes = 4096;
constexpr size_t kFilePieceBytes = 256 << 10;
// How often a writer that waits for its reader looks whether it still should.
constexpr auto kReaderPoll = std::chrono::milliseconds(50);

}  // namespace

EventFile::EventFile(std::unique_ptr<term::Output> output, std::string name,
                     size_t waiting_bytes_max)
    : output_(std::move(output)),
      name_(Visible(name, 400)),
      waiting_bytes_max_(waiting_bytes_max),
      out_of_memory_(MakeStatus(StatusCode::kOutOfMemory,
                                "{}: out of memory; it has only the first events", name_)) {}

EventFile::~EventFile() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    is_dropped_ = ends_ = true;
  }
  wakes_.notify_one();
  thread_.join();
}

void EventFile::Write(std::string_view lines) {
  if (!thread_.joinable()) {
    // Block signals here, so that they are delivered to threads that handle them.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    thread_ = std::thread([this] { Loop(); });
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
  {
    const std::lock_guard lock(mutex_);
    if (is_over_) return;
    if (num_waiting_ + lines.size() <= waiting_bytes_max_) {
      waiting_ += lines;
      num_waiting_ += lines.size();
      wakes_.notify_one();
      return;
    }
    is_over_ = true;  // what waits is still written
  }
  EndEarly("its reader is too slow");
}

void EventFile::EndEarly(std::string_view why) {
  Log(LogLevel::kWarning, fmt::format("{}: {}; it gets no more cache events", name_, why));
}

void EventFile::Loop() noexcept {
  Status failure;
  try {
    WriteAll();
  } catch (const std::bad_alloc&) {
    failure = std::move(out_of_memory_);
  }
  EndWith(&failure);
}

void EventFile::WriteAll() {
  Status status = output_->Begin();
  bool goes_on = status.ok();
  std::unique_lock lock(mutex_);
  while (goes_on) {
    wakes_.wait(lock, [this] { return ends_ || !waiting_.empty(); });
    if (waiting_.empty() || is_dropped_) break;
    const std::string text = std::exchange(waiting_, std::string());
    lock.unlock();
    goes_on = WriteAsRead(text);
    lock.lock();
  }
  if (!status.ok()) status_ = std::move(status);
}

void EventFile::EndWith(Status* failure) noexcept {
  const std::lock_guard lock(mutex_);
  if (!failure->ok()) status_ = std::move(*failure);
  is_over_ = true;
  waiting_.clear();
  num_waiting_ = 0;
  progresses_.notify_one();
}

bool EventFile::WriteAsRead(std::string_view text) {
  const size_t piece_bytes = output_->is_regular_file() ? kFilePieceBytes : kPieceBytes;
  while (!text.empty()) {
    if (!output_->WouldBlock(kReaderPoll)) {
      const size_t size = std::min(piece_bytes, text.size());
      Status status = output_->Write(text.substr(0, size));
      if (!status.ok()) {
        if (output_->pipe_closed()) {
          EndEarly("its reader has left");
          return false;
        }
        const std::lock_guard lock(mutex_);
        status_ = std::move(status);
        return false;
      }
      text.remove_prefix(size);
      const std::lock_guard lock(mutex_);
      num_waiting_ -= size;
      progresses_.notify_one();
    }
    const std::lock_guard lock(mutex_);
    if (is_dropped_) return false;
  }
  return true;
}

Status EventFile::Finish(std::chrono::milliseconds patience) {
  if (!thread_.joinable()) return Status();
  std::unique_lock lock(mutex_);
  ends_ = true;
  wakes_.notify_one();
  while (num_waiting_ > 0) {
    const size_t before = num_waiting_;
    const bool moves = progresses_.wait_for(lock, patience, [&] { return num_waiting_ != before; });
    if (moves) continue;
    is_dropped_ = true;
    lock.unlock();
    EndEarly("its reader takes nothing");
    lock.lock();
    break;
  }
  lock.unlock();
  thread_.join();
  if (status_.ok() && !output_->pipe_closed()) return output_->Finish();
  return status_;
}

}  // namespace minisgl::report
