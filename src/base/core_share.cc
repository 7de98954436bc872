// See core_share.h.
#include "base/core_share.h"

#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <new>

#include "minisgl/base/system_info.h"

namespace minisgl {
namespace {

constexpr int64_t kMs = 1'000'000;
// A chunk that took this long may have lost its core, which the system then tells for certain.
constexpr int64_t kLongNs = kMs;
// Threads sleep between loops that are further apart: what they had of their core is forgotten.
constexpr int64_t kIdleNs = kMs / 20;
constexpr int64_t kMoveEveryNs = 5 * kMs;
// How long a loss is taken to mean that there will be more.
constexpr int64_t kContendedNs = 100 * kMs;
constexpr int64_t kKeepLeastNs = kMs / 2, kKeepMostNs = 3 * kMs + kMs / 2;

int64_t NowNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// How often this thread lost its core though it had work to do.
int64_t CountLosses() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_nivcsw;
}

// Lets this thread run on `cpus` alone; false where the system refuses.
bool RunOn(const std::vector<int>& cpus) {
  const auto last = static_cast<size_t>(*std::max_element(cpus.begin(), cpus.end()));
  std::vector<cpu_set_t> set(last / CPU_SETSIZE + 1);
  const size_t bytes = set.size() * sizeof(cpu_set_t);
  CPU_ZERO_S(bytes, set.data());
  for (const int cpu : cpus) CPU_SET_S(static_cast<size_t>(cpu), bytes, set.data());
  return sched_setaffinity(0, bytes, set.data()) == 0;
}

}  // namespace

void CoreShare::BeginLoop(const std::vector<CoreShare>& all, size_t index) noexcept {
  const int64_t now = NowNs();
  if (now - last_ns_ > kIdleNs) given_ns_ = now;
  last_ns_ = now;
  const int cpu = sched_getcpu();
  cpu_.store(cpu, std::memory_order_relaxed);
  if (cpu < 0 || now - moved_ns_ < kMoveEveryNs) return;
  const bool is_shared = std::any_of(
      all.begin(), all.begin() + static_cast<ptrdiff_t>(index),
      [cpu](const CoreShare& other) { return other.cpu_.load(std::memory_order_relaxed) == cpu; });
  if (!is_shared) return;
  moved_ns_ = now;
  try {
    MoveToFreeCpu(all);
  } catch (const std::bad_alloc&) {
    // Then it stays; this is for speed alone.
  }
}

void CoreShare::MoveToFreeCpu(const std::vector<CoreShare>& all) {
  const std::vector<int> usable = AffinityCpus();
  const auto is_free = [&all](int cpu) {
    return std::none_of(all.begin(), all.end(), [cpu](const CoreShare& share) {
      return share.cpu_.load(std::memory_order_relaxed) == cpu;
    });
  };
  const auto free = std::find_if(usable.begin(), usable.end(), is_free);
  if (free == usable.end() || !RunOn({*free})) return;
  RunOn(usable);
  cpu_.store(*free, std::memory_order_relaxed);
}

void CoreShare::BetweenChunks() noexcept {
  const int64_t now = NowNs();
  if (now - last_ns_ > kLongNs) {
    const int64_t num_losses = CountLosses();
    if (num_losses != num_losses_) NoteLoss(now, last_ns_ - given_ns_);
    num_losses_ = num_losses;
  }
  last_ns_ = now;
  if (now >= contended_until_ns_ || now - given_ns_ < keep_ns_) return;
  sched_yield();
  given_ns_ = last_ns_ = NowNs();
  // Whoever was given the core is still there.
  if (given_ns_ - now > kLongNs) contended_until_ns_ = given_ns_ + kContendedNs;
}

// It keeps the core for three quarters of what it mostly had.
void CoreShare::NoteLoss(int64_t now_ns, int64_t had_ns) {
  contended_until_ns_ = now_ns + kContendedNs;
  given_ns_ = now_ns;
  const int64_t target = std::clamp(had_ns - had_ns / 4, kKeepLeastNs, kKeepMostNs);
  keep_ns_ += (target - keep_ns_) / 8;
}

}  // namespace minisgl
