#include "cpu/token_rows.h"

#include <algorithm>

namespace minisgl::cpu {

void PlaceHostRows(const PlaceRowsParams& p) {
  for (int64_t i = 0; i < p.num_rows; ++i) {
    const float* const from = p.x + i * p.x_stride;
    float* const to = p.out + i * p.out_stride;
    if (!p.adds) {
      std::copy_n(from, p.width, to);
      continue;
    }
    for (int64_t d = 0; d < p.width; ++d) to[d] += from[d];
  }
}

void MixHostRotary(const MixRotaryParams& p) {
  for (int64_t t = 0; t < p.num_tokens; ++t) {
    for (int32_t i = 0; i < p.half; ++i) {
      const auto part = static_cast<size_t>(RotaryPartOf(i, p.sections, p.mixed));
      const int64_t from = int64_t{p.positions[t][part]} * p.half + i;
      p.out_cos[t * p.half + i] = p.cos[from];
      p.out_sin[t * p.half + i] = p.sin[from];
    }
  }
}

}  // namespace minisgl::cpu
