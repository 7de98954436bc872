// See tensor_arrangement.h.
#include "model/tensor_arrangement.h"

namespace minisgl::model {

std::vector<int64_t> HalvesOfPairs(int32_t num_heads, int32_t head_dim, int32_t rotary_dim) {
  std::vector<int64_t> rows;
  for (int64_t head = 0; head < num_heads; ++head) {
    const int64_t first = head * head_dim;
    for (int64_t odd : {0, 1}) {
      for (int64_t i = 0; i < rotary_dim / 2; ++i) rows.push_back(first + 2 * i + odd);
    }
    for (int64_t e = rotary_dim; e < head_dim; ++e) rows.push_back(first + e);
  }
  return rows;
}

std::vector<int64_t> RotatedFirst(int32_t num_heads, int32_t plain_dim, int32_t rotary_dim,
                                  bool interleaved) {
  std::vector<int64_t> rows;
  const int64_t width = int64_t{plain_dim} + rotary_dim;
  for (int64_t first = 0; first < num_heads * width; first += width) {
    for (int64_t i = 0; i < rotary_dim; ++i) {
      const int64_t half = rotary_dim / 2;
      const int64_t from = !interleaved ? i : i < half ? 2 * i : 2 * (i - half) + 1;
      rows.push_back(first + plain_dim + from);
    }
    for (int64_t e = 0; e < plain_dim; ++e) rows.push_back(first + e);
  }
  return rows;
}

std::vector<int64_t> EvensThenOdds(int64_t count) {
  std::vector<int64_t> rows;
  for (int64_t odd : {0, 1}) {
    for (int64_t i = odd; i < count; i += 2) rows.push_back(i);
  }
  return rows;
}

}  // namespace minisgl::model
