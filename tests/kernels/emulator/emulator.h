// The thread-block emulator: runs kernels that use cuda/device/device.h on the host, with a fiber
// for each thread of a block, and checks every shared access, barrier, warp operation and copy (the
// checks: machine.h, shared_memory.h).
//
// Blocks run one after another, and the threads of a block one at a time; a thread runs until its
// next barrier or warp operation. The options' `order` selects the next thread, and the order of
// blocks; a correct kernel has the same results in all orders. State belongs to the OS thread that
// launches; the registry of global memory belongs to the process and is used by one thread at a
// time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
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

struct Options {
  // 0: the first thread of the block that can run; 1: the last; 2: lanes 0 of all warps, lanes 1,
  // ...; from 3 on: random threads, seeded by the number, which also yield at random at barriers
  // and warp operations.
  int order = 0;
  bool records_prefetches = false;  // for TakePrefetches
};
const Options& GetOptions();
void SetOptions(const Options& options);

// What kernels launched by this OS thread passed to PrefetchL2 while options.records_prefetches was
// set, in the order of the calls, since the last TakePrefetches.
struct Prefetch {
  const void* begin = nullptr;
  size_t num_bytes = 0;
};
std::vector<Prefetch> TakePrefetches();

// Calls fn(order) with each of `count` orders; restores the options afterwards.
inline constexpr int kNumOrders = 8;
void ForEachOrder(int count, const std::function<void(int)>& fn);

// Runs `body` once for each thread of the grid. `kernel` names it in faults. Throws Fault.
void RunGrid(const CudaLaunch& launch, const std::string& kernel,
             const std::function<void()>& body);

// Global memory that vector accesses, asynchronous copies and atomics may use. The address
// sanitizer checks plain dereferences.
void RegisterGlobal(const void* pointer, size_t num_bytes);
void UnregisterGlobal(const void* pointer);
// True if one registered piece holds all of [pointer, pointer + num_bytes).
bool InGlobal(const void* pointer, size_t num_bytes);

// An array in registered global memory, for tests of kernels. Elements not given are 0xCD bytes.
template <typename T>
class DeviceArray {
 public:
  explicit DeviceArray(size_t count) : bytes_(new unsigned char[Bytes(count)]), count_(count) {
    std::fill_n(bytes_.get(), Bytes(count), static_cast<unsigned char>(0xCD));
    RegisterGlobal(bytes_.get(), Bytes(count));
  }
  explicit DeviceArray(const std::vector<T>& values) : DeviceArray(values.size()) {
    std::copy(values.begin(), values.end(), data());
  }
  ~DeviceArray() { UnregisterGlobal(bytes_.get()); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  T* data() { return reinterpret_cast<T*>(bytes_.get()); }
  const T* data() const { return reinterpret_cast<const T*>(bytes_.get()); }
  size_t size() const { return count_; }
  T& operator[](size_t i) { return data()[i]; }
  std::vector<T> values() const { return std::vector<T>(data(), data() + count_); }

 private:
  static size_t Bytes(size_t count) { return count * sizeof(T); }
  std::unique_ptr<unsigned char[]> bytes_;
  size_t count_;
};

}  // namespace minisgl::cuda::emulator
