// The layers for multi-token prediction that checkpoints hold behind those of the model.
#pragma once

#include "minisgl/base/status.h"
#include "minisgl/weights/checkpoint.h"
#include "minisgl/weights/model_config.h"

namespace minisgl {

// The configuration of the first such layer that `checkpoint` has beside the model of `target`:
// ModelConfig::prediction is set, and its embedding and output head are the target's. kBadInput if
// it has none, or if the architecture's are of a kind that the program does not run.
Result<ModelConfig> PredictionLayerOf(const ModelConfig& target, const Checkpoint& checkpoint);

// True if the checkpoint has tensors of one that the program runs.
bool HasPredictionLayer(const ModelConfig& target, const Checkpoint& checkpoint);

}  // namespace minisgl
