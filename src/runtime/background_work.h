// Work that waits for a disk, done beside the runtime's thread.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

namespace minisgl::runtime {

class BackgroundWork {
 public:
  // `scratch` belongs to the thread that runs the work: of any size and contents, kept for the
  // thread's next work.
  using Work = std::function<void(std::vector<std::byte>* scratch)>;

  // Work that has not begun is dropped.
  virtual ~BackgroundWork() = default;
  // `work` runs once, later, and must not throw. Urgent work is begun in the order of the calls
  // and before other work; several pieces of it may run at once. Other work runs one piece after
  // the other, in the order of the calls.
  virtual void Post(bool is_urgent, Work work) = 0;
};

// Work on at most `num_threads` threads of its own, each of which begins when it is first needed.
std::unique_ptr<BackgroundWork> MakeWorkThreads(int num_threads);

}  // namespace minisgl::runtime
