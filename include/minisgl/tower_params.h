// The parameters of the operations of towers (minisgl/model/tower.h), and of a text model on tokens
// that have pictures, in the letters of ops_params.h.
#pragma once

#include <array>
#include <cstdint>

#include "minisgl/ops_params.h"
#include "minisgl/plan/given_positions.h"

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
  ConstActivationPtr x;  // [*, D]
  const int32_t* rows;   // [N, K]
  const float* shares;   // [N, K]
  ActivationPtr out;     // [N, D], dtype of x
  int64_t num_rows;      // N
  int64_t width;         // D
  int32_t num_per_row;   // K
};

// values[i] = min(max(values[i], low), high); NaN stays NaN.
struct ClampParams {
  ActivationPtr values;
  int64_t count;
  float low, high;
};

// out[i, :] = x[i, :], or with `adds` out[i, :] += x[i, :]
struct PlaceRowsParams {
  const float* x;  // [N, x_stride]
  int64_t x_stride;
  float* out;  // [N, out_stride]
  int64_t out_stride;
  int64_t num_rows;
  int64_t width;
  bool adds = false;
};

// Which of the three parts of a position turns frequency i. `sections` are numbers of frequencies:
// in order; or mixed, so that one of each three frequencies is the height's and one the width's, as
// far as their sections go, and the others are the time's.
constexpr int32_t RotaryPartOf(int32_t i, const std::array<int32_t, 3>& sections, bool mixed) {
  if (!mixed) return i < sections[0] ? 0 : i < sections[0] + sections[1] ? 1 : 2;
  const int32_t part = i % 3;
  return part != 0 && i < 3 * sections[static_cast<size_t>(part)] ? part : 0;
}

// The rotary tables of a step whose tokens have positions of three parts: row t of the outputs has
// frequency i of row positions[t][RotaryPartOf(i)] of the tables. RopeKvWrite takes them with the
// positions 0, 1, 2, ...
struct MixRotaryParams {
  const float *cos, *sin;         // [max_seq_len, half]
  float *out_cos, *out_sin;       // [T, half]
  const RopePosition* positions;  // [T]; each part below max_seq_len
  int64_t num_tokens;
  int32_t half;  // frequencies
  std::array<int32_t, 3> sections;
  bool mixed;
};

}  // namespace minisgl
