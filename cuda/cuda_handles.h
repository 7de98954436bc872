// Owners of CUDA's handles. Each destroys its handle once, and keeps the CudaApi alive until then.
#pragma once

#include <memory>
#include <utility>

#include "cuda_api.h"
#include "minisgl/device_ops.h"

namespace minisgl::cuda {

template <typename Handle, CudaError (CudaApi::*kDestroy)(Handle)>
class CudaHandle {
 public:
  CudaHandle() = default;
  CudaHandle(std::shared_ptr<CudaApi> api, Handle handle) : api_(std::move(api)), handle_(handle) {}
  CudaHandle(CudaHandle&& other) noexcept
      : api_(std::move(other.api_)), handle_(std::exchange(other.handle_, nullptr)) {}
  CudaHandle& operator=(CudaHandle&& other) noexcept {
    std::swap(api_, other.api_);
    std::swap(handle_, other.handle_);
    return *this;
  }
  // An error here is ignored: an earlier call reported it, or the process is ending.
  ~CudaHandle() {
    if (handle_ != nullptr) static_cast<void>((api_.get()->*kDestroy)(handle_));
  }

  Handle get() const { return handle_; }

 private:
  std::shared_ptr<CudaApi> api_;
  Handle handle_ = nullptr;
};

using OwnedStream = CudaHandle<CudaStream, &CudaApi::StreamDestroy>;
using OwnedEvent = CudaHandle<CudaEvent, &CudaApi::EventDestroy>;
using OwnedGraph = CudaHandle<CudaGraph, &CudaApi::GraphDestroy>;
using OwnedGraphExec = CudaHandle<CudaGraphExec, &CudaApi::GraphExecDestroy>;
using OwnedDeviceMemory = CudaHandle<void*, &CudaApi::Free>;
using OwnedHostMemory = CudaHandle<void*, &CudaApi::FreeHost>;

// The objects that DeviceOps hands out.
struct CudaDeviceEvent : DeviceEvent {
  explicit CudaDeviceEvent(OwnedEvent made) : event(std::move(made)) {}
  OwnedEvent event;
  bool recorded = false;
  int64_t num_timed = 0;  // operations before it that a KernelTimer times
  int64_t num_sums = 0;   // NcclRanks::num_begun before it
};

struct CudaDeviceGraph : DeviceGraph {
  explicit CudaDeviceGraph(OwnedGraphExec made) : exec(std::move(made)) {}
  OwnedGraphExec exec;
};

}  // namespace minisgl::cuda
