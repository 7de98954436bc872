// Memory of the CPU implementations: zeroed, 64-byte aligned (a cache line, and the widest vector),
// shared ownership.
#pragma once

#include <cstddef>
#include <memory>

#include "minisgl/base/status.h"

namespace minisgl::cpu {

// Zeroed memory, freed with the last copy of the pointer. Large blocks come straight from the
// system, in large pages where it has them, and cost nothing until they are touched. kOutOfMemory
// where there is none.
Result<std::shared_ptr<void>> AllocateZeroed(size_t num_bytes);

// Floats that grow on demand and never shrink: the workspace of one thread. Contents do not survive
// growing.
class FloatBuffer {
 public:
  // At least `count` floats, 64-byte aligned, of any value. Throws std::bad_alloc where there is no
  // memory for them: the engine makes it the result of the step, and the buffer may be tried again.
  float* Reserve(size_t count);
  size_t bytes() const { return count_ * sizeof(float); }

 private:
  std::shared_ptr<void> storage_;
  size_t count_ = 0;
};

}  // namespace minisgl::cpu
