// Operations that forward every call to others. A class derives from it to change some. FusedLinear
// is left to Ops, which does it by the products and norms of this object.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "minisgl/ops.h"

namespace minisgl::model {

class ForwardingOps : public Ops {
 public:
  // `ops` must outlive it.
  explicit ForwardingOps(Ops* ops) : ops_(ops) {}

  std::string Name() const override { return ops_->Name(); }
  DType activation_dtype() const override { return ops_->activation_dtype(); }
  KvOrders OrdersOf(const KvLayer& kv) const override { return ops_->OrdersOf(kv); }
  Result<std::shared_ptr<void>> Allocate(size_t num_bytes) override {
    return ops_->Allocate(num_bytes);
  }
  Status Upload(void* dst, const void* src, size_t num_bytes) override {
    return ops_->Upload(dst, src, num_bytes);
  }
  Status Finish() override { return ops_->Finish(); }
  Result<Matrix> PackMatrix(std::span<const WeightTensor> parts,
                            const WeightFormat& format) override {
    return ops_->PackMatrix(parts, format);
  }
  bool HasPackedWeights() const override { return ops_->HasPackedWeights(); }
  Status CheckNumbers(const WeightTensor& weights) override { return ops_->CheckNumbers(weights); }
  Result<Matrix> PackEmbedding(const WeightTensor& table, const WeightFormat& format) override {
    return ops_->PackEmbedding(table, format);
  }
  Result<ExpertMatrices> PackExperts(std::span<const std::vector<WeightTensor>> experts,
                                     const WeightFormat& format) override {
    return ops_->PackExperts(experts, format);
  }
  void Norm(const NormParams& params) override { ops_->Norm(params); }
  bool AddsInLinear(int64_t num_tokens) const override { return ops_->AddsInLinear(num_tokens); }
  void RopeKvWrite(const RopeKvWriteParams& params) override { ops_->RopeKvWrite(params); }
  void Attention(const AttentionParams& params) override { ops_->Attention(params); }
  void Activate(const ActivateParams& params) override { ops_->Activate(params); }
  void GatherRows(const GatherRowsParams& params) override { ops_->GatherRows(params); }
  void Softcap(const SoftcapParams& params) override { ops_->Softcap(params); }
  void PlaceRows(const PlaceRowsParams& params) override { ops_->PlaceRows(params); }
  void MixRotary(const MixRotaryParams& params) override { ops_->MixRotary(params); }
  void Route(const RouteParams& params) override { ops_->Route(params); }
  void CombineExperts(const CombineExpertsParams& params) override { ops_->CombineExperts(params); }
  void BeginHostExperts(const HostExpertsParams& params) override {
    ops_->BeginHostExperts(params);
  }
  void EndHostExperts() override { ops_->EndHostExperts(); }
  void HeadLinear(const HeadLinearParams& params) override { ops_->HeadLinear(params); }
  void LowRank(const LowRankParams& params) override { ops_->LowRank(params); }
  bool HasAdapterSlots() const override { return ops_->HasAdapterSlots(); }
  void SlotLowRank(const SlotLowRankParams& params) override { ops_->SlotLowRank(params); }
  void SlotEmbeddings(const SlotEmbeddingParams& params) override { ops_->SlotEmbeddings(params); }
  void Sample(const SampleParams& params) override { ops_->Sample(params); }
  void ShortConv(const ShortConvParams& params) override { ops_->ShortConv(params); }
  void Recurrence(const RecurrenceParams& params) override { ops_->Recurrence(params); }
  void SegmentAttention(const SegmentAttentionParams& params) override {
    ops_->SegmentAttention(params);
  }
  void MixRows(const MixRowsParams& params) override { ops_->MixRows(params); }
  void Clamp(const ClampParams& params) override { ops_->Clamp(params); }
  bool GathersOnAllRanks() const override { return ops_->GathersOnAllRanks(); }
  void AllReduce(const AllReduceParams& params) override { ops_->AllReduce(params); }
  void AllReduceNorm(const AllReduceNormParams& params) override { ops_->AllReduceNorm(params); }
  void MeanSquares(const MeanSquaresParams& params) override { ops_->MeanSquares(params); }
  void GatherColumns(const GatherColumnsParams& params) override { ops_->GatherColumns(params); }
  uint64_t scratch_bytes() const override { return ops_->scratch_bytes(); }
  void Linear(const LinearParams& params) override { ops_->Linear(params); }
  void Embedding(const EmbeddingParams& params) override { ops_->Embedding(params); }
  void ExpertLinear(const ExpertLinearParams& params) override { ops_->ExpertLinear(params); }

 protected:
  Ops* const ops_;
};

}  // namespace minisgl::model
