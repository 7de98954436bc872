// See cuda_ops.h. Each operation is one call of a kernel's launcher; this file handles memory,
// streams, events, graphs and errors.
//
// Errors: a call that has a Status returns its error. An error is kept in status() if the call has
// none, or if it is sticky. Weights have the type of the activations, row-major.
#include "cuda_ops.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "attention_spaces.h"
#include "copy_streams.h"
#include "cuda_error.h"
#include "cuda_handles.h"
#include "fused_linear.h"
#include "kernels/kernels.h"
#include "launch_context.h"
#include "launch_watch.h"
#include "model_support.h"
#include "staging.h"
#include "weight_packer.h"

namespace minisgl::cuda {
namespace {

class CudaOps : public DeviceOps {
 public:
  CudaOps(std::shared_ptr<CudaApi> api, MatmulLibraryFactory make_matmul,
          const CudaOpsConfig& config, const DebugSwitches& debug)
      : api_(std::move(api)),
        make_matmul_(std::move(make_matmul)),
        config_(config),
        debug_(debug) {}
  ~CudaOps() override;

  // Called once, before any other function.
  Status Open();

  std::string Name() const override { return name_; }
  DType activation_dtype() const override { return config_.activation_dtype; }
  Status status() const override { return status_; }
  DeviceMemoryInfo MemoryInfo() override;

  Status CheckSupported(const ModelShape& shape) const override {
    return CheckModelSupported(shape);
  }
  Status Reserve(const DeviceLimits& limits) override;
  uint64_t ReservedBytes(const DeviceLimits& limits) const override {
    return AttentionSpaces::CountBytes(limits, context_.num_multiprocessors) +
           ExpertWorkspaceBytes(limits) + kMatmulWorkspaceBytes;
  }

  Result<std::shared_ptr<void>> Allocate(size_t num_bytes) override;
  Result<std::shared_ptr<void>> AllocateHost(size_t num_bytes) override;
  Status Upload(void* dst, const void* src, size_t num_bytes) override;
  void CopyToDevice(void* device, const void* host, size_t num_bytes) override;
  void CopyToHost(void* host, const void* device, size_t num_bytes) override;
  void CopyOnDevice(void* dst, const void* src, size_t num_bytes) override;
  Result<Matrix> PackMatrix(std::span<const WeightTensor> parts,
                            const WeightFormat& format) override;
  Result<Matrix> PackEmbedding(const WeightTensor& table, const WeightFormat& format) override {
    return PackMatrix({&table, 1}, format);
  }
  Result<ExpertMatrices> PackExperts(std::span<const std::vector<WeightTensor>> experts,
                                     const WeightFormat& format) override;

  Result<std::unique_ptr<DeviceEvent>> MakeEvent() override;
  void Record(DeviceEvent* event) override;
  Status Wait(DeviceEvent* event) override;
  bool IsReached(DeviceEvent* event) override;
  Result<double> ElapsedMs(DeviceEvent* begin, DeviceEvent* end) override;
  Status Synchronize() override;

  bool RunsGraphs() const override { return !debug_.no_graphs && watch_ == nullptr; }
  Status BeginCapture() override;
  Result<std::unique_ptr<DeviceGraph>> EndCapture() override;
  void Replay(DeviceGraph* graph) override;

  void Linear(const LinearParams& params) override;
  void FusedLinear(const FusedLinearParams& params) override;
  bool AddsInLinear(int64_t num_tokens) const override {
    return TakesGemv(num_tokens) && !debug_.no_fused_add;
  }
  void Embedding(const EmbeddingParams& p) override {
    const Matrix& table = *p.table;
    Queue("Embedding",
          [&] { return LaunchEmbedding(context_, p, table.storage.get(), table.dtype); });
  }
  void Norm(const NormParams& p) override { Queue("Norm", LaunchNorm, p); }
  void RopeKvWrite(const RopeKvWriteParams& p) override {
    Queue("RopeKvWrite", [&] { return LaunchRopeKvWrite(context_, p); });
    rope_is_last_ = true;
  }
  void Activate(const ActivateParams& p) override { Queue("Activate", LaunchActivate, p); }
  void GatherRows(const GatherRowsParams& p) override { Queue("GatherRows", LaunchGatherRows, p); }
  void Softcap(const SoftcapParams& p) override { Queue("Softcap", LaunchSoftcap, p); }
  void Route(const RouteParams& p) override { Queue("Route", LaunchRoute, p); }
  void ExpertLinear(const ExpertLinearParams& p) override {
    CheckReserved();
    Queue("ExpertLinear", [&] {
      return LaunchExpertLinear(context_, p, p.weights->storage.get(), expert_workspace_);
    });
  }
  void HeadLinear(const HeadLinearParams& p) override {
    Queue("HeadLinear", [&] { return LaunchHeadLinear(context_, p, p.weights->storage.get()); });
  }
  void CombineExperts(const CombineExpertsParams& p) override {
    Queue("CombineExperts", LaunchCombineExperts, p);
  }
  void Attention(const AttentionParams& p) override {
    CheckReserved();
    const bool early = rope_is_last_;
    Queue("Attention", [&] {
      return LaunchAttention(context_, p, attention_.Of(HeadsOf(p)), DecodesByExtend(), early);
    });
  }
  void ShortConv(const ShortConvParams& p) override { Queue("ShortConv", LaunchShortConv, p); }
  void Recurrence(const RecurrenceParams& p) override { Queue("Recurrence", LaunchRecurrence, p); }
  void PlanAttention(const AttentionPlanParams& p) override {
    CheckReserved();
    Queue("PlanAttention", [&] {
      return LaunchPlanAttention(context_, p, attention_.Of(HeadsOf(p)), DecodesByExtend());
    });
  }
  void ApplyPlanWrites(const PlanWritesParams& p) override {
    Queue("ApplyPlanWrites", LaunchApplyPlanWrites, p);
  }
  void PrepareTokens(const PrepareTokensParams& p) override {
    Queue("PrepareTokens", LaunchPrepareTokens, p);
  }
  void SamplePlaces(const DeviceSampleParams& p) override {
    Queue("SamplePlaces", LaunchSample, p);
  }
  void AcceptTokens(const AcceptTokensParams& p) override {
    Queue("AcceptTokens", LaunchAcceptTokens, p);
  }
  void Sample(const SampleParams&) override {
    MINISGL_CHECK(false, "Sample takes host arrays; a device uses SamplePlaces");
  }

 private:
  std::string LinearName(const Matrix& weight) const {
    return watch_ ? fmt::format("Linear [{}, {}]", weight.num_out, weight.num_in) : "Linear";
  }
  bool TakesGemv(int64_t num_tokens) const {
    return num_tokens <= kGemvTokensMax && !config_.deterministic && !debug_.no_gemv;
  }
  // Runs a product with what stands around it, unless it is the library's: then returns false.
  bool RunOwnProduct(const FusedLinearParams& params);
  bool DecodesByExtend() const { return config_.deterministic || debug_.decode_by_extend; }
  // Queues one kernel and keeps its error.
  template <typename Door>
  void Queue(std::string_view operation, const Door& door) {
    rope_is_last_ = false;
    if (!Usable()) return;
    copies_->Queued();
    if (watch_ != nullptr) watch_->Enter(std::string(operation));
    if (const CudaError error = door(); error != kCudaSuccess) {
      Keep(error, fmt::format("the kernel of {}", watch_ ? watch_->Last() : operation));
    }
  }
  template <typename Params>
  void Queue(std::string_view operation, CudaError (*launch)(const LaunchContext&, const Params&),
             const Params& params) {
    Queue(operation, [&] { return launch(context_, params); });
  }
  // Around what is queued that is no kernel of this program, if launches are watched. False after
  // an error, which is kept.
  bool BeginWatched(std::string_view operation);
  bool EndWatched();

  // False after an error: calls then do nothing.
  bool Usable() const { return status_.ok() && (!capturing_ || capture_status_.ok()); }
  // For calls without a Status: the capture keeps the error, if there is one, otherwise status().
  void Keep(CudaError error, std::string_view call);
  void Keep(const CudaFailure& failure) {
    if (!failure.ok()) Keep(failure.error, failure.call);
  }
  // For calls that return a Status: status() keeps the error only if it is sticky.
  Status Report(CudaError error, std::string_view call);
  Status Report(const CudaFailure& failure) {
    return failure.ok() ? Status() : Report(failure.error, failure.call);
  }

  void CheckReserved() const {
    MINISGL_CHECK(!Usable() || !attention_.empty(), "an operation was called before Reserve");
  }
  void CheckNotCapturing() const {
    MINISGL_CHECK(!capturing_, "a call that cannot be captured was made during a capture");
  }
  Status MakeWatch();
  // After a wait: passes the times of so many operations on, if they are timed.
  void TakeTimes(int64_t num_timed);
  Result<OwnedDeviceMemory> TakeWorkspace(size_t num_bytes, const char* what);  // zeroed

  const std::shared_ptr<CudaApi> api_;
  const MatmulLibraryFactory make_matmul_;
  const CudaOpsConfig config_;
  const DebugSwitches debug_;
  std::string name_;
  std::string device_;  // the kind of GPU

  OwnedStream compute_;
  std::unique_ptr<CopyStreams> copies_;
  LaunchContext context_;
  std::unique_ptr<LaunchWatch> watch_;  // null unless something is to be seen of every launch
  std::unique_ptr<Staging> staging_;
  std::unique_ptr<WeightPacker> packer_;

  Status status_;
  bool capturing_ = false;
  Status capture_status_;

  bool rope_is_last_ = false;  // of the kernels queued
  AttentionSpaces attention_;
  OwnedDeviceMemory expert_memory_;
  ExpertWorkspace expert_workspace_;
  OwnedDeviceMemory matmul_memory_;
  std::unique_ptr<MatmulLibrary> matmul_;
};

CudaOps::~CudaOps() {
  if (capturing_) static_cast<void>(CudaOps::EndCapture());
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

  context_ = MakeLaunchContext(api_.get(), compute_.get(), properties, debug_);
  staging_ = std::make_unique<Staging>(api_, compute_.get());
  packer_ = std::make_unique<WeightPacker>(
      config_.activation_dtype, staging_.get(),
      [this](size_t num_bytes) { return CudaOps::Allocate(num_bytes); },
      [this](const CudaFailure& failure) { return Report(failure); });
  return MakeWatch();
}

Status CudaOps::MakeWatch() {
  if (!debug_.sync && config_.profile == nullptr) return Status();
  std::unique_ptr<KernelTimer> timer;
  if (config_.profile != nullptr) {
    timer = std::make_unique<KernelTimer>(api_, context_, config_.profile);
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
                                         .device = device_,
                                         .cache_folder = config_.cache_folder}));
  OwnedDeviceMemory expert_memory;
  if (const size_t num_bytes = ExpertWorkspaceBytes(limits); num_bytes > 0) {
    MINISGL_ASSIGN_OR_RETURN(expert_memory, TakeWorkspace(num_bytes, "experts"));
  }
  AttentionSpaces spaces;
  MINISGL_RETURN_IF_ERROR(
      spaces.Take(limits, context_.num_multiprocessors,
                  [this](size_t num_bytes) { return TakeWorkspace(num_bytes, "attention"); }));
  matmul_memory_ = std::move(matmul_memory);
  matmul_ = std::move(matmul);
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
  copies_->Queued(/*memory=*/true);
  const auto* const source = static_cast<const std::byte*>(src);
  return Report(staging_->Write(dst, num_bytes, [&](std::byte* chunk, size_t offset, size_t part) {
    std::memcpy(chunk, source + offset, part);
  }));
}

void CudaOps::CopyOnDevice(void* dst, const void* src, size_t num_bytes) {
  if (!Usable() || num_bytes == 0) return;
  copies_->Queued();
  if (!BeginWatched("cudaMemcpyAsync on the device")) return;
  const CudaError error = api_->CopyAsync(dst, src, num_bytes, compute_.get());
  if (error != kCudaSuccess) return Keep(error, "cudaMemcpyAsync on the device");
  EndWatched();
}

void CudaOps::CopyToDevice(void* device, const void* host, size_t num_bytes) {
  CheckNotCapturing();
  if (Usable() && num_bytes > 0) Keep(copies_->ToDevice(device, host, num_bytes));
}

void CudaOps::CopyToHost(void* host, const void* device, size_t num_bytes) {
  CheckNotCapturing();
  if (Usable() && num_bytes > 0) Keep(copies_->ToHost(host, device, num_bytes));
}

Result<Matrix> CudaOps::PackMatrix(std::span<const WeightTensor> parts, const WeightFormat&) {
  MINISGL_RETURN_IF_ERROR(status_);
  CheckNotCapturing();
  return packer_->Pack(parts);
}

Result<ExpertMatrices> CudaOps::PackExperts(std::span<const std::vector<WeightTensor>> experts,
                                            const WeightFormat&) {
  MINISGL_RETURN_IF_ERROR(status_);
  CheckNotCapturing();
  return packer_->PackExperts(experts);
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
  if (!Usable()) return;
  auto* const recorded = static_cast<CudaDeviceEvent*>(event);
  const CudaFailure failure = copies_->Record(recorded->event.get());
  if (!failure.ok()) return Keep(failure);
  recorded->recorded = true;
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
  if (status_.ok()) Keep(copies_->Synchronize());
  TakeTimes(std::numeric_limits<int64_t>::max());
  return status_;
}

Status CudaOps::BeginCapture() {
  MINISGL_RETURN_IF_ERROR(status_);
  CheckNotCapturing();
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
  if (!Usable()) return;
  copies_->Queued();
  const CudaGraphExec exec = static_cast<CudaDeviceGraph*>(graph)->exec.get();
  const CudaError error = api_->GraphLaunch(exec, compute_.get());
  if (error != kCudaSuccess) Keep(error, "cudaGraphLaunch");
}

bool CudaOps::RunOwnProduct(const FusedLinearParams& p) {
  const LinearParams& linear = p.linear;
  const Matrix& weight = *linear.weight;
  MINISGL_CHECK(linear.x.dtype == weight.dtype, "Linear of {} with weights of {}",
                DTypeName(linear.x.dtype), DTypeName(weight.dtype));
  if (!TakesGemv(linear.num_tokens)) return false;
  const FusedParts parts = DivideFusedLinear(context_, p, debug_);
  if (parts.norm != nullptr) Norm(*parts.norm);
  Queue(LinearName(weight),
        [&] { return LaunchGemv(context_, parts.product, weight.storage.get()); });
  if (parts.activation != nullptr) Activate(*parts.activation);
  return true;
}

void CudaOps::FusedLinear(const FusedLinearParams& p) {
  if (p.linear.num_tokens == 0 || !Usable() || RunOwnProduct(p)) return;
  RunParts(p);
}

void CudaOps::Linear(const LinearParams& p) {
  if (p.num_tokens == 0 || !Usable() || RunOwnProduct({.linear = p})) return;
  const Matrix& weight = *p.weight;
  const std::string operation = LinearName(weight);
  CheckReserved();
  copies_->Queued();
  if (!BeginWatched(operation)) return;
  const Status status = matmul_->Matmul({.num_tokens = p.num_tokens,
                                         .num_out = weight.num_out,
                                         .num_in = weight.num_in,
                                         .dtype = weight.dtype,
                                         .out_dtype = p.out.dtype,
                                         .out_stride = p.out_stride},
                                        p.x.data, weight.storage.get(), p.out.data, compute_.get());
  if (!status.ok()) {
    // If the device is lost, CUDA's error has the cause; the library's has not.
    const CudaError cause =
        capturing_ ? api_->LastError() : api_->StreamSynchronize(compute_.get());
    if (IsSticky(cause)) return Keep(cause, "cublasLtMatmul");
    (capturing_ ? capture_status_ : status_) = status.WithPrefix(name_);
    return;
  }
  if (!EndWatched() || p.bias == nullptr) return;
  Queue("Linear's bias", [&] {
    return LaunchAddBias(context_, p.out, p.bias, p.num_tokens, weight.num_out, p.out_stride);
  });
}

}  // namespace

Result<std::unique_ptr<DeviceOps>> MakeCudaOpsOver(std::shared_ptr<CudaApi> api,
                                                   MatmulLibraryFactory make_matmul,
                                                   const CudaOpsConfig& config,
                                                   const DebugSwitches& debug) {
  auto ops = std::make_unique<CudaOps>(std::move(api), std::move(make_matmul), config, debug);
  MINISGL_RETURN_IF_ERROR(ops->Open());
  return std::unique_ptr<DeviceOps>(std::move(ops));
}

}  // namespace minisgl::cuda
