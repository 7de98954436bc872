// Sums over the ranks of this process by NCCL: a communicator for each rank, and a thread that ends
// all waits once a rank has failed.
//
// NCCL's kernels wait for the other ranks' kernels without a limit, until ncclCommAbort. That
// function also waits until no graph uses the communicator any more, which would be for ever on a
// thread that destroys the graphs later; so it is called on the thread here.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "minisgl/base/status.h"
#include "minisgl/ops_params.h"
#include "nccl_library.h"

namespace minisgl::cuda {

class NcclRanks {
 public:
  // Connects `devices`, one for each rank; may change the caller's current device. A rank that
  // waits for longer than `wait_ms` has failed. `alarm`: as in RankExchange; outlives the object.
  static Result<std::shared_ptr<NcclRanks>> Make(const NcclLibrary& library,
                                                 const std::vector<int>& devices, int64_t wait_ms,
                                                 uint32_t* alarm);
  // REQUIRES that no sum is queued or part of a graph.
  ~NcclRanks();
  NcclRanks(const NcclRanks&) = delete;
  NcclRanks& operator=(const NcclRanks&) = delete;

  const NcclLibrary& library() const { return library_; }

  // The following are called on the thread of `rank`.
  //
  // Queues x[count] = the sum of all ranks' x. Every rank has the same bits.
  Status Sum(int32_t rank, ActivationPtr x, int64_t count, CudaStream stream);
  // Before work that may wait for sums is queued: it is watched until it is waited for.
  void Begin(int32_t rank);
  int64_t num_begun(int32_t rank) const;
  // After the first `count` pieces of work are waited for.
  void End(int32_t rank, int64_t count);

  // The fault for which the thread here raised the alarm, and the rank that has it; OK if another
  // part of the program raised it. Any thread may call this.
  Status Fault(int32_t* rank) const;

 private:
  struct State {
    NcclComm comm = nullptr;
    std::timed_mutex calls;  // held during Sum
    std::atomic<bool> is_aborted = false;
    // Guarded by mutex_:
    int64_t num_begun = 0, num_done = 0;
    int64_t waited_ms = 0;  // since work began or ended, while there is some
    bool is_new = false;    // it has begun or ended since the thread looked last
    Status fault;

    void Restart() {
      waited_ms = 0;
      is_new = true;
    }
  };

  NcclRanks(const NcclLibrary& library, size_t num_ranks, int64_t wait_ms, uint32_t* alarm)
      : library_(library), wait_ms_(wait_ms), alarm_(*alarm), ranks_(num_ranks) {}
  bool IsBusy() const;
  void Watch();
  bool FindFault(int64_t elapsed_ms);
  void AbortAll();
  State& At(int32_t rank) { return ranks_[static_cast<size_t>(rank)]; }
  const State& At(int32_t rank) const { return ranks_[static_cast<size_t>(rank)]; }

  const NcclLibrary library_;
  const int64_t wait_ms_;
  const std::atomic_ref<uint32_t> alarm_;
  std::vector<State> ranks_;
  mutable std::mutex mutex_;  // guards the two below, and what says so of ranks_
  std::condition_variable changed_;
  bool stopping_ = false;
  bool is_asleep_ = false;    // the thread, until a rank is busy
  bool are_aborted_ = false;  // written by the thread
  std::thread thread_;        // last, because it uses the members above
};

}  // namespace minisgl::cuda
