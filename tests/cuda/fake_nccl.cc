// A fake of NCCL with the functions that the program calls. Ranks are threads of one process; sums
// are in the order of ranks, in f32, rounded once, as in the program's own kernels.
//
// A rank's work waits for the other ranks' work, and ends when its communicator is aborted, as
// NCCL's kernels do. With MINISGL_FAKE_NCCL_OF_OLD it lacks a function.
#include "fake_nccl.h"

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "minisgl/tensor/dtype.h"

namespace {

constexpr int kSuccess = 0, kInvalidArgument = 4;
constexpr int kF16 = 6, kF32 = 7, kBf16 = 9;

FakeNcclState g_state;

float Load(const void* x, int type, size_t i) {
  if (type == kF32) return static_cast<const float*>(x)[i];
  const uint16_t bits = static_cast<const uint16_t*>(x)[i];
  return type == kBf16 ? minisgl::Bf16ToFloat(bits) : minisgl::F16ToFloat(bits);
}

void Store(void* x, int type, size_t i, float value) {
  if (type == kF32) {
    static_cast<float*>(x)[i] = value;
  } else {
    static_cast<uint16_t*>(x)[i] =
        type == kBf16 ? minisgl::FloatToBf16(value) : minisgl::FloatToF16(value);
  }
}

// The ranks that sum together.
class Clique {
 public:
  explicit Clique(size_t num_ranks)
      : parts_(num_ranks), is_aborted_(num_ranks), num_comms_(num_ranks) {}

  void Sum(size_t rank, void* x, size_t count, int type) {
    std::unique_lock lock(mutex_);
    parts_[rank] = x;
    if (++num_here_ < parts_.size()) {
      const uint64_t round = round_;
      changed_.wait(lock, [&] { return round_ != round || is_aborted_[rank]; });
      return;
    }
    for (size_t i = 0; i < count; ++i) {
      float sum = Load(parts_[0], type, i);
      for (size_t other = 1; other < parts_.size(); ++other) sum += Load(parts_[other], type, i);
      for (void* const part : parts_) Store(part, type, i, sum);
    }
    num_here_ = 0;
    ++round_;
    changed_.notify_all();
  }

  // The last to end waits for graphs.
  void End(size_t rank, bool abort) {
    {
      const std::lock_guard lock(mutex_);
      is_aborted_[rank] = abort;
      changed_.notify_all();
      if (--num_comms_ > 0) return;
    }
    while (g_state.has_graphs && g_state.has_graphs()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<void*> parts_;
  size_t num_here_ = 0;
  uint64_t round_ = 0;
  std::vector<bool> is_aborted_;
  size_t num_comms_;
};

struct Comm {
  size_t rank;
  std::shared_ptr<Clique> clique;

  bool is_faulty() const { return static_cast<int>(rank) == g_state.faulty_rank; }
};

}  // namespace

extern "C" {

FakeNcclState* FakeNccl() { return &g_state; }

int ncclGetVersion(int* version) {
  *version = g_state.version;
  return g_state.version_error;
}

const char* ncclGetErrorString(int result) {
  return result == 2 ? "unhandled system error" : "some error of NCCL";
}

const char* ncclGetLastError(void*) { return "what went wrong"; }

int ncclCommInitAll(void** comms, int count, const int* devices) {
  if (g_state.init_error != kSuccess) return g_state.init_error;
  g_state.devices.assign(devices, devices + count);
  const auto clique = std::make_shared<Clique>(static_cast<size_t>(count));
  for (int rank = 0; rank < count; ++rank) {
    comms[rank] = new Comm{static_cast<size_t>(rank), clique};
    ++g_state.num_comms;
  }
  return kSuccess;
}

int ncclCommDestroy(void* handle) {
  const std::unique_ptr<Comm> comm(static_cast<Comm*>(handle));
  comm->clique->End(comm->rank, /*abort=*/false);
  --g_state.num_comms;
  return kSuccess;
}

#ifndef MINISGL_FAKE_NCCL_OF_OLD
int ncclCommAbort(void* handle) {
  const std::unique_ptr<Comm> comm(static_cast<Comm*>(handle));
  ++g_state.num_aborted;
  comm->clique->End(comm->rank, /*abort=*/true);
  --g_state.num_comms;
  return kSuccess;
}
#endif

int ncclCommGetAsyncError(void* handle, int* error) {
  *error = static_cast<const Comm*>(handle)->is_faulty() ? g_state.async_error : kSuccess;
  return kSuccess;
}

int ncclAllReduce(const void* from, void* to, size_t count, int type, int operation, void* handle,
                  void* stream) {
  const Comm comm = *static_cast<const Comm*>(handle);
  if (operation != 0 || from != to || (type != kF16 && type != kF32 && type != kBf16)) {
    return kInvalidArgument;
  }
  if (comm.is_faulty() && g_state.sum_error != kSuccess) return g_state.sum_error;
  ++g_state.num_sums;
  size_t longest = g_state.longest;
  while (longest < count && !g_state.longest.compare_exchange_weak(longest, count)) {
  }
  const size_t num_bytes = count * (type == kF32 ? 4 : 2);
  g_state.enqueue(static_cast<int>(comm.rank), stream, to, num_bytes, [=] {
    if (comm.is_faulty() && g_state.is_absent) return;
    comm.clique->Sum(comm.rank, to, count, type);
  });
  return kSuccess;
}

}  // extern "C"
