#include "runtime/background_work.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

namespace minisgl::runtime {
namespace {

class WorkThread final : public BackgroundWork {
 public:
  ~WorkThread() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_one();
    if (thread_.joinable()) thread_.join();
  }

  void Post(bool is_urgent, std::function<void()> work) override {
    const std::lock_guard lock(mutex_);
    (is_urgent ? urgent_ : other_).push_back(std::move(work));
    if (!thread_.joinable()) thread_ = std::thread([this] { Run(); });
    changed_.notify_one();
  }

 private:
  void Run() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return stopping_ || !urgent_.empty() || !other_.empty(); });
      if (stopping_) return;
      auto& queue = urgent_.empty() ? other_ : urgent_;
      std::function<void()> work = std::move(queue.front());
      queue.pop_front();
      lock.unlock();
      work();
      work = nullptr;  // what it holds goes away here
      lock.lock();
    }
  }

  std::mutex mutex_;  // guards all below except thread_
  std::condition_variable changed_;
  std::deque<std::function<void()>> urgent_, other_;
  bool stopping_ = false;
  std::thread thread_;  // made by the caller's thread
};

}  // namespace

std::unique_ptr<BackgroundWork> MakeWorkThread() { return std::make_unique<WorkThread>(); }

}  // namespace minisgl::runtime
