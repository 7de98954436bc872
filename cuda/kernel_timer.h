// Times operations of one stream with events, for a KernelProfile.
//
// An operation stands between two events, so programmatic dependent launch overlaps nothing, and a
// time includes the start of the operation. If the device waited for the host, it would include the
// time to queue it, too: the timer then queues a pause first, outside of every time, during which
// the host gets ahead.
//
// Times become steady_clock's through one event whose time the host knows. For one thread.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "cuda_handles.h"
#include "kernels/launch.h"
#include "minisgl/base/kernel_profile.h"

namespace minisgl::cuda {

class KernelTimer {
 public:
  // `context`: of the stream, without an observer. `rank`: whose times they are in the profile.
  KernelTimer(std::shared_ptr<CudaApi> api, const LaunchContext& context,
              std::shared_ptr<KernelProfile> profile, int32_t rank = 0);

  // Waits for the stream, and measures a kernel that does nothing. Called once, before the rest.
  CudaError Start();

  // Before and after an operation is queued.
  CudaError Begin();
  CudaError End(std::string name);

  // Operations between Begin and End so far.
  int64_t num_timed() const { return num_taken_ + std::ssize(pending_); }
  // Passes the times of all but those after the first `count` operations to the profile. REQUIRES
  // that the device has done them.
  CudaError Take(int64_t count);

 private:
  struct Timed {
    OwnedEvent begin, end;
    std::string name;
  };

  CudaError MakeEvent(OwnedEvent* event);
  CudaError Record(const OwnedEvent& event);
  CudaError PauseIfIdle();
  CudaError MeasureEmpty();
  // Moves the clock to `event`, which is later.
  CudaError Advance(OwnedEvent event);

  const std::shared_ptr<CudaApi> api_;
  const LaunchContext context_;
  const std::shared_ptr<KernelProfile> profile_;
  const int32_t rank_;
  std::vector<OwnedEvent> free_;
  Timed open_;  // begun, and not ended
  std::deque<Timed> pending_;
  int64_t num_taken_ = 0;
  // The last event that was taken, and its time.
  OwnedEvent clock_event_;
  KernelProfile::Time clock_;
};

}  // namespace minisgl::cuda
