// The experts of a layer: their choice, and their products.
#pragma once

#include <cstdint>

#include "minisgl/ops.h"
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

}  // namespace minisgl::model
