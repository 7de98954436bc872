// Norms over all heads of a token, on ranks that have some of the heads each.
#pragma once

#include <cstdint>
#include <span>

#include "minisgl/ops.h"
#include "minisgl/weights/model_config.h"

namespace minisgl::model {

// The most vectors that are normalised at a time: queries and keys.
inline constexpr int kRankNormsMax = 2;

// Whether a model with the configuration `own` of one of several ranks has norms over heads of all
// ranks: of queries and keys, or of the output of a state.
bool NormalizesOverRanks(const ModelConfig& own);
// The latter alone.
bool NormalizesStatesOverRanks(const StateConfig& own);

// Runs `norms`, at most kRankNormsMax RMS norms in place of equally many tokens, over vectors of
// which each of `num_ranks` ranks has an equal part. A head that several ranks have counts on each,
// so that the mean is that of all heads. `mean_squares`: [kRankNormsMax, T], overwritten. All ranks
// call it at the same place of a step.
void NormOverRanks(std::span<NormParams> norms, int32_t num_ranks, float* mean_squares, Ops* ops);

}  // namespace minisgl::model
