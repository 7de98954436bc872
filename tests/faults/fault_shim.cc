// See fault_shim.h. No code here may allocate through the functions that it replaces. Counts are
// atomic, because calls come from any thread.
#include "faults/fault_shim.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <malloc.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <new>

namespace {

using minisgl::faults::Call;
using minisgl::faults::Fault;

std::atomic<bool> g_armed{false};
Fault g_fault;  // written while nothing is armed
std::array<std::atomic<int64_t>, minisgl::faults::kNumCalls> g_counts;
std::atomic<bool> g_struck{false};
std::atomic<int64_t> g_bytes{0}, g_peak_bytes{0};
std::atomic<int64_t> g_bytes_limit{0};  // of a lasting shortage of memory, after it began

constexpr size_t kPathsMax = 256;
constexpr size_t kPathBytes = 512;
std::array<std::array<char, kPathBytes>, kPathsMax> g_paths;
std::atomic<size_t> g_num_paths{0};

// Counts a call. True if it must fail.
bool Strikes(Call call) {
  if (!g_armed.load(std::memory_order_relaxed)) return false;
  const int64_t number = g_counts[static_cast<size_t>(call)].fetch_add(1) + 1;
  if (g_fault.call != call || g_fault.number == 0) return false;
  if (number != g_fault.number && (!g_fault.persistent || number < g_fault.number)) return false;
  g_struck.store(true);
  return true;
}

// Memory: a lasting shortage is a limit of the bytes in use when it begins.
bool AllocationFails(size_t size) {
  if (g_fault.call == Call::kAllocate && g_fault.persistent &&
      g_struck.load(std::memory_order_relaxed)) {
    if (!g_armed.load(std::memory_order_relaxed)) return false;
    return g_bytes.load() + static_cast<int64_t>(size) > g_bytes_limit.load();
  }
  if (!Strikes(Call::kAllocate)) return false;
  g_bytes_limit.store(g_bytes.load());
  return true;
}

void* Counted(void* memory) {
  if (memory == nullptr) return nullptr;
  const int64_t now = g_bytes.fetch_add(static_cast<int64_t>(malloc_usable_size(memory))) +
                      static_cast<int64_t>(malloc_usable_size(memory));
  int64_t peak = g_peak_bytes.load(std::memory_order_relaxed);
  while (now > peak && !g_peak_bytes.compare_exchange_weak(peak, now)) {
  }
  return memory;
}

using AlignedAlloc = void* (*)(size_t, size_t);

template <typename Function>
Function Next(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

void* Allocate(size_t size, size_t alignment) noexcept {
  if (AllocationFails(size)) return nullptr;
  if (alignment <= alignof(std::max_align_t)) return Counted(std::malloc(size > 0 ? size : 1));
  static const auto real = Next<AlignedAlloc>("aligned_alloc");
  return Counted(real(alignment, (size + alignment - 1) / alignment * alignment));
}

void* AllocateOrThrow(size_t size, size_t alignment = 1) {
  while (true) {
    if (void* memory = Allocate(size, alignment)) return memory;
    const std::new_handler handler = std::get_new_handler();
    if (handler == nullptr) throw std::bad_alloc();
    handler();
  }
}

void Free(void* memory) {
  if (memory == nullptr) return;
  g_bytes.fetch_sub(static_cast<int64_t>(malloc_usable_size(memory)));
  std::free(memory);
}

bool IsOfTheSystem(const char* path) {
  for (const char* root : {"/proc/", "/sys/", "/etc/", "/usr/", "/lib", "/dev/"}) {
    if (std::strncmp(path, root, std::strlen(root)) == 0) return true;
  }
  return false;
}

void NotePath(const char* path) {
  if (!g_armed.load(std::memory_order_relaxed) || IsOfTheSystem(path)) return;
  const size_t place = g_num_paths.fetch_add(1);
  if (place < kPathsMax) std::strncpy(g_paths[place].data(), path, kPathBytes - 1);
}

}  // namespace

void* operator new(size_t size) { return AllocateOrThrow(size); }
void* operator new[](size_t size) { return AllocateOrThrow(size); }
void* operator new(size_t size, const std::nothrow_t&) noexcept { return Allocate(size, 1); }
void* operator new[](size_t size, const std::nothrow_t&) noexcept { return Allocate(size, 1); }
void* operator new(size_t size, std::align_val_t alignment) {
  return AllocateOrThrow(size, static_cast<size_t>(alignment));
}
void* operator new[](size_t size, std::align_val_t alignment) {
  return AllocateOrThrow(size, static_cast<size_t>(alignment));
}
void operator delete(void* memory) noexcept { Free(memory); }
void operator delete[](void* memory) noexcept { Free(memory); }
void operator delete(void* memory, size_t) noexcept { Free(memory); }
void operator delete[](void* memory, size_t) noexcept { Free(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { Free(memory); }
void operator delete[](void* memory, const std::nothrow_t&) noexcept { Free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { Free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { Free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { Free(memory); }
void operator delete[](void* memory, size_t, std::align_val_t) noexcept { Free(memory); }

extern "C" {

// Freed by free(), which is not replaced: its bytes are not counted.
void* aligned_alloc(size_t alignment, size_t size) {
  static const auto real = Next<AlignedAlloc>("aligned_alloc");
  if (AllocationFails(size)) {
    errno = ENOMEM;
    return nullptr;
  }
  return real(alignment, size);
}

int open(const char* path, int flags, ...) {
  static const auto real = Next<int (*)(const char*, int, ...)>("open");
  NotePath(path);
  if (!IsOfTheSystem(path) && Strikes(Call::kOpen)) {
    errno = g_fault.error;
    return -1;
  }
  va_list more;
  va_start(more, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(more, mode_t) : 0;
  va_end(more);
  return real(path, flags, mode);
}

int fstat(int fd, struct stat* info) noexcept {
  static const auto real = Next<int (*)(int, struct stat*)>("fstat");
  if (Strikes(Call::kFstat)) {
    errno = g_fault.error;
    return -1;
  }
  return real(fd, info);
}

// An anonymous map counts as an allocation, any other as a call of kind kMap.
void* mmap(void* address, size_t size, int protection, int flags, int fd, off_t offset) noexcept {
  static const auto real = Next<void* (*)(void*, size_t, int, int, int, off_t)>("mmap");
  const bool fails = (flags & MAP_ANONYMOUS) != 0 ? AllocationFails(size) : Strikes(Call::kMap);
  if (fails) {
    errno = g_fault.call == Call::kMap ? g_fault.error : ENOMEM;
    return MAP_FAILED;
  }
  return real(address, size, protection, flags, fd, offset);
}

ssize_t read(int fd, void* buffer, size_t size) {
  static const auto real = Next<ssize_t (*)(int, void*, size_t)>("read");
  if (Strikes(Call::kRead)) {
    if (g_fault.error == 0) return real(fd, buffer, size > 0 ? 1 : 0);
    errno = g_fault.error;
    return -1;
  }
  return real(fd, buffer, size);
}

}  // extern "C"

namespace minisgl::faults {

void Arm(const Fault& fault) {
  g_armed.store(false);
  g_fault = fault;
  for (auto& count : g_counts) count.store(0);
  g_struck.store(false);
  g_num_paths.store(0);
  for (auto& path : g_paths) path.fill('\0');
  g_bytes.store(0);
  g_peak_bytes.store(0);
  g_armed.store(true);
}

void Disarm() { g_armed.store(false); }

int64_t NumCalls(Call call) { return g_counts[static_cast<size_t>(call)].load(); }
bool HasStruck() { return g_struck.load(); }
int64_t PeakBytes() { return g_peak_bytes.load(); }
int64_t BytesOut() { return g_bytes.load(); }

std::vector<std::string> OpenedPaths() {
  const bool was_armed = g_armed.exchange(false);
  std::vector<std::string> paths;
  for (size_t i = 0; i < g_num_paths.load() && i < kPathsMax; ++i) {
    paths.emplace_back(g_paths[i].data());
  }
  g_armed.store(was_armed);
  return paths;
}

}  // namespace minisgl::faults
