// Options, and the interface of global memory.
#include "emulator/emulator.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <new>
#include <thread>
#include <utility>

#include "emulator/global_memory.h"
#include "emulator/launch_support.h"
#include "emulator/machine.h"

namespace minisgl::cuda::emulator {
namespace {

std::mutex& TurnMutex() {
  static std::mutex mutex;
  return mutex;
}

uintptr_t Address(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }

}  // namespace

Turn::Turn() { TurnMutex().lock(); }
Turn::~Turn() { TurnMutex().unlock(); }

// Sleeps: a thread that only yields would often be the next to have the turn.
void GiveTurn() {
  TurnMutex().unlock();
  std::this_thread::sleep_for(std::chrono::microseconds(10));
  TurnMutex().lock();
}

const Options& GetOptions() { return Machine::Get().options; }
void SetOptions(const Options& options) { Machine::Get().options = options; }

std::vector<Prefetch> TakePrefetches() { return std::exchange(Machine::Get().prefetches, {}); }

void ForEachOrder(int count, const std::function<void(int)>& fn) {
  struct Restore {
    Options options = GetOptions();
    ~Restore() { SetOptions(options); }
  } restore;
  const int num_orders = std::min(count, restore.options.orders_max);
  for (int order = 0; order < num_orders; ++order) {
    Options options = restore.options;
    options.order = order;
    SetOptions(options);
    fn(order);
  }
}

void RunGrid(const CudaLaunch& launch, const std::string& kernel,
             const std::function<void()>& body) {
  const Turn turn;
  Machine::Get().Run(launch, kernel, body);
}

void* AllocateGlobal(size_t num_bytes) {
#if !defined(__SANITIZE_ADDRESS__)  // which detects accesses behind the end
  num_bytes = (num_bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
#endif
  return ::operator new (num_bytes, std::align_val_t{kPageBytes});
}

void FreeGlobal(void* pointer) { ::operator delete (pointer, std::align_val_t{kPageBytes}); }

void RegisterGlobal(const void* pointer, size_t num_bytes) {
  const Turn turn;
  GlobalMemory::Get().Register(Address(pointer), num_bytes);
}

void UnregisterGlobal(const void* pointer) {
  const Turn turn;
  GlobalMemory::Get().Unregister(Address(pointer));
}

bool InGlobal(const void* pointer, size_t num_bytes) {
  return GlobalMemory::Get().Contains(Address(pointer), num_bytes);
}

void FinishKernels() {
  const Turn turn;
  GlobalMemory::Get().Finish();
}
void FinishKernels(CudaStream stream) {
  const Turn turn;
  if (GlobalMemory::Get().stream() == stream) GlobalMemory::Get().Finish();
}

void RecordKernel(const std::string& name, CudaStream stream, const std::vector<GlobalRange>& reads,
                  const std::vector<GlobalRange>& writes) {
  if (!GetOptions().check_order) return;
  GlobalMemory& memory = GlobalMemory::Get();
  const uint32_t number = memory.BeginKernel(name, 1, false, stream);
  for (const auto& [begin, num_bytes] : reads) memory.MarkRead(Address(begin), num_bytes, number);
  for (const auto& [begin, num_bytes] : writes) {
    memory.MarkWritten(Address(begin), num_bytes, number);
  }
  memory.EndKernel(false);
}

PendingKernel*& CurrentPendingKernel() {
  static thread_local PendingKernel* pending = nullptr;
  return pending;
}

std::string KernelName(const char* pretty_function) {
  const std::string text = pretty_function;
  const size_t begin = text.find('{');
  const size_t end = text.rfind('}');
  if (begin == std::string::npos || end == std::string::npos) return "()";
  return fmt::format("({})", text.substr(begin + 1, end - begin - 1));
}

}  // namespace minisgl::cuda::emulator
