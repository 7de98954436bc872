// Short convolutions of layers with a state.
//
// Grid (tokens / block_tokens, C / 512), block 128, no shared memory. A thread has 4 channels of
// some tokens, one after the other, and keeps the inputs that the next token reads in registers.
// The thread with the last token of a span then holds the state, and stores it. An element's sum
// has the order of ShortConvParams: neither the tokens of a block nor the cut of a row changes it.
// Traffic: (2 + factors) * T * C * sizeof(T) bytes, and for each block of tokens the weights and L
// - 1 inputs before it; 2 L operations for each element.
#include <algorithm>

#include "kernels/chunk.h"
#include "kernels/dispatch.h"
#include "kernels/kernels.h"
#include "minisgl/base/checked_math.h"

namespace minisgl::cuda {
namespace {

constexpr int kConvThreads = 128;
constexpr int kConvChannels = 4;  // of a thread
// Tokens of a block, if there are blocks enough: 16 read 3 inputs before them.
constexpr int kBlockTokensMax = 16;
constexpr int kConvBlocksWanted = 8;  // for each multiprocessor

struct ConvKernelParams {
  ShortConvParams conv;
  int32_t block_tokens;
  bool aligned;
};

// The span of token `t`. REQUIRES t before the end of the last span. Each span has at least one
// token, so the number of t's span is at most t.
MINISGL_DEVICE int FindSpan(const StateSpan* spans, int num_spans, int t) {
  int low = 0, high = min(t, num_spans - 1);
  if (spans[high].begin <= t) return high;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (spans[middle].begin <= t) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

// The channels of a thread. LENGTH: the number of weights of a channel; 0: any.
template <typename T, int LENGTH>
class ConvChannels {
 public:
  MINISGL_DEVICE explicit ConvChannels(const ConvKernelParams& params)
      : p_(params.conv),
        aligned_(params.aligned),
        first_((int64_t{blockIdx.y} * kConvThreads + threadIdx.x) * kConvChannels),
        count_(p_.width - first_),
        skip_(LENGTH == 0 ? kTaps - p_.length : 0) {
    if (count_ <= 0) return;
#pragma unroll
    for (int j = 0; j < kTaps; ++j) {
      if (j < skip_) continue;
      LoadChunk(p_.weight + (j - skip_) * p_.width + first_, count_, aligned_, weight_[j]);
    }
#pragma unroll
    for (int c = 0; c < kConvChannels; ++c) bias_[c] = 0;
    if (p_.bias != nullptr) LoadChunk(p_.bias + first_, count_, aligned_, bias_);
  }
  MINISGL_DEVICE bool empty() const { return count_ <= 0; }

  // The inputs before token `t` of the row whose first span is `row`.
  MINISGL_DEVICE void LoadPast(const StateSpan& row, int t) {
#pragma unroll
    for (int j = 0; j < kTaps - 1; ++j) {
#pragma unroll
      for (int c = 0; c < kConvChannels; ++c) past_[j][c] = 0;
      if (j < skip_) continue;
      const int from = t - (kTaps - 1) + j;
      if (from >= row.begin) {
        LoadInput(from, past_[j]);
      } else if (row.read >= 0) {
        const int column = kTaps - 1 - skip_ + from - row.begin;
        LoadChunk(StateOf(row.read, column), count_, aligned_, past_[j]);
      }
    }
  }

  // Computes token `t`; its input becomes the last of those before the next token.
  MINISGL_DEVICE void Step(int t) {
    float input[kConvChannels], sum[kConvChannels];
    LoadInput(t, input);
#pragma unroll
    for (int c = 0; c < kConvChannels; ++c) sum[c] = bias_[c];
#pragma unroll
    for (int j = 0; j < kTaps; ++j) {
      if (j < skip_) continue;
#pragma unroll
      for (int c = 0; c < kConvChannels; ++c) {
        const float u = j == kTaps - 1 ? input[c] : past_[j == kTaps - 1 ? 0 : j][c];
        sum[c] = fmaf(weight_[j][c], u, sum[c]);
      }
    }
#pragma unroll
    for (int j = 0; j < kTaps - 1; ++j) {
#pragma unroll
      for (int c = 0; c < kConvChannels; ++c) {
        past_[j][c] = j == kTaps - 2 ? input[c] : past_[j == kTaps - 2 ? 0 : j + 1][c];
      }
    }
    Finish(t, sum);
  }

  MINISGL_DEVICE void StorePast(int slot) const {
#pragma unroll
    for (int j = 0; j < kTaps - 1; ++j) {
      if (j >= skip_) StoreChunk(StateOf(slot, j - skip_), count_, aligned_, past_[j]);
    }
  }

 private:
  static constexpr int kTaps = LENGTH == 0 ? kConvLengthMax : LENGTH;

  MINISGL_DEVICE float* StateOf(int slot, int column) const {
    const int64_t row = int64_t{slot} * (kTaps - 1 - skip_) + column;
    return p_.states + row * p_.width + first_;
  }

  MINISGL_DEVICE void LoadInput(int t, float (&u)[kConvChannels]) const {
    const int64_t at = t * p_.stride + first_;
    LoadChunk(p_.x.template as<T>() + at, count_, aligned_, u);
    if (p_.x_factor.data == nullptr) return;
    float factor[kConvChannels];
    LoadChunk(p_.x_factor.template as<T>() + at, count_, aligned_, factor);
#pragma unroll
    for (int c = 0; c < kConvChannels; ++c) u[c] *= factor[c];
  }

  MINISGL_DEVICE void Finish(int t, float (&y)[kConvChannels]) const {
    if (p_.silu) {
#pragma unroll
      for (int c = 0; c < kConvChannels; ++c) y[c] = y[c] / (1.0f + device::Exp(-y[c]));
    }
    if (p_.out_factor.data != nullptr) {
      float factor[kConvChannels];
      LoadChunk(p_.out_factor.template as<T>() + t * p_.stride + first_, count_, aligned_, factor);
#pragma unroll
      for (int c = 0; c < kConvChannels; ++c) y[c] *= factor[c];
    }
    StoreChunk(p_.out.template as<T>() + t * p_.width + first_, count_, aligned_, y);
  }

  const ShortConvParams& p_;
  const bool aligned_;
  const int64_t first_, count_;  // channels
  const int skip_;               // weights that the channel has not
  float weight_[kTaps][kConvChannels];
  float bias_[kConvChannels];
  float past_[kTaps - 1][kConvChannels];  // the oldest first
};

template <typename T, int LENGTH>
MINISGL_KERNEL void MINISGL_LAUNCH_BOUNDS(kConvThreads, 1)
    ShortConvKernel(ConvKernelParams params) {
  device::GridRelease();
  device::GridWait();
  ConvChannels<T, LENGTH> channels(params);
  if (channels.empty()) return;
  const StateSegments& segments = params.conv.segments;
  const StateSpan* const spans = segments.spans;
  const int num_spans = segments.of_row[segments.num_rows];
  // Tokens after the last span are padding.
  int t = static_cast<int>(blockIdx.x) * params.block_tokens;
  const int end = min(t + params.block_tokens, spans[num_spans].begin);
  if (t >= end) return;
  for (int i = FindSpan(spans, num_spans, t); t < end; ++i) {
    const StateSpan span = spans[i];
    const int span_end = spans[i + 1].begin, stop = min(end, span_end);
    channels.LoadPast(spans[span.row_first], t);
    for (; t < stop; ++t) channels.Step(t);
    if (t == span_end) channels.StorePast(span.write);
  }
}

}  // namespace

CudaError LaunchShortConv(const LaunchContext& context, const ShortConvParams& params) {
  MINISGL_CHECK(params.length >= 2 && params.length <= kConvLengthMax,
                "a convolution with {} weights; 2 to {}", params.length, kConvLengthMax);
  const int64_t blocks = CeilDiv<int64_t>(params.width, int64_t{kConvThreads} * kConvChannels);
  const int64_t wanted = int64_t{kConvBlocksWanted} * context.num_multiprocessors;
  const int64_t tokens =
      std::clamp<int64_t>(params.num_tokens * blocks / wanted, 1, kBlockTokensMax);
  const ConvKernelParams p = {
      .conv = params,
      .block_tokens = static_cast<int32_t>(tokens),
      .aligned = (params.width | params.stride) % kChunk == 0 && IsAligned16(params.x.data) &&
                 IsAligned16(params.x_factor.data) && IsAligned16(params.out_factor.data) &&
                 IsAligned16(params.weight) && IsAligned16(params.bias) &&
                 IsAligned16(params.states) && IsAligned16(params.out.data)};
  const LaunchShape shape = {.grid = {static_cast<unsigned>(CeilDiv(params.num_tokens, tokens)),
                                      static_cast<unsigned>(blocks)},
                             .block = {kConvThreads},
                             .programmatic = true};
  return DispatchHalf(params.out.dtype, [&]<typename T>() {
    if (params.length == 4) return Launch(context, shape, ShortConvKernel<T, 4>, p);
    if (params.length == 3) return Launch(context, shape, ShortConvKernel<T, 3>, p);
    return Launch(context, shape, ShortConvKernel<T, 0>, p);
  });
}

}  // namespace minisgl::cuda
