// Storage format of a weight matrix in an engine: elements of one type, or quantized.
//
// int8: each block of kQuantBlock consecutive inputs of one output has a scale s and integers q in
// [-127, 127]; a weight is s * q.
//   s: largest magnitude of the block / 127, rounded up to bf16, so that no q is clipped
//   q: weight / s, rounded to nearest, ties to even
// The input of a product is quantized the same way, except that its scale is f32 and not rounded
// up. The sum of products of q within a block is exact. Except: if the dtype is bf16, CPU targets
// that use tiles for codes round weights to bf16 where a product reads them, and inputs to bf16.
//
// int4: the same blocks, of which the last may be shorter, with integers q in [-8, 7]. The code of
// q is q + 8.
//   m: the weight of largest magnitude, the first if there are several
//   s: of m / 7 and m / -7, m / -7.25, ..., m / -9, each rounded to bf16, the one with the least
//      sum of (weight - s * q)^2; then, if its sum is less, the s that fits the q found so far best
//      (sum of weight * q / sum of q * q), rounded to bf16. The first of those that are equal.
//   q: weight * (1 / s), rounded to nearest, ties to even, and clipped to [-8, 7]
// m / 7 is the scale of rounding to nearest. -8 has no counterpart, so that s is often negative.
// Products are computed as with kStored.
//
// In both a block with a weight that is not finite has the scale NaN and q of 0.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "minisgl/base/checked_math.h"
#include "minisgl/tensor/dtype.h"

namespace minisgl {

// kStored: matrices that the checkpoint has as codes and scales are kept as such; the others are of
// WeightFormat::dtype. Their weights are computed in f32, and rounded to bf16 if the product has
// operands of that type, where a product reads them; its inputs are not quantized. Except: if the
// dtype is not f32, CPU targets without tiles multiply integers, and quantize the inputs of the
// product as for int8: codes of 4 and 6 bits in groups of a multiple of 16 inputs or of all, those
// of 8 bits without zero points in groups of 32, 64, 128, ... or of all. On CUDA: device_ops.h.
enum class Quantization : uint8_t { kNone, kInt8, kStored, kInt4 };

inline constexpr int64_t kQuantBlock = 32;

struct WeightFormat {
  DType dtype = DType::kF32;  // of weights that are not quantized, or of their products' operands
  Quantization quantization = Quantization::kNone;

  WeightFormat() = default;
  WeightFormat(DType type, Quantization kind = Quantization::kNone)  // NOLINT: a type is a format
      : dtype(type), quantization(kind) {}
  bool operator==(const WeightFormat&) const = default;

  // "bf16", "int8", "int4", "stored codes, bf16"
  std::string Name() const {
    if (quantization == Quantization::kInt4) return "int4";
    if (quantization == Quantization::kInt8) return "int8";
    return (quantization == Quantization::kStored ? "stored codes, " : "") +
           std::string(DTypeName(dtype));
  }
};

// The format of the embedding table and the output head in an engine whose matrices have `format`:
// they are not quantized to less than 8 bits.
inline WeightFormat TableFormat(const WeightFormat& format) {
  const bool is_int4 = format.quantization == Quantization::kInt4;
  return is_int4 ? WeightFormat(format.dtype, Quantization::kInt8) : format;
}

// Bytes of a matrix [num_out, num_in] in `format`, dense if it is kStored, on the CPU target that
// takes the most; nullopt if 2^64 or more.
inline std::optional<uint64_t> WeightBytes(const WeightFormat& format, uint64_t num_out,
                                           uint64_t num_in) {
  constexpr auto kBlock = static_cast<uint64_t>(kQuantBlock);
  constexpr uint64_t kScaleBytes = DTypeBytes(DType::kBF16), kLineInputs = 128;
  const uint64_t blocks = num_in / kBlock + (num_in % kBlock != 0);
  const uint64_t lines = num_in / kLineInputs + (num_in % kLineInputs != 0);
  std::optional<uint64_t> row;
  switch (format.quantization) {
    case Quantization::kInt8: {
      // In lines or, for products of integers, in units of 64 inputs.
      const uint64_t unit = format.dtype == DType::kBF16 ? kLineInputs : 64;
      row = CheckedMul(num_in / unit + (num_in % unit != 0), unit);
      if (row) row = CheckedAdd(*row, blocks * kScaleBytes);
      break;
    }
    case Quantization::kInt4:  // in lines
      row = lines * (kLineInputs / 2) + blocks * kScaleBytes;
      break;
    default:
      row = CheckedMul(num_in, uint64_t{DTypeBytes(format.dtype)});
  }
  return row ? CheckedMul(*row, num_out) : std::nullopt;
}

}  // namespace minisgl
