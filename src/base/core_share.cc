// See core_share.h.
#include "base/core_share.h"

#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <iterator>
#include <new>

#include "base/thread_affinity.h"

namespace minisgl::base {
namespace {

constexpr int64_t kMs = 1'000'000;
// A chunk that took this long may have lost its core; the system's count of involuntary context
// switches then tells.
constexpr int64_t kLongNs = kMs;
// Workers sleep between loops that are further apart, which ends their share of a core. (The caller
// may have run on; its share begins anew, too.)
constexpr int64_t kIdleNs = std::chrono::nanoseconds(kPoolSpin).count();
constexpr int64_t kLookEveryNs = 5 * kMs;
// Time after a loss during which further losses are expected.
constexpr int64_t kContendedNs = 100 * kMs;
constexpr int64_t kKeepLeastNs = kMs / 2, kKeepMostNs = 3 * kMs + kMs / 2;

int64_t NowNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// The number of involuntary context switches of this thread.
int64_t CountLosses() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_nivcsw;
}

}  // namespace

const CoreSystem CoreSystem::kReal = {NowNs, CountLosses, [] { sched_yield(); }};

void CoreShare::BeginLoop(const std::vector<CoreShare>& all, size_t index) noexcept {
  const int64_t now = system_->now_ns();
  if (now - last_ns_ > kIdleNs) {
    given_ns_ = now;
    num_losses_ = system_->num_losses();
  }
  last_ns_ = now;
  const int cpu = sched_getcpu();
  if (cpu != cpu_.load(std::memory_order_relaxed)) cpu_.store(cpu, std::memory_order_relaxed);
  if (cpu < 0 || now - looked_ns_ < kLookEveryNs) return;
  looked_ns_ = now;
  const bool is_shared = std::any_of(
      all.begin(), all.begin() + static_cast<ptrdiff_t>(index),
      [cpu](const CoreShare& other) { return other.cpu_.load(std::memory_order_relaxed) == cpu; });
  if (!is_shared) return;
  try {
    MoveToFreeCpus(all);
  } catch (const std::bad_alloc&) {
    // Then it stays; this is for speed alone.
  }
}

std::vector<int> CoreShare::FreeCpus(const std::vector<int>& usable,
                                     const std::vector<CoreShare>& all) {
  std::vector<int> free;
  std::copy_if(usable.begin(), usable.end(), std::back_inserter(free), [&all](int cpu) {
    return std::none_of(all.begin(), all.end(), [cpu](const CoreShare& share) {
      return share.cpu_.load(std::memory_order_relaxed) == cpu;
    });
  });
  return free;
}

// The system chooses among the free CPUs, and later moves.
void CoreShare::MoveToFreeCpus(const std::vector<CoreShare>& all) {
  const std::vector<int> usable = AffinityCpus();
  const std::vector<int> free = FreeCpus(usable, all);
  if (free.empty()) return;
  // Both sets are allocated before the first is used, so that restoring the affinity cannot run out
  // of memory. It fails only if the machine has just lost all these CPUs; the thread then stays on
  // the free ones.
  const CpuSet free_set(free), usable_set(usable);
  if (!free_set.Apply(pthread_self())) return;
  usable_set.Apply(pthread_self());
  cpu_.store(sched_getcpu(), std::memory_order_relaxed);
}

void CoreShare::BetweenChunks() noexcept {
  const int64_t now = system_->now_ns();
  if (now - last_ns_ > kLongNs) {
    const int64_t num_losses = system_->num_losses();
    if (num_losses != num_losses_) NoteLoss(now, last_ns_ - given_ns_);
    num_losses_ = num_losses;
  }
  last_ns_ = now;
  if (now >= contended_until_ns_ || now - given_ns_ < keep_ns_) return;
  system_->yield();
  given_ns_ = last_ns_ = system_->now_ns();
  // Another process got the core and still wants it. (The system counts the yield as a loss, too.)
  if (given_ns_ - now > kLongNs) contended_until_ns_ = given_ns_ + kContendedNs;
  num_losses_ = system_->num_losses();
}

// Keeps the core for three quarters of its usual time slice.
void CoreShare::NoteLoss(int64_t now_ns, int64_t had_ns) {
  contended_until_ns_ = now_ns + kContendedNs;
  given_ns_ = now_ns;
  const int64_t target = std::clamp(had_ns - had_ns / 4, kKeepLeastNs, kKeepMostNs);
  keep_ns_ += (target - keep_ns_) / 8;
}

}  // namespace minisgl::base
