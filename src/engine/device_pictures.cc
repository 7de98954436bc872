// See device_pictures.h.
#include "engine/device_pictures.h"

#include <algorithm>

namespace minisgl::engine {

void FillRopePositions(const BatchPlan& plan, int32_t num_tokens, RopePosition* positions) {
  const PlanExtras& extras = plan.extras;
  for (int32_t t = 0; t < plan.num_tokens(); ++t) positions[t].fill(plan.positions[t]);
  for (const PositionSpan& span : extras.positions) {
    std::copy_n(extras.rope_positions.begin() + span.offset, span.count, positions + span.token);
  }
  for (int32_t t = plan.num_tokens(); t < num_tokens; ++t) positions[t].fill(0);
}

void FillKeyEnds(const BatchPlan& plan, int32_t* key_ends) {
  for (int32_t t = 0; t < plan.num_tokens(); ++t) key_ends[t] = plan.positions[t] + 1;
  for (const ReplacedEmbeddings& run : plan.extras.embeddings) {
    std::fill_n(key_ends + run.token, run.count, key_ends[run.token + run.count - 1]);
  }
}

}  // namespace minisgl::engine
