// See edit_distance.h. The table of distances between all beginnings of both words (optimal string
// alignment).
#include "minisgl/base/edit_distance.h"

#include <algorithm>
#include <vector>

namespace minisgl {

size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> cost(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) cost[i][0] = i;
  for (size_t j = 0; j <= b.size(); ++j) cost[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t change = cost[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      cost[i][j] = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1, change});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
      }
    }
  }
  return cost[a.size()][b.size()];
}

std::string_view NearestName(std::string_view word, const std::vector<std::string_view>& names,
                             size_t distance_max) {
  constexpr size_t kWordBytesMax = 40;
  std::string_view nearest;
  if (word.size() > kWordBytesMax) return nearest;
  for (std::string_view name : names) {
    const size_t distance = EditDistance(word, name);
    if (distance > distance_max || (distance == distance_max && !nearest.empty())) continue;
    nearest = name;
    distance_max = distance;
  }
  return nearest;
}

}  // namespace minisgl
