// The experts of a layer: their choice, and their products.
#pragma once

#include <cstdint>

#include "minisgl/ops.h"
#include "model/host_experts.h"
#include "model/model_weights.h"
#include "model/workspace.h"

namespace minisgl::model {

// The activation of a feed-forward part of `width` features.
ActivateParams MakeActivate(const ModelConfig& config, ConstActivationPtr gate_up,
                            ActivationPtr out, int64_t width, int64_t num_rows);

// Chooses the experts of each token by `x`, and writes their weights to space.shares.
void ChooseExperts(const ModelConfig& config, const ExpertWeights& weights, const Workspace& space,
                   ConstActivationPtr x, int64_t num_tokens, Ops* ops);

// Writes the outputs of the chosen experts to space.expert_out.
void RunExperts(const ModelConfig& config, const ExpertWeights& weights, const Workspace& space,
                ConstActivationPtr x, int64_t num_tokens, Ops* ops);

// The chosen experts of a step's layers, each with its weights on the device or on the host. What
// runs between Run and Combine of a layer runs beside experts on the host.
class ExpertSums {
 public:
  // `host`: null if all are on the device.
  ExpertSums(const ModelConfig& config, const Workspace& space, const HostExperts* host, Ops* ops)
      : config_(config), space_(space), host_(host), ops_(ops) {}

  // Before the layers of a step. See ForwardInput::num_real_tokens.
  void Begin(const int32_t* num_real_tokens) { num_real_tokens_ = num_real_tokens; }
  void Run(size_t layer, const ExpertWeights& weights, ConstActivationPtr x, int64_t num_tokens);
  // Ops::CombineExperts of what Run of `layer` computed. Sets x, shares and num_chosen.
  void Combine(size_t layer, CombineExpertsParams params);

 private:
  HostExpertLayer* HostLayer(size_t layer) const {
    return host_ == nullptr ? nullptr : host_->Layer(layer);
  }

  const ModelConfig& config_;
  const Workspace& space_;
  const HostExperts* const host_;
  Ops* const ops_;
  const int32_t* num_real_tokens_ = nullptr;
};

}  // namespace minisgl::model
