// Experts in the host's memory, computed there (minisgl/host_experts.h): the hand-over in pinned
// memory, and the order between streams.
//
//   compute stream:  copies of x, experts, shares | other operations | waits, copies the sum
//   side stream:     waits for the copies | the host computes
//
// The sum is copied on the compute stream, so that the next kernel there follows a copy, and does
// not begin before it has ended (GridWait).
//
// One set of buffers serves all layers: the copies of the next layer follow End on the compute
// stream, so that the host has read the buffers and the sum has left them. Both streams may be
// captured: then the host's part is a node of the graph.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>

#include "cuda_handles.h"
#include "minisgl/base/status.h"
#include "minisgl/device_ops.h"
#include "minisgl/host_experts.h"
#include "staging.h"

namespace minisgl::cuda {

// For one thread, and the driver's that runs the host's part.
class HostHandover {
 public:
  HostHandover(std::shared_ptr<CudaApi> api, CudaStream compute, DType dtype)
      : api_(std::move(api)), compute_(compute), dtype_(dtype) {}
  // Waits until the host computes nothing.
  ~HostHandover();
  HostHandover(const HostHandover&) = delete;
  HostHandover& operator=(const HostHandover&) = delete;

  // Takes the stream, the events and pinned memory for steps of `limits`. Called once, before any
  // other function.
  CudaFailure Open(const DeviceLimits& limits);
  static size_t PinnedBytes(const DeviceLimits& limits, DType dtype);
  // Ops::BeginHostExperts and EndHostExperts. End does nothing if the Begin before it failed.
  CudaFailure Begin(const HostExpertsParams& params);
  CudaFailure End();
  // In place of End, if something failed after Begin.
  void Forget() { is_begun_ = false; }
  // Waits for the host's part of everything queued.
  CudaFailure Synchronize();
  // The first fault of the host's part; experts are not computed after it.
  Status fault() const;

 private:
  // One call of the host, which a graph may repeat.
  struct Call {
    HostHandover* handover;
    HostExpertLayer* layer;
    int64_t num_tokens, width;
    bool has_padding;  // the number of real tokens is in the buffers
  };
  static void RunCall(void* call) noexcept;
  void Compute(const Call& call);

  const std::shared_ptr<CudaApi> api_;
  const CudaStream compute_;
  const DType dtype_;
  OwnedStream side_;
  OwnedEvent copied_, computed_;
  // Pinned: x [T, width], the sum [T, width], experts [T, K], shares [T, K], real tokens [1].
  std::shared_ptr<void> memory_;
  std::byte *x_ = nullptr, *out_ = nullptr;
  int32_t *experts_ = nullptr, *num_real_ = nullptr;
  float* shares_ = nullptr;
  bool is_begun_ = false;
  void* sum_ = nullptr;  // where the sum of the layer that is begun goes, on the device
  size_t sum_bytes_ = 0;
  // Kept, because graphs hold their addresses; few bytes for each number of tokens that steps had.
  std::map<std::tuple<HostExpertLayer*, int64_t, bool>, std::unique_ptr<Call>> calls_;
  mutable std::mutex mutex_;
  Status fault_;  // guarded by mutex_
};

}  // namespace minisgl::cuda
