// A fixed set of threads that work through the chunks of one loop at a time, the caller among them.
//
// Chunks are handed out dynamically, so a thread that lost its core delays one chunk, not the loop.
// Threads that the system left on one core part, and one whose core another process wants gives it
// up between chunks (src/base/core_share.h); each may run on the same CPUs as before.
// Workers spin briefly between loops and then sleep on a futex, so an idle program uses no CPU. One
// loop at a time: ParallelFor is called from one thread (the engine's). The result of a loop must
// not depend on which thread runs a chunk.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace minisgl {

class ThreadPool {
 public:
  // `num_threads` >= 1 counts the caller: 1 makes no thread. Where the system gives fewer the pool
  // goes on with those, and logs a warning: num_threads() says how many there are. `pin` keeps each
  // but the caller on a core of its own, which leaves one for the caller; where that fails a
  // warning says so.
  explicit ThreadPool(int num_threads, bool pin = false);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const;

  // Calls body(chunk, thread) once for each chunk in [0, num_chunks), thread in [0, num_threads);
  // returns when all are done. Body must not call ParallelFor.
  //
  // Where a chunk throws, the first exception is thrown here once nothing runs any more; chunks
  // that had not begun may be left out. The pool stays usable.
  void ParallelFor(int64_t num_chunks, const std::function<void(int64_t chunk, int thread)>& body);

  // The same, but each thread has a range of neighbouring chunks and goes through it in order; one
  // that is done takes the last chunks of another's. For work that reads memory in the order of its
  // chunks and asks for it ahead.
  void ParallelForRanges(int64_t num_chunks,
                         const std::function<void(int64_t chunk, int thread)>& body);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace minisgl
