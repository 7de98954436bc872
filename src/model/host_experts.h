// Experts of a device's decoder that are in the host's memory, where the CPU's operations compute
// them. Owns their packed weights and the workspace for kHostExpertTokens tokens.
//
// A layer's sum has the bits of RunExperts and CombineExperts over the CPU's operations, rounded to
// the device's type. It does not depend on the pieces in which rows are computed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "minisgl/base/status.h"
#include "minisgl/host_experts.h"
#include "minisgl/model/decoder.h"
#include "minisgl/ops.h"
#include "model/model_weights.h"
#include "model/workspace.h"

namespace minisgl::model {

class HostExperts {
 public:
  // `layers`: [layers] the weights of experts on the host; a layer whose experts are on the device
  // has none. kOutOfMemory. Null if options.num_host_layers is 0.
  static Result<std::unique_ptr<HostExperts>> Make(const ModelConfig& config,
                                                   const DecoderOptions& options,
                                                   std::vector<ExpertWeights> layers);

  // Null: the layer's experts are on the device.
  HostExpertLayer* Layer(size_t index) const { return layers_[index].get(); }

 private:
  class LayerOfHost;

  HostExperts(const ModelConfig& config, Ops* ops) : config_(config), ops_(ops) {}
  void RunPiece(const ExpertWeights& weights, const HostExpertRows& rows) const;

  const ModelConfig config_;
  Ops* const ops_;
  int64_t width_ = 0;         // of a token
  int64_t piece_tokens_ = 0;  // P
  Workspace space_;           // of experts alone, for P tokens
  DeviceArray<float> x_;      // [P, width] likewise
  std::vector<std::unique_ptr<HostExpertLayer>> layers_;
};

}  // namespace minisgl::model
