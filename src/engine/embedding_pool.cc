// See embedding_pool.h.
#include "engine/embedding_pool.h"

namespace minisgl::engine {

int64_t EmbeddingPool::Take(int64_t count) {
  int64_t first = 0;  // of the gap before the taken places at hand
  for (const auto& [begin, places] : taken_) {
    if (begin - first >= count) break;
    first = begin + places;
  }
  if (num_places_ - first < count) return -1;
  taken_.emplace(first, count);
  return first;
}

}  // namespace minisgl::engine
