// Captures and graphs of the emulated device.
#include <set>
#include <utility>
#include <vector>

#include "emulator/emulated_cuda_api.h"
#include "emulator/emulator.h"
#include "emulator/global_memory.h"
#include "emulator/launch_support.h"

namespace minisgl::cuda::emulator {

class EmulatedCudaApi::GraphRun {
 public:
  explicit GraphRun(const Graph& graph) : graph_(graph), next_(graph.lanes.size()) {}

  // `first_late`: what the first lane does is late, and not what the others do.
  void Run(bool first_late) {
    runs_ = true;
    for (size_t lane = 1; first_late && lane < next_.size(); ++lane) Advance(lane, 0);
    Advance(0, 0);
  }
  // True if the first lane waits, directly or not, for all steps of the others.
  bool IsJoined() {
    Advance(0, 0);
    for (size_t lane = 0; lane < next_.size(); ++lane) {
      if (next_[lane] < graph_.lanes[lane].size()) return false;
    }
    return true;
  }

 private:
  // Runs the steps of `lane` until `record` is reached; 0: all of them.
  void Advance(size_t lane, int64_t record) {
    while (next_[lane] < graph_.lanes[lane].size()) {
      const GraphStep& step = graph_.lanes[lane][next_[lane]++];
      if (step.waits_for != 0 && !reached_.contains(step.waits_for)) {
        Advance(LaneOf(step.waits_for), step.waits_for);
      }
      if (step.work != nullptr && runs_) step.work();
      reached_.insert(step.record);
      if (record != 0 && step.record == record) return;
    }
  }
  size_t LaneOf(int64_t record) const {
    for (size_t lane = 0; lane < graph_.lanes.size(); ++lane) {
      for (const GraphStep& step : graph_.lanes[lane]) {
        if (step.record == record) return lane;
      }
    }
    throw Fault("a graph waits for a point that it does not have");
  }

  const Graph& graph_;
  std::vector<size_t> next_;  // of each lane
  std::set<int64_t> reached_;
  bool runs_ = false;
};

CudaError EmulatedCudaApi::BeginCapture(CudaStream stream) {
  const CudaError error = Enter("BeginCapture");
  if (error != kCudaSuccess) return error;
  Stream& target = StreamOf(stream);
  if (stream == nullptr || target.capture != nullptr) return kCudaStreamCaptureUnsupported;
  target.capture = std::make_shared<Graph>();
  target.capture->lanes.emplace_back();
  target.lane = 0;
  target.capture_broken = false;
  return kCudaSuccess;
}

CudaError EmulatedCudaApi::EndCapture(CudaStream stream, CudaGraph* graph) {
  *graph = nullptr;
  const CudaError error = Enter("EndCapture");
  Stream& target = StreamOf(stream);
  std::shared_ptr<Graph> captured = std::exchange(target.capture, nullptr);
  if (captured != nullptr) captured->is_open = false;
  for (const auto& [handle, joined] : streams_) {
    if (captured == nullptr || joined->capture != captured) continue;
    joined->capture = nullptr;
    target.capture_broken |= std::exchange(joined->capture_broken, false);
  }
  if (error != kCudaSuccess) return error;
  if (captured == nullptr) return kCudaInvalidValue;
  if (target.capture_broken) return kCudaStreamCaptureInvalidated;
  if (!GraphRun(*captured).IsJoined()) return kCudaStreamCaptureUnjoined;
  *graph = HandleOf<CudaGraph>(captured.get());
  graphs_[*graph] = std::move(captured);
  return kCudaSuccess;
}

CudaError EmulatedCudaApi::GraphInstantiate(CudaGraphExec* exec, CudaGraph graph) {
  *exec = nullptr;
  const CudaError error = Enter("GraphInstantiate");
  if (error != kCudaSuccess) return error;
  const auto found = graphs_.find(graph);
  if (found == graphs_.end()) throw Fault("GraphInstantiate of a graph that does not exist");
  const std::shared_ptr<Graph> made = std::make_shared<Graph>(*found->second);
  *exec = HandleOf<CudaGraphExec>(made.get());
  execs_[*exec] = made;
  return kCudaSuccess;
}

CudaError EmulatedCudaApi::GraphUpload(CudaGraphExec exec, CudaStream stream) {
  const CudaError error = Enter("GraphUpload");
  if (error != kCudaSuccess) return error;
  if (!execs_.contains(exec)) throw Fault("GraphUpload of a graph that does not exist");
  if (StreamOf(stream).capture != nullptr) return kCudaStreamCaptureUnsupported;
  return kCudaSuccess;
}

CudaError EmulatedCudaApi::GraphLaunch(CudaGraphExec exec, CudaStream stream) {
  const CudaError error = Enter("GraphLaunch");
  if (error != kCudaSuccess) return error;
  const auto found = execs_.find(exec);
  if (found == execs_.end()) throw Fault("GraphLaunch of a graph that does not exist");
  Enqueue(stream, [graph = found->second, first_late = config_.lazy_compute] {
    FinishKernels();  // a graph begins after all kernels before it, and ends before all later ones
    GraphRun(*graph).Run(first_late);
    FinishKernels();
  });
  return kCudaSuccess;
}

CudaError EmulatedCudaApi::GraphDestroy(CudaGraph graph) {
  const CudaError error = Enter("GraphDestroy");
  if (graphs_.erase(graph) == 0) throw Fault("GraphDestroy of a graph that does not exist");
  return error;
}

CudaError EmulatedCudaApi::GraphExecDestroy(CudaGraphExec exec) {
  const CudaError error = Enter("GraphExecDestroy");
  if (execs_.erase(exec) == 0) throw Fault("GraphExecDestroy of a graph that does not exist");
  return error;
}

}  // namespace minisgl::cuda::emulator
