// A thread's share of its core: what threads that compute together do so that another process on
// one of their cores costs them half of that core, and not more.
//
// Two things cost more. The system may leave two of the threads on one core while the other process
// has a core to itself; then one of them moves. And it takes a core away in the middle of a chunk
// of work, for which all others wait until its turn comes again (4 ms where the clock ticks 250
// times a second); a thread that has seen that gives its core up by itself between two chunks,
// before its time is over. Measured with two threads and one core of two held by a process: 2.0
// times slower without either, 1.9 and 1.8 with one, 1.4 with both. A fair half allows 1.33.
//
// The first of the threads, the pool's caller, never moves: the others do. Which threads share a
// core's arithmetic units as siblings is not looked at.
//
// One object for each thread, used by it alone but for the CPU that it was last seen on.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <vector>

namespace minisgl::base {

// How long threads of a pool spin for the next loop before they sleep: longer than the pauses
// between the operations of a step, far shorter than a time slice.
inline constexpr std::chrono::microseconds kPoolSpin{50};

class CoreShare {
 public:
  // Before a thread's first chunk of a loop. `all` are those of the threads that compute together;
  // this one is all[index]. Moves this thread where one before it is on its CPU and there is a CPU
  // for it that none of them is on. It may then run on the same CPUs as before, but no longer on
  // such as are given to the process later. Looks every few milliseconds.
  void BeginLoop(const std::vector<CoreShare>& all, size_t index) noexcept;

  // After each chunk.
  void BetweenChunks() noexcept;

  // Those of `usable` that none of the threads was last seen on.
  static std::vector<int> FreeCpus(const std::vector<int>& usable,
                                   const std::vector<CoreShare>& all);

 private:
  void MoveToFreeCpus(const std::vector<CoreShare>& all);
  // That the core was taken away while a chunk ran, `had_ns` after it was given.
  void NoteLoss(int64_t now_ns, int64_t had_ns);

  // Alone in a line of the cache: others read it, and it seldom changes.
  alignas(64) std::atomic<int> cpu_{-1};
  // Nanoseconds of the steady clock.
  alignas(64) int64_t last_ns_ = 0;  // the latest call here
  int64_t given_ns_ = 0;             // since when it has had its core
  int64_t looked_ns_ = 0;            // when it last looked where the others are
  int64_t contended_until_ns_ = 0;
  int64_t keep_ns_ = 2'500'000;  // how long it keeps a contended core; learned
  int64_t num_losses_ = 0;       // as the system counts them, those that are known
};

}  // namespace minisgl::base
