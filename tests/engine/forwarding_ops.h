// Operations that forward every call to the oracle's. A test overrides those that it watches or
// makes fail.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "minisgl/ops.h"

namespace minisgl {

class ForwardingOps : public Ops {
 public:
  explicit ForwardingOps(const HostRank& rank = {}) : ops_(MakeNaiveOps(DType::kF32, rank)) {}

  std::string Name() const override { return "forwarding"; }
  Result<std::shared_ptr<void>> Allocate(size_t num_bytes) override {
    return ops_->Allocate(num_bytes);
  }
  Result<Matrix> PackMatrix(std::span<const WeightTensor> parts,
                            const WeightFormat& format) override {
    return ops_->PackMatrix(parts, format);
  }
  Result<Matrix> PackEmbedding(const WeightTensor& table, const WeightFormat& format) override {
    return ops_->PackEmbedding(table, format);
  }
  Result<ExpertMatrices> PackExperts(std::span<const std::vector<WeightTensor>> experts,
                                     const WeightFormat& format) override {
    return ops_->PackExperts(experts, format);
  }
  void Embedding(const EmbeddingParams& params) override { ops_->Embedding(params); }
  void Norm(const NormParams& params) override { ops_->Norm(params); }
  void Linear(const LinearParams& params) override { ops_->Linear(params); }
  void RopeKvWrite(const RopeKvWriteParams& params) override { ops_->RopeKvWrite(params); }
  void Attention(const AttentionParams& params) override { ops_->Attention(params); }
  void Activate(const ActivateParams& params) override { ops_->Activate(params); }
  void GatherRows(const GatherRowsParams& params) override { ops_->GatherRows(params); }
  void Softcap(const SoftcapParams& params) override { ops_->Softcap(params); }
  void PlaceRows(const PlaceRowsParams& params) override { ops_->PlaceRows(params); }
  void MixRotary(const MixRotaryParams& params) override { ops_->MixRotary(params); }
  void Route(const RouteParams& params) override { ops_->Route(params); }
  void ExpertLinear(const ExpertLinearParams& params) override { ops_->ExpertLinear(params); }
  void CombineExperts(const CombineExpertsParams& params) override { ops_->CombineExperts(params); }
  void Sample(const SampleParams& params) override { ops_->Sample(params); }
  void ShortConv(const ShortConvParams& params) override { ops_->ShortConv(params); }
  void Recurrence(const RecurrenceParams& params) override { ops_->Recurrence(params); }
  void AllReduce(const AllReduceParams& params) override { ops_->AllReduce(params); }
  void AllReduceNorm(const AllReduceNormParams& params) override { ops_->AllReduceNorm(params); }
  void MeanSquares(const MeanSquaresParams& params) override { ops_->MeanSquares(params); }
  void GatherColumns(const GatherColumnsParams& params) override { ops_->GatherColumns(params); }

 private:
  const std::unique_ptr<Ops> ops_;
};

}  // namespace minisgl
