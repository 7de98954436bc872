// What softmax over some keys has come to, and how two such states become one: shared by the tiles
// of a warp, the warps of a block and the splits of a row.
//
// Scores are in units of log2: a key's weight is 2^(score - largest). The state of no keys is
// {-infinity, 0}; it is the identity of Merge, and merged with itself it stays what it is (the
// subtraction of -infinity from itself, which would give NaN, does not happen: see Reference).
#pragma once

#include <cmath>
#include <limits>

#include "device/device.h"

namespace minisgl {

inline constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
inline constexpr float kLog2OfE = 1.44269504088896340736f;

struct SoftmaxState {
  float largest = kMinusInfinity;
  float sum = 0;  // of 2^(score - largest)
};

// What scores are measured from where `largest` is the largest: finite, so that weights of no keys
// come out as 2^-infinity = 0.
MINISGL_DEVICE float Reference(float largest) { return largest == kMinusInfinity ? 0.0f : largest; }

// What sums and outputs kept relative to `largest` are multiplied by to be relative to `merged`.
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

// The state of a sink: one more logit, with no value.
MINISGL_DEVICE SoftmaxState SinkState(float logit) { return {logit * kLog2OfE, 1.0f}; }

// What the weighted sum of values is multiplied by in the end. A NaN stays one.
MINISGL_DEVICE float Normaliser(SoftmaxState state) {
  return state.sum == 0.0f ? 0.0f : 1.0f / state.sum;
}

}  // namespace minisgl
