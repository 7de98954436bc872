// See naive_towers.h: plain loops in the order of the formulas, sums in double.
#include "cpu/naive_towers.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "cpu/naive_values.h"

namespace minisgl::cpu {
namespace {

// One head of token t, whose segment is [begin, end).
void AttendInSegment(const SegmentAttentionParams& p, int32_t begin, int32_t end, int32_t t,
                     int32_t head) {
  const int64_t width = int64_t{p.num_heads} * p.head_dim, first = int64_t{head} * p.head_dim;
  std::vector<double> weights;
  for (int32_t u = begin; u < end; ++u) {
    double score = 0;
    for (int64_t e = first; e < first + p.head_dim; ++e) {
      score += Get(p.q, t * width + e) * Get(p.k, u * width + e);
    }
    weights.push_back(score * p.scale);
  }
  const double largest = *std::max_element(weights.begin(), weights.end());
  double sum = 0;
  for (double& weight : weights) sum += weight = std::exp(weight - largest);
  for (int64_t e = first; e < first + p.head_dim; ++e) {
    double value = 0;
    for (int32_t u = begin; u < end; ++u) value += weights[u - begin] * Get(p.v, u * width + e);
    Put(p.out, t * width + e, value / sum);
  }
}

}  // namespace

void NaiveSegmentAttention(const SegmentAttentionParams& p) {
  for (int32_t segment = 0; segment < p.num_segments; ++segment) {
    const int32_t begin = p.segment_begin[segment], end = p.segment_begin[segment + 1];
    for (int32_t t = begin; t < end; ++t) {
      for (int32_t head = 0; head < p.num_heads; ++head) AttendInSegment(p, begin, end, t, head);
    }
  }
}

void NaiveMixRows(const MixRowsParams& p) {
  for (int64_t i = 0; i < p.num_rows; ++i) {
    for (int64_t d = 0; d < p.width; ++d) {
      double sum = 0;
      for (int64_t at = i * p.num_per_row; at < (i + 1) * p.num_per_row; ++at) {
        sum += double{p.shares[at]} * Get(p.x, p.rows[at] * p.width + d);
      }
      Put(p.out, i * p.width + d, sum);
    }
  }
}

void NaiveClamp(const ClampParams& p) {
  for (int64_t i = 0; i < p.count; ++i) {
    const double value = Get(p.values, i);
    Put(p.values, i, value < p.low ? p.low : value > p.high ? p.high : value);
  }
}

}  // namespace minisgl::cpu
