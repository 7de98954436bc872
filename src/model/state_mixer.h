// The mixers of layers with a state.
#pragma once

#include <cstddef>

#include "minisgl/model/decoder.h"
#include "minisgl/ops.h"
#include "model/model_weights.h"
#include "model/workspace.h"

namespace minisgl::model {

// Runs the mixer of layer `index` on space.hidden and writes its output to `out`. `out` may be
// space.hidden. `config`: of one of `num_ranks` ranks.
void RunStateMixer(const ModelConfig& config, const StateWeights& weights, const Workspace& space,
                   const ForwardInput& input, size_t index, int32_t num_ranks, ActivationPtr out,
                   Ops* ops);

}  // namespace minisgl::model
