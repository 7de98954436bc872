// See work_timer.h.
#include "work_timer.h"

#include <algorithm>
#include <chrono>
#include <limits>

namespace minisgl::cuda {
namespace {

// Measured runs of a way, of which the fastest counts: others were disturbed.
constexpr int kRuns = 3;

class EventTimer : public WorkTimer {
 public:
  EventTimer(CudaApi* api, void* scratch, size_t scratch_bytes)
      : api_(api), scratch_(scratch), scratch_bytes_(scratch_bytes) {}
  ~EventTimer() override {
    for (const CudaEvent event : {begin_, end_}) {
      if (event != nullptr) static_cast<void>(api_->EventDestroy(event));
    }
  }

  double Measure(CudaStream stream, const std::function<bool()>& queue) override {
    const auto is_ok = [](CudaError error) { return error == kCudaSuccess; };
    for (CudaEvent* const event : {&begin_, &end_}) {
      if (*event == nullptr && !is_ok(api_->EventCreate(event, /*timing=*/true))) return -1;
    }
    float ms = 0;
    const bool is_measured = is_ok(api_->MemsetAsync(scratch_, 0, scratch_bytes_, stream)) &&
                             is_ok(api_->EventRecord(begin_, stream)) && queue() &&
                             is_ok(api_->EventRecord(end_, stream)) &&
                             is_ok(api_->EventSynchronize(end_)) &&
                             is_ok(api_->EventElapsedMs(&ms, begin_, end_));
    return is_measured ? static_cast<double>(ms) : -1;
  }

  double NowMs() override {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration<double, std::milli>(now).count();
  }

 private:
  CudaApi* const api_;
  void* const scratch_;
  const size_t scratch_bytes_;
  CudaEvent begin_ = nullptr, end_ = nullptr;
};

}  // namespace

std::unique_ptr<WorkTimer> MakeWorkTimer(CudaApi* api, void* scratch, size_t scratch_bytes) {
  return std::make_unique<EventTimer>(api, scratch, scratch_bytes);
}

// The first run loads the way's kernels, and is not counted.
double WayChooser::Time(CudaStream stream, const std::function<bool()>& queue) {
  if (timer_->Measure(stream, queue) < 0) return -1;
  double fastest_ms = std::numeric_limits<double>::infinity();
  for (int run = 0; run < kRuns; ++run) {
    const double ms = timer_->Measure(stream, queue);
    if (ms < 0) return -1;
    fastest_ms = std::min(fastest_ms, ms);
  }
  return fastest_ms;
}

WayChooser::Choice WayChooser::Choose(int num_ways, CudaStream stream,
                                      const std::function<bool(int)>& queue) {
  if (num_ways == 1) return {.way = 0, .is_timed = true};
  Choice choice;
  double fastest_ms = std::numeric_limits<double>::infinity();
  int way = 0;
  for (; way < num_ways && spent_ms_ < budget_ms_; ++way) {
    const double begin_ms = timer_->NowMs();
    const double ms = Time(stream, [&] { return queue(way); });
    spent_ms_ += timer_->NowMs() - begin_ms;
    if (ms < 0 || ms >= fastest_ms) continue;
    fastest_ms = ms;
    choice.way = way;
  }
  choice.is_timed = way == num_ways && fastest_ms < std::numeric_limits<double>::infinity();
  return choice;
}

}  // namespace minisgl::cuda
