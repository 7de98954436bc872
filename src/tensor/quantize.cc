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

float QuantizeActivations(const float* x, int64_t count, int8_t* q) {
  const float largest = LargestMagnitude(x, count);
  std::fill_n(q, count, int8_t{0});
  if (!IsFinite(largest)) return std::numeric_limits<float>::quiet_NaN();
  if (largest < kQuantSmallest) return 0;
  Round(x, count, kLevels / largest, q);
  return largest / kLevels;
}

}  // namespace minisgl::tensor
