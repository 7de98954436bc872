// Element types, and conversions between them. Widening to f32 is exact.
//
// Engines compute in f32, bf16 and f16. The other types occur in files only: as codes of quantized
// weights, as their scales, and as the indices beside them (weight_tensor.h).
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace minisgl {

enum class DType : uint8_t {
  kF32,
  kBF16,
  kF16,
  kE4M3,  // 1 sign, 4 exponent and 3 mantissa bits; 0x7F and 0xFF are NaN, there is no infinity
  kE8M0,  // a power of two, 2^(code - 127); 255 is NaN
  kU8,
  kI8,
  kI32,
  kI64,
};

constexpr size_t DTypeBytes(DType dtype) {
  switch (dtype) {
    case DType::kI64:
      return 8;
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kBF16:
    case DType::kF16:
      return 2;
    default:
      return 1;
  }
}
const char* DTypeName(DType dtype);  // "f32", "bf16", "f16", "e4m3", ...

// True for the types that engines compute in.
constexpr bool IsComputed(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16;
}

inline float Bf16ToFloat(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

// Rounds to nearest, ties to even; NaN stays NaN.
inline uint16_t FloatToBf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<uint16_t>(bits >> 16 | 0x40u);
  return static_cast<uint16_t>((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
}

float F16ToFloat(uint16_t bits);
uint16_t FloatToF16(float value);  // rounds to nearest, ties to even; overflows to infinity
float E4M3ToFloat(uint8_t code);
float E8M0ToFloat(uint8_t code);

}  // namespace minisgl
