// The state of fake_nccl.cc that tests read and set. One test uses it at a time.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

struct FakeNcclState {
  // Set before the first sum. Queues `work`, which reads and writes `x`, on a rank's stream.
  std::function<void(int rank, void* stream, void* x, size_t num_bytes, std::function<void()> work)>
      enqueue;
  // True while a graph has sums: the last communicator waits for its end.
  std::function<bool()> has_graphs;

  int version = 22703;
  int version_error = 0, init_error = 0;
  // Planted in one rank:
  int faulty_rank = -1;
  int sum_error = 0;       // ncclAllReduce returns it
  int async_error = 0;     // ncclCommGetAsyncError finds it
  bool is_absent = false;  // its kernels end without the sum, for which others wait

  // The clock that measures waits. It stands still unless a test sets it, or lets each look at it
  // take time.
  std::atomic<int64_t> now_ms{0}, look_ms{0};
  std::atomic<int64_t> num_looks{0};

  std::vector<int> devices;  // of the communicators made last
  std::atomic<int> num_comms{0}, num_aborted{0}, num_sums{0};
  std::atomic<size_t> longest{0};  // of the sums, in elements
};

extern "C" FakeNcclState* FakeNccl();
