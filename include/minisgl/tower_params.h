// The parameters of the operations of towers (minisgl/model/tower.h), in the letters of
// ops_params.h.
#pragma once

#include <cstdint>

#include "minisgl/ops_params.h"

namespace minisgl {

// Attention in both directions: tokens are cut into S segments, and a token attends to all tokens
// of its own.
//   out[t, h, :] = sum_u softmax_u(scale * q[t, h, :] . k[u, h, :]) * v[u, h, :]
// Keys are summed in their order, in tiles of a constant size that are counted from the segment's
// first token: the result of a token depends on its segment alone.
struct SegmentAttentionParams {
  ConstActivationPtr q, k, v;    // [T, H, E]
  ActivationPtr out;             // [T, H, E]
  const int32_t* segment_begin;  // [S + 1] host memory, ascending, from 0 to T
  int32_t num_segments;          // S
  int32_t num_heads, head_dim;
  float scale;
};

// out[i, :] = sum_k shares[i, k] * x[rows[i, k], :], in the order of k.
struct MixRowsParams {
  const float* x;       // [*, D]
  const int32_t* rows;  // [N, K]
  const float* shares;  // [N, K]
  float* out;           // [N, D]
  int64_t num_rows;     // N
  int64_t width;        // D
  int32_t num_per_row;  // K
};

// values[i] = min(max(values[i], low), high); NaN stays NaN.
struct ClampParams {
  float* values;
  int64_t count;
  float low, high;
};

}  // namespace minisgl
