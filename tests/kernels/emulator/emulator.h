// The thread-block emulator: runs kernels that use cuda/device/device.h on the host, with a fiber
// for each thread of a block, and checks every shared access, barrier, warp operation and copy (the
// checks: machine.h, shared_memory.h).
//
// Blocks run one after another, and the threads of a block one at a time; a thread runs until its
// next barrier or warp operation. The options' `order` selects the next thread, and the order of
// blocks; a correct kernel has the same results in all orders. State belongs to the OS thread that
// launches; global memory and its history belong to the process and are used by one thread at a
// time, the one that has the turn: a kernel has it until it ends, or sleeps because it waits for
// another thread's.
//
// Options::check_order checks accesses to global memory, too, by a history of each 4-byte word:
//   - between blocks: up to four are alive at a time and take turns at barriers, fences and
//     atomics. A plain access to what another block wrote, and a write to what it accessed, must be
//     ordered after that by fences and atomics (block_order.h). Within a block: by barriers;
//   - between kernels: one that is launched with the programmatic attribute may begin before the
//     writes of earlier ones are visible. Kernels still run in the order of their launches, each to
//     its end, so what a kernel reads is new; but it is a fault to read before GridWait what an
//     unfinished kernel wrote, to write what one wrote or read, and to end without GridWait.
//     Kernels of all streams count as those of one stream.
// Neither depends on what order the threads happen to run in, except that an access is compared
// with the last ones to its word only: a fault may be missed in one order, none is invented.
//
// Kernels must be compiled so that their plain dereferences are seen: tests/kernels/meson.build,
// checked_kernels, which test_kernels_order runs.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "cuda_api.h"

namespace minisgl::cuda::emulator {

// A kernel's error, thrown from its launch (or from the replay of its graph). The message has the
// kernel, block and thread, the error, and the thread's last barrier or warp operation.
class Fault : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

inline constexpr int kNumOrders = 8;

struct Options {
  // 0: the first thread of the block that can run; 1: the last; 2: lanes 0 of all warps, lanes 1,
  // ...; from 3 on: random threads, seeded by the number, which also yield at random at barriers
  // and warp operations.
  int order = 0;
  bool records_prefetches = false;  // for TakePrefetches
  // Checks the order of accesses to global memory.
  bool check_order = false;
  // Blocks that are alive at once; 0: one, or with check_order 1 to 4, by the order (2 in order 0).
  // More, up to all, if a thread waits for a block that has not begun.
  int blocks_at_once = 0;
  // Atomics since a block last ended: with more, a thread waits for what does not come.
  uint32_t atomics_max = 1 << 26;
  // The fault of plants.py that the kernels have, by number; negative: none.
  int planted = -1;
  // Upper bound on the orders of ForEachOrder.
  int orders_max = kNumOrders;
};
const Options& GetOptions();
void SetOptions(const Options& options);
inline bool Planted(int fault) { return GetOptions().planted == fault; }

// What kernels launched by this OS thread passed to PrefetchL2 while options.records_prefetches was
// set, in the order of the calls, since the last TakePrefetches.
struct Prefetch {
  const void* begin = nullptr;
  size_t num_bytes = 0;
};
std::vector<Prefetch> TakePrefetches();

// Calls fn(order) with each of `count` orders, or of Options::orders_max if those are fewer;
// restores the options afterwards.
void ForEachOrder(int count, const std::function<void(int)>& fn);

// Runs `body` once for each thread of the grid. `kernel` names it in faults. Throws Fault.
void RunGrid(const CudaLaunch& launch, const std::string& kernel,
             const std::function<void()>& body);

// Global memory that vector accesses, asynchronous copies and atomics may use. The address
// sanitizer checks plain dereferences.
// REQUIRES whole pages of its own: AllocateGlobal.
void RegisterGlobal(const void* pointer, size_t num_bytes);
void UnregisterGlobal(const void* pointer);
// True if one registered piece holds all of [pointer, pointer + num_bytes).
bool InGlobal(const void* pointer, size_t num_bytes);

// Memory for a piece: in pages that hold nothing else. Not registered.
void* AllocateGlobal(size_t num_bytes);
void FreeGlobal(void* pointer);

// Has the turn while it exists. Kernels that depend on each other, as those of several ranks do,
// run on OS threads of their own, without check_order.
class Turn {
 public:
  Turn();
  ~Turn();
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
};
// Called by a kernel that waits: gives other threads the turn.
void GiveTurn();

// For work that is done by the host on global memory. A copy or fill waits for all kernels before
// it; so does a wait of the host.
void FinishKernels();
void FinishKernels(CudaStream stream);  // if they are of that stream
// A kernel that is not run by the emulator, launched without the programmatic attribute.
struct GlobalRange {
  const void* begin;
  size_t num_bytes;
};
void RecordKernel(const std::string& name, CudaStream stream, const std::vector<GlobalRange>& reads,
                  const std::vector<GlobalRange>& writes);

// An array in registered global memory, for tests of kernels. Elements not given are 0xCD bytes.
template <typename T>
class DeviceArray {
 public:
  explicit DeviceArray(size_t count)
      : bytes_(static_cast<unsigned char*>(AllocateGlobal(Bytes(count)))), count_(count) {
    std::fill_n(bytes_, Bytes(count), static_cast<unsigned char>(0xCD));
    RegisterGlobal(bytes_, Bytes(count));
  }
  explicit DeviceArray(const std::vector<T>& values) : DeviceArray(values.size()) {
    std::copy(values.begin(), values.end(), data());
  }
  ~DeviceArray() {
    UnregisterGlobal(bytes_);
    FreeGlobal(bytes_);
  }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  T* data() { return reinterpret_cast<T*>(bytes_); }
  const T* data() const { return reinterpret_cast<const T*>(bytes_); }
  size_t size() const { return count_; }
  T& operator[](size_t i) { return data()[i]; }
  std::vector<T> values() const { return std::vector<T>(data(), data() + count_); }

 private:
  static size_t Bytes(size_t count) { return count * sizeof(T); }
  unsigned char* bytes_;
  size_t count_;
};

}  // namespace minisgl::cuda::emulator
