// See memory.h.
#include "cpu/memory.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

namespace minisgl {
namespace {

constexpr size_t kAlignment = 64;
// From here on a block is mapped: below, the rounding to pages and the system calls would cost more
// than clearing.
constexpr size_t kMappedBytesMin = size_t{1} << 20;

}  // namespace

Result<std::shared_ptr<void>> AllocateZeroed(size_t num_bytes) {
  const auto no_memory = [num_bytes] {
    return MakeStatus(
        StatusCode::kOutOfMemory,
        "no memory for {} bytes; use a smaller model, shorter sequences or fewer requests",
        num_bytes);
  };
  if (num_bytes > PTRDIFF_MAX - kAlignment) return no_memory();
  if (num_bytes >= kMappedBytesMin) {
    void* data =
        mmap(nullptr, num_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) return no_memory();
    return std::shared_ptr<void>(data, [num_bytes](void* block) { munmap(block, num_bytes); });
  }
  const size_t rounded = (num_bytes / kAlignment + 1) * kAlignment;
  void* data = std::aligned_alloc(kAlignment, rounded);
  if (data == nullptr) return no_memory();
  std::memset(data, 0, rounded);
  return std::shared_ptr<void>(data, [](void* block) { std::free(block); });
}

float* FloatBuffer::Reserve(size_t count) {
  if (count > count_) {
    storage_.reset();
    count_ = 0;
    if (count > SIZE_MAX / sizeof(float)) throw std::bad_alloc();
    auto storage = AllocateZeroed(count * sizeof(float));
    if (!storage.ok()) throw std::bad_alloc();
    storage_ = std::move(storage).value();
    count_ = count;
  }
  return static_cast<float*>(storage_.get());
}

}  // namespace minisgl
