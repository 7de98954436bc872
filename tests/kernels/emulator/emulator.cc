// Options and the registry of global memory.
#include "emulator/emulator.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "emulator/launch_support.h"
#include "emulator/machine.h"

namespace minisgl::cuda::emulator {
namespace {

struct GlobalMemory {
  std::map<uintptr_t, size_t> pieces;      // bytes by begin
  uintptr_t last_begin = 0, last_end = 0;  // the piece found last
};

GlobalMemory& Global() {
  static GlobalMemory global;
  return global;
}

}  // namespace

const Options& GetOptions() { return Machine::Get().options; }
void SetOptions(const Options& options) { Machine::Get().options = options; }

std::vector<Prefetch> TakePrefetches() { return std::exchange(Machine::Get().prefetches, {}); }

void ForEachOrder(int count, const std::function<void(int)>& fn) {
  struct Restore {
    Options options = GetOptions();
    ~Restore() { SetOptions(options); }
  } restore;
  for (int order = 0; order < count; ++order) {
    SetOptions({.order = order});
    fn(order);
  }
}

void RunGrid(const CudaLaunch& launch, const std::string& kernel,
             const std::function<void()>& body) {
  Machine::Get().Run(launch, kernel, body);
}

void RegisterGlobal(const void* pointer, size_t num_bytes) {
  Global().pieces[reinterpret_cast<uintptr_t>(pointer)] = num_bytes;
}

void UnregisterGlobal(const void* pointer) {
  GlobalMemory& global = Global();
  global.pieces.erase(reinterpret_cast<uintptr_t>(pointer));
  global.last_begin = global.last_end = 0;
}

bool InGlobal(const void* pointer, size_t num_bytes) {
  GlobalMemory& global = Global();
  const uintptr_t begin = reinterpret_cast<uintptr_t>(pointer);
  const uintptr_t end = begin + num_bytes;
  if (begin >= global.last_begin && end <= global.last_end) return true;
  const auto after = global.pieces.upper_bound(begin);
  if (after == global.pieces.begin()) return false;
  const auto& [piece, piece_bytes] = *std::prev(after);
  if (end > piece + piece_bytes) return false;
  global.last_begin = piece;
  global.last_end = piece + piece_bytes;
  return true;
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
