// Limits the cost of another process on a core of the pool to about half of that core.
//
// Two effects make it cost more:
//   The system may run two threads of the pool on one core while the other process has a core to
//   itself. One of the two then moves to a free core.
//   The system may take a core away in the middle of a chunk, for which all other threads wait
//   until the thread runs again (4 ms at 250 clock ticks a second). A thread that has seen this
//   yields its core between two chunks, before its time slice ends.
// Measured with two threads on two cores, one of them busy with another process: 2.0 times slower
// without either remedy, 1.9 and 1.8 with one, 1.4 with both. A fair half allows 1.33.
//
// The first thread, the pool's caller, never moves. SMT siblings are not distinguished from cores.
//
// One object for each thread, used by that thread only, except cpu_, which the others read.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <vector>

namespace minisgl::base {

// Time that the threads of a pool spin for the next loop before they sleep: longer than the pauses
// between the operations of a step, far shorter than a time slice.
inline constexpr std::chrono::microseconds kPoolSpin{50};

// How a thread finds out whether it lost its core, and gives it up.
struct CoreSystem {
  int64_t (*now_ns)();      // of a steady clock
  int64_t (*num_losses)();  // of the core that this thread runs on
  void (*yield)();

  static const CoreSystem kReal;
};

class CoreShare {
 public:
  // Tests have a system of their own, which outlives the object.
  explicit CoreShare(const CoreSystem& system = CoreSystem::kReal) : system_(&system) {}

  // Called before a thread's first chunk of a loop. `all` are the objects of all threads of the
  // pool; this one is all[index]. Every few milliseconds, checks whether a thread with a lower
  // index is on the same CPU, and if so moves this thread to a CPU without any. Its affinity stays
  // as it was, except that CPUs given to the process later are not included.
  void BeginLoop(const std::vector<CoreShare>& all, size_t index) noexcept;

  // Called after each chunk.
  void BetweenChunks() noexcept;

  // The CPUs of `usable` on which no thread was last seen.
  static std::vector<int> FreeCpus(const std::vector<int>& usable,
                                   const std::vector<CoreShare>& all);

 private:
  void MoveToFreeCpus(const std::vector<CoreShare>& all);
  // Records that the core was taken away during a chunk, `had_ns` after the thread got it.
  void NoteLoss(int64_t now_ns, int64_t had_ns);

  // In a cache line of its own: other threads read it, and it rarely changes.
  alignas(64) std::atomic<int> cpu_{-1};
  // Nanoseconds of the system's clock.
  alignas(64) int64_t last_ns_ = 0;  // time of the latest call
  int64_t given_ns_ = 0;             // time when the thread got its core
  int64_t looked_ns_ = 0;            // time of the last check for other threads
  int64_t contended_until_ns_ = 0;
  int64_t keep_ns_ = 2'500'000;  // time to keep a contended core; adapted
  int64_t num_losses_ = 0;       // involuntary context switches seen so far
  const CoreSystem* system_;
};

}  // namespace minisgl::base
