#include "sim/failing_new.h"

#include <cstdlib>
#include <new>

namespace {
thread_local int64_t g_countdown = 0;

void* Allocate(std::size_t size) {
  if (g_countdown > 0 && --g_countdown == 0) throw std::bad_alloc();
  if (void* memory = std::malloc(size > 0 ? size : 1)) return memory;
  throw std::bad_alloc();
}
}  // namespace

void* operator new(std::size_t size) { return Allocate(size); }
void* operator new[](std::size_t size) { return Allocate(size); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }

namespace minisgl::sim {

FailingNew::FailingNew(int64_t countdown) { g_countdown = countdown; }

FailingNew::~FailingNew() { g_countdown = 0; }

}  // namespace minisgl::sim
