// See naive_states.h. States are stored as floats, as every implementation stores them; sums within
// a token are in double.
#include "cpu/naive_states.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "cpu/naive_values.h"

namespace minisgl::cpu {
namespace {

// u of channel c, `token` tokens after the first one of the row of `segment`: in the state if that
// is negative.
double ConvInput(const ShortConvParams& p, int32_t segment, int64_t token, int64_t c) {
  const int32_t first = p.segments.spans[segment].row_first;
  if (token >= 0) {
    const int64_t at = (p.segments.spans[first].begin + token) * p.stride + c;
    const double factor = p.x_factor == nullptr ? 1 : Get(p.x_factor, at);
    return static_cast<float>(Get(p.x, at) * factor);
  }
  const int64_t past = p.length - 1;
  if (p.segments.spans[first].read < 0) return 0;
  return p.states[(p.segments.spans[first].read * past + past + token) * p.width + c];
}

double NaiveSoftplus(double x) { return x > 30 ? x : std::log1p(std::exp(x)); }

// One token of one head, whose state is `matrix`.
void Step(const RecurrenceParams& p, int64_t t, int32_t head, float* matrix) {
  const int64_t num_keys = p.key_dim, width = p.value_dim;
  const int64_t group = head / (p.num_heads / p.num_groups);
  const int64_t keys = t * p.stride + group * num_keys, values = t * p.stride + head * width;
  const int64_t scalar = t * p.scalar_stride + head;
  const bool is_delta = p.kind == RecurrenceKind::kDelta;
  double step = NaiveSoftplus(p.decay_scale * Get(p.decay, scalar) + p.decay_bias[head]);
  if (!is_delta) step = std::clamp<double>(step, p.step_min, p.step_max);
  const double decay = std::exp(-p.decay_rate[head] * step);
  for (int64_t column = 0; column < width; ++column) {
    const auto at = [&](int64_t n) -> float& {
      return matrix[RecurrenceStateAt(num_keys, n, column)];
    };
    const double value = Get(p.value, values + column);
    double added = step * value;
    if (is_delta) {
      double found = 0;
      for (int64_t n = 0; n < num_keys; ++n) found += decay * at(n) * Get(p.key, keys + n);
      added = p.gain_factor * NaiveSigmoid(Get(p.gain, scalar)) * (value - found);
    }
    double out = is_delta ? 0 : p.skip[head] * value;
    for (int64_t n = 0; n < num_keys; ++n) {
      const double next = decay * at(n) + added * Get(p.key, keys + n);
      out += next * Get(p.query, keys + n);
      at(n) = static_cast<float>(next);
    }
    Put(p.out, (t * p.num_heads + head) * width + column, out);
  }
}

}  // namespace

void NaiveShortConv(const ShortConvParams& p) {
  const int64_t past = p.length - 1;
  for (int32_t segment = 0; segment < p.segments.count; ++segment) {
    const int64_t row = p.segments.spans[p.segments.spans[segment].row_first].begin;
    const int64_t end = p.segments.spans[segment + 1].begin;
    for (int64_t t = p.segments.spans[segment].begin; t < end; ++t) {
      for (int64_t c = 0; c < p.width; ++c) {
        double y = p.bias == nullptr ? 0 : p.bias[c];
        for (int64_t j = 0; j <= past; ++j) {
          y += p.weight[j * p.width + c] * ConvInput(p, segment, t - row - past + j, c);
        }
        if (p.silu) y *= NaiveSigmoid(y);
        if (p.out_factor != nullptr) y *= Get(p.out_factor, t * p.stride + c);
        Put(p.out, t * p.width + c, y);
      }
    }
    for (int64_t i = 0; i < past; ++i) {
      float* const to = p.states + (p.segments.spans[segment].write * past + i) * p.width;
      for (int64_t c = 0; c < p.width; ++c) {
        to[c] = static_cast<float>(ConvInput(p, segment, end - row - past + i, c));
      }
    }
  }
}

void NaiveRecurrence(const RecurrenceParams& p) {
  const int64_t size = RecurrenceStateFloats(p.num_heads, p.key_dim, p.value_dim);
  const int64_t head_size = StateHeadFloats(p.key_dim, p.value_dim);
  std::vector<float> state(static_cast<size_t>(size));
  for (int32_t segment = 0; segment < p.segments.count; ++segment) {
    const int32_t read = p.segments.spans[segment].read;
    if (p.segments.spans[segment].row_first == segment) {
      std::fill(state.begin(), state.end(), 0.0f);
      if (read >= 0) std::copy_n(p.states + read * size, size, state.begin());
    }
    for (int64_t t = p.segments.spans[segment].begin; t < p.segments.spans[segment + 1].begin;
         ++t) {
      for (int32_t head = 0; head < p.num_heads; ++head) {
        Step(p, t, head, state.data() + head * head_size);
      }
    }
    std::copy(state.begin(), state.end(), p.states + p.segments.spans[segment].write * size);
  }
}

}  // namespace minisgl::cpu
