// Arithmetic on sizes that come from files. Functions return nullopt if the result exceeds 64 bits.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace minisgl {

inline std::optional<uint64_t> CheckedAdd(uint64_t a, uint64_t b) {
  uint64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) return std::nullopt;
  return sum;
}

inline std::optional<uint64_t> CheckedMul(uint64_t a, uint64_t b) {
  uint64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
  return product;
}

// The product of `factors`; 1 for an empty list.
inline std::optional<uint64_t> CheckedProduct(std::span<const uint64_t> factors) {
  std::optional<uint64_t> product = 1;
  for (uint64_t factor : factors) {
    product = CheckedMul(*product, factor);
    if (!product) return std::nullopt;
  }
  return product;
}

// `value` rounded up to a multiple of `alignment`. REQUIRES alignment > 0.
inline std::optional<uint64_t> CheckedAlign(uint64_t value, uint64_t alignment) {
  const uint64_t remainder = value % alignment;
  return remainder == 0 ? std::optional<uint64_t>(value) : CheckedAdd(value, alignment - remainder);
}

// ceil(a / b). REQUIRES a >= 0 and b > 0.
template <typename Int>
constexpr Int CeilDiv(Int a, Int b) {
  return a / b + (a % b != 0 ? 1 : 0);
}

}  // namespace minisgl
