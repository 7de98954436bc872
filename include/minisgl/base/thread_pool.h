// A fixed set of threads, the caller included, that runs the chunks of one loop at a time.
//
// ParallelFor is called from one thread (the engine's). The result of a loop must not depend on
// which thread runs a chunk.
//
// Chunks are assigned dynamically, so a thread that lost its core delays one chunk, not the loop.
// Two threads that the system put on one core separate, and a thread gives up a core that another
// process wants, between chunks (src/base/core_share.h); the affinity of threads does not change.
// Workers spin briefly between loops and then sleep on a futex, so an idle program uses no CPU.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace minisgl {

class ThreadPool {
 public:
  // `num_threads` >= 1 counts the caller: 1 creates no thread. If the system refuses threads, the
  // pool runs with those it got and logs a warning; num_threads() is the actual number. `pin` binds
  // each thread except the caller to its own core and leaves one core for the caller. Without it,
  // `cpus` are the logical CPUs that each thread except the caller may run on; empty: all. A
  // failure of either is logged as a warning.
  explicit ThreadPool(int num_threads, bool pin = false, const std::vector<int>& cpus = {});
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const;

  // Calls body(chunk, thread) once for each chunk in [0, num_chunks), with thread in
  // [0, num_threads), and returns after all have ended. `body` must not call ParallelFor.
  //
  // If a chunk throws, the first exception is rethrown here after all running chunks have ended;
  // chunks that had not begun may be skipped. The pool stays usable.
  void ParallelFor(int64_t num_chunks, const std::function<void(int64_t chunk, int thread)>& body);

  // The same, but each thread runs a contiguous range of chunks in order; a thread that has
  // finished takes the last chunks of another's range. For work that reads memory in chunk order
  // and prefetches it.
  void ParallelForRanges(int64_t num_chunks,
                         const std::function<void(int64_t chunk, int thread)>& body);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace minisgl
