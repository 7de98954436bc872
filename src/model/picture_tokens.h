// What a decoder does for tokens that have pictures.
#pragma once

#include <cstddef>
#include <cstdint>

#include "minisgl/model/decoder.h"
#include "minisgl/ops.h"
#include "minisgl/weights/model_config.h"
#include "model/workspace.h"

namespace minisgl::model {

// Part `part` of each embedding of a tower: the first replaces the embedding of the token in the
// residual stream, and each further one (deepstack) is added to it after a layer.
void PlaceEmbeddings(const ModelConfig& config, const Workspace& space, const ForwardInput& input,
                     size_t part, Ops* ops);

// Makes the rotary tables of the step, if it has positions of three parts.
void MixPositions(const ModelConfig& config, const Workspace& space, const ForwardInput& input,
                  Ops* ops);
// Sets *params to those tables, if there are some and rotary `rope` is theirs.
void TurnByMixed(const ModelConfig& config, const Workspace& space, const ForwardInput& input,
                 int32_t rope, RopeKvWriteParams* params);

// [T] AttentionParams::key_end of layer `index`; null: causal.
const int32_t* KeyEnds(const ModelConfig& config, size_t index, const ForwardInput& input);

}  // namespace minisgl::model
