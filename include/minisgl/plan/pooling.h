// One vector for a whole prompt, from the hidden states of its tokens behind the last norm.
#pragma once

#include <cstdint>

namespace minisgl {

// kLast, kFirst: the state of that token. The others are over all n tokens, element by element, in
// their order: kMean their sum / n, kMeanSqrt their sum / sqrt(n), kWeightedMean the sum of token i
// times i / (1 + ... + n), i from 1. Where the first k tokens are left out, kFirst is the state of
// the one behind them, kMean and kMeanSqrt are over n - k tokens, and kWeightedMean is the sum of
// token i times i / ((k + 1) + ... + n).
enum class Pooling : uint8_t { kLast, kFirst, kMean, kMax, kMeanSqrt, kWeightedMean };

// True if the vector needs no token but the last: a cache may serve the others.
constexpr bool NeedsLastTokenOnly(Pooling pooling) { return pooling == Pooling::kLast; }

// A chunk of a prompt: tokens [token, token + count) of a plan are pooled. The engine keeps what
// chunks before it left by the row's table row, and begins anew if the chunk `begins` the prompt.
// If it `ends` the prompt, the row's result has the vector.
struct PoolingSpan {
  int32_t token = 0;
  int32_t count = 0;
  Pooling pooling = Pooling::kLast;
  bool begins = false;
  bool ends = false;
  int32_t num_skipped = 0;  // of its first tokens: the vector leaves them out
  int32_t num_second = 0;   // of its last tokens: they are of the second of two texts

  friend bool operator==(const PoolingSpan&, const PoolingSpan&) = default;
};

}  // namespace minisgl
