// The running block of the emulator, called by the functions of device_emulated.h.
//
// Rules whose violation is a fault:
//   - __syncthreads: all threads of the block that have not ended arrive, at the same source line;
//   - warp operations: all lanes of the mask arrive with the same mask, operation and source line;
//     none has ended, waits at a barrier or is missing from the block;
//   - some thread of the block can always continue;
//   - a thread has waited for its asynchronous copies when it ends;
//   - a kernel launched as programmatic: every thread calls GridWait (or passes a barrier after
//     one that did).
//
// With Options::check_order, also:
//   - before GridWait a kernel reads nothing that an unfinished kernel wrote, and writes nothing
//     that one read or wrote;
//   - accesses of two threads to a byte of global memory, at least one of them a write, are ordered
//     (block_order.h), unless both are atomic, or both are writes of the same value: values are
//     compared if StoreVec writes them and blocks differ; within a block they are not.
// Seen are LoadVec, StoreVec, CopyAsync16 and atomics; plain dereferences, if the kernel is
// compiled with the calls of access_calls.cc.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <source_location>
#include <string>
#include <vector>

#include "emulator/block_order.h"
#include "emulator/emulator.h"
#include "emulator/fiber.h"
#include "emulator/global_memory.h"
#include "emulator/shared_memory.h"

struct uint3 {
  unsigned x, y, z;
};

namespace minisgl::cuda::emulator {

using Place = std::source_location;
bool SamePlace(const Place& a, const Place& b);
std::string PlaceText(const Place& place);  // file:line

// A function of device.h that a kernel calls.
struct Call {
  const char* name;
  const Place& place;
  const void* bytes = nullptr;  // to be written, if known
};

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
  // The machine of this OS thread.
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
  void PrefetchL2(const void* pointer, size_t num_bytes);
  void AccessGlobal(Access access, const void* pointer, size_t num_bytes, size_t alignment,
                    const Call& call);
  // An access by plain dereference, in the code at `code`. Does not throw: compilers do not expect
  // it there. After a fault the thread never continues.
  void Dereference(Access access, uintptr_t address, size_t num_bytes, const void* code);
  // An atomic on at most 8 bytes, in two steps: returns what they hold, then writes. With
  // `expected`, one that writes only if they hold that: otherwise it releases nothing.
  uint64_t BeginAtomic(const void* pointer, size_t num_bytes, const Call& call,
                       const uint64_t* expected = nullptr);
  void EndAtomic(void* pointer, size_t num_bytes, uint64_t bits);
  void Fence();
  void GridWait();
  void GridRelease();
  void CopyAsync16(const SharedArray& array, int64_t offset, const void* source, bool valid,
                   const Place& place);
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
  struct Block;
  struct Thread {
    Machine* machine;
    Block* block;
    uint32_t index;
    uint3 place_in_block;  // its threadIdx
    std::unique_ptr<Fiber> fiber;
    State state = State::kEnded;
    bool waited = false;           // GridWait, or it is not needed
    bool abandoned = false;        // its fiber cannot be used again
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
  // A block that is alive, or was: its threads' fibers are reused.
  struct Block {
    bool alive = false;
    bool gave_way = false;  // to other blocks; its running thread continues
    uint32_t number = 0;    // of all blocks of all kernels
    uint3 place_in_grid;
    std::vector<std::unique_ptr<Thread>> threads;  // as many as a block ever had
    std::array<Warp, 32> warps;
    SharedMemory shared;
    std::vector<TakenArray> arrays;
    std::array<uint64_t, 16> ready = {};  // by rank
    uint32_t num_live = 0;
    uint32_t num_at_barrier = 0;
    uint32_t first_at_barrier = 0;
    uint32_t epoch = 0;
    uint32_t running = 0;
    bool any_waited = false;      // a thread called GridWait
    bool released_early = false;  // GridRelease before that
    BlockOrder order;
  };
  // Unwinds the threads of a block that has failed.
  struct Unwound {};

  static void ThreadMain(void* thread);
  void RunBlocks();
  void BeginBlock(Block* block, uint32_t index);
  void BeginThreads(Block* block);
  void Resume(Block* block);
  Block* NextAlive();
  void VisitOtherBlocks();
  void EndThread(Thread* thread);
  void GrowPool(Block* block);
  void ReplaceAbandoned();
  void SetOrder(uint32_t num_blocks);

  Thread& running() { return *block_->threads[block_->running]; }
  void SetRunning(Thread* thread);
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
  std::string FaultText(const std::string& what);
  void RefreshActor(Thread* thread);
  uint64_t Random();

  // Global memory. An earlier access to a word.
  struct Earlier {
    uint32_t block, thread, clock;
    const char* did;
  };
  uint3 BlockPlace(uint32_t index) const;
  void CheckGlobal(const void* pointer, size_t num_bytes, size_t alignment, const char* what);
  bool TouchGlobal(Access access, uintptr_t address, size_t num_bytes);  // false: complaint_
  bool TouchWord(Access access, uintptr_t address, ShadowWord* word, uint32_t bytes);
  Complaint CheckWord(Access access, uintptr_t address, const ShadowWord& word, uint32_t bytes);
  Complaint CheckEarlier(Access access, uintptr_t address, const Earlier& earlier);
  bool WritesTheSame(uintptr_t address, uint32_t bytes) const;
  void RecordTouch(Access access, uintptr_t address, ShadowWord* word, uint32_t bytes);

  Fiber host_;
  std::vector<std::unique_ptr<Block>> blocks_;  // as many as were ever alive at once
  Block* block_ = nullptr;                      // the running one

  bool quit_ = false;
  bool active_ = false;
  bool check_order_ = false;
  CudaLaunch launch_;
  std::string kernel_;
  const std::function<void()>* body_ = nullptr;
  uint32_t num_threads_ = 0;
  uint32_t epoch_ = 0;         // of the block that began one last
  uint32_t num_alive_ = 0;     // blocks
  size_t num_begun_ = 0;       // blocks
  bool wants_block_ = false;   // a thread may wait for a block that has not begun
  uint32_t first_number_ = 0;  // of the kernel's blocks
  uint32_t clock_ = 0;         // block_order.h
  uint32_t touches_left_ = 0;  // until a thread that only dereferences gives way
  uint32_t atomics_left_ = 0;  // until a block must have ended
  // Atomics since a block began, after which one more begins: a thread may wait for it.
  static constexpr uint32_t kAtomicsUntilBlock = 1 << 12;
  uint32_t atomics_to_block_ = 0;
  bool released_early_ = false;
  KernelReleases releases_;
  Complaint complaint_;          // of the last access to global memory
  uintptr_t written_begin_ = 0;  // the access in progress: where it writes written_bytes_
  const unsigned char* written_bytes_ = nullptr;  // null if unknown
  bool failed_ = false;
  std::string fault_;
  uint64_t random_seed_ = 0, random_index_ = 0;
  std::vector<uint32_t> block_order_;
  std::vector<uint32_t> rank_of_, thread_of_;  // the order of the threads
};

// Addresses whose dereferences are not to be looked at: everything while this OS thread runs no
// kernel, then the stack of the running thread.
struct Unwatched {
  uintptr_t begin = 0;
  uintptr_t num_bytes = ~uintptr_t{0};
};
extern constinit thread_local Unwatched unwatched;

}  // namespace minisgl::cuda::emulator
