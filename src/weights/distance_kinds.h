// Kinds of distances between a token and a key. Each has a number for each head, which is added to
// scores (relative positions of MPNet, as those of T5).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace minisgl::weights {

inline constexpr int64_t kDistanceKinds = 32;

// The kind of the distance `distance`, the key's position less the token's: half of the kinds are
// of keys behind the token. Distances below 8 have their own; of those up to 128 the longer ones
// share one with more others. In f32, as the reference computes it.
inline int64_t DistanceKind(int64_t distance) {
  constexpr int64_t kHalf = kDistanceKinds / 2, kExact = kHalf / 2;
  const int64_t side = distance > 0 ? kHalf : 0;
  const int64_t length = distance < 0 ? -distance : distance;
  if (length < kExact) return side + length;
  const auto longest = static_cast<float>(std::log(128.0 / kExact));
  const float place = std::log(static_cast<float>(length) / float{kExact}) / longest;
  const auto further = static_cast<int64_t>(place * float{kHalf - kExact});
  return side + std::min(kExact + further, kHalf - 1);
}

// Returns the slope of each head (ALiBi, arXiv 2108.12409): 2^(-8 (h + 1) / n) for n heads, if n is
// a power of two. If it is not, let p be the largest power of two below n: the first p heads have
// the slopes of p heads, and the others have the slopes of heads 0, 2, 4, ... of 2 p heads.
inline std::vector<double> LinearSlopes(int64_t num_heads) {
  int64_t power = 1;
  while (power * 2 <= num_heads) power *= 2;
  std::vector<double> slopes;
  for (int64_t head = 0; head < num_heads; ++head) {
    const bool is_last = head >= power;
    const auto place = static_cast<double>(is_last ? 2 * (head - power) + 1 : 2 * (head + 1));
    slopes.push_back(std::exp2(-8 * place / static_cast<double>(2 * power)));
  }
  return slopes;
}

}  // namespace minisgl::weights
