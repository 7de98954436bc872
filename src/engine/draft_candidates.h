// The tokens among which a draft is chosen, on the host.
#pragma once

#include <vector>

#include "minisgl/base/ids.h"
#include "minisgl/weights/model_config.h"

namespace minisgl::engine {

// Returns the tokens of the best clusters of an assistant with clusters, in ascending order.
// `scores`: [num_clusters]; NaN is never among the best, and of equal ones the first cluster is.
std::vector<TokenId> ClusterCandidates(const DraftHeadConfig& head, const float* scores);

}  // namespace minisgl::engine
