// Work that waits for a disk, done beside the runtime's thread.
#pragma once

#include <functional>
#include <memory>

namespace minisgl::runtime {

class BackgroundWork {
 public:
  // Work that has not begun is dropped.
  virtual ~BackgroundWork() = default;
  // `work` runs once, later, on the one thread of all work: in the order of the calls, urgent work
  // first. It must not throw.
  virtual void Post(bool is_urgent, std::function<void()> work) = 0;
};

// Work on a thread of its own, which begins with the first call.
std::unique_ptr<BackgroundWork> MakeWorkThread();

}  // namespace minisgl::runtime
