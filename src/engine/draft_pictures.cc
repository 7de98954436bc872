// See draft_pictures.h.
#include "engine/draft_pictures.h"

#include <algorithm>

namespace minisgl::engine {

bool TurnsByParts(const ModelConfig& drafter) {
  return IsLayer(drafter.prediction) &&
         std::any_of(drafter.ropes.begin(), drafter.ropes.end(),
                     [](const RopeConfig& rope) { return rope.has_sections(); });
}

RopePosition RopePositionOf(const BatchPlan& plan, int32_t token, int32_t place) {
  for (const PositionSpan& span : plan.extras.positions) {
    if (token < span.token || token >= span.token + span.count) continue;
    return plan.extras.rope_positions[static_cast<size_t>(span.offset + token - span.token)];
  }
  return {place, place, place};
}

RopePosition MovedPosition(RopePosition position, int32_t by) {
  for (int32_t& part : position) part = std::max(part + by, 0);
  return position;
}

void AddPlaced(std::span<const PlacedEmbeddings> placed, int64_t width, int32_t begin, int32_t end,
               int32_t first, std::vector<PlacedEmbeddings>* own) {
  for (PlacedEmbeddings run : placed) {
    if (run.width != width) continue;
    const int32_t before = std::max(begin - run.token, 0);
    run.count = std::min(run.token + run.count, end) - (run.token + before);
    if (run.count <= 0) continue;
    run.embeddings += before * run.width;
    run.token = first + (run.token + before - begin);
    own->push_back(run);
  }
}

}  // namespace minisgl::engine
