// See quantize.h.
#include "tensor/quantize.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace minisgl::tensor {
namespace {

constexpr float kLevels = 127.0f;
constexpr uint32_t kInfinityBits = 0x7F800000u;

// The largest magnitude, NaN counted as larger than infinity: as whole numbers the bits of
// magnitudes keep their order.
float LargestMagnitude(const float* values, int64_t count) {
  uint32_t largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    largest = std::max(largest, std::bit_cast<uint32_t>(values[i]) & 0x7FFFFFFFu);
  }
  return std::bit_cast<float>(largest);
}

bool IsFinite(float magnitude) { return std::bit_cast<uint32_t>(magnitude) < kInfinityBits; }

// To nearest, ties to even. (nearbyint is a call where the processor may be as old as x86-64
// itself.)
int8_t RoundOne(float value) {
#if defined(__SSE2__)
  return static_cast<int8_t>(_mm_cvtss_si32(_mm_set_ss(value)));
#else
  return static_cast<int8_t>(std::nearbyint(value));
#endif
}

void Round(const float* values, int64_t count, float inverse, int8_t* q) {
  for (int64_t i = 0; i < count; ++i) q[i] = RoundOne(values[i] * inverse);
}

// Divisors of a block's largest weight that give the scales which int4 tries.
constexpr float kInt4Divisors[] = {7.0f,  -7.0f,  -7.25f, -7.5f,  -7.75f,
                                   -8.0f, -8.25f, -8.5f,  -8.75f, -9.0f};

float RoundToBf16(float value) { return Bf16ToFloat(FloatToBf16(value)); }

// A block of int4 weights, padded with zeros, times the power of two that makes its largest
// magnitude at least 1 and less than 4: no square overflows, and no scale is too small.
//
// Sums have a fixed order: each of kLanes of every kLanes-th weight, so that a compiler can keep
// them in a vector.
class Int4Block {
 public:
  static constexpr int64_t kLanes = 8;

  Int4Block(const float* weights, int64_t count, float largest) {
    const uint32_t exponent = std::bit_cast<uint32_t>(largest) >> 23;
    const uint32_t up = 254 - std::min(exponent, 253u);
    unit_ = std::bit_cast<float>((254 - up) << 23);
    const float times = std::bit_cast<float>(up << 23);
    for (int64_t i = 0; i < count; ++i) x_[i] = weights[i] * times;
    const float* const first = std::find_if(
        weights, weights + count, [&](float weight) { return std::abs(weight) == largest; });
    largest_ = *first * times;
  }

  // The scale by the rule, in units of 2^k: the scale of the weights is it * unit().
  float FindScale() const {
    float best = 0, least = std::numeric_limits<float>::infinity();
    const auto try_scale = [&](float scale) {
      const float error = SquaredError(scale);
      if (error < least) best = scale;
      least = std::min(error, least);
    };
    for (const float divisor : kInt4Divisors) try_scale(RoundToBf16(largest_ / divisor));
    const float fitted = RoundToBf16(FitScale(best));
    if (fitted != 0) try_scale(fitted);
    return best;
  }
  float unit() const { return unit_; }

  void Round(float scale, int64_t count, int8_t* q) const {
    const float inverse = 1 / scale;
    for (int64_t i = 0; i < count; ++i) q[i] = static_cast<int8_t>(RoundedTo4Bits(x_[i] * inverse));
  }

 private:
  // To nearest, ties to even, as the sum has no bits for fractions. REQUIRES |value| < 2^22.
  static float RoundedTo4Bits(float value) {
    constexpr float kNoFraction = 0x1.8p23f;
    const float rounded = (value + kNoFraction) - kNoFraction;
    const float raised = rounded < -8.0f ? -8.0f : rounded;
    return raised > 7.0f ? 7.0f : raised;
  }

  static float SumOf(const float (&lanes)[kLanes]) {
    float sum = 0;
    for (const float lane : lanes) sum += lane;
    return sum;
  }

  float SquaredError(float scale) const {
    const float inverse = 1 / scale;
    float sums[kLanes] = {};
    for (int64_t i = 0; i < kQuantBlock; i += kLanes) {
      for (int64_t lane = 0; lane < kLanes; ++lane) {
        const float x = x_[i + lane];
        const float error = x - scale * RoundedTo4Bits(x * inverse);
        sums[lane] += error * error;
      }
    }
    return SumOf(sums);
  }

  // The scale for which the numbers that `scale` gives have the least squared error. Not 0 / 0: the
  // number of the largest weight is at least 7.
  float FitScale(float scale) const {
    const float inverse = 1 / scale;
    float products[kLanes] = {}, squares[kLanes] = {};
    for (int64_t i = 0; i < kQuantBlock; i += kLanes) {
      for (int64_t lane = 0; lane < kLanes; ++lane) {
        const float x = x_[i + lane];
        const float number = RoundedTo4Bits(x * inverse);
        products[lane] += x * number;
        squares[lane] += number * number;
      }
    }
    return SumOf(products) / SumOf(squares);
  }

  float x_[kQuantBlock] = {};
  float largest_ = 0, unit_ = 1;
};

}  // namespace

uint16_t QuantizeWeights(const float* weights, int64_t count, int8_t* q) {
  const float largest = LargestMagnitude(weights, count);
  std::fill_n(q, count, int8_t{0});
  if (!IsFinite(largest)) return FloatToBf16(std::numeric_limits<float>::quiet_NaN());
  if (largest < kQuantSmallest) return 0;
  const uint32_t bits = std::bit_cast<uint32_t>(largest / kLevels);
  const auto scale = static_cast<uint16_t>((bits + 0xFFFFu) >> 16);  // rounded up
  Round(weights, count, 1.0f / Bf16ToFloat(scale), q);
  return scale;
}

uint16_t QuantizeWeightsInt4(const float* weights, int64_t count, int8_t* q) {
  const float largest = LargestMagnitude(weights, count);
  std::fill_n(q, count, int8_t{0});
  if (!IsFinite(largest)) return FloatToBf16(std::numeric_limits<float>::quiet_NaN());
  if (largest < kQuantSmallest) return 0;
  const Int4Block block(weights, count, largest);
  const float scale = block.FindScale();
  block.Round(scale, count, q);
  return FloatToBf16(scale * block.unit());  // exact
}

float QuantizeActivations(const float* x, int64_t count, int8_t* q) {
  const float largest = LargestMagnitude(x, count);
  std::fill_n(q, count, int8_t{0});
  if (!IsFinite(largest)) return std::numeric_limits<float>::quiet_NaN();
  if (largest < kQuantSmallest) return 0;
  Round(x, count, kLevels / largest, q);
  return largest / kLevels;
}

}  // namespace minisgl::tensor
