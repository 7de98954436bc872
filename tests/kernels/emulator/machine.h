// The running block of the emulator, called by the functions of device_emulated.h.
//
// Rules whose violation is a fault:
//   - __syncthreads: all threads of the block that have not ended arrive, at the same source line;
//   - warp operations: all lanes of the mask arrive with the same mask, operation and source line;
//     none has ended, waits at a barrier or is missing from the block;
//   - some thread of the block can always continue;
//   - a thread has waited for its asynchronous copies when it ends.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <source_location>
#include <string>
#include <vector>

#include "emulator/emulator.h"
#include "emulator/fiber.h"
#include "emulator/shared_memory.h"

struct uint3 {
  unsigned x, y, z;
};

namespace minisgl::cuda::emulator {

using Place = std::source_location;

enum class WarpOp : uint8_t {
  kSyncWarp,
  kShuffle,
  kShuffleXor,
  kShuffleUp,
  kShuffleDown,
  kBallot,
  kAny,
  kAll,
  kMatch,
  kReduceAdd,
  kReduceMin,
  kReduceMax,
  kReduceAnd,
  kReduceOr,
  kReduceXor,
  kLoadMatrix,
  kLoadMatrixTrans,
  kMmaBf16,
  kMmaF16,
};

// One lane's part of a warp operation.
struct WarpCall {
  WarpOp op;
  uint32_t mask = 0xffffffffu;
  uint64_t value = 0;  // what the lane gives
  int parameter = 0;   // of a shuffle: lane, mask or distance
  int width = 32;
  uint64_t result = 0;
  // kLoadMatrix: the row that the lane's address names; where the fragments go.
  std::array<uint16_t, 8> row = {};
  uint32_t* fragments = nullptr;
  // kMma
  float* d = nullptr;
  const uint32_t* a = nullptr;
  const uint32_t* b = nullptr;
};
const char* WarpOpName(WarpOp op);

// Performs `op` for the lanes of calls[0]'s mask; calls[lane] is null outside it. Returns the
// error, or an empty string.
Complaint RunWarpOp(const std::array<WarpCall*, 32>& calls, uint32_t mask);

// The array of shared memory that a pointer was made from; bounds in bytes.
struct SharedArray {
  int64_t begin = 0;
  int64_t end = 0;
  int32_t index = -1;
};

class Machine {
 public:
  // Of this OS thread.
  static Machine& Get() { return of_thread != nullptr ? *of_thread : Make(); }
  ~Machine();

  void Run(const CudaLaunch& launch, const std::string& kernel, const std::function<void()>& body);
  Options options;
  std::vector<Prefetch> prefetches;  // recorded

  // The rest is called by the threads of the running block.
  void SyncThreads(const Place& place);
  void MeetWarp(WarpCall* call, const Place& place);
  // The index-th array that the running thread takes.
  SharedArray Take(int index, int64_t offset, int64_t num_bytes, const Place& place);
  // Checks the access and returns where the bytes are.
  unsigned char* AccessShared(Access access, const SharedArray& array, int64_t offset,
                              int num_bytes, int alignment);
  void CheckGlobal(const void* pointer, size_t num_bytes, size_t alignment, const char* what);
  void PrefetchL2(const void* pointer, size_t num_bytes);
  void CopyAsync16(const SharedArray& array, int64_t offset, const void* source, bool valid);
  void CopyAsyncCommit();
  void CopyAsyncWait(int num_unfinished);
  [[noreturn]] void Fail(const std::string& what);

 private:
  static Machine& Make();
  static constinit thread_local Machine* of_thread;

  enum class State : uint8_t { kReady, kAtBarrier, kInWarpOp, kEnded };
  struct AsyncCopy {
    size_t offset;
    const void* source;
  };
  struct Thread {
    Machine* machine;
    uint32_t index;
    uint3 place_in_block;  // its threadIdx
    std::unique_ptr<Fiber> fiber;
    State state = State::kEnded;
    const char* met_at = nullptr;  // what it waits in, or last waited in
    Place place;
    WarpCall* call = nullptr;
    Actor actor;
    std::vector<AsyncCopy> copies;   // issued, oldest first
    std::vector<size_t> group_ends;  // of committed groups, as indices into copies
  };
  struct Warp {
    uint32_t lanes = 0;    // that the block has
    uint32_t waiting = 0;  // in a warp operation
    uint32_t wanted = 0;   // in the mask of a warp operation that lanes wait in
    uint32_t barred = 0;   // at the barrier, or ended
    uint32_t time = 0;
    uint32_t full_sync = 0;
    bool partial_syncs = false;
    std::array<std::array<uint32_t, 32>, 32> lane_sync = {};
  };
  struct TakenArray {
    SharedArray array;
    Place place;
  };
  // Unwinds the threads of a block that has failed.
  struct Unwound {};

  static void ThreadMain(void* thread);
  void RunBlock(uint32_t block);
  void BeginBlock(uint32_t block);
  void EndThread(Thread* thread);
  void GrowPool(size_t num_threads);
  void SetOrder(uint32_t num_blocks);

  Thread& running() { return *threads_[running_]; }
  void SetReady(Thread* thread);
  Thread* NextReady();
  void Leave();  // runs other threads; returns when the calling thread continues
  void GiveWay();
  void ReleaseBarrier();
  void CheckLanesCanMeet(const Warp& warp, const WarpCall& call, const Place& place);
  void Synchronize(Warp* warp, uint32_t mask);
  bool CompleteWarpOp(Warp* warp, uint32_t mask);
  [[noreturn]] void FailToMeet(const Warp& warp, const WarpCall& call, const Thread* other);
  void FailAll(const std::string& fault);
  std::string Deadlock() const;
  std::string Where(const Thread& thread) const;
  std::string Waiting(const Thread& thread) const;
  std::string ArrayName(const SharedArray& array) const;
  void RefreshActor(Thread* thread);
  uint64_t Random();

  Fiber host_;
  std::vector<std::unique_ptr<Thread>> threads_;  // as many as a block ever had
  std::array<Warp, 32> warps_;
  SharedMemory shared_;
  std::vector<TakenArray> arrays_;

  bool quit_ = false;
  bool active_ = false;
  CudaLaunch launch_;
  std::string kernel_;
  const std::function<void()>* body_ = nullptr;
  uint32_t num_threads_ = 0;
  uint32_t num_live_ = 0;
  uint32_t num_at_barrier_ = 0;
  uint32_t first_at_barrier_ = 0;
  uint32_t epoch_ = 0;
  uint32_t running_ = 0;
  bool failed_ = false;
  std::string fault_;
  uint64_t random_seed_ = 0, random_index_ = 0;
  std::vector<uint32_t> block_order_;
  std::vector<uint32_t> rank_of_, thread_of_;  // the order of the threads
  std::array<uint64_t, 16> ready_ = {};        // by rank
};

}  // namespace minisgl::cuda::emulator
