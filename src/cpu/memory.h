// Memory of the CPU implementations: zeroed, 64-byte aligned (a cache line, and the widest vector),
// with shared ownership.
#pragma once

#include <cstddef>
#include <memory>

#include "minisgl/base/status.h"
#include "minisgl/base/thread_pool.h"

namespace minisgl::cpu {

// Allocates zeroed memory, freed with the last copy of the pointer. Large blocks are mapped, in
// large pages if the system has them, and cost nothing until they are touched. kOutOfMemory if
// there is not enough memory.
Result<std::shared_ptr<void>> AllocateZeroed(size_t num_bytes);

// The same for memory that is written from end to end at once: the threads of `pool` take its
// pages, large ones until the system is slow to give one.
Result<std::shared_ptr<void>> AllocateToFill(size_t num_bytes, ThreadPool* pool);

// The workspace of one thread: a buffer of floats that grows on demand and never shrinks. Growing
// loses the contents.
class FloatBuffer {
 public:
  // Returns at least `count` floats, 64-byte aligned, of any value. Throws std::bad_alloc if there
  // is not enough memory: the engine turns that into the result of the step, and a later call may
  // succeed.
  float* Reserve(size_t count);
  size_t bytes() const { return count_ * sizeof(float); }

 private:
  std::shared_ptr<void> storage_;
  size_t count_ = 0;
};

}  // namespace minisgl::cpu
