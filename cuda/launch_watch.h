// Looks at each launch of the operations, for MINISGL_CUDA_DEBUG=sync and --profile-kernels: waits
// for it, so that an error of the kernel is that launch's, or times it. No launch is captured
// meanwhile. For one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "cuda_api.h"
#include "kernel_timer.h"
#include "kernels/launch.h"

namespace minisgl::cuda {

class LaunchWatch final : public LaunchObserver {
 public:
  // `timer` may be null.
  LaunchWatch(std::shared_ptr<CudaApi> api, CudaStream stream, bool waits,
              std::unique_ptr<KernelTimer> timer)
      : api_(std::move(api)), stream_(stream), waits_(waits), timer_(std::move(timer)) {}

  // Names the operation that later launches belong to.
  void Enter(std::string operation);

  // Called before and after all work is queued: by launches, and by the caller for work other than
  // kernels of this program (null).
  CudaError BeforeLaunch() override;
  CudaError AfterLaunch(const void* kernel) override;

  // The work that was queued last: "Norm (NormKernel, launch 57)".
  std::string Last() const;

  bool waits() const { return waits_; }
  KernelTimer* timer() const { return timer_.get(); }

 private:
  const std::shared_ptr<CudaApi> api_;
  const CudaStream stream_;
  const bool waits_;
  const std::unique_ptr<KernelTimer> timer_;
  std::string operation_, kernel_;
  int64_t num_launches_ = 0;
};

// The name of a kernel in its mangled symbol: "NormKernel". A text that is no mangled name is
// returned as it is.
std::string ShortKernelName(const std::string& symbol);

}  // namespace minisgl::cuda
