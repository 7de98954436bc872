// What the pictures of a plan change for its tokens beside embeddings, as arrays that a step copies
// to its device (PictureTokens of encoded_inputs.h has them for the CPU).
#pragma once

#include <cstdint>

#include "minisgl/batch_plan.h"
#include "minisgl/engine/engine.h"

namespace minisgl::engine {

// True if plans may have pictures.
inline bool ReadsPictures(const EngineLimits& limits) {
  return (limits.extras & (kReplacesEmbeddings | kHasInputs)) != 0;
}

// [num_tokens] the positions of three parts of the plan's tokens, then positions of padding.
void FillRopePositions(const BatchPlan& plan, int32_t num_tokens, RopePosition* positions);

// [T] AttentionParams::key_end: tokens of one picture see all of it, the others what is before
// them.
void FillKeyEnds(const BatchPlan& plan, int32_t* key_ends);

}  // namespace minisgl::engine
