// A thread that has the system read parts of files before they are needed, so that reading goes on
// while the bytes before them are worked on. Reading a mapped file alone waits at each page that is
// not in memory.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

namespace minisgl {

class ReadAhead {
 public:
  using Part = std::span<const std::byte>;

  ReadAhead();
  // Ends the thread. Parts whose reading has not begun are left.
  ~ReadAhead();
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;

  // Adds parts of mapped files (MappedFile), to be read after the parts before. They must be
  // mapped until this object ends. Parts of other memory are left alone. A part that its file has
  // lost raises SIGBUS in the thread, as it does where it is read (InstallBusErrorHandler).
  void Add(const std::vector<Part>& parts);

  // Waits until the reading of all parts has begun, and returns their bytes.
  uint64_t Finish();

 private:
  void Run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Part> parts_;  // not begun
  uint64_t num_begun_ = 0;
  bool is_idle_ = true, ends_ = false;
  std::thread thread_;
};

}  // namespace minisgl
