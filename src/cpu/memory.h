// Memory of the CPU implementations: zeroed, 64-byte aligned (a cache line, and the widest vector),
// with shared ownership.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

#include "minisgl/base/status.h"
#include "minisgl/base/thread_pool.h"

namespace minisgl::cpu {

// Allocates zeroed memory, freed with the last copy of the pointer. Large blocks are mapped, in
// large pages if the system has them, and cost nothing until they are touched. kOutOfMemory if
// there is not enough memory.
Result<std::shared_ptr<void>> AllocateZeroed(size_t num_bytes);

// Memory for arrays that are written one after another, each from end to end as soon as it is
// taken: they lie beside each other in one block, so that arrays smaller than a large page have
// large pages too. The block is freed after the last of its arrays and this object. One thread.
class SharedBlock {
 public:
  // Allocates a block of the sum of what its arrays take of it (BytesOf).
  static Result<SharedBlock> Allocate(size_t num_bytes);
  // What an array of `num_bytes` takes of a block.
  static size_t BytesOf(size_t num_bytes);

  // The next `num_bytes`, whose pages the threads of `pool` took; null if the block has fewer left.
  std::shared_ptr<void> Take(size_t num_bytes, ThreadPool* pool);

 private:
  SharedBlock(std::shared_ptr<void> memory, size_t size)
      : memory_(std::move(memory)), size_(size) {}

  std::shared_ptr<void> memory_;
  size_t size_ = 0, used_ = 0;
  size_t num_ready_ = 0;  // bytes whose pages were taken
};

// What packs a matrix: the threads, and the block that its memory is taken from, if there is one
// and it has room.
struct Packing {
  Packing(ThreadPool* threads, SharedBlock* room = nullptr)  // NOLINT: threads alone are enough
      : pool(threads), block(room) {}
  ThreadPool* pool;
  SharedBlock* block;
};

// Memory as of AllocateZeroed, which is written from end to end at once: the threads take its
// pages, large ones unless the system gives small ones far sooner.
Result<std::shared_ptr<void>> AllocateToFill(size_t num_bytes, Packing packing);

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
