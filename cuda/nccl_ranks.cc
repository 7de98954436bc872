// See nccl_ranks.h.
#include "nccl_ranks.h"

#include <algorithm>
#include <chrono>
#include <system_error>
#include <utility>

#include "minisgl/base/setting.h"
#include "minisgl/base/utf8.h"

namespace minisgl::cuda {
namespace {

// Between two looks at the ranks, while one is busy.
constexpr std::chrono::milliseconds kLook(50);
// A look counts at most this much: a process that was stopped for a while has not waited.
constexpr int64_t kLookMsMax = 1000;
// A call of NCCL returns before its communicator is ended, unless it waits for the other ranks.
constexpr std::chrono::milliseconds kCallMax(200);

int TypeOf(DType dtype) {
  if (dtype == DType::kF32) return kNcclFloat32;
  return dtype == DType::kBF16 ? kNcclBfloat16 : kNcclFloat16;
}

}  // namespace

Result<std::shared_ptr<NcclRanks>> NcclRanks::Make(const NcclLibrary& library,
                                                   const std::vector<int>& devices, int64_t wait_ms,
                                                   uint32_t* alarm) {
  std::shared_ptr<NcclRanks> made(new NcclRanks(library, devices.size(), wait_ms, alarm));
  std::vector<NcclComm> comms(devices.size());
  const NcclResult error =
      library.comm_init_all(comms.data(), static_cast<int>(comms.size()), devices.data());
  if (error != kNcclSuccess) {
    return MakeStatus(
        StatusCode::kUnavailable, "NCCL {} cannot connect the GPUs: {}; {} own does without it",
        library.VersionText(), library.ErrorText(error), SettingName(Setting::kAllReduce));
  }
  for (size_t rank = 0; rank < comms.size(); ++rank) made->ranks_[rank].comm = comms[rank];
  try {
    made->thread_ = std::thread([ranks = made.get()] { ranks->Watch(); });
  } catch (const std::system_error& fault) {
    return MakeStatus(StatusCode::kUnavailable, "no thread can be started ({})",
                      Visible(fault.what()));
  }
  return made;
}

NcclRanks::~NcclRanks() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  if (are_aborted_) return;
  for (const State& rank : ranks_) {
    if (rank.comm != nullptr) static_cast<void>(library_.comm_destroy(rank.comm));
  }
}

Status NcclRanks::Sum(int32_t rank, ActivationPtr x, int64_t count, CudaStream stream) {
  State& state = At(rank);
  const std::lock_guard lock(state.calls);
  if (state.is_aborted) return MakeStatus(StatusCode::kUnavailable, "NCCL's sums have ended");
  const NcclResult error = library_.all_reduce(x.data, x.data, static_cast<size_t>(count),
                                               TypeOf(x.dtype), kNcclSum, state.comm, stream);
  if (error == kNcclSuccess) return Status();
  return MakeStatus(StatusCode::kUnavailable, "ncclAllReduce: {}",
                    library_.ErrorText(error, state.comm));
}

void NcclRanks::Begin(int32_t rank) {
  const std::lock_guard lock(mutex_);
  State& state = At(rank);
  if (state.num_begun == state.num_done) state.Restart();
  ++state.num_begun;
  if (is_asleep_) changed_.notify_all();
}

int64_t NcclRanks::num_begun(int32_t rank) const {
  const std::lock_guard lock(mutex_);
  return At(rank).num_begun;
}

void NcclRanks::End(int32_t rank, int64_t count) {
  const std::lock_guard lock(mutex_);
  State& state = At(rank);
  state.num_done = std::max(state.num_done, count);
  state.Restart();
}

Status NcclRanks::Fault(int32_t* rank) const {
  const std::lock_guard lock(mutex_);
  for (size_t i = 0; i < ranks_.size(); ++i) {
    *rank = static_cast<int32_t>(i);
    if (!ranks_[i].fault.ok()) return ranks_[i].fault;
  }
  return Status();
}

bool NcclRanks::IsBusy() const {
  return std::any_of(ranks_.begin(), ranks_.end(),
                     [](const State& rank) { return rank.num_begun > rank.num_done; });
}

void NcclRanks::Watch() {
  std::unique_lock lock(mutex_);
  int64_t looked_ms = library_.now_ms();
  while (true) {
    if (!IsBusy()) {
      is_asleep_ = true;
      changed_.wait(lock, [this] { return stopping_ || IsBusy(); });
      is_asleep_ = false;
      looked_ms = library_.now_ms();
    }
    changed_.wait_for(lock, kLook, [this] { return stopping_; });
    if (stopping_) return;
    const int64_t now_ms = library_.now_ms();
    if (FindFault(std::min(now_ms - looked_ms, kLookMsMax))) break;
    looked_ms = now_ms;
  }
  alarm_.store(1, std::memory_order_release);
  lock.unlock();
  AbortAll();
}

// True if a rank has failed, here or, with the alarm raised, elsewhere.
bool NcclRanks::FindFault(int64_t elapsed_ms) {
  if (alarm_.load(std::memory_order_acquire) != 0) return true;
  for (State& rank : ranks_) {
    NcclResult error = kNcclSuccess;
    NcclResult asked = library_.async_error(rank.comm, &error);
    if (asked != kNcclSuccess) error = asked;
    if (error != kNcclSuccess && error != kNcclInProgress) {
      rank.fault =
          MakeStatus(StatusCode::kUnavailable, "NCCL: {}", library_.ErrorText(error, rank.comm));
      return true;
    }
    if (rank.num_begun == rank.num_done) continue;
    // The thread may have looked long before the work began.
    if (!std::exchange(rank.is_new, false)) rank.waited_ms += elapsed_ms;
    if (rank.waited_ms < wait_ms_) continue;
    rank.fault = MakeStatus(StatusCode::kUnavailable,
                            "waited {} s in NCCL for another device, which does not answer; check "
                            "nvidia-smi and dmesg for Xid, and start again without that device",
                            wait_ms_ / 1000);
    return true;
  }
  return false;
}

// Each call ends the kernels of its communicator first. The last one then waits for graphs, so no
// lock is held that a rank may want before it destroys them.
void NcclRanks::AbortAll() {
  are_aborted_ = true;
  for (State& rank : ranks_) {
    rank.is_aborted = true;
    if (rank.calls.try_lock_for(kCallMax)) rank.calls.unlock();
    static_cast<void>(library_.comm_abort(rank.comm));
  }
}

}  // namespace minisgl::cuda
