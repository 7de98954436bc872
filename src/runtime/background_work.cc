#include "runtime/background_work.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

namespace minisgl::runtime {
namespace {

class WorkThreads final : public BackgroundWork {
 public:
  explicit WorkThreads(int num_threads) : num_threads_(static_cast<size_t>(num_threads)) {}
  ~WorkThreads() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  void Post(bool is_urgent, Work work) override {
    const std::lock_guard lock(mutex_);
    (is_urgent ? urgent_ : other_).push_back(std::move(work));
    const size_t num_wanted = urgent_.size() + (HasOther() ? 1 : 0);
    if (num_idle_ < num_wanted && threads_.size() < num_threads_) {
      threads_.emplace_back([this] { Run(); });
    }
    changed_.notify_one();
  }

 private:
  // True if there is other work, and none is under way.
  bool HasOther() const { return !other_.empty() && !runs_other_; }

  void Run() {
    std::vector<std::byte> scratch;
    std::unique_lock lock(mutex_);
    while (true) {
      ++num_idle_;
      changed_.wait(lock, [this] { return stopping_ || !urgent_.empty() || HasOther(); });
      --num_idle_;
      if (stopping_) return;
      const bool is_other = urgent_.empty();
      auto& queue = is_other ? other_ : urgent_;
      Work work = std::move(queue.front());
      queue.pop_front();
      if (is_other) runs_other_ = true;
      lock.unlock();
      work(&scratch);
      work = nullptr;  // what it holds goes away here
      lock.lock();
      if (is_other) runs_other_ = false;
    }
  }

  const size_t num_threads_;
  std::mutex mutex_;  // guards all below except threads_
  std::condition_variable changed_;
  std::deque<Work> urgent_, other_;
  bool runs_other_ = false;
  size_t num_idle_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> threads_;  // made by the caller's thread
};

}  // namespace

std::unique_ptr<BackgroundWork> MakeWorkThreads(int num_threads) {
  return std::make_unique<WorkThreads>(num_threads);
}

}  // namespace minisgl::runtime
