// Half precision (IEEE 754 binary16) by integer arithmetic: every value converts exactly, on every
// machine alike.
#include "minisgl/tensor/dtype.h"

namespace minisgl {

const char* DTypeName(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "f32";
    case DType::kBF16:
      return "bf16";
    case DType::kF16:
      return "f16";
    case DType::kE4M3:
      return "e4m3";
    case DType::kE8M0:
      return "e8m0";
    case DType::kU8:
      return "u8";
    case DType::kI8:
      return "i8";
    case DType::kI32:
      return "i32";
    case DType::kI64:
      return "i64";
  }
  return "unknown";
}

float F16ToFloat(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t exponent = bits >> 10 & 0x1Fu;
  const uint32_t mantissa = bits & 0x3FFu;
  if (exponent == 0) {
    // Zero or subnormal: mantissa * 2^-24, which a float holds exactly.
    const float magnitude = static_cast<float>(mantissa) * 0x1.0p-24f;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | sign);
  }
  if (exponent == 0x1F) return std::bit_cast<float>(sign | 0x7F800000u | mantissa << 13);
  return std::bit_cast<float>(sign | (exponent + (127 - 15)) << 23 | mantissa << 13);
}

uint16_t FloatToF16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000u);
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) {  // NaN: quiet, with the payload bits that fit
    return static_cast<uint16_t>(sign | 0x7E00u | (magnitude >> 13 & 0x3FFu));
  }
  if (magnitude >= 0x47800000u) return static_cast<uint16_t>(sign | 0x7C00u);  // 2^16 and up

  // Keeps `significand` >> `shift`; a carry out of the mantissa moves into the exponent, which is
  // right.
  uint32_t significand = magnitude, shift = 13, rebias = (127 - 15) << 10;
  if (magnitude < 0x38800000u) {  // below 2^-14: subnormal, counted in 2^-24
    const uint32_t exponent = magnitude >> 23;
    if (exponent < 102) return sign;  // below 2^-25, half the least subnormal
    significand = (magnitude & 0x7FFFFFu) | 0x800000u;
    shift = 126 - exponent;
    rebias = 0;
  }
  const uint32_t half = 1u << (shift - 1);
  const uint32_t odd = significand >> shift & 1u;
  const uint32_t rounded = (significand + half - 1 + odd) >> shift;
  return static_cast<uint16_t>(sign | (rounded - rebias));
}

float E4M3ToFloat(uint8_t code) {
  constexpr int kBias = 7, kMantissaBits = 3;
  const uint32_t sign = static_cast<uint32_t>(code & 0x80u) << 24;
  const uint32_t exponent = code >> kMantissaBits & 0xFu, mantissa = code & 0x7u;
  if ((code & 0x7Fu) == 0x7F) return std::bit_cast<float>(sign | 0x7FC00000u);
  if (exponent == 0) {
    // Zero or subnormal: mantissa * 2^-9.
    const float magnitude = static_cast<float>(mantissa) * 0x1.0p-9f;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | sign);
  }
  return std::bit_cast<float>(sign | (exponent + (127 - kBias)) << 23 |
                              mantissa << (23 - kMantissaBits));
}

float E8M0ToFloat(uint8_t code) {
  if (code == 0xFF) return std::bit_cast<float>(0x7FC00000u);
  // 2^-127 is subnormal as a float.
  return code == 0 ? 0x1.0p-127f : std::bit_cast<float>(static_cast<uint32_t>(code) << 23);
}

}  // namespace minisgl
