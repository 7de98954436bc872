// See rank_threads.h.
#include "engine/rank_threads.h"

#include <fmt/core.h>

#include <condition_variable>
#include <exception>
#include <iterator>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "minisgl/base/check.h"
#include "minisgl/base/log.h"
#include "minisgl/base/numa_nodes.h"

namespace minisgl::engine {

struct RankThreads::State {
  State(std::shared_ptr<Rendezvous> place, std::function<void()> fault,
        std::vector<std::vector<int>> places)
      : rendezvous(std::move(place)),
        on_fault(std::move(fault)),
        cpus(std::move(places)),
        num_ranks(rendezvous == nullptr ? 1 : rendezvous->num_ranks()),
        faults(static_cast<size_t>(num_ranks)) {
    MINISGL_CHECK(cpus.empty() || std::ssize(cpus) == num_ranks, "processors of {} ranks of {}",
                  cpus.size(), num_ranks);
    if (num_ranks == 1) return;
    for (int32_t rank = runs_first_on_caller() ? 1 : 0; rank < num_ranks; ++rank) {
      try {
        threads.emplace_back([this, rank] { Work(rank); });
      } catch (...) {
        Stop();
        throw;
      }
    }
  }
  ~State() { Stop(); }

  // The caller's thread may run anywhere, and is used for other work, too.
  bool runs_first_on_caller() const { return cpus.empty(); }

  void Stop() {
    {
      const std::lock_guard lock(mutex);
      stopping = true;
    }
    changed.notify_all();
    for (std::thread& thread : threads) thread.join();
    threads.clear();
  }

  void RunOne(int32_t rank, const std::function<void(int32_t)>& its_work) noexcept {
    try {
      its_work(rank);
    } catch (...) {
      faults[static_cast<size_t>(rank)] = std::current_exception();
      if (rendezvous != nullptr) rendezvous->Fail();
      on_fault();
    }
  }

  void Work(int32_t rank) {
    if (!cpus.empty() && !KeepThreadOn(cpus[static_cast<size_t>(rank)])) {
      Log(LogLevel::kWarning,
          fmt::format("the thread of rank {} could not be kept on its processors; it runs where "
                      "the system puts it",
                      rank));
    }
    uint64_t seen = 0;
    std::unique_lock lock(mutex);
    while (true) {
      changed.wait(lock, [&] { return stopping || num_runs != seen; });
      if (stopping) return;
      seen = num_runs;
      lock.unlock();
      RunOne(rank, *work);
      lock.lock();
      if (--num_running == 0) ended.notify_one();
    }
  }

  static bool IsConsequence(const std::exception_ptr& fault) {
    try {
      std::rethrow_exception(fault);
    } catch (const RankFailed&) {
      return true;
    } catch (...) {
      return false;
    }
  }

  // A fault that is no consequence of another rank's.
  std::exception_ptr TakeFault() {
    std::exception_ptr cause;
    for (std::exception_ptr& fault : faults) {
      const std::exception_ptr own = std::exchange(fault, nullptr);
      if (own == nullptr) continue;
      if (cause == nullptr || IsConsequence(cause)) cause = own;
    }
    return cause;
  }

  const std::shared_ptr<Rendezvous> rendezvous;
  const std::function<void()> on_fault;
  const std::vector<std::vector<int>> cpus;  // of each rank's thread; empty: all
  const int32_t num_ranks;
  std::mutex mutex;  // guards all below except faults and threads
  std::condition_variable changed, ended;
  const std::function<void(int32_t)>* work = nullptr;
  uint64_t num_runs = 0;
  int32_t num_running = 0;  // of the threads
  bool stopping = false;
  std::vector<std::exception_ptr> faults;  // each written by its rank
  std::vector<std::thread> threads;
};

RankThreads::RankThreads(std::shared_ptr<Rendezvous> rendezvous, std::vector<std::vector<int>> cpus)
    : state_(std::make_unique<State>(
          std::move(rendezvous), [] {}, std::move(cpus))) {}

RankThreads::RankThreads(std::shared_ptr<Rendezvous> rendezvous, std::function<void()> on_fault)
    : state_(std::make_unique<State>(std::move(rendezvous), std::move(on_fault),
                                     std::vector<std::vector<int>>())) {}

RankThreads::~RankThreads() = default;

int32_t RankThreads::num_ranks() const { return state_->num_ranks; }

void RankThreads::Run(const std::function<void(int32_t rank)>& work) {
  State& state = *state_;
  if (state.num_ranks == 1) return work(0);
  {
    const std::lock_guard lock(state.mutex);
    state.work = &work;
    state.num_running = static_cast<int32_t>(std::ssize(state.threads));
    ++state.num_runs;
  }
  state.changed.notify_all();
  if (state.runs_first_on_caller()) state.RunOne(0, work);
  {
    std::unique_lock lock(state.mutex);
    state.ended.wait(lock, [&] { return state.num_running == 0; });
  }
  if (const std::exception_ptr fault = state.TakeFault(); fault != nullptr) {
    state.rendezvous->Reset();
    std::rethrow_exception(fault);
  }
}

}  // namespace minisgl::engine
