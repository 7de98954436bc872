// See kernel_timer.h.
#include "kernel_timer.h"

#include <algorithm>
#include <utility>

#include "kernels/kernels.h"

namespace minisgl::cuda {
namespace {

// Long enough to queue about a hundred kernels with their events.
constexpr uint32_t kPauseNs = 500'000;
constexpr int kEmptyRuns = 10;

}  // namespace

KernelTimer::KernelTimer(std::shared_ptr<CudaApi> api, const LaunchContext& context,
                         std::shared_ptr<KernelProfile> profile, int32_t rank)
    : api_(std::move(api)), context_(context), profile_(std::move(profile)), rank_(rank) {}

CudaError KernelTimer::MakeEvent(OwnedEvent* event) {
  if (!free_.empty()) {
    *event = std::move(free_.back());
    free_.pop_back();
    return kCudaSuccess;
  }
  CudaEvent made = nullptr;
  const CudaError error = api_->EventCreate(&made, /*timing=*/true);
  if (error == kCudaSuccess) *event = OwnedEvent(api_, made);
  return error;
}

CudaError KernelTimer::Record(const OwnedEvent& event) {
  return api_->EventRecord(event.get(), context_.stream);
}

CudaError KernelTimer::Start() {
  if (const CudaError error = MeasureEmpty(); error != kCudaSuccess) return error;
  OwnedEvent event;
  if (const CudaError error = MakeEvent(&event); error != kCudaSuccess) return error;
  if (const CudaError error = Record(event); error != kCudaSuccess) return error;
  const CudaError error = api_->StreamSynchronize(context_.stream);
  if (error != kCudaSuccess) return error;
  clock_ = std::chrono::steady_clock::now();
  clock_event_ = std::move(event);
  return kCudaSuccess;
}

// The least of some times, in a row behind a pause as a step's kernels are. The first loads the
// kernel.
CudaError KernelTimer::MeasureEmpty() {
  CudaError error = LaunchPause(context_, 0);
  if (error != kCudaSuccess) return error;
  error = LaunchPause(context_, kPauseNs);
  if (error != kCudaSuccess) return error;
  std::vector<Timed> runs(kEmptyRuns);
  for (Timed& run : runs) {
    for (OwnedEvent* const event : {&run.begin, &run.end}) {
      error = MakeEvent(event);
      if (error != kCudaSuccess) return error;
      error = Record(*event);
      if (error != kCudaSuccess) return error;
      if (event == &run.begin) error = LaunchPause(context_, 0);
      if (error != kCudaSuccess) return error;
    }
  }
  error = api_->StreamSynchronize(context_.stream);
  if (error != kCudaSuccess) return error;
  float least = 0;
  for (Timed& run : runs) {
    float ms = 0;
    error = api_->EventElapsedMs(&ms, run.begin.get(), run.end.get());
    if (error != kCudaSuccess) return error;
    least = &run == &runs.front() ? ms : std::min(least, ms);
    free_.push_back(std::move(run.begin));
    free_.push_back(std::move(run.end));
  }
  profile_->SetEmptyMs(static_cast<double>(least));
  return kCudaSuccess;
}

CudaError KernelTimer::PauseIfIdle() {
  bool is_idle = true;
  if (!pending_.empty()) {
    const CudaError error = api_->EventQuery(pending_.back().end.get(), &is_idle);
    if (error != kCudaSuccess) return error;
  }
  return is_idle ? LaunchPause(context_, kPauseNs) : kCudaSuccess;
}

CudaError KernelTimer::Begin() {
  if (const CudaError error = PauseIfIdle(); error != kCudaSuccess) return error;
  if (const CudaError error = MakeEvent(&open_.begin); error != kCudaSuccess) return error;
  return Record(open_.begin);
}

CudaError KernelTimer::End(std::string name) {
  if (const CudaError error = MakeEvent(&open_.end); error != kCudaSuccess) return error;
  if (const CudaError error = Record(open_.end); error != kCudaSuccess) return error;
  open_.name = std::move(name);
  pending_.push_back(std::exchange(open_, {}));
  return kCudaSuccess;
}

CudaError KernelTimer::Advance(OwnedEvent event) {
  float ms = 0;
  const CudaError error = api_->EventElapsedMs(&ms, clock_event_.get(), event.get());
  if (error != kCudaSuccess) return error;
  clock_ += std::chrono::duration_cast<KernelProfile::Time::duration>(
      std::chrono::duration<double, std::milli>(static_cast<double>(ms)));
  free_.push_back(std::exchange(clock_event_, std::move(event)));
  return kCudaSuccess;
}

CudaError KernelTimer::Take(int64_t count) {
  while (num_taken_ < count && !pending_.empty()) {
    Timed timed = std::move(pending_.front());
    pending_.pop_front();
    ++num_taken_;
    if (const CudaError error = Advance(std::move(timed.begin)); error != kCudaSuccess) {
      return error;
    }
    const KernelProfile::Time begin = clock_;
    if (const CudaError error = Advance(std::move(timed.end)); error != kCudaSuccess) return error;
    profile_->Add(timed.name, begin, clock_, rank_);
  }
  return kCudaSuccess;
}

}  // namespace minisgl::cuda
