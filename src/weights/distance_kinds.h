// Kinds of distances between a token and a key. Each has a number for each head, which is added to
// scores (relative positions of MPNet, as those of T5).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

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

}  // namespace minisgl::weights
