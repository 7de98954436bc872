// Fibers for the emulator: one for each thread of a block, kept from block to block.
//
// A switch saves and restores the registers that the calling convention keeps (Boost.Context) and
// is announced to the address sanitizer. A fiber stays on the OS thread that made it. Stacks are
// mapped on their own, with a page below that faults.
#pragma once

#include <cstddef>

namespace minisgl::emulator {

// A place that execution can be switched from and to. Default-made: stands for the stack of the OS
// thread itself, to which nothing can switch before it has switched away.
class Fiber {
 public:
  Fiber() = default;
  // Runs body(argument) at the first switch to it. After body returns, execution goes on in
  // `after` and this fiber must not be switched to.
  Fiber(void (*body)(void*), void* argument, Fiber* after);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Leaves `from`, which must be what runs, for `to`; returns when something switches to `from`.
  static void Switch(Fiber* from, Fiber* to);

 private:
  struct Entry;
  // What travels with a switch. Kept here: the stack of a fiber that ends goes with it.
  struct Message {
    Fiber* from = nullptr;
    Fiber* to = nullptr;
  };
  static void Arrived(Fiber* self, void* context, Fiber* from);
  [[noreturn]] void Run();

  void* context_ = nullptr;  // where it stands, while it does not run
  void* mapping_ = nullptr;
  const void* stack_bottom_ = nullptr;
  size_t stack_bytes_ = 0;
  void* fake_stack_ = nullptr;  // the address sanitizer's
  void (*body_)(void*) = nullptr;
  void* argument_ = nullptr;
  Fiber* after_ = nullptr;
  Message message_;
};

}  // namespace minisgl::emulator
