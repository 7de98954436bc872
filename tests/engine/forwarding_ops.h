// Operations that pass every call on to the oracle's: a test overrides the one that it watches or
// breaks.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "minisgl/ops.h"

namespace minisgl {

class ForwardingOps : public Ops {
 public:
  std::string Name() const override { return "forwarding"; }
  Result<std::shared_ptr<void>> Allocate(size_t num_bytes) override {
    return ops_->Allocate(num_bytes);
  }
  Result<Matrix> PackMatrix(std::span<const TensorView> parts, DType dtype) override {
    return ops_->PackMatrix(parts, dtype);
  }
  Result<Matrix> PackEmbedding(const TensorView& table, DType dtype) override {
    return ops_->PackEmbedding(table, dtype);
  }
  void Embedding(const EmbeddingParams& params) override { ops_->Embedding(params); }
  void RmsNorm(const RmsNormParams& params) override { ops_->RmsNorm(params); }
  void Linear(const LinearParams& params) override { ops_->Linear(params); }
  void RopeKvWrite(const RopeKvWriteParams& params) override { ops_->RopeKvWrite(params); }
  void Attention(const AttentionParams& params) override { ops_->Attention(params); }
  void GatedActivation(const GatedActivationParams& params) override {
    ops_->GatedActivation(params);
  }
  void GatherRows(const GatherRowsParams& params) override { ops_->GatherRows(params); }
  void Sample(const SampleParams& params) override { ops_->Sample(params); }

 private:
  const std::unique_ptr<Ops> ops_ = MakeNaiveOps();
};

}  // namespace minisgl
