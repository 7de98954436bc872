// Gives out consecutive places of an array: the first gap that is long enough. Pure; used by one
// thread.
#pragma once

#include <cstdint>
#include <map>

namespace minisgl::engine {

class EmbeddingPool {
 public:
  explicit EmbeddingPool(int64_t num_places) : num_places_(num_places) {}

  // Takes `count` (at least 1) places and returns the first; -1: no gap is so long.
  int64_t Take(int64_t count);
  // Gives the places back whose first one Take returned.
  void Return(int64_t first) { taken_.erase(first); }

 private:
  const int64_t num_places_;
  std::map<int64_t, int64_t> taken_;  // first place: places
};

}  // namespace minisgl::engine
