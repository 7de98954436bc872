// Fibers for the emulator: one for each thread of a block, reused for every block.
//
// A switch saves and restores the registers that the calling convention keeps (Boost.Context) and
// is announced to the address sanitizer. A fiber stays on the OS thread that made it. Stacks are
// mapped on their own, with a page below that faults.
#pragma once

#include <cstddef>
#include <cstdint>

namespace minisgl::cuda::emulator {

// A context that execution can be switched from and to. A default-constructed one is the OS
// thread's own stack, which must be switched away from before it can be switched to.
class Fiber {
 public:
  Fiber() = default;
  // Runs body(argument) at the first switch to it. After body returns, execution goes on in
  // `after` and this fiber must not be switched to.
  Fiber(void (*body)(void*), void* argument, Fiber* after);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Kernels hold their tiles in registers, which here are on the stack: a few KiB, several times
  // that under the address sanitizer. Only touched pages use memory.
  static constexpr size_t kStackBytes = 256 * 1024;
  // The lowest address of its stack, of kStackBytes.
  uintptr_t stack_begin() const;

  // Switches from `from`, the running fiber, to `to`; returns when another switches to `from`.
  static void Switch(Fiber* from, Fiber* to);

 private:
  struct Entry;
  // The data passed with a switch. Stored here, as the stack of a fiber that ends is freed.
  struct Message {
    Fiber* from = nullptr;
    Fiber* to = nullptr;
  };
  static void Arrived(Fiber* self, void* context, Fiber* from);
  [[noreturn]] void Run();

  void* context_ = nullptr;  // its saved context, while it does not run
  void* mapping_ = nullptr;
  const void* stack_bottom_ = nullptr;
  size_t stack_bytes_ = 0;
  void* fake_stack_ = nullptr;  // the address sanitizer's
  void (*body_)(void*) = nullptr;
  void* argument_ = nullptr;
  Fiber* after_ = nullptr;
  Message message_;
};

}  // namespace minisgl::cuda::emulator
