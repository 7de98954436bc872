// Operations of a decoder whose rows may go through adapters: those of a device, with the products
// of low rank beside the products that an adapter changes.
//
// Rows without an adapter get exactly what the device's operations give: a product that is changed
// for other rows runs in its parts, which give the same bits as the fused one (Ops::FusedLinear).
// Used by the decoder's thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "minisgl/ops.h"
#include "minisgl/plan/adapter_slot.h"
#include "model/adapter_pack.h"

namespace minisgl::model {

class AdapterOps final : public Ops {
 public:
  // `ops`: of a host, with LowRank. `embedding`: the decoder's table of the vocabulary.
  AdapterOps(Ops* ops, const Rank& rank, std::vector<AdapterSite> sites, const Matrix* embedding);

  const std::vector<AdapterSite>& sites() const { return sites_; }
  // Null: the slot is empty.
  void SetAdapter(AdapterSlot slot, std::shared_ptr<const PackedAdapter> adapter);

  // The operations that follow are over these tokens. `spans`: of the pass, with slots that have an
  // adapter.
  void BeginTokens(std::span<const AdapterSpan> spans);
  // Or over the listed ones of them (null: the first `count`).
  void BeginRows(const int32_t* tokens, int32_t count);

  void Linear(const LinearParams& params) override;
  void FusedLinear(const FusedLinearParams& params) override;
  void Embedding(const EmbeddingParams& params) override;
  void ExpertLinear(const ExpertLinearParams& params) override;

  // As they are:
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
  void HeadLinear(const HeadLinearParams& params) override { ops_->HeadLinear(params); }
  void LowRank(const LowRankParams& params) override { ops_->LowRank(params); }
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

 private:
  // The slot's adapter and its rows of the operations that follow.
  struct Active {
    const PackedAdapter* adapter = nullptr;
    AdapterSlot slot = kNoAdapter;
    std::vector<int32_t> rows;
  };

  // The site of a matrix, or of experts; -1: none that an adapter of the step changes.
  int32_t ChangedSite(const void* matrices) const;
  void AddRow(AdapterSlot slot, int32_t row);
  float* Inner(int64_t count);
  void RunWhole(const LinearParams& params, const PackedProduct& product,
                std::span<const int32_t> rows);
  void ReplaceEmbeddings(const EmbeddingParams& params, const Active& active);
  void AddEmbeddings(const EmbeddingParams& params, const Active& active);
  // Lists the rows of each expert that `active` changes.
  void ListExpertRows(const ExpertLinearParams& params, const Active& active, size_t site);

  Ops* const ops_;
  const Rank rank_;
  const std::vector<AdapterSite> sites_;
  const Matrix* const embedding_;
  std::unordered_map<const void*, int32_t> site_of_;
  std::vector<std::shared_ptr<const PackedAdapter>> slots_;
  std::vector<AdapterSpan> spans_;  // of the pass
  std::vector<Active> active_;      // the first num_active_; the others keep memory
  size_t num_active_ = 0;
  // Memory of operations:
  std::vector<LowRankGroup> groups_;
  std::vector<float> inner_;
  std::vector<int32_t> tokens_, expert_rows_, expert_begins_;
};

}  // namespace minisgl::model
