// The functions that the compiler calls before each memory access in code compiled with
// -fsanitize=thread. Kernels whose order is checked are compiled so, without the sanitizer's
// library: these functions take its place and show the machine plain dereferences of global memory.
#include <cstddef>
#include <cstdint>

#include "emulator/machine.h"

namespace minisgl::cuda::emulator {
namespace {

[[gnu::always_inline]] inline void Dereferenced(Access access, const void* pointer,
                                                size_t num_bytes) {
  const uintptr_t address = reinterpret_cast<uintptr_t>(pointer);
  if (address - unwatched.begin < unwatched.num_bytes) return;
  Machine::Get().Dereference(access, address, num_bytes, __builtin_return_address(0));
}

}  // namespace
}  // namespace minisgl::cuda::emulator

using minisgl::cuda::emulator::Access;
using minisgl::cuda::emulator::Dereferenced;

#define MINISGL_ACCESS_CALLS(num_bytes)                                                         \
  void __tsan_read##num_bytes(void* p) { Dereferenced(Access::kRead, p, num_bytes); }           \
  void __tsan_write##num_bytes(void* p) { Dereferenced(Access::kWrite, p, num_bytes); }         \
  void __tsan_unaligned_read##num_bytes(void* p) { Dereferenced(Access::kRead, p, num_bytes); } \
  void __tsan_unaligned_write##num_bytes(void* p) { Dereferenced(Access::kWrite, p, num_bytes); }

extern "C" {
MINISGL_ACCESS_CALLS(1)
MINISGL_ACCESS_CALLS(2)
MINISGL_ACCESS_CALLS(4)
MINISGL_ACCESS_CALLS(8)
MINISGL_ACCESS_CALLS(16)
void __tsan_read_range(void* p, size_t num_bytes) { Dereferenced(Access::kRead, p, num_bytes); }
void __tsan_write_range(void* p, size_t num_bytes) { Dereferenced(Access::kWrite, p, num_bytes); }
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_init() {}
}
