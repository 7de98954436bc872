// Times work on the device, and chooses the fastest of several ways to do the same.
#pragma once

#include <functional>
#include <memory>

#include "cuda_api.h"

namespace minisgl::cuda {

class WorkTimer {
 public:
  virtual ~WorkTimer() = default;
  // Queues work with `queue`, waits for it, and returns the milliseconds that it took on the
  // device. Negative if `queue` returns false, or after an error of CUDA.
  virtual double Measure(CudaStream stream, const std::function<bool()>& queue) = 0;
  // The host's clock.
  virtual double NowMs() = 0;
};

// A WorkTimer with CUDA's events. Before each measured run it writes `scratch` on the device, which
// displaces scratch_bytes of the second-level cache and gives the host time to queue the work.
// `api` and `scratch` outlive it.
std::unique_ptr<WorkTimer> MakeWorkTimer(CudaApi* api, void* scratch, size_t scratch_bytes);

// Chooses ways by their time, until its choices have taken `budget_ms` in all.
class WayChooser {
 public:
  // `timer` outlives this.
  WayChooser(WorkTimer* timer, double budget_ms) : timer_(timer), budget_ms_(budget_ms) {}

  struct Choice {
    int way = 0;
    bool is_timed = false;  // false: the time was used up before all ways were measured
  };
  // The fastest of ways 0 .. num_ways - 1, of which queue(i) queues one, or returns false if it
  // cannot be used. Way 0 if the time is used up, or if none can be measured.
  // REQUIRES num_ways > 0.
  Choice Choose(int num_ways, CudaStream stream, const std::function<bool(int)>& queue);

 private:
  double Time(CudaStream stream, const std::function<bool()>& queue);

  WorkTimer* const timer_;
  const double budget_ms_;
  double spent_ms_ = 0;
};

}  // namespace minisgl::cuda
