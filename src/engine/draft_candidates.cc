// See draft_candidates.h.
#include "engine/draft_candidates.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace minisgl::engine {

std::vector<TokenId> ClusterCandidates(const DraftHeadConfig& head, const float* scores) {
  std::vector<int32_t> order(static_cast<size_t>(head.num_clusters));
  std::iota(order.begin(), order.end(), 0);
  const auto end = order.begin() + head.num_best;
  const auto score = [scores](int32_t cluster) {  // NaN is never the best
    return std::isnan(scores[cluster]) ? -std::numeric_limits<float>::infinity() : scores[cluster];
  };
  std::partial_sort(order.begin(), end, order.end(), [&](int32_t a, int32_t b) {
    return score(a) > score(b) || (score(a) == score(b) && a < b);
  });
  std::vector<TokenId> candidates;
  const size_t size = head.clusters->size() / order.size();
  for (auto cluster = order.begin(); cluster != end; ++cluster) {
    const auto first = head.clusters->begin() + static_cast<int64_t>(size) * *cluster;
    candidates.insert(candidates.end(), first, first + static_cast<int64_t>(size));
  }
  std::sort(candidates.begin(), candidates.end());
  return candidates;
}

}  // namespace minisgl::engine
