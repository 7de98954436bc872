// Vectors of prompts that are pooled: what chunks of a prompt left, by table row, until its end.
//
// States are added in the order of the prompt's tokens, so a vector does not depend on how its
// prompt is cut. Used by one thread.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "minisgl/plan/pooling.h"

namespace minisgl::engine {

class PooledPrompts {
 public:
  // Begins the prompt of `table_row` anew. Add of a span that begins calls it.
  void Begin(int32_t table_row) { open_.erase(table_row); }
  // Adds the states [count, width] of the prompt's next tokens, without the first `num_skipped`.
  void Add(int32_t table_row, Pooling pooling, const float* states, int64_t count, int64_t width,
           int64_t num_skipped = 0);
  // Returns the vector [width] of all that was added, and forgets it. REQUIRES a token that was not
  // left out.
  std::vector<float> End(int32_t table_row, Pooling pooling);

 private:
  struct Open {
    std::vector<double> values;  // sums, or what kLast, kFirst and kMax keep
    int64_t count = 0;           // of tokens, those included that are left out
    int64_t skipped = 0;         // of those
  };
  std::unordered_map<int32_t, Open> open_;
};

}  // namespace minisgl::engine
