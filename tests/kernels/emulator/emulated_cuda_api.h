// CudaApi on the emulator: device memory is host memory registered with the emulator, kernels run
// as described in emulator.h, and any call can be made to fail.
//
// Streams run work at once, or, with Config::lazy, as late as possible: when the host waits for it.
// Lazy detects a host that reuses memory which a copy still needs. With Config::lazy_compute only
// the stream that was made first is lazy: that detects copies that overwrite what it still needs.
//
// Errors of the caller (double free, destroyed handles, waiting for an event that was never
// recorded, a copy past its memory) throw emulator::Fault, as do faults of kernels. Memory and
// handles that are not freed are freed with the object.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "cuda_api.h"

namespace minisgl::cuda::emulator {

struct EmulatedDevice {
  CudaDeviceProperties properties = {.name = "Emulated GPU",
                                     .compute_major = 9,
                                     .compute_minor = 0,
                                     .num_multiprocessors = 4,
                                     .shared_bytes_per_block_max = 227 * 1024,
                                     .l2_bytes = 4 * 1024 * 1024};
  size_t total_bytes = size_t{8} << 30;
};

struct EmulatedCudaConfig {
  int driver_version = 13000;  // 0: no driver
  int runtime_version = 13000;
  std::vector<EmulatedDevice> devices = {EmulatedDevice()};
  bool lazy = false, lazy_compute = false;
  bool has_peers = true;  // devices can use each other's memory
};

// CUDA's handle of an object.
template <typename Handle, typename T>
Handle HandleOf(T* object) {
  return reinterpret_cast<Handle>(object);
}

class EmulatedCudaApi : public CudaApi {
 public:
  explicit EmulatedCudaApi(EmulatedCudaConfig config = {});
  ~EmulatedCudaApi() override;

  // Makes the n-th call of that name from now on (1: the next) return `error`; with `forever`, also
  // those after it. A failing call does nothing, except that Free and the Destroys always release.
  // After an error that CUDA's contexts do not survive, every call returns it.
  void FailAt(const std::string& call, int n, CudaError error, bool forever = false);
  void StopFailing();  // clears FailAt, and a sticky error
  int num_calls(const std::string& call) const;

  // Handles and memory that are alive.
  struct Live {
    int device_pieces = 0, host_pieces = 0, streams = 0, events = 0, graphs = 0, graph_execs = 0;
    bool operator==(const Live&) const = default;
  };
  Live live() const;
  size_t device_bytes() const { return device_bytes_; }
  size_t device_bytes_peak() const { return device_bytes_peak_; }

  // Queues `work` on a stream like a launch: runs it, keeps it for later, or records it.
  void Enqueue(CudaStream stream, std::function<void()> work);

  const char* ErrorName(CudaError error) override;
  const char* ErrorText(CudaError error) override;
  CudaError DriverVersion(int* version) override;
  CudaError RuntimeVersion(int* version) override;
  CudaError DeviceCount(int* count) override;
  CudaError SetDevice(int device) override;
  CudaError DeviceProperties(int device, CudaDeviceProperties* properties) override;
  CudaError MemoryInfo(size_t* free_bytes, size_t* total_bytes) override;
  CudaError EnablePeerAccess(int peer, bool* is_enabled) override;
  CudaError Malloc(void** pointer, size_t num_bytes) override;
  CudaError Free(void* pointer) override;
  CudaError MallocHost(void** pointer, size_t num_bytes) override;
  CudaError FreeHost(void* pointer) override;
  CudaError MemsetAsync(void* pointer, int value, size_t num_bytes, CudaStream stream) override;
  CudaError CopyAsync(void* dst, const void* src, size_t num_bytes, CudaStream stream) override;
  CudaError StreamCreate(CudaStream* stream) override;
  CudaError StreamDestroy(CudaStream stream) override;
  CudaError StreamSynchronize(CudaStream stream) override;
  CudaError StreamWaitEvent(CudaStream stream, CudaEvent event) override;
  CudaError EventCreate(CudaEvent* event, bool timing) override;
  CudaError EventDestroy(CudaEvent event) override;
  CudaError EventRecord(CudaEvent event, CudaStream stream) override;
  CudaError EventSynchronize(CudaEvent event) override;
  CudaError EventQuery(CudaEvent event, bool* is_reached) override;
  CudaError EventElapsedMs(float* ms, CudaEvent begin, CudaEvent end) override;
  CudaError LaunchHostFunction(CudaStream stream, CudaHostFunction function, void* data) override;
  CudaError BeginCapture(CudaStream stream) override;
  CudaError EndCapture(CudaStream stream, CudaGraph* graph) override;
  CudaError GraphInstantiate(CudaGraphExec* exec, CudaGraph graph) override;
  CudaError GraphUpload(CudaGraphExec exec, CudaStream stream) override;
  CudaError GraphLaunch(CudaGraphExec exec, CudaStream stream) override;
  CudaError GraphDestroy(CudaGraph graph) override;
  CudaError GraphExecDestroy(CudaGraphExec exec) override;
  CudaError LaunchKernel(const void* kernel, const CudaLaunch& launch, void** arguments) override;
  CudaError SetSharedBytesMax(const void* kernel, size_t num_bytes) override;
  CudaError SetSharedCarveout(const void* kernel, int percent) override;
  // A launched kernel's parameters, and "" before its first launch.
  std::string KernelSymbol(const void* kernel) override {
    const auto found = kernel_names_.find(kernel);
    return found == kernel_names_.end() ? "" : found->second;
  }
  CudaError BlocksPerMultiprocessor(int* count, const void* kernel, int threads,
                                    size_t shared_bytes) override;
  CudaError LastError() override;

 private:
  using Work = std::function<void()>;
  // What a graph has of one of the streams that were captured: work, points that other streams wait
  // for, and waits for such points.
  struct GraphStep {
    Work work;
    int64_t record = 0;  // the number of the point that is reached; 0: none
    int64_t waits_for = 0;
  };
  struct Graph {
    std::vector<std::vector<GraphStep>> lanes;  // of each stream; the first one's began the capture
    bool is_open = true;                        // being captured
  };
  struct Stream {
    std::deque<Work> queue;
    std::shared_ptr<Graph> capture;
    size_t lane = 0;  // of the graph that is captured
    bool capture_broken = false;
  };
  // Runs a graph in an order that its waits allow.
  class GraphRun;
  // An event's state, shared with queued work, which may outlive the handle.
  struct Event {
    bool timing = false;
    Stream* stream = nullptr;  // of the last record
    int64_t recorded = 0;      // number of the last record; 0: none
    int64_t done = 0;          // number of the last record that was reached
    bool captured = false;
    std::weak_ptr<Graph> graph;  // of the last record, if it was captured
    double time_ms = 0;
    uint32_t num_blocks = 0;  // of all kernels launched before it
  };
  struct Failure {
    int calls_left;
    CudaError error;
    bool forever;
  };

  CudaError Enter(const char* call);
  CudaError EnterUncaptured(const char* call);
  bool Capturing() const;
  Stream& StreamOf(CudaStream stream);
  const std::shared_ptr<Event>& EventOf(CudaEvent event);
  void RunOne(Stream* stream);
  void Drain(Stream* stream);
  void DrainAll();
  void WaitFor(Event* event, int64_t record);
  bool IsHostPiece(const void* pointer) const;
  void CheckEnd(const void* pointer, size_t num_bytes) const;
  bool IsDevice(const void* pointer) const;
  const EmulatedDevice& device() const { return config_.devices[static_cast<size_t>(device_)]; }

  EmulatedCudaConfig config_;
  int device_ = 0;
  std::map<std::string, int> num_calls_;
  std::map<std::string, Failure> failures_;
  CudaError staying_error_ = kCudaSuccess;
  CudaError launch_error_ = kCudaSuccess;
  size_t device_bytes_ = 0, device_bytes_peak_ = 0;
  std::map<const void*, size_t> device_pieces_, host_pieces_;
  Stream default_stream_;
  std::map<CudaStream, std::unique_ptr<Stream>> streams_;
  Stream* first_stream_ = nullptr;  // that was made first, if it is alive
  std::map<CudaEvent, std::shared_ptr<Event>> events_;
  std::map<CudaGraph, std::shared_ptr<Graph>> graphs_;
  std::map<CudaGraphExec, std::shared_ptr<Graph>> execs_;
  std::map<const void*, size_t> shared_bytes_max_;   // of each kernel that raised it
  std::map<const void*, std::string> kernel_names_;  // of each that was launched
  int64_t num_records_ = 0;
  double clock_ms_ = 0;  // each piece of work takes a microsecond
};

}  // namespace minisgl::cuda::emulator
