// How a weight matrix is kept by an engine: elements of a type, or quantized.
//
// int8: each run of kQuantBlock inputs of an output has a scale s and whole numbers q in
// [-127, 127]; the weight is s q. s is the block's largest magnitude / 127 rounded up to a bf16, so
// that no q is cut; q is the weight / s rounded to nearest, ties to even. The product's input is
// quantized alike (its scale an f32, not rounded up), and a block's sum of q products is exact.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "minisgl/base/checked_math.h"
#include "minisgl/tensor/dtype.h"

namespace minisgl {

enum class Quantization : uint8_t { kNone, kInt8 };

inline constexpr int64_t kQuantBlock = 32;

struct WeightFormat {
  DType dtype = DType::kF32;  // of what is not quantized
  Quantization quantization = Quantization::kNone;

  WeightFormat() = default;
  WeightFormat(DType type, Quantization kind = Quantization::kNone)  // NOLINT: a type is a format
      : dtype(type), quantization(kind) {}
  bool operator==(const WeightFormat&) const = default;

  // "bf16", "int8"
  std::string Name() const {
    return quantization == Quantization::kInt8 ? "int8" : DTypeName(dtype);
  }
};

// Of `num_out` rows of `num_in` weights each; nothing past 2^64.
inline std::optional<uint64_t> WeightBytes(const WeightFormat& format, uint64_t num_out,
                                           uint64_t num_in) {
  if (format.quantization == Quantization::kNone) {
    const auto row = CheckedMul(num_in, uint64_t{DTypeBytes(format.dtype)});
    return row ? CheckedMul(*row, num_out) : std::nullopt;
  }
  constexpr auto kBlock = static_cast<uint64_t>(kQuantBlock);
  const uint64_t blocks = num_in / kBlock + (num_in % kBlock != 0);
  const auto row = CheckedMul(blocks, kBlock + DTypeBytes(DType::kBF16));
  return row ? CheckedMul(*row, num_out) : std::nullopt;
}

}  // namespace minisgl
