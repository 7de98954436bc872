// DeviceOps on CUDA (cuda_ops.h): the class. Each operation is one call of a kernel's launcher; the
// rest handles memory, streams, events, graphs and errors.
//
// Errors: a call that has a Status returns its error. An error is kept in status() if the call has
// none, or if it is sticky. Weights have the type of the activations, row-major, or are codes
// (coded_matrix.h).
#pragma once

#include <fmt/core.h>

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "attention_spaces.h"
#include "copy_streams.h"
#include "cuda_handles.h"
#include "cuda_ops.h"
#include "host_handover.h"
#include "kernels/kernels.h"
#include "kernels/scaled_input.h"
#include "launch_watch.h"
#include "model_support.h"
#include "product_chain.h"
#include "rank_link.h"
#include "staging.h"
#include "weight_packer.h"

namespace minisgl::cuda {

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
  // Makes these the operations of a rank. Called once, before the first operation.
  void Join(RankLink link) {
    if (link.exchange.rank > 0) name_ += fmt::format(", rank {}", link.exchange.rank);
    link_ = std::make_unique<const RankLink>(std::move(link));
    exchange_ = link_->exchange;
  }
  void FailRanks() override {
    if (link_ != nullptr) link_->RaiseAlarm();
  }
  void RunAlone(bool alone) override {
    if (link_ != nullptr) exchange_ = alone ? link_->Alone() : link_->exchange;
  }
  bool FailedWithOthers() const override { return failed_with_others_; }
  bool WarmsUpSums() const override { return nccl() != nullptr; }
  std::string SumsText() const override;

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

  CodesKept KeepsCodes() const override {
    if (debug_.keep_codes || debug_.w8a8 || debug_.code_tiles) return CodesKept::kAlways;
    return debug_.expand_codes ? CodesKept::kIfQuantized : CodesKept::kWhereNeeded;
  }
  uint64_t CodeScratchBytes() const override {
    return kExpandBytesMax + (RoundsE4M3Inputs() ? kInputBytesMax + kLastOutputsBytesMax : 0);
  }
  bool RoundsE4M3Inputs() const override { return debug_.w8a8 && !config_.deterministic; }
  std::string ExpandedCodesText() const override;

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
  void Embedding(const EmbeddingParams& params) override;
  void Norm(const NormParams& p) override { Queue("Norm", LaunchNorm, p); }
  void RopeKvWrite(const RopeKvWriteParams& p) override {
    Queue("RopeKvWrite", [&] { return LaunchRopeKvWrite(context_, p); });
    rope_is_last_ = true;
  }
  void Activate(const ActivateParams& p) override { Queue("Activate", LaunchActivate, p); }
  void GatherRows(const GatherRowsParams& p) override { Queue("GatherRows", LaunchGatherRows, p); }
  void Softcap(const SoftcapParams& p) override { Queue("Softcap", LaunchSoftcap, p); }
  void PlaceRows(const PlaceRowsParams& p) override { Queue("PlaceRows", LaunchPlaceRows, p); }
  void MixRotary(const MixRotaryParams& p) override { Queue("MixRotary", LaunchMixRotary, p); }
  void SegmentAttention(const SegmentAttentionParams& p) override {
    Queue("SegmentAttention", LaunchSegmentAttention, p);
  }
  void MixRows(const MixRowsParams& p) override { Queue("MixRows", LaunchMixRows, p); }
  void Clamp(const ClampParams& p) override { Queue("Clamp", LaunchClamp, p); }
  void Route(const RouteParams& p) override { Queue("Route", LaunchRoute, p); }
  void ExpertLinear(const ExpertLinearParams& params) override;
  void HeadLinear(const HeadLinearParams& p) override {
    Queue("HeadLinear", [&] { return LaunchHeadLinear(context_, p, p.weights->storage.get()); });
  }
  bool HasAdapterSlots() const override { return true; }
  void SlotLowRank(const SlotLowRankParams& p) override {
    Queue("SlotLowRank", LaunchSlotLowRank, p);
  }
  void SlotEmbeddings(const SlotEmbeddingParams& p) override {
    Queue("SlotEmbeddings", LaunchSlotEmbeddings, p);
  }
  void CombineExperts(const CombineExpertsParams& p) override {
    Queue("CombineExperts", LaunchCombineExperts, p);
  }
  void BeginHostExperts(const HostExpertsParams& params) override;
  void EndHostExperts() override;
  void Attention(const AttentionParams& p) override {
    CheckReserved();
    const bool early = rope_is_last_;
    Queue("Attention", [&] {
      return LaunchAttention(context_, p, attention_.Of(HeadsOf(p)), DecodesByExtend(), early);
    });
  }
  void ShortConv(const ShortConvParams& p) override { Queue("ShortConv", LaunchShortConv, p); }
  void Recurrence(const RecurrenceParams& p) override {
    Queue("Recurrence", [&] { return LaunchRecurrence(context_, p, config_.deterministic); });
  }
  void PlanAttention(const AttentionPlanParams& p) override {
    CheckReserved();
    Queue("PlanAttention", [&] {
      return LaunchPlanAttention(context_, p, attention_.Of(HeadsOf(p)), DecodesByExtend());
    });
  }
  bool GathersOnAllRanks() const override { return true; }
  void MeanSquares(const MeanSquaresParams& p) override {
    Queue("MeanSquares", LaunchMeanSquares, p);
  }
  void AllReduce(const AllReduceParams& p) override {
    MINISGL_CHECK(link_ != nullptr, "a sum over the ranks of one");
    if (p.count == 0) return;
    if (IsNcclSum(p)) return SumByNccl(p);
    Queue("AllReduce", [&] { return LaunchAllReduce(context_, p, exchange_); });
  }
  void AllReduceNorm(const AllReduceNormParams& p) override {
    MINISGL_CHECK(link_ != nullptr, "a sum over the ranks of one");
    if (p.sum.count == 0) return;
    if (debug_.no_fused_norm || IsNcclSum(p.sum) || !SumTakesNorm(p, exchange_)) {
      return Ops::AllReduceNorm(p);
    }
    Queue("AllReduceNorm", [&] { return LaunchAllReduceNorm(context_, p, exchange_); });
  }
  void GatherColumns(const GatherColumnsParams& p) override {
    MINISGL_CHECK(link_ != nullptr && p.bounds != nullptr, "columns of the ranks of one");
    Queue("GatherColumns", [&] { return LaunchGatherColumns(context_, p, exchange_); });
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
  void KeepStates(const KeepStatesParams& p) override { Queue("KeepStates", LaunchKeepStates, p); }
  void MapTokens(const MapTokensParams& p) override { Queue("MapTokens", LaunchMapTokens, p); }
  void Sample(const SampleParams&) override {
    MINISGL_CHECK(false, "Sample takes host arrays; a device uses SamplePlaces");
  }

 private:
  std::string LinearName(const Matrix& weight) const {
    return watch_ ? fmt::format("Linear [{}, {}]", weight.num_out, weight.num_in) : "Linear";
  }
  bool TakesGemv(int64_t num_tokens) const {
    return num_tokens <= kGemvTokensMax && !config_.deterministic && !config_.library_products &&
           !debug_.no_gemv;
  }
  // Runs a product with what stands around it, unless it is the library's: then returns false.
  bool RunOwnProduct(const FusedLinearParams& params);
  // Runs it as kernels of its own. REQUIRES TakesGemv.
  void RunProductAlone(const FusedLinearParams& params);
  // Keeps the product for a chain; false if it is of none.
  bool HoldProduct(const FusedLinearParams& params);
  // Runs the products that were kept, before anything else is queued.
  void RunHeldProducts();
  // Runs it with a matrix of codes. REQUIRES TakesGemv.
  void RunCodesProduct(const FusedLinearParams& params);
  // True if kernels of tiles compute the product from codes.
  bool TakesCodeTiles(const LinearParams& params) const;
  void RunCodeTiles(const LinearParams& params);
  // scaled_products.cc: true if the library multiplies inputs that are rounded to e4m3.
  bool TakesScaledInput(const LinearParams& params) const;
  // Products for which that is true.
  void RunScaled(const LinearParams& params, const NormParams* norm);
  void RunFusedScaled(const FusedLinearParams& params);
  bool RunScaledProducts(const LinearParams& params, const ScaledInput& input);
  bool RunScaledRows(const LinearParams& params, const ScaledInput& input, const ScaledRows& rows,
                     const void* weight, const float* scales);
  // The memory of the rounded inputs of `num_tokens` tokens.
  ScaledInput InputOf(const CodedMatrix& codes, int64_t num_tokens) const;
  // Makes room for the rounded inputs of a matrix of codes.
  Status TakeInputMemory(const CodedMatrix& codes);
  // Runs the activation that waits for the next product.
  void RunHeldActivation();
  void AddBias(const LinearParams& params);
  // False after an error, which is kept.
  bool RunLibrary(const Matrix& weight, const std::function<Status()>& call);
  bool RunMatmul(const LinearParams& params, int64_t first, int64_t count, const void* memory);
  // Makes room for the expanded rows of a matrix of codes.
  Status TakeExpandMemory(int64_t num_out, int64_t num_in);
  // Expands rows [first, first + count) of `weight`, a matrix of codes, into that memory.
  void ExpandRows(const Matrix& weight, int64_t first, int64_t count);
  bool DecodesByExtend() const { return config_.deterministic || debug_.decode_by_extend; }
  // Queues one kernel and keeps its error.
  template <typename Door>
  void Queue(std::string_view operation, const Door& door) {
    RunHeldProducts();
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
  // Null: no sum is NCCL's.
  NcclRanks* nccl() const { return link_ == nullptr ? nullptr : link_->nccl.get(); }
  // Not of a rank that runs alone.
  bool IsNcclSum(const AllReduceParams& p) const {
    return nccl() != nullptr && exchange_.count > 1 &&
           p.count * static_cast<int64_t>(DTypeBytes(p.x.dtype)) > link_->nccl_bytes_min;
  }
  void SumByNccl(const AllReduceParams& params);
  // Called before and after other work than kernels of this program is queued, if launches are
  // watched. False after an error, which is kept.
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
  // Called after a wait: the alarm of another rank becomes an error of this rank.
  void TakeAlarm() {
    if (link_ == nullptr || !status_.ok() || !link_->IsAlarmed()) return;
    status_ = link_->Failure(name_, &failed_with_others_);
  }
  // After a wait: a fault of experts on the host becomes an error of the device.
  void TakeHostFault() {
    if (handover_ == nullptr || !status_.ok()) return;
    if (const Status fault = handover_->fault(); !fault.ok()) status_ = fault.WithPrefix(name_);
  }
  // After a wait: passes the times of so many operations on, if they are timed.
  void TakeTimes(int64_t num_timed);
  Result<OwnedDeviceMemory> TakeWorkspace(size_t num_bytes, const char* what);  // zeroed

  const std::shared_ptr<CudaApi> api_;
  const MatmulLibraryFactory make_matmul_;
  const CudaOpsConfig config_;
  const DebugSwitches debug_;
  std::string name_;
  std::string device_;  // the kind of GPU
  int compute_major_ = 0, compute_minor_ = 0;

  OwnedStream compute_;
  std::unique_ptr<CopyStreams> copies_;
  LaunchContext context_;
  std::unique_ptr<LaunchWatch> watch_;  // null unless something is to be seen of every launch
  std::unique_ptr<Staging> staging_;
  std::unique_ptr<WeightPacker> packer_;
  std::unique_ptr<HostHandover> handover_;  // null: no experts are on the host

  std::unique_ptr<const RankLink> link_;  // null: there is one rank
  RankExchange exchange_;                 // of the link, or of the rank alone

  Status status_;
  bool failed_with_others_ = false;
  bool capturing_ = false;
  Status capture_status_;

  bool rope_is_last_ = false;  // of the kernels queued
  ProductChain held_;
  OwnedDeviceMemory chain_memory_;  // the word of LaunchGemvChain; null: products are not held
  AttentionSpaces attention_;
  OwnedDeviceMemory expert_memory_;
  ExpertWorkspace expert_workspace_;
  struct ScratchMemory {
    std::shared_ptr<void> memory;
    size_t num_bytes = 0;
  };
  int64_t max_tokens_ = 0;      // of a step; 0 before Reserve
  bool scales_inputs_ = false;  // products round inputs to e4m3
  ScratchMemory input_memory_;  // of TakeInputMemory: rounded inputs,
  ScratchMemory last_outputs_;  // and the outputs of a product's last tokens
  std::optional<ActivateParams> held_activation_;
  std::shared_ptr<void> expand_memory_;  // of TakeExpandMemory
  size_t expand_bytes_ = 0;
  OwnedDeviceMemory matmul_memory_;
  std::unique_ptr<MatmulLibrary> matmul_;
};

}  // namespace minisgl::cuda
