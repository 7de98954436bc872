// Storage format of a weight matrix in an engine: elements of one type, or quantized.
//
// int8: each block of kQuantBlock consecutive inputs of one output has a scale s and integers q in
// [-127, 127]; a weight is s * q.
//   s: largest magnitude of the block / 127, rounded up to bf16, so that no q is clipped
//   q: weight / s, rounded to nearest, ties to even
// The input of a product is quantized the same way, except that its scale is f32 and not rounded
// up. The sum of products of q within a block is exact.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "minisgl/base/checked_math.h"
#include "minisgl/tensor/dtype.h"

namespace minisgl {

// kStored: matrices that the checkpoint has as codes and scales are kept as such, and their weights
// computed in f32 and rounded to WeightFormat::dtype where a product reads them; the others are of
// that type.
enum class Quantization : uint8_t { kNone, kInt8, kStored };

inline constexpr int64_t kQuantBlock = 32;

struct WeightFormat {
  DType dtype = DType::kF32;  // of weights that are not quantized, or of their products' operands
  Quantization quantization = Quantization::kNone;

  WeightFormat() = default;
  WeightFormat(DType type, Quantization kind = Quantization::kNone)  // NOLINT: a type is a format
      : dtype(type), quantization(kind) {}
  bool operator==(const WeightFormat&) const = default;

  // "bf16", "int8", "stored codes, bf16"
  std::string Name() const {
    if (quantization == Quantization::kInt8) return "int8";
    return (quantization == Quantization::kStored ? "stored codes, " : "") +
           std::string(DTypeName(dtype));
  }
};

// Bytes of a matrix [num_out, num_in] in `format`, dense if it is kStored; nullopt if 2^64 or more.
inline std::optional<uint64_t> WeightBytes(const WeightFormat& format, uint64_t num_out,
                                           uint64_t num_in) {
  if (format.quantization != Quantization::kInt8) {
    const auto row = CheckedMul(num_in, uint64_t{DTypeBytes(format.dtype)});
    return row ? CheckedMul(*row, num_out) : std::nullopt;
  }
  constexpr auto kBlock = static_cast<uint64_t>(kQuantBlock);
  const uint64_t blocks = num_in / kBlock + (num_in % kBlock != 0);
  const auto row = CheckedMul(blocks, kBlock + DTypeBytes(DType::kBF16));
  return row ? CheckedMul(*row, num_out) : std::nullopt;
}

}  // namespace minisgl
