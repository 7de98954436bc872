// The arguments of both kernels of recurrences: by steps (recurrence.cu) and by chunks
// (recurrence_chunk.cu).
#pragma once

#include <cstdint>

#include "device/device.h"
#include "kernels/launch.h"
#include "minisgl/ops_params.h"

namespace minisgl::cuda {

// A row with a span of so many tokens goes by chunks, with all of its spans; any other by steps.
inline constexpr int kChunkedSpanMin = 16;

struct RecurrenceKernelParams {
  RecurrenceParams recurrence;
  int64_t head_floats, slot_floats;  // of a state
  bool aligned;                      // queries, keys, values and outputs are whole chunks (chunk.h)
  bool chunks;                       // rows may go by chunks
};

// Runs the rows that go by chunks. REQUIRES key_dim at most kStateKeysMax.
CudaError LaunchChunkRecurrence(const LaunchContext& context, const RecurrenceKernelParams& params);
// Shared memory of a block of that kernel.
size_t ChunkRecurrenceBytes(int32_t key_dim);

// True if the row of spans [first, last) goes by chunks.
MINISGL_DEVICE bool GoesByChunks(const RecurrenceKernelParams& params, int first, int last) {
  if (!params.chunks) return false;
  const StateSpan* const spans = params.recurrence.segments.spans;
  int begin = spans[first].begin;
  for (int span = first; span < last; ++span) {
    const int end = spans[span + 1].begin;
    if (end - begin >= kChunkedSpanMin) return true;
    begin = end;
  }
  return false;
}

// log(1 + exp(x)), also where exp(x) is far below 1 (Kahan's log1p).
MINISGL_DEVICE float Softplus(float x) {
  if (x > 20) return x;
  const float e = device::Exp(x), u = 1 + e;
  return u == 1 ? e : device::Log(u) * (e / (u - 1));
}

// The scalars of a token and head as they are in memory.
struct RecurrenceScalars {
  float decay = 0, gain = 0;
};

template <bool DELTA>
MINISGL_DEVICE RecurrenceScalars LoadScalars(const RecurrenceParams& p, int64_t t, int head) {
  const int64_t at = t * p.scalar_stride + head;
  return {p.decay.as<float>()[at], DELTA ? p.gain.as<float>()[at] : 0};
}

// The logarithm of the decay, and the gain.
struct RecurrenceFactors {
  float log_decay = 0, gain = 0;
};

template <bool DELTA>
MINISGL_DEVICE RecurrenceFactors FactorsOf(const RecurrenceParams& p,
                                           const RecurrenceScalars& scalars, int head) {
  float step = Softplus(fmaf(p.decay_scale, scalars.decay, p.decay_bias[head]));
  float gain;
  if constexpr (DELTA) {
    gain = p.gain_factor / (1 + device::Exp(-scalars.gain));
  } else {
    step = step < p.step_min ? p.step_min : step > p.step_max ? p.step_max : step;
    gain = step;
  }
  return {-p.decay_rate[head] * step, gain};
}

}  // namespace minisgl::cuda
