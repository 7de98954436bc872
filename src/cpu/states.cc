// See states.h.
#include "cpu/states.h"

#include <algorithm>
#include <cmath>

#include "minisgl/base/checked_math.h"

namespace minisgl::cpu {
namespace {

// Elements of a convolution in a chunk: a few microseconds of work.
constexpr int64_t kConvChunkElements = 8192;

// Tokens whose factors are computed at once.
constexpr int64_t kPieceTokens = 64;

// The segment of token `t`.
int32_t SegmentOf(const StateSegments& segments, int64_t t) {
  const StateSpan* const end = segments.spans + segments.count + 1;
  const auto begins_after = [](int64_t token, const StateSpan& span) { return token < span.begin; };
  const StateSpan* const next = std::upper_bound(segments.spans, end, t, begins_after);
  return static_cast<int32_t>(next - segments.spans) - 1;
}

// Writes the last inputs at the end of a segment to its slot.
void StoreInputs(const ShortConvParams& p, int32_t segment) {
  const int32_t first = p.segments.spans[segment].row_first;
  const int64_t past = p.length - 1, begin = p.segments.spans[first].begin,
                read = p.segments.spans[first].read;
  for (int64_t i = 0; i < past; ++i) {
    float* const to = p.states + (p.segments.spans[segment].write * past + i) * p.width;
    const int64_t t = p.segments.spans[segment + 1].begin - past + i;
    if (t < begin && read < 0) {
      std::fill_n(to, p.width, 0.0f);
    } else if (t < begin) {
      std::copy_n(p.states + (read * past + past + t - begin) * p.width, p.width, to);
    } else {
      const float* const x = p.x.f32() + t * p.stride;
      const float* const factor = p.x_factor == nullptr ? nullptr : p.x_factor.f32() + t * p.stride;
      for (int64_t c = 0; c < p.width; ++c) to[c] = factor == nullptr ? x[c] : x[c] * factor[c];
    }
  }
}

double Softplus(double x) { return x > 30 ? x : std::log1p(std::exp(x)); }

// Writes the decays and gains of a head's tokens [begin, begin + count).
void FindFactors(const RecurrenceParams& p, int64_t head, int64_t begin, int64_t count,
                 float* decays, float* gains) {
  for (int64_t i = 0; i < count; ++i) {
    const int64_t at = (begin + i) * p.scalar_stride + head;
    double step = Softplus(double{p.decay_scale} * p.decay.f32()[at] + p.decay_bias[head]);
    if (p.kind == RecurrenceKind::kDelta) {
      gains[i] = static_cast<float>(p.gain_factor / (1 + std::exp(-double{p.gain.f32()[at]})));
    } else {
      step = std::clamp<double>(step, p.step_min, p.step_max);
      gains[i] = static_cast<float>(step);
    }
    decays[i] = static_cast<float>(std::exp(-p.decay_rate[head] * step));
  }
}

// Tokens [begin, end) of one head, from and to `state`.
void RunTokens(const RecurrenceParams& p, const StateKernels& kernels, int64_t head, int64_t begin,
               int64_t end, float* state) {
  const int64_t group = head / (p.num_heads / p.num_groups);
  alignas(64) float decays[kPieceTokens], gains[kPieceTokens];
  for (int64_t t = begin; t < end; t += kPieceTokens) {
    const int64_t count = std::min(kPieceTokens, end - t);
    FindFactors(p, head, t, count, decays, gains);
    const HeadTokens tokens = {
        .query = p.query.f32() + t * p.stride + group * p.key_dim,
        .key = p.key.f32() + t * p.stride + group * p.key_dim,
        .value = p.value.f32() + t * p.stride + head * p.value_dim,
        .stride = p.stride,
        .decay = decays,
        .gain = gains,
        .skip = p.skip == nullptr ? 0 : p.skip[head],
        .state = state,
        .out = p.out.f32() + (t * p.num_heads + head) * p.value_dim,
        .out_stride = int64_t{p.num_heads} * p.value_dim,
        .count = count,
        .key_dim = p.key_dim,
        .value_dim = p.value_dim,
    };
    (p.kind == RecurrenceKind::kDelta ? kernels.delta : kernels.mamba2)(tokens);
  }
}

// All segments of the row that begins with segment `first`, for one head. The state stands in the
// slot that a segment writes.
void RunHead(const RecurrenceParams& p, const StateKernels& kernels, int32_t first, int64_t head) {
  const int64_t slot_size = RecurrenceStateFloats(p.num_heads, p.key_dim, p.value_dim);
  const int64_t size = StateHeadFloats(p.key_dim, p.value_dim);
  const auto state_in = [&](int64_t slot) { return p.states + slot * slot_size + head * size; };
  const StateSegments& segments = p.segments;
  for (int32_t i = first; i < segments.count && segments.spans[i].row_first == first; ++i) {
    float* const state = state_in(segments.spans[i].write);
    if (segments.spans[i].read < 0) {
      std::fill_n(state, size, 0.0f);
    } else {
      std::copy_n(state_in(segments.spans[i].read), size, state);
    }
    RunTokens(p, kernels, head, segments.spans[i].begin, segments.spans[i + 1].begin, state);
  }
}

}  // namespace

void RunShortConv(const ShortConvParams& p, const StateKernels& kernels, ThreadPool* pool) {
  const int64_t cost = std::max<int64_t>(1, p.width * p.length);
  const int64_t per_chunk = std::max<int64_t>(1, kConvChunkElements / cost);
  pool->ParallelForRanges(CeilDiv(p.num_tokens, per_chunk), [&](int64_t chunk, int) {
    const int64_t end = std::min(p.num_tokens, (chunk + 1) * per_chunk);
    for (int64_t t = chunk * per_chunk; t < end;) {
      const int32_t segment = SegmentOf(p.segments, t);
      const int64_t stop = std::min<int64_t>(end, p.segments.spans[segment + 1].begin);
      kernels.short_conv(p, segment, t, stop);
      t = stop;
    }
  });
  pool->ParallelForRanges(p.segments.count,
                          [&](int64_t i, int) { StoreInputs(p, static_cast<int32_t>(i)); });
}

void RunRecurrence(const RecurrenceParams& p, const StateKernels& kernels, ThreadPool* pool) {
  pool->ParallelFor(int64_t{p.segments.count} * p.num_heads, [&](int64_t i, int) {
    const auto segment = static_cast<int32_t>(i / p.num_heads);
    if (p.segments.spans[segment].row_first != segment) return;
    RunHead(p, kernels, segment, i % p.num_heads);
  });
}

}  // namespace minisgl::cpu
