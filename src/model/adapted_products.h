// The adapters of one decoder, and the operations that apply them.
#pragma once

#include <memory>
#include <vector>

#include "minisgl/model/decoder.h"
#include "model/adapter_ops.h"

namespace minisgl::model {

// The configuration of the whole model, of which a rank has a part, and its files.
struct WholeModel {
  const ModelConfig& config;
  const Checkpoint& checkpoint;
};

class AdaptedProducts final : public DecoderAdapters {
 public:
  // `weights`: of the decoder, which outlives this.
  AdaptedProducts(const WholeModel& whole, const Rank& rank, const ModelWeights& weights, Ops* ops);

  Ops* ops() { return &adapter_ops_; }
  void BeginTokens(const ForwardInput& input) { adapter_ops_.BeginTokens(input.adapters); }
  void BeginRows(const ForwardInput& input) {
    adapter_ops_.BeginRows(input.logit_tokens, input.num_logit_tokens);
  }

  Result<std::shared_ptr<const PackedAdapter>> Pack(std::shared_ptr<const Adapter> adapter,
                                                    const Checkpoint& checkpoint) const override;
  void Set(AdapterSlot slot, std::shared_ptr<const PackedAdapter> adapter) override;

 private:
  const ModelConfig config_;
  const Rank rank_;
  Ops* const device_ops_;
  AdapterOps adapter_ops_;
};

// Null unless options.takes_adapters.
std::unique_ptr<AdaptedProducts> MakeAdapters(const WholeModel& whole,
                                              const DecoderOptions& options,
                                              const ModelWeights& weights, Ops* ops);

}  // namespace minisgl::model
