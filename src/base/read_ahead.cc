// See minisgl/base/read_ahead.h.
#include "minisgl/base/read_ahead.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>

namespace minisgl {
namespace {

constexpr size_t kRequestBytes = size_t{32} << 20;
// Linux reads no more ahead at a call than its window, 128 KiB unless it was set otherwise.
constexpr size_t kWindowBytes = size_t{128} << 10;

int64_t NumReadsOfThread() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_majflt;
}

// `part` from the page on in which it begins.
ReadAhead::Part FromPage(ReadAhead::Part part) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t before = reinterpret_cast<uintptr_t>(part.data()) % page;
  return {part.data() - before, part.size() + before};
}

// Begins to read a part of a file, unless its last page is in memory, and with it likely the rest:
// requests for what is there would only take time.
void BeginReading(ReadAhead::Part part) {
  const int64_t num_reads = NumReadsOfThread();
  static_cast<void>(*static_cast<const volatile std::byte*>(&part.back()));
  if (NumReadsOfThread() == num_reads) return;
  part = FromPage(part);
  while (!part.empty()) {
    const ReadAhead::Part window = part.first(std::min(part.size(), kWindowBytes));
    madvise(const_cast<std::byte*>(window.data()), window.size(), MADV_WILLNEED);
    part = part.subspan(window.size());
  }
}

}  // namespace

ReadAhead::ReadAhead() : thread_([this] { Run(); }) {}

ReadAhead::~ReadAhead() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void ReadAhead::Add(const std::vector<Part>& parts) {
  {
    const std::lock_guard lock(mutex_);
    for (const Part& part : parts) {
      if (!part.empty()) parts_.push_back(part);
    }
    is_idle_ = is_idle_ && parts_.empty();
  }
  changed_.notify_all();
}

uint64_t ReadAhead::Finish() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return is_idle_; });
  return num_begun_;
}

void ReadAhead::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    is_idle_ = parts_.empty();
    if (is_idle_) changed_.notify_all();
    changed_.wait(lock, [this] { return ends_ || !parts_.empty(); });
    if (ends_) return;
    Part& first = parts_.front();
    const Part request = first.first(std::min(first.size(), kRequestBytes));
    first = first.subspan(request.size());
    if (first.empty()) parts_.pop_front();
    lock.unlock();
    BeginReading(request);
    lock.lock();
    num_begun_ += request.size();
  }
}

}  // namespace minisgl
