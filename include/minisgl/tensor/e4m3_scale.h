// Numbers as codes of type e4m3 with a common power of two, as the KV cache keeps them: scalar
// reference of the kernels, also on devices.
//
// The scale of some numbers is the smallest power of two s with |x| / s <= 448, the largest e4m3,
// for each of them; a code is x / s, rounded to the nearest e4m3, ties to even. The scale is kept
// as a byte of type e8m0: 2^(byte - 127), within the bounds below, in which products of codes and
// scales are exact as bf16 and as f32. Numbers of 2^127 * 1.75 and more saturate. If a number is
// NaN or infinite, the scale is NaN, and so is every product: no code means either.
#pragma once

#include <bit>
#include <cstdint>

#include "minisgl/base/host_device.h"

namespace minisgl {

inline constexpr uint8_t kE4M3ScaleMin = 27;   // 2^-100
inline constexpr uint8_t kE4M3ScaleMax = 246;  // 2^119
inline constexpr uint8_t kE4M3ScaleNaN = 255;

// The byte of the scale, of numbers of which `bits` are the bits of the largest magnitude as f32
// (0: all of them are 0), or of a NaN or infinity if there is one.
MINISGL_HOST_DEVICE constexpr uint8_t E4M3ScaleOf(uint32_t bits) {
  constexpr uint32_t kInfinity = 0x7F800000u, kMantissaOf448 = 0x600000u;
  constexpr uint32_t kExponentOf448 = 8;
  if (bits >= kInfinity) return kE4M3ScaleNaN;
  // Above 448 times a power of two, the next one is needed.
  const uint32_t exponent = (bits >> 23) + ((bits & 0x7FFFFFu) > kMantissaOf448 ? 1 : 0);
  if (exponent < kE4M3ScaleMin + kExponentOf448) return kE4M3ScaleMin;
  const uint32_t scale = exponent - kExponentOf448;
  return static_cast<uint8_t>(scale < kE4M3ScaleMax ? scale : kE4M3ScaleMax);
}

// 2^(scale - 127), and its inverse, for a scale within the bounds; NaN for any other.
MINISGL_HOST_DEVICE constexpr uint32_t E4M3ScaleBits(uint8_t scale) {
  return scale == kE4M3ScaleNaN ? 0x7FC00000u : static_cast<uint32_t>(scale) << 23;
}
MINISGL_HOST_DEVICE constexpr uint32_t E4M3InverseScaleBits(uint8_t scale) {
  return scale == kE4M3ScaleNaN ? 0x7FC00000u : static_cast<uint32_t>(254 - scale) << 23;
}

// The code of a number that is already divided by its scale; beyond 448 that of 448. 0 for NaN.
MINISGL_HOST_DEVICE inline uint8_t ToE4M3(float x) {
  constexpr uint32_t kLeastNormal = 0x3C800000u;  // 2^-6
  constexpr uint32_t kMostBits = 0x43E00000u;     // 448
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint32_t sign = bits >> 24 & 0x80u;
  uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return 0;
  if (magnitude > kMostBits) magnitude = kMostBits;
  uint32_t code;
  if (magnitude < kLeastNormal) {
    // The sum is rounded to multiples of 2^-9, the least subnormal code.
    const float sum = std::bit_cast<float>(magnitude) + 0x1.0p14f;
    code = std::bit_cast<uint32_t>(sum) - std::bit_cast<uint32_t>(0x1.0p14f);
  } else {
    const uint32_t odd = magnitude >> 20 & 1;
    code = ((magnitude + 0x7FFFFu + odd) >> 20) - ((127 - 7) << 3);
  }
  return static_cast<uint8_t>(sign | code);
}

}  // namespace minisgl
