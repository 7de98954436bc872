// See cuda_ops_class.h.
#include "cuda_ops_class.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "cuda_error.h"
#include "launch_context.h"
#include "minisgl/base/setting.h"

namespace minisgl::cuda {

CudaOps::~CudaOps() {
  if (capturing_) static_cast<void>(CudaOps::EndCapture());
  if (handover_ != nullptr) static_cast<void>(handover_->Synchronize());
  // No kernel may use the memory that is freed below.
  if (copies_ != nullptr) static_cast<void>(copies_->Synchronize());
}

Status CudaOps::Open() {
  name_ = fmt::format("cuda:{}", config_.index);
  if (config_.activation_dtype == DType::kF32) {
    return UsageError("{} computes in bf16 or f16, not in f32; choose one of them", name_);
  }
  CudaError error = api_->SetDevice(config_.index);
  if (error != kCudaSuccess) return Report(error, "cudaSetDevice");
  CudaDeviceProperties properties;
  error = api_->DeviceProperties(config_.index, &properties);
  if (error != kCudaSuccess) return Report(error, "cudaGetDeviceProperties");
  name_ = fmt::format("cuda:{} ({}, sm_{}{})", config_.index, properties.name,
                      properties.compute_major, properties.compute_minor);
  device_ =
      fmt::format("{}, sm_{}{}, {} multiprocessors", properties.name, properties.compute_major,
                  properties.compute_minor, properties.num_multiprocessors);

  CudaStream stream = nullptr;
  error = api_->StreamCreate(&stream);
  if (error != kCudaSuccess) return Report(error, "cudaStreamCreate");
  compute_ = OwnedStream(api_, stream);
  copies_ = std::make_unique<CopyStreams>(api_, compute_.get(), debug_.sync);
  MINISGL_RETURN_IF_ERROR(Report(copies_->Open()));

  compute_major_ = properties.compute_major;
  compute_minor_ = properties.compute_minor;
  context_ = MakeLaunchContext(api_.get(), compute_.get(), properties, debug_);
  staging_ = std::make_unique<Staging>(api_, compute_.get());
  packer_ = std::make_unique<WeightPacker>(
      config_.activation_dtype, staging_.get(),
      [this](size_t num_bytes) { return CudaOps::Allocate(num_bytes); },
      [this](const CudaFailure& failure) { return Report(failure); },
      [this](const Matrix& matrix, RowCodes kind) {
        return GemvCodeOrder(context_, matrix, kind);
      });
  const bool fuses = !debug_.no_fused_norm && !debug_.no_fused_activation && !debug_.no_fused_add;
  if (debug_.chain && fuses) {
    MINISGL_ASSIGN_OR_RETURN(chain_memory_, TakeWorkspace(sizeof(uint32_t), "chains"));
  }
  return MakeWatch();
}

Status CudaOps::MakeWatch() {
  if (!debug_.sync && config_.profile == nullptr) return Status();
  std::unique_ptr<KernelTimer> timer;
  if (config_.profile != nullptr) {
    timer = std::make_unique<KernelTimer>(api_, context_, config_.profile, config_.profile_rank);
    if (const CudaError error = timer->Start(); error != kCudaSuccess) {
      return Report(error, "timing a kernel");
    }
  }
  watch_ = std::make_unique<LaunchWatch>(api_, compute_.get(), debug_.sync, std::move(timer));
  context_.observer = watch_.get();
  return Status();
}

bool CudaOps::BeginWatched(std::string_view operation) {
  if (watch_ == nullptr) return true;
  watch_->Enter(std::string(operation));
  const CudaError error = watch_->BeforeLaunch();
  if (error != kCudaSuccess) Keep(error, watch_->Last());
  return error == kCudaSuccess;
}

bool CudaOps::EndWatched() {
  if (watch_ == nullptr) return true;
  const CudaError error = watch_->AfterLaunch(nullptr);
  if (error != kCudaSuccess) Keep(error, watch_->Last());
  return error == kCudaSuccess;
}

void CudaOps::TakeTimes(int64_t num_timed) {
  if (watch_ == nullptr || watch_->timer() == nullptr || !status_.ok()) return;
  const CudaError error = watch_->timer()->Take(num_timed);
  if (error != kCudaSuccess) Keep(error, "cudaEventElapsedTime");
}

void CudaOps::Keep(CudaError error, std::string_view call) {
  const Status status = CudaStatus(api_.get(), error, call, name_);
  if (capturing_) {
    if (capture_status_.ok()) capture_status_ = status;
    if (!IsSticky(error)) return;
  }
  if (status_.ok()) status_ = status;
}

Status CudaOps::Report(CudaError error, std::string_view call) {
  const Status status = CudaStatus(api_.get(), error, call, name_);
  if (IsSticky(error) && status_.ok()) status_ = status;
  return status;
}

DeviceMemoryInfo CudaOps::MemoryInfo() {
  size_t free_bytes = 0, total_bytes = 0;
  if (!status_.ok()) return {};
  const CudaError error = api_->MemoryInfo(&free_bytes, &total_bytes);
  if (error != kCudaSuccess) {
    Keep(error, "cudaMemGetInfo");
    return {};
  }
  return {.free_bytes = free_bytes, .total_bytes = total_bytes};
}

Result<OwnedDeviceMemory> CudaOps::TakeWorkspace(size_t num_bytes, const char* what) {
  void* memory = nullptr;
  CudaError error = api_->Malloc(&memory, num_bytes);
  if (error != kCudaSuccess) {
    return Report(error, fmt::format("cudaMalloc of {} bytes for {}", num_bytes, what));
  }
  OwnedDeviceMemory owned(api_, memory);
  error = api_->MemsetAsync(memory, 0, num_bytes, compute_.get());
  if (error != kCudaSuccess) return Report(error, "cudaMemsetAsync");
  return owned;
}

Status CudaOps::Reserve(const DeviceLimits& limits) {
  MINISGL_RETURN_IF_ERROR(status_);
  MINISGL_CHECK(attention_.empty(), "Reserve is called once");
  MINISGL_ASSIGN_OR_RETURN(OwnedDeviceMemory matmul_memory,
                           TakeWorkspace(kMatmulWorkspaceBytes, "products"));
  MINISGL_ASSIGN_OR_RETURN(std::unique_ptr<MatmulLibrary> matmul,
                           make_matmul_({.api = api_.get(),
                                         .workspace = matmul_memory.get(),
                                         .workspace_bytes = kMatmulWorkspaceBytes,
                                         .deterministic = config_.deterministic,
                                         .times_algorithms = !debug_.no_timed_plans,
                                         .compute_major = compute_major_,
                                         .compute_minor = compute_minor_,
                                         .device = device_,
                                         .cache_folder = config_.cache_folder}));
  if (RoundsE4M3Inputs() && !matmul->HasScaledMatmul()) {
    return UsageError("{}: {}=w8a8 needs a GPU of compute capability 9.0, and cuBLAS 12.9 or later",
                      name_, kDebugVariable);
  }
  OwnedDeviceMemory expert_memory;
  if (const size_t num_bytes = ExpertWorkspaceBytes(limits); num_bytes > 0) {
    MINISGL_ASSIGN_OR_RETURN(expert_memory, TakeWorkspace(num_bytes, "experts"));
  }
  if (limits.host_expert_width > 0) {
    auto handover = std::make_unique<HostHandover>(api_, compute_.get(), config_.activation_dtype);
    const CudaFailure failure = handover->Open(limits);
    if (failure.error == kCudaMemoryAllocation) {
      return MakeStatus(StatusCode::kUnavailable,
                        "{}: the system gives no {} bytes of pinned memory for experts on the CPU; "
                        "free memory of the machine, or give a smaller {}",
                        name_, HostHandover::PinnedBytes(limits, config_.activation_dtype),
                        SettingName(Setting::kMaxPrefillLength));
    }
    MINISGL_RETURN_IF_ERROR(Report(failure));
    handover_ = std::move(handover);
  }
  AttentionSpaces spaces;
  MINISGL_RETURN_IF_ERROR(
      spaces.Take(limits, context_.num_multiprocessors,
                  [this](size_t num_bytes) { return TakeWorkspace(num_bytes, "attention"); }));
  matmul_memory_ = std::move(matmul_memory);
  matmul_ = std::move(matmul);
  max_tokens_ = limits.max_tokens;
  scales_inputs_ = RoundsE4M3Inputs();
  packer_->ScaleInputs(scales_inputs_);
  expert_memory_ = std::move(expert_memory);
  expert_workspace_ = {.memory = expert_memory_.get(), .limits = limits};
  attention_ = std::move(spaces);
  return Status();
}

Result<std::shared_ptr<void>> CudaOps::Allocate(size_t num_bytes) {
  MINISGL_RETURN_IF_ERROR(status_);
  CheckNotCapturing();
  void* memory = nullptr;
  CudaError error = api_->Malloc(&memory, std::max<size_t>(num_bytes, 1));
  if (error != kCudaSuccess) return Report(error, fmt::format("cudaMalloc of {} bytes", num_bytes));
  std::shared_ptr<void> owner(memory, [api = api_](void* p) { static_cast<void>(api->Free(p)); });
  copies_->Queued(/*memory=*/true);
  error = api_->MemsetAsync(memory, 0, num_bytes, compute_.get());
  if (error != kCudaSuccess) return Report(error, "cudaMemsetAsync");
  return owner;
}

Result<std::shared_ptr<void>> CudaOps::AllocateHost(size_t num_bytes) {
  MINISGL_RETURN_IF_ERROR(status_);
  CheckNotCapturing();
  void* memory = nullptr;
  const CudaError error = api_->MallocHost(&memory, std::max<size_t>(num_bytes, 1));
  if (error != kCudaSuccess) {
    return Report(error, fmt::format("cudaMallocHost of {} bytes", num_bytes));
  }
  std::memset(memory, 0, num_bytes);
  return std::shared_ptr<void>(memory,
                               [api = api_](void* p) { static_cast<void>(api->FreeHost(p)); });
}

Status CudaOps::Upload(void* dst, const void* src, size_t num_bytes) {
  MINISGL_RETURN_IF_ERROR(status_);
  CheckNotCapturing();
  RunHeldProducts();
  copies_->Queued(/*memory=*/true);
  const auto* const source = static_cast<const std::byte*>(src);
  return Report(staging_->Write(dst, num_bytes, [&](std::byte* chunk, size_t offset, size_t part) {
    std::memcpy(chunk, source + offset, part);
  }));
}

void CudaOps::CopyOnDevice(void* dst, const void* src, size_t num_bytes) {
  if (!Usable() || num_bytes == 0) return;
  RunHeldProducts();
  rope_is_last_ = false;
  copies_->Queued();
  if (!BeginWatched("cudaMemcpyAsync on the device")) return;
  const CudaError error = api_->CopyAsync(dst, src, num_bytes, compute_.get());
  if (error != kCudaSuccess) return Keep(error, "cudaMemcpyAsync on the device");
  EndWatched();
}

void CudaOps::CopyToDevice(void* device, const void* host, size_t num_bytes) {
  CheckNotCapturing();
  RunHeldProducts();
  if (Usable() && num_bytes > 0) Keep(copies_->ToDevice(device, host, num_bytes));
}

void CudaOps::CopyToHost(void* host, const void* device, size_t num_bytes) {
  CheckNotCapturing();
  RunHeldProducts();
  if (Usable() && num_bytes > 0) Keep(copies_->ToHost(host, device, num_bytes));
}

Result<std::unique_ptr<DeviceEvent>> CudaOps::MakeEvent() {
  MINISGL_RETURN_IF_ERROR(status_);
  CudaEvent event = nullptr;
  const CudaError error = api_->EventCreate(&event, /*timing=*/true);
  if (error != kCudaSuccess) return Report(error, "cudaEventCreate");
  return std::unique_ptr<DeviceEvent>(std::make_unique<CudaDeviceEvent>(OwnedEvent(api_, event)));
}

void CudaOps::Record(DeviceEvent* event) {
  CheckNotCapturing();
  RunHeldProducts();
  if (!Usable()) return;
  auto* const recorded = static_cast<CudaDeviceEvent*>(event);
  const CudaFailure failure = copies_->Record(recorded->event.get());
  if (!failure.ok()) return Keep(failure);
  recorded->recorded = true;
  if (nccl() != nullptr) recorded->num_sums = nccl()->num_begun(link_->exchange.rank);
  if (watch_ != nullptr && watch_->timer() != nullptr) {
    recorded->num_timed = watch_->timer()->num_timed();
  }
}

Status CudaOps::Wait(DeviceEvent* event) {
  CheckNotCapturing();
  MINISGL_RETURN_IF_ERROR(status_);
  const auto* const waited = static_cast<CudaDeviceEvent*>(event);
  if (!waited->recorded) return Status();
  const CudaError error = api_->EventSynchronize(waited->event.get());
  if (error != kCudaSuccess) Keep(error, "cudaEventSynchronize");
  if (nccl() != nullptr) nccl()->End(link_->exchange.rank, waited->num_sums);
  TakeAlarm();
  TakeHostFault();
  TakeTimes(waited->num_timed);
  return status_;
}

bool CudaOps::IsReached(DeviceEvent* event) {
  CheckNotCapturing();
  const auto* const asked = static_cast<CudaDeviceEvent*>(event);
  if (!status_.ok() || !asked->recorded) return true;
  bool is_reached = false;
  const CudaError error = api_->EventQuery(asked->event.get(), &is_reached);
  if (error != kCudaSuccess) Keep(error, "cudaEventQuery");
  return is_reached || error != kCudaSuccess;
}

Result<double> CudaOps::ElapsedMs(DeviceEvent* begin, DeviceEvent* end) {
  MINISGL_RETURN_IF_ERROR(status_);
  const auto* const first = static_cast<CudaDeviceEvent*>(begin);
  const auto* const last = static_cast<CudaDeviceEvent*>(end);
  MINISGL_CHECK(first->recorded && last->recorded, "ElapsedMs of an event that was not recorded");
  float ms = 0;
  const CudaError error = api_->EventElapsedMs(&ms, first->event.get(), last->event.get());
  if (error != kCudaSuccess) return Report(error, "cudaEventElapsedTime");
  return static_cast<double>(ms);
}

Status CudaOps::Synchronize() {
  CheckNotCapturing();
  RunHeldProducts();
  if (status_.ok()) Keep(copies_->Synchronize());
  // Also after an error: the host may still compute.
  if (handover_ != nullptr) {
    const CudaFailure failure = handover_->Synchronize();
    if (status_.ok()) Keep(failure);
    TakeHostFault();
  }
  if (nccl() != nullptr) {
    nccl()->End(link_->exchange.rank, nccl()->num_begun(link_->exchange.rank));
  }
  TakeAlarm();
  TakeTimes(std::numeric_limits<int64_t>::max());
  return status_;
}

Status CudaOps::BeginCapture() {
  MINISGL_RETURN_IF_ERROR(status_);
  CheckNotCapturing();
  RunHeldProducts();
  if (!RunsGraphs()) return MakeStatus(StatusCode::kUnavailable, "{}: graphs are off", name_);
  const CudaError error = api_->BeginCapture(compute_.get());
  if (error != kCudaSuccess) return Report(error, "cudaStreamBeginCapture");
  capturing_ = true;
  if (matmul_ != nullptr) matmul_->SetCapturing(true);
  capture_status_ = Status();
  return Status();
}

Result<std::unique_ptr<DeviceGraph>> CudaOps::EndCapture() {
  MINISGL_CHECK(capturing_, "EndCapture without BeginCapture");
  RunHeldProducts();
  capturing_ = false;
  if (matmul_ != nullptr) matmul_->SetCapturing(false);
  // Ends the capture even after an error: otherwise the stream could not be used again.
  CudaGraph captured = nullptr;
  CudaError error = api_->EndCapture(compute_.get(), &captured);
  const OwnedGraph graph(api_, captured);
  MINISGL_RETURN_IF_ERROR(status_);
  MINISGL_RETURN_IF_ERROR(capture_status_);
  if (error != kCudaSuccess) return Report(error, "cudaStreamEndCapture");
  CudaGraphExec made = nullptr;
  error = api_->GraphInstantiate(&made, graph.get());
  if (error != kCudaSuccess) return Report(error, "cudaGraphInstantiate");
  OwnedGraphExec exec(api_, made);
  error = api_->GraphUpload(exec.get(), compute_.get());
  if (error != kCudaSuccess) return Report(error, "cudaGraphUpload");
  return std::unique_ptr<DeviceGraph>(std::make_unique<CudaDeviceGraph>(std::move(exec)));
}

void CudaOps::Replay(DeviceGraph* graph) {
  CheckNotCapturing();
  RunHeldProducts();
  if (!Usable()) return;
  copies_->Queued();
  if (nccl() != nullptr) nccl()->Begin(link_->exchange.rank);
  const CudaGraphExec exec = static_cast<CudaDeviceGraph*>(graph)->exec.get();
  const CudaError error = api_->GraphLaunch(exec, compute_.get());
  if (error != kCudaSuccess) Keep(error, "cudaGraphLaunch");
}

void CudaOps::BeginHostExperts(const HostExpertsParams& params) {
  rope_is_last_ = false;
  MINISGL_CHECK(handover_ != nullptr, "no memory was reserved for experts on the host");
  if (!Usable()) return;
  copies_->Queued();
  Keep(handover_->Begin(params));
}

// What is timed is the wait for the host.
void CudaOps::EndHostExperts() {
  MINISGL_CHECK(handover_ != nullptr, "no memory was reserved for experts on the host");
  if (!Usable()) return handover_->Forget();
  copies_->Queued();
  if (!BeginWatched("HostExperts")) return;
  const CudaFailure failure = handover_->End();
  if (!failure.ok()) return Keep(failure);
  EndWatched();
}

void CudaOps::SumByNccl(const AllReduceParams& p) {
  RunHeldProducts();
  rope_is_last_ = false;
  if (!Usable()) return;
  copies_->Queued();
  if (!BeginWatched("AllReduce by NCCL")) return;
  if (const CudaError error = api_->SetDevice(config_.index); error != kCudaSuccess) {
    return Keep(error, "cudaSetDevice");
  }
  const int32_t rank = link_->exchange.rank;
  if (!capturing_) nccl()->Begin(rank);
  const Status status = nccl()->Sum(rank, p.x, p.count, compute_.get());
  if (status.ok()) {
    EndWatched();
    return;
  }
  TakeAlarm();  // if another rank has failed, it is a consequence
  if (status_.ok()) (capturing_ ? capture_status_ : status_) = status.WithPrefix(name_);
}

std::string CudaOps::SumsText() const {
  if (link_ == nullptr) return "";
  if (nccl() == nullptr) {
    return link_->through_host ? "sums over ranks through the host's memory"
                               : "sums over ranks through the GPUs' memory";
  }
  const std::string library = "NCCL " + nccl()->library().VersionText();
  if (link_->nccl_bytes_min == 0) return fmt::format("sums over ranks by {}", library);
  return fmt::format("sums over ranks of more than {} KiB by {}", link_->nccl_bytes_min / 1024,
                     library);
}

Result<std::unique_ptr<DeviceOps>> MakeCudaOpsOver(std::shared_ptr<CudaApi> api,
                                                   MatmulLibraryFactory make_matmul,
                                                   const CudaOpsConfig& config,
                                                   const DebugSwitches& debug) {
  auto ops = std::make_unique<CudaOps>(std::move(api), std::move(make_matmul), config, debug);
  MINISGL_RETURN_IF_ERROR(ops->Open());
  return std::unique_ptr<DeviceOps>(std::move(ops));
}

}  // namespace minisgl::cuda
