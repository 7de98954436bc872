// Memory, streams, events, graphs and launches of the emulated device.
#include "emulator/emulated_cuda_api.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <memory>
#include <utility>

#include "emulator/emulator.h"
#include "emulator/error_texts.h"
#include "emulator/global_memory.h"
#include "emulator/launch_support.h"

namespace minisgl::cuda::emulator {
namespace {

constexpr size_t kFilledBytesMax = size_t{64} << 20;
constexpr size_t kSharedBytesUnraised = 48 * 1024;

// Errors after which every call of a context fails.
bool Stays(CudaError error) {
  switch (error) {
    case kCudaEccUncorrectable:
    case kCudaIllegalAddress:
    case kCudaHardwareStackError:
    case kCudaIllegalInstruction:
    case kCudaMisalignedAddress:
    case kCudaInvalidAddressSpace:
    case kCudaInvalidPc:
    case kCudaLaunchFailure:
      return true;
    default:
      return false;
  }
}

void* NewBytes(size_t num_bytes) {
  void* const pointer = AllocateGlobal(num_bytes);
  // Bytes that do not look like data; for very large pieces only at the beginning, to save time.
  std::memset(pointer, 0xCD, std::min(num_bytes, kFilledBytesMax));
  return pointer;
}

void DeleteBytes(const void* pointer) { FreeGlobal(const_cast<void*>(pointer)); }

// The piece that holds `pointer`, or null.
const std::pair<const void* const, size_t>* PieceOf(const std::map<const void*, size_t>& pieces,
                                                    const void* pointer) {
  const auto after = pieces.upper_bound(pointer);
  if (after == pieces.begin()) return nullptr;
  const auto& piece = *std::prev(after);
  const char* const end = static_cast<const char*>(piece.first) + piece.second;
  return pointer < end ? &piece : nullptr;
}

}  // namespace

EmulatedCudaApi::EmulatedCudaApi(EmulatedCudaConfig config) : config_(std::move(config)) {}

EmulatedCudaApi::~EmulatedCudaApi() {
  for (const auto& [pointer, num_bytes] : device_pieces_) {
    UnregisterGlobal(pointer);
    DeleteBytes(pointer);
  }
  for (const auto& [pointer, num_bytes] : host_pieces_) {
    UnregisterGlobal(pointer);
    DeleteBytes(pointer);
  }
}

void EmulatedCudaApi::FailAt(const std::string& call, int n, CudaError error, bool forever) {
  failures_[call] = {n, error, forever};
}

void EmulatedCudaApi::StopFailing() {
  failures_.clear();
  staying_error_ = launch_error_ = kCudaSuccess;
}

int EmulatedCudaApi::num_calls(const std::string& call) const {
  const auto found = num_calls_.find(call);
  return found == num_calls_.end() ? 0 : found->second;
}

EmulatedCudaApi::Live EmulatedCudaApi::live() const {
  return {.device_pieces = static_cast<int>(device_pieces_.size()),
          .host_pieces = static_cast<int>(host_pieces_.size()),
          .streams = static_cast<int>(streams_.size()),
          .events = static_cast<int>(events_.size()),
          .graphs = static_cast<int>(graphs_.size()),
          .graph_execs = static_cast<int>(execs_.size())};
}

// Called first by every call: the error to return instead of doing the work.
CudaError EmulatedCudaApi::Enter(const char* call) {
  ++num_calls_[call];
  if (staying_error_ != kCudaSuccess) return staying_error_;
  const auto found = failures_.find(call);
  if (found == failures_.end()) return kCudaSuccess;
  Failure& failure = found->second;
  if (failure.calls_left > 1) {
    --failure.calls_left;
    return kCudaSuccess;
  }
  const CudaError error = failure.error;
  if (!failure.forever) failures_.erase(found);
  if (Stays(error)) staying_error_ = error;
  return error;
}

bool EmulatedCudaApi::Capturing() const {
  if (default_stream_.capture != nullptr) return true;
  return std::any_of(streams_.begin(), streams_.end(),
                     [](const auto& entry) { return entry.second->capture != nullptr; });
}

// For calls that CUDA does not allow while the thread captures: they invalidate the capture.
CudaError EmulatedCudaApi::EnterUncaptured(const char* call) {
  const CudaError error = Enter(call);
  if (error != kCudaSuccess) return error;
  if (!Capturing()) return kCudaSuccess;
  for (const auto& [handle, stream] : streams_) {
    if (stream->capture != nullptr) stream->capture_broken = true;
  }
  return kCudaStreamCaptureUnsupported;
}

EmulatedCudaApi::Stream& EmulatedCudaApi::StreamOf(CudaStream stream) {
  if (stream == nullptr) return default_stream_;
  const auto found = streams_.find(stream);
  if (found == streams_.end()) throw Fault("a call with a stream that does not exist");
  return *found->second;
}

const std::shared_ptr<EmulatedCudaApi::Event>& EmulatedCudaApi::EventOf(CudaEvent event) {
  const auto found = events_.find(event);
  if (found == events_.end()) throw Fault("a call with an event that does not exist");
  return found->second;
}

void EmulatedCudaApi::Enqueue(CudaStream stream, Work work) {
  Stream& target = StreamOf(stream);
  if (target.capture != nullptr) {
    target.capture->lanes[target.lane].push_back({.work = std::move(work)});
  } else {
    target.queue.push_back(std::move(work));
    const bool lazy = config_.lazy || (config_.lazy_compute && &target == first_stream_);
    if (!lazy) Drain(&target);
  }
}

void EmulatedCudaApi::RunOne(Stream* stream) {
  const Work work = std::move(stream->queue.front());
  stream->queue.pop_front();
  clock_ms_ += 0.001;
  work();
}

void EmulatedCudaApi::Drain(Stream* stream) {
  while (!stream->queue.empty()) RunOne(stream);
}

void EmulatedCudaApi::DrainAll() {
  Drain(&default_stream_);
  for (const auto& [handle, stream] : streams_) Drain(stream.get());
}

void EmulatedCudaApi::WaitFor(Event* event, int64_t record) {
  while (event->done < record) {
    if (event->stream == nullptr || event->stream->queue.empty()) {
      throw Fault("an event that is waited for cannot be reached");
    }
    RunOne(event->stream);
  }
}

bool EmulatedCudaApi::IsDevice(const void* pointer) const {
  return PieceOf(device_pieces_, pointer) != nullptr;
}

bool EmulatedCudaApi::IsHostPiece(const void* pointer) const {
  return PieceOf(host_pieces_, pointer) != nullptr;
}

// One end of a copy: if it begins within a known piece, it must end there.
void EmulatedCudaApi::CheckEnd(const void* pointer, size_t num_bytes) const {
  for (const auto* const pieces : {&device_pieces_, &host_pieces_}) {
    const auto* const piece = PieceOf(*pieces, pointer);
    if (piece == nullptr) continue;
    const size_t offset = static_cast<size_t>(static_cast<const char*>(pointer) -
                                              static_cast<const char*>(piece->first));
    if (num_bytes > piece->second - offset) {
      throw Fault(fmt::format("a copy or fill of {} bytes at byte {} of a piece of {}", num_bytes,
                              offset, piece->second));
    }
  }
}

const char* EmulatedCudaApi::ErrorName(CudaError error) { return TextOf(error).name; }
const char* EmulatedCudaApi::ErrorText(CudaError error) { return TextOf(error).text; }

CudaError EmulatedCudaApi::DriverVersion(int* version) {
  *version = config_.driver_version;
  return Enter("DriverVersion");
}

CudaError EmulatedCudaApi::RuntimeVersion(int* version) {
  *version = config_.runtime_version;
  return Enter("RuntimeVersion");
}

CudaError EmulatedCudaApi::DeviceCount(int* count) {
  *count = 0;
  const CudaError error = Enter("DeviceCount");
  if (error != kCudaSuccess) return error;
  if (config_.driver_version == 0) return kCudaInsufficientDriver;
  *count = static_cast<int>(config_.devices.size());
  return config_.devices.empty() ? kCudaNoDevice : kCudaSuccess;
}

CudaError EmulatedCudaApi::SetDevice(int device) {
  const CudaError error = Enter("SetDevice");
  if (error != kCudaSuccess) return error;
  if (device < 0 || device >= static_cast<int>(config_.devices.size())) return kCudaInvalidDevice;
  device_ = device;
  return kCudaSuccess;
}

CudaError EmulatedCudaApi::DeviceProperties(int device, CudaDeviceProperties* properties) {
  const CudaError error = Enter("DeviceProperties");
  if (error != kCudaSuccess) return error;
  if (device < 0 || device >= static_cast<int>(config_.devices.size())) return kCudaInvalidDevice;
  *properties = config_.devices[static_cast<size_t>(device)].properties;
  return kCudaSuccess;
}

CudaError EmulatedCudaApi::MemoryInfo(size_t* free_bytes, size_t* total_bytes) {
  const CudaError error = Enter("MemoryInfo");
  if (error != kCudaSuccess) return error;
  *total_bytes = device().total_bytes;
  *free_bytes = device().total_bytes - device_bytes_;
  return kCudaSuccess;
}

CudaError EmulatedCudaApi::EnablePeerAccess(int peer, bool* is_enabled) {
  *is_enabled = false;
  const CudaError error = Enter("EnablePeerAccess");
  if (error != kCudaSuccess) return error;
  if (peer == device_) return kCudaInvalidDevice;
  *is_enabled = config_.has_peers;
  return kCudaSuccess;
}

CudaError EmulatedCudaApi::Malloc(void** pointer, size_t num_bytes) {
  *pointer = nullptr;
  const CudaError error = EnterUncaptured("Malloc");
  if (error != kCudaSuccess || num_bytes == 0) return error;
  if (num_bytes > device().total_bytes - device_bytes_) return kCudaMemoryAllocation;
  *pointer = NewBytes(num_bytes);
  RegisterGlobal(*pointer, num_bytes);
  device_pieces_[*pointer] = num_bytes;
  device_bytes_ += num_bytes;
  device_bytes_peak_ = std::max(device_bytes_peak_, device_bytes_);
  return kCudaSuccess;
}

CudaError EmulatedCudaApi::Free(void* pointer) {
  const CudaError error = EnterUncaptured("Free");
  if (pointer == nullptr) return error;
  const auto found = device_pieces_.find(pointer);
  if (found == device_pieces_.end()) throw Fault("Free of what is no device memory");
  DrainAll();  // cudaFree waits for the device
  device_bytes_ -= found->second;
  device_pieces_.erase(found);
  UnregisterGlobal(pointer);
  DeleteBytes(pointer);
  return error;
}

CudaError EmulatedCudaApi::MallocHost(void** pointer, size_t num_bytes) {
  *pointer = nullptr;
  const CudaError error = EnterUncaptured("MallocHost");
  if (error != kCudaSuccess || num_bytes == 0) return error;
  *pointer = NewBytes(num_bytes);
  RegisterGlobal(*pointer, num_bytes);  // kernels can use pinned memory
  host_pieces_[*pointer] = num_bytes;
  return kCudaSuccess;
}

CudaError EmulatedCudaApi::FreeHost(void* pointer) {
  const CudaError error = EnterUncaptured("FreeHost");
  if (pointer == nullptr) return error;
  if (host_pieces_.erase(pointer) == 0) throw Fault("FreeHost of what is no memory of MallocHost");
  DrainAll();
  UnregisterGlobal(pointer);
  DeleteBytes(pointer);
  return error;
}

CudaError EmulatedCudaApi::MemsetAsync(void* pointer, int value, size_t num_bytes,
                                       CudaStream stream) {
  const CudaError error = Enter("MemsetAsync");
  if (error != kCudaSuccess) return error;
  if (!IsDevice(pointer) && num_bytes > 0) return kCudaInvalidValue;
  CheckEnd(pointer, num_bytes);
  Enqueue(stream, [=, this] {
    CheckEnd(pointer, num_bytes);
    FinishKernels(stream);
    std::memset(pointer, value, num_bytes);
  });
  return kCudaSuccess;
}

CudaError EmulatedCudaApi::CopyAsync(void* dst, const void* src, size_t num_bytes,
                                     CudaStream stream) {
  const CudaError error = Enter("CopyAsync");
  if (error != kCudaSuccess || num_bytes == 0) return error;
  CheckEnd(dst, num_bytes);
  CheckEnd(src, num_bytes);
  Enqueue(stream, [=, this] {
    CheckEnd(dst, num_bytes);
    CheckEnd(src, num_bytes);
    FinishKernels(stream);
    std::memmove(dst, src, num_bytes);
  });
  // CUDA has copied from or to pageable memory when the call returns.
  const auto known = [&](const void* p) { return IsDevice(p) || IsHostPiece(p); };
  Stream& target = StreamOf(stream);
  if (target.capture == nullptr && (!known(dst) || !known(src))) Drain(&target);
  return kCudaSuccess;
}

CudaError EmulatedCudaApi::StreamCreate(CudaStream* stream) {
  *stream = nullptr;
  const CudaError error = Enter("StreamCreate");
  if (error != kCudaSuccess) return error;
  auto made = std::make_unique<Stream>();
  *stream = HandleOf<CudaStream>(made.get());
  if (first_stream_ == nullptr) first_stream_ = made.get();
  streams_[*stream] = std::move(made);
  return kCudaSuccess;
}

CudaError EmulatedCudaApi::StreamDestroy(CudaStream stream) {
  const CudaError error = Enter("StreamDestroy");
  Drain(&StreamOf(stream));
  if (&StreamOf(stream) == first_stream_) first_stream_ = nullptr;
  if (streams_.erase(stream) == 0) throw Fault("StreamDestroy of the default stream");
  return error;
}

CudaError EmulatedCudaApi::StreamSynchronize(CudaStream stream) {
  const CudaError error = EnterUncaptured("StreamSynchronize");
  if (error != kCudaSuccess) return error;
  Drain(&StreamOf(stream));
  FinishKernels(stream);
  return kCudaSuccess;
}

CudaError EmulatedCudaApi::StreamWaitEvent(CudaStream stream, CudaEvent event) {
  const CudaError error = Enter("StreamWaitEvent");
  if (error != kCudaSuccess) return error;
  const std::shared_ptr<Event> state = EventOf(event);
  if (state->recorded == 0) throw Fault("a wait for an event that was never recorded");
  Stream& target = StreamOf(stream);
  std::shared_ptr<Graph> graph = state->captured ? state->graph.lock() : nullptr;
  if (graph != nullptr && !graph->is_open) graph = nullptr;
  if (graph != nullptr && target.capture == nullptr) {  // joins the capture
    target.capture_broken = false;
    target.capture = graph;
    target.lane = graph->lanes.size();
    graph->lanes.emplace_back();
  }
  if (graph != target.capture || state->captured != (graph != nullptr)) {
    target.capture_broken = true;
    return kCudaStreamCaptureUnsupported;
  }
  if (graph != nullptr) {
    graph->lanes[target.lane].push_back({.waits_for = state->recorded});
    return kCudaSuccess;
  }
  Enqueue(stream, [this, state, record = state->recorded] { WaitFor(state.get(), record); });
  return kCudaSuccess;
}

CudaError EmulatedCudaApi::EventCreate(CudaEvent* event, bool timing) {
  *event = nullptr;
  const CudaError error = Enter("EventCreate");
  if (error != kCudaSuccess) return error;
  auto made = std::make_shared<Event>();
  made->timing = timing;
  *event = HandleOf<CudaEvent>(made.get());
  events_[*event] = std::move(made);
  return kCudaSuccess;
}

CudaError EmulatedCudaApi::EventDestroy(CudaEvent event) {
  const CudaError error = Enter("EventDestroy");
  EventOf(event);
  events_.erase(event);
  return error;
}

CudaError EmulatedCudaApi::EventRecord(CudaEvent event, CudaStream stream) {
  const CudaError error = Enter("EventRecord");
  if (error != kCudaSuccess) return error;
  const std::shared_ptr<Event> state = EventOf(event);
  Stream& target = StreamOf(stream);
  state->recorded = ++num_records_;
  state->stream = &target;
  state->captured = target.capture != nullptr;
  state->graph = target.capture;
  if (state->captured) {
    target.capture->lanes[target.lane].push_back({.record = state->recorded});
    return kCudaSuccess;
  }
  Enqueue(stream, [this, state, record = state->recorded] {
    state->done = std::max(state->done, record);
    state->time_ms = clock_ms_;
    const Turn turn;
    state->num_blocks = GlobalMemory::Get().next_number();
  });
  return kCudaSuccess;
}

CudaError EmulatedCudaApi::EventSynchronize(CudaEvent event) {
  const CudaError error = Enter("EventSynchronize");
  if (error != kCudaSuccess) return error;
  const std::shared_ptr<Event> state = EventOf(event);
  if (state->recorded == 0) throw Fault("a wait for an event that was never recorded");
  if (state->captured) return kCudaStreamCaptureUnsupported;
  WaitFor(state.get(), state->recorded);
  const Turn turn;
  GlobalMemory::Get().FinishUntil(state->num_blocks);
  return kCudaSuccess;
}

CudaError EmulatedCudaApi::EventQuery(CudaEvent event, bool* is_reached) {
  *is_reached = false;
  const CudaError error = Enter("EventQuery");
  if (error != kCudaSuccess) return error;
  const Event& state = *EventOf(event);
  if (state.captured) return kCudaStreamCaptureUnsupported;
  *is_reached = state.done >= state.recorded;  // as CUDA says of an event without a record
  return kCudaSuccess;
}

CudaError EmulatedCudaApi::EventElapsedMs(float* ms, CudaEvent begin, CudaEvent end) {
  const CudaError error = Enter("EventElapsedMs");
  if (error != kCudaSuccess) return error;
  const Event& first = *EventOf(begin);
  const Event& last = *EventOf(end);
  if (!first.timing || !last.timing || first.recorded == 0 || last.recorded == 0) {
    return kCudaInvalidValue;
  }
  if (first.done < first.recorded || last.done < last.recorded) return kCudaInvalidValue;
  *ms = static_cast<float>(last.time_ms - first.time_ms);
  return kCudaSuccess;
}

CudaError EmulatedCudaApi::LaunchHostFunction(CudaStream stream, CudaHostFunction function,
                                              void* data) {
  const CudaError error = Enter("LaunchHostFunction");
  if (error != kCudaSuccess) return error;
  Enqueue(stream, [=] {
    FinishKernels(stream);
    function(data);
  });
  return kCudaSuccess;
}

CudaError EmulatedCudaApi::LaunchKernel(const void* kernel, const CudaLaunch& launch, void**) {
  PendingKernel* const pending = std::exchange(CurrentPendingKernel(), nullptr);
  CudaError error = Enter("LaunchKernel");
  if (error == kCudaSuccess) {
    const auto raised = shared_bytes_max_.find(kernel);
    const size_t shared_max =
        raised == shared_bytes_max_.end() ? kSharedBytesUnraised : raised->second;
    const uint64_t num_threads = uint64_t{launch.block.x} * launch.block.y * launch.block.z;
    if (num_threads == 0 || num_threads > 1024 || launch.grid.x > 0x7fffffffu ||
        launch.grid.y > 65535 || launch.grid.z > 65535 || launch.shared_bytes > shared_max) {
      error = kCudaInvalidValue;
    }
  }
  if (error != kCudaSuccess) {
    launch_error_ = error;
    return error;
  }
  if (pending == nullptr) throw Fault("LaunchKernel of a kernel that Launch did not ask for");
  kernel_names_.try_emplace(kernel, pending->name);
  Enqueue(launch.stream,
          [launch, name = pending->name, body = pending->body] { RunGrid(launch, name, body); });
  return kCudaSuccess;
}

CudaError EmulatedCudaApi::SetSharedBytesMax(const void* kernel, size_t num_bytes) {
  const CudaError error = Enter("SetSharedBytesMax");
  if (error != kCudaSuccess) return error;
  if (num_bytes > device().properties.shared_bytes_per_block_max) return kCudaInvalidValue;
  shared_bytes_max_[kernel] = num_bytes;
  return kCudaSuccess;
}

CudaError EmulatedCudaApi::SetSharedCarveout(const void*, int percent) {
  const CudaError error = Enter("SetSharedCarveout");
  if (error != kCudaSuccess) return error;
  return percent > 100 ? CudaError{kCudaInvalidValue} : kCudaSuccess;
}

CudaError EmulatedCudaApi::BlocksPerMultiprocessor(int* count, const void* kernel, int threads,
                                                   size_t shared_bytes) {
  (void)kernel;
  const CudaError error = Enter("BlocksPerMultiprocessor");
  if (error != kCudaSuccess) return error;
  // As on compute capability 9.0: 2048 threads, 32 blocks and 228 KiB, of which each block uses 1
  // KiB more than it requests.
  const size_t by_shared = size_t{228} * 1024 / (shared_bytes + 1024);
  *count = static_cast<int>(
      std::min({size_t{32}, size_t{2048} / static_cast<size_t>(threads), by_shared}));
  return kCudaSuccess;
}

CudaError EmulatedCudaApi::LastError() {
  const CudaError error = Enter("LastError");
  const CudaError launch_error = std::exchange(launch_error_, kCudaSuccess);
  return error != kCudaSuccess ? error : launch_error;
}

}  // namespace minisgl::cuda::emulator
