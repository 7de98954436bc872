// What a drafter's rows have beside pictures: a layer of the model reads their embeddings, and
// turns by positions of three parts if the model does. Other drafters read ids, and turn by places.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "minisgl/batch_plan.h"
#include "minisgl/model/decoder.h"
#include "minisgl/weights/model_config.h"

namespace minisgl::engine {

// True for a layer for multi-token prediction.
inline bool IsLayer(PredictionLayer kind) {
  return kind == PredictionLayer::kApart || kind == PredictionLayer::kBehind;
}
// True if it is a layer that turns by positions of three parts.
bool TurnsByParts(const ModelConfig& drafter);

// The rotary position of token `token` of the plan, which stands at `place`.
RopePosition RopePositionOf(const BatchPlan& plan, int32_t token, int32_t place);
// `position` moved by as many places, none before the first.
RopePosition MovedPosition(RopePosition position, int32_t by);

// Adds to *own the embeddings of `placed` with `width` floats that are of tokens [begin, end) of a
// step. Rows of a pass for these tokens begin with `first`.
void AddPlaced(std::span<const PlacedEmbeddings> placed, int64_t width, int32_t begin, int32_t end,
               int32_t first, std::vector<PlacedEmbeddings>* own);

}  // namespace minisgl::engine
