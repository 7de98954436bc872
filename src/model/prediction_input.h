// What a layer for multi-token prediction reads (ModelConfig::prediction).
#pragma once

#include "minisgl/model/decoder.h"
#include "minisgl/ops.h"
#include "model/model_weights.h"
#include "model/stream_norms.h"
#include "model/workspace.h"

namespace minisgl::model {

// Replaces the embeddings in space.residual [T, D] by
//   embedding_input norm(embedding) + state_input norm(input.states_before)
// Uses space.hidden and space.branch. REQUIRES input.states_before.
void MixStatesBefore(const ModelConfig& config, const PredictionWeights& weights,
                     const Workspace& space, const StreamNorms& norms, const ForwardInput& input,
                     Ops* ops);

}  // namespace minisgl::model
