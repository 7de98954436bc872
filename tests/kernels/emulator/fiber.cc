// Fibers over boost::context's make_fcontext and jump_fcontext.
#include "emulator/fiber.h"

#include <sys/mman.h>

#include <boost/context/detail/fcontext.hpp>

#include "minisgl/base/check.h"

#if defined(__SANITIZE_ADDRESS__)
#define MINISGL_ADDRESS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define MINISGL_ADDRESS_SANITIZER 1
#endif
#endif

#ifdef MINISGL_ADDRESS_SANITIZER
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace minisgl::cuda::emulator {
namespace {

namespace context = boost::context::detail;

constexpr size_t kGuardBytes = 4096;

// Distance of the n-th stack's top from the end of its mapping. All mappings end at a page, so
// without it fibers that take turns would share a few sets of the first-level cache (64 sets of
// 64-byte lines). Steps of 13 lines use all 64 sets.
size_t StackOffset() {
  static thread_local size_t n = 0;
  return n++ * 13 % 64 * 64;
}

// `leaving`: null if the fiber that is left has ended.
void AnnounceStart(void** leaving, const void* bottom, size_t num_bytes) {
#ifdef MINISGL_ADDRESS_SANITIZER
  __sanitizer_start_switch_fiber(leaving, bottom, num_bytes);
#else
  (void)leaving, (void)bottom, (void)num_bytes;
#endif
}

void AnnounceFinish(void* fake_stack, const void** old_bottom, size_t* old_bytes) {
#ifdef MINISGL_ADDRESS_SANITIZER
  __sanitizer_finish_switch_fiber(fake_stack, old_bottom, old_bytes);
#else
  (void)fake_stack, (void)old_bottom, (void)old_bytes;
#endif
}

}  // namespace

struct Fiber::Entry {
  static void Main(context::transfer_t transfer) {
    const Message message = *static_cast<Message*>(transfer.data);
    Arrived(message.to, transfer.fctx, message.from);
    message.to->Run();
  }
};

Fiber::Fiber(void (*body)(void*), void* argument, Fiber* after)
    : body_(body), argument_(argument), after_(after) {
  mapping_ = mmap(nullptr, kGuardBytes + kStackBytes, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  MINISGL_CHECK(mapping_ != MAP_FAILED, "no memory for a fiber's stack");
  MINISGL_CHECK(mprotect(mapping_, kGuardBytes, PROT_NONE) == 0, "no guard page");
  unsigned char* const bottom = static_cast<unsigned char*>(mapping_) + kGuardBytes;
  stack_bottom_ = bottom;
  stack_bytes_ = kStackBytes - StackOffset();
  context_ = context::make_fcontext(bottom + stack_bytes_, stack_bytes_, &Entry::Main);
}

uintptr_t Fiber::stack_begin() const { return reinterpret_cast<uintptr_t>(mapping_) + kGuardBytes; }

Fiber::~Fiber() {
  if (mapping_ == nullptr) return;
#ifdef MINISGL_ADDRESS_SANITIZER
  __asan_unpoison_memory_region(stack_bottom_, kStackBytes);
#endif
  munmap(mapping_, kGuardBytes + kStackBytes);
}

void Fiber::Arrived(Fiber* self, void* context, Fiber* from) {
  from->context_ = context;
  // With the sanitizer this sets the bounds of the OS thread's own stack; otherwise it does
  // nothing.
  const void* old_bottom = from->stack_bottom_;
  size_t old_bytes = from->stack_bytes_;
  AnnounceFinish(self->fake_stack_, &old_bottom, &old_bytes);
  from->stack_bottom_ = old_bottom;
  from->stack_bytes_ = old_bytes;
}

void Fiber::Switch(Fiber* from, Fiber* to) {
  from->message_ = {from, to};
  AnnounceStart(&from->fake_stack_, to->stack_bottom_, to->stack_bytes_);
  const context::transfer_t transfer = context::jump_fcontext(to->context_, &from->message_);
  Arrived(from, transfer.fctx, static_cast<const Message*>(transfer.data)->from);
}

void Fiber::Run() {
  body_(argument_);
  message_ = {this, after_};
  AnnounceStart(nullptr, after_->stack_bottom_, after_->stack_bytes_);
  context::jump_fcontext(after_->context_, &message_);
  __builtin_unreachable();
}

}  // namespace minisgl::cuda::emulator
