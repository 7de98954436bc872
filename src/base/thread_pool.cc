// See thread_pool.h.
//
// A loop is one 64-bit word, the ticket: (number of the loop, chunks not yet claimed). A thread
// claims a chunk by decrementing the second half with compare-and-swap. If a thread slept past the
// end of a loop, the changed number makes its claim fail, so the caller waits only for running
// chunks, never for an idle thread.
//
// In a loop over ranges the ticket only counts claims. The chunk of a claim comes from the ranges,
// which are set before the ticket and hold one chunk for each claim.
#include "minisgl/base/thread_pool.h"
#include "minisgl/base/setting.h"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <thread>
#include <utility>
#include <vector>

#include "base/core_share.h"
#include "base/thread_affinity.h"
#include "minisgl/base/check.h"
#include "minisgl/base/log.h"
#include "minisgl/base/system_info.h"

namespace minisgl {
namespace {

constexpr int64_t kChunksMax = INT32_MAX;

void Pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Spins until `done()` or for about kPoolSpin; true if done.
template <typename Done>
bool SpinUntil(const Done& done) {
  constexpr int kPausesPerLook = 16;
  const auto deadline = std::chrono::steady_clock::now() + base::kPoolSpin;
  do {
    for (int i = 0; i < kPausesPerLook; ++i) {
      if (done()) return true;
      Pause();
    }
  } while (std::chrono::steady_clock::now() < deadline);
  return done();
}

// Chunks [begin, end) not taken yet. The owner takes the first, other threads the last.
class ChunkRange {
 public:
  void Set(int64_t begin, int64_t end) { ends_.store(Pack(begin, end), std::memory_order_relaxed); }
  int64_t size() const {
    const uint64_t ends = ends_.load(std::memory_order_relaxed);
    return End(ends) - Begin(ends);
  }
  // -1 if the range is empty.
  int64_t TakeFirst() {
    return Take([](int64_t begin, int64_t end) { return std::pair(Pack(begin + 1, end), begin); });
  }
  int64_t TakeLast() {
    return Take(
        [](int64_t begin, int64_t end) { return std::pair(Pack(begin, end - 1), end - 1); });
  }

 private:
  static uint64_t Pack(int64_t begin, int64_t end) {
    return static_cast<uint64_t>(begin) << 32 | static_cast<uint64_t>(end);
  }
  static int64_t Begin(uint64_t ends) { return static_cast<int64_t>(ends >> 32); }
  static int64_t End(uint64_t ends) { return static_cast<int64_t>(ends & 0xFFFF'FFFF); }

  template <typename Split>
  int64_t Take(const Split& split) {
    uint64_t ends = ends_.load(std::memory_order_relaxed);
    while (Begin(ends) < End(ends)) {
      const auto [rest, chunk] = split(Begin(ends), End(ends));
      if (ends_.compare_exchange_weak(ends, rest, std::memory_order_relaxed)) return chunk;
    }
    return -1;
  }

  alignas(64) std::atomic<uint64_t> ends_{0};
};

// The next chunk of `thread`: from its own range, or from the range with the most chunks left.
// REQUIRES at least as many untaken chunks as calls in progress.
int64_t TakeChunk(std::vector<ChunkRange>* ranges, size_t thread) {
  while (true) {
    int64_t chunk = (*ranges)[thread].TakeFirst();
    if (chunk >= 0) return chunk;
    const auto longest =
        std::max_element(ranges->begin(), ranges->end(),
                         [](const auto& a, const auto& b) { return a.size() < b.size(); });
    chunk = longest->TakeLast();
    if (chunk >= 0) return chunk;
  }
}

}  // namespace

struct ThreadPool::State {
  using Body = std::function<void(int64_t, int)>;

  // Written before the ticket of a loop, and read after a claim from that ticket.
  std::atomic<const Body*> body{nullptr};
  std::atomic<uint32_t> num_chunks{0};

  // Loop << 32 | chunks not yet claimed.
  alignas(64) std::atomic<uint64_t> ticket{0};
  // Chunks of the loop that are not done; the caller sleeps on it.
  alignas(64) std::atomic<int32_t> running{0};
  // Grows with each loop and at the end; the workers sleep on it.
  alignas(64) std::atomic<uint32_t> wakeups{0};
  std::atomic<bool> stopping{false};
  // True if a chunk of the loop threw. The thread that sets it writes `error`, which the caller
  // reads after all chunks have ended.
  std::atomic<bool> failed{false};
  std::exception_ptr error;
  std::vector<base::CoreShare> shares;  // of each thread, the caller's first
  std::vector<ChunkRange> ranges;       // the same
  std::vector<std::thread> workers;

  explicit State(int num_threads)
      : shares(static_cast<size_t>(num_threads)), ranges(static_cast<size_t>(num_threads)) {}

  ~State() {
    stopping.store(true, std::memory_order_release);
    WakeWorkers();
    for (std::thread& worker : workers) worker.join();
  }

  // The first core is left for the caller. More threads than cores share them in turn.
  void Pin() {
    const std::vector<int> cpus = UsableCpus();
    size_t num_pinned = 0;
    for (size_t i = 0; i < workers.size() && !cpus.empty(); ++i) {
      const base::CpuSet cpu({cpus[(i + 1) % cpus.size()]});
      num_pinned += cpu.Apply(workers[i].native_handle());
    }
    if (num_pinned == workers.size()) return;
    Log(LogLevel::kWarning, fmt::format("{}: {} of {} threads could not be pinned to a "
                                        "core; they run where the system puts them",
                                        SettingName(Setting::kPinThreads),
                                        workers.size() - num_pinned, workers.size()));
  }

  void KeepOn(const std::vector<int>& cpus) {
    const base::CpuSet set(cpus);
    size_t num_kept = 0;
    for (std::thread& worker : workers) num_kept += set.Apply(worker.native_handle());
    if (num_kept == workers.size()) return;
    Log(LogLevel::kWarning, fmt::format("{} of {} threads could not be kept on the processors of "
                                        "their rank; they run where the system puts them",
                                        workers.size() - num_kept, workers.size()));
  }

  bool HasWork() const {
    return static_cast<uint32_t>(ticket.load(std::memory_order_relaxed)) != 0;
  }

  // After a chunk has thrown, the following ones are skipped: the loop's result is lost anyway.
  void RunChunk(const Body& loop_body, int64_t chunk, int thread) {
    if (failed.load(std::memory_order_relaxed)) return;
    try {
      loop_body(chunk, thread);
    } catch (...) {
      if (!failed.exchange(true, std::memory_order_relaxed)) error = std::current_exception();
    }
  }

  // Claims and runs chunks until all are claimed.
  void Work(int thread) {
    uint64_t seen = ticket.load(std::memory_order_acquire);
    base::CoreShare& share = shares[static_cast<size_t>(thread)];
    if (static_cast<uint32_t>(seen) != 0) share.BeginLoop(shares, static_cast<size_t>(thread));
    while (static_cast<uint32_t>(seen) != 0) {
      // A claim that succeeds proves that `seen` was current all the while, so these belong to it.
      const Body* const loop_body = body.load(std::memory_order_relaxed);
      const uint32_t total = num_chunks.load(std::memory_order_relaxed);
      if (!ticket.compare_exchange_weak(seen, seen - 1, std::memory_order_acq_rel,
                                        std::memory_order_acquire)) {
        continue;
      }
      RunChunk(*loop_body, int64_t{total} - static_cast<uint32_t>(seen), thread);
      if (running.fetch_sub(1, std::memory_order_acq_rel) == 1) running.notify_one();
      share.BetweenChunks();
      seen = ticket.load(std::memory_order_acquire);
    }
  }

  void RunWorker(int thread) {
    while (true) {
      const uint32_t before = wakeups.load(std::memory_order_acquire);
      if (stopping.load(std::memory_order_acquire)) return;
      Work(thread);
      const bool woken =
          SpinUntil([&] { return HasWork() || wakeups.load(std::memory_order_relaxed) != before; });
      if (!woken) wakeups.wait(before, std::memory_order_acquire);
    }
  }

  void WakeWorkers() {
    wakeups.fetch_add(1, std::memory_order_acq_rel);
    wakeups.notify_all();
  }
};

ThreadPool::ThreadPool(int num_threads, bool pin, const std::vector<int>& cpus) {
  MINISGL_CHECK(num_threads >= 1, "a pool of {} threads", num_threads);
  state_ = std::make_unique<State>(num_threads);
  try {
    for (int thread = 1; thread < num_threads; ++thread) {
      state_->workers.emplace_back([state = state_.get(), thread] { state->RunWorker(thread); });
    }
  } catch (const std::exception&) {
    Log(LogLevel::kWarning,
        fmt::format("only {} of {} threads could be started (no memory, or a limit on threads); "
                    "going on with those",
                    this->num_threads(), num_threads));
  }
  if (pin) {
    state_->Pin();
  } else if (!cpus.empty()) {
    state_->KeepOn(cpus);
  }
}

ThreadPool::~ThreadPool() = default;

int ThreadPool::num_threads() const { return static_cast<int>(state_->workers.size()) + 1; }

void ThreadPool::ParallelFor(int64_t num_chunks,
                             const std::function<void(int64_t chunk, int thread)>& body) {
  MINISGL_CHECK(num_chunks >= 0 && num_chunks <= kChunksMax, "a loop of {} chunks", num_chunks);
  State& state = *state_;
  if (num_chunks <= 1 || state.workers.empty()) {
    for (int64_t chunk = 0; chunk < num_chunks; ++chunk) body(chunk, 0);
    return;
  }
  state.body.store(&body, std::memory_order_relaxed);
  state.num_chunks.store(static_cast<uint32_t>(num_chunks), std::memory_order_relaxed);
  state.running.store(static_cast<int32_t>(num_chunks), std::memory_order_relaxed);
  const uint64_t loop = (state.ticket.load(std::memory_order_relaxed) >> 32) + 1;
  state.ticket.store(loop << 32 | static_cast<uint64_t>(num_chunks), std::memory_order_release);
  state.WakeWorkers();

  state.Work(/*thread=*/0);
  const auto done = [&] { return state.running.load(std::memory_order_acquire) == 0; };
  while (!SpinUntil(done)) {
    const int32_t left = state.running.load(std::memory_order_acquire);
    if (left != 0) state.running.wait(left, std::memory_order_acquire);
  }
  if (state.failed.load(std::memory_order_relaxed)) {
    state.failed.store(false, std::memory_order_relaxed);
    std::rethrow_exception(std::exchange(state.error, nullptr));
  }
}

void ThreadPool::ParallelForRanges(int64_t num_chunks,
                                   const std::function<void(int64_t chunk, int thread)>& body) {
  MINISGL_CHECK(num_chunks >= 0 && num_chunks <= kChunksMax, "a loop of {} chunks", num_chunks);
  std::vector<ChunkRange>& ranges = state_->ranges;
  const int64_t threads = num_threads();
  if (threads == 1) return ParallelFor(num_chunks, body);
  for (int64_t t = 0; t < threads; ++t) {
    ranges[static_cast<size_t>(t)].Set(num_chunks * t / threads, num_chunks * (t + 1) / threads);
  }
  // There are as many calls as chunks, so each call finds one.
  ParallelFor(num_chunks, [&](int64_t, int thread) {
    body(TakeChunk(&ranges, static_cast<size_t>(thread)), thread);
  });
}

}  // namespace minisgl
