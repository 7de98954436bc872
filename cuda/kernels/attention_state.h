// The state of softmax over some keys, and the merging of two states. Used for the tiles of a warp,
// the warps of a block and the splits of a row.
//
// Scores are in units of log2: a key's weight is 2^(score - largest). The state of no keys,
// {-infinity, 0}, is the identity of Merge, also when merged with itself (Reference avoids
// subtracting -infinity from itself, which would give NaN).
#pragma once

#include <cmath>
#include <limits>

#include "device/device.h"

namespace minisgl::cuda {

inline constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
inline constexpr float kLog2OfE = 1.44269504088896340736f;

struct SoftmaxState {
  float largest = kMinusInfinity;
  float sum = 0;  // of 2^(score - largest)
};

// The value subtracted from scores if `largest` is the largest. Finite, so that the weight of a
// masked key is 2^-infinity = 0.
MINISGL_DEVICE float Reference(float largest) { return largest == kMinusInfinity ? 0.0f : largest; }

// The factor that makes sums and outputs relative to `largest` relative to `merged`.
MINISGL_DEVICE float Rescale(float largest, float merged) {
  return device::Exp2(largest - Reference(merged));
}

MINISGL_DEVICE SoftmaxState Merge(SoftmaxState a, SoftmaxState b) {
  SoftmaxState merged;
  merged.largest = a.largest > b.largest ? a.largest : b.largest;
  merged.sum =
      fmaf(a.sum, Rescale(a.largest, merged.largest), b.sum * Rescale(b.largest, merged.largest));
  return merged;
}

// Folds a state and its weighted sums of values into those at hand. The result is the same bit for
// bit if the two change places, and a state of no keys, whose sums are +0, changes no bit of the
// other side, not even the sign of a zero.
struct FoldFactor {
  float smaller;     // of the side with the smaller largest score
  bool keeps_scale;  // the side at hand is not that one
};
MINISGL_DEVICE float FoldValue(float at_hand, float other, FoldFactor factor) {
  return fmaf(factor.keeps_scale ? other : at_hand, factor.smaller,
              factor.keeps_scale ? at_hand : other);
}
MINISGL_DEVICE FoldFactor FoldState(SoftmaxState other, SoftmaxState* at_hand) {
  FoldFactor factor;
  factor.keeps_scale = at_hand->largest >= other.largest;
  const float smaller = factor.keeps_scale ? other.largest : at_hand->largest;
  const float larger = factor.keeps_scale ? at_hand->largest : other.largest;
  factor.smaller = smaller == kMinusInfinity ? -0.0f : device::Exp2(smaller - larger);
  at_hand->sum = FoldValue(at_hand->sum, other.sum, factor);
  at_hand->largest = larger;
  return factor;
}

// The state of an attention sink: one more logit, without a value.
MINISGL_DEVICE SoftmaxState SinkState(float logit) { return {logit * kLog2OfE, 1.0f}; }

// The final factor of the weighted sum of values. NaN stays NaN.
MINISGL_DEVICE float Normaliser(SoftmaxState state) {
  return state.sum == 0.0f ? 0.0f : 1.0f / state.sum;
}

}  // namespace minisgl::cuda
