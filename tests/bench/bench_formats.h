// The matrices and formats of bench_cpu_kernels, and made-up quantized matrices for the formats
// that a checkpoint has as codes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "minisgl/base/checked_math.h"
#include "minisgl/ops.h"
#include "minisgl/tensor/block_format.h"
#include "minisgl/tensor/weight_format.h"
#include "minisgl/tensor/weight_tensor.h"

namespace minisgl {

struct NamedMatrix {
  const char* name;
  int64_t num_out, num_in;
  int64_t count;  // in the model
};

struct NamedFormat {
  const char* name;
  WeightFormat format;
  const char* blocks = nullptr;  // of rows of blocks: the name of their BlockFormat
};

inline const NamedFormat kFormats[] = {{"bf16", DType::kBF16},
                                       {"f16", DType::kF16},
                                       {"f32", DType::kF32},
                                       {"int8", {DType::kBF16, Quantization::kInt8}},
                                       {"int4", {DType::kBF16, Quantization::kStored}},
                                       {"fp8", {DType::kBF16, Quantization::kStored}},
                                       {"w8a8", {DType::kBF16, Quantization::kStored}},
                                       {"q4_k", {DType::kBF16, Quantization::kStored}, "Q4_K"},
                                       {"q6_k", {DType::kBF16, Quantization::kStored}, "Q6_K"},
                                       {"q4_0", {DType::kBF16, Quantization::kStored}, "Q4_0"},
                                       {"q8_0", {DType::kBF16, Quantization::kStored}, "Q8_0"}};

// Of the codes of a checkpoint: a scale in bf16 for each group.
inline constexpr int64_t kCodeGroup = 128;
inline int32_t CodeBits(const NamedFormat& format) {
  if (format.format.quantization != Quantization::kStored || format.blocks != nullptr) return 0;
  return std::string_view(format.name) == "int4" ? 4 : 8;
}

inline uint64_t MatrixBytes(const NamedMatrix& matrix, const NamedFormat& format) {
  const auto num_out = static_cast<uint64_t>(matrix.num_out);
  const auto num_in = static_cast<uint64_t>(matrix.num_in);
  if (format.blocks != nullptr) {
    const BlockFormat& of = *FindBlockFormat(format.blocks);
    return num_out * (num_in / static_cast<uint64_t>(of.block_elements)) *
           static_cast<uint64_t>(of.block_bytes);
  }
  const auto bits = static_cast<uint64_t>(CodeBits(format));
  if (bits == 0) return *WeightBytes(format.format, num_out, num_in);
  return num_out * (CeilDiv(num_in * bits, uint64_t{8}) + num_in / kCodeGroup * 2);
}

// A quantized matrix whose codes, or blocks, are the bytes of `codes`. w8a8: integers, whose inputs
// may be rounded to int8. REQUIRES rows of whole blocks.
inline WeightTensor Codes(const NamedMatrix& matrix, const NamedFormat& format,
                          const std::byte* codes, const uint16_t* scales) {
  if (format.blocks != nullptr) {
    return WeightTensor(matrix.num_out, matrix.num_in, FindBlockFormat(format.blocks), codes)
        .WithCodes();
  }
  const int32_t bits = CodeBits(format);
  QuantizedWeights weights;
  weights.codes.data = codes;
  weights.codes.bits = bits;
  weights.codes.other_step = matrix.num_in * bits / 8;
  weights.int8_inputs = std::string_view(format.name) == "w8a8";
  weights.numbers = bits == 4             ? OffsetNumbers(4)
                    : weights.int8_inputs ? SignedNumbers()
                                          : E4M3Numbers();
  weights.group_inputs = weights.int8_inputs ? matrix.num_in : kCodeGroup;
  weights.num_groups = CeilDiv(matrix.num_in, weights.group_inputs);
  weights.scales = {reinterpret_cast<const std::byte*>(scales), DType::kBF16, 1, 0, 0};
  return WeightTensor(matrix.num_out, matrix.num_in, weights);
}

// True if products with matrices of `format` are of integers.
inline bool RoundsInputs(const std::string& target, const NamedFormat& format) {
  const std::string_view name = format.name;
  if (name == "fp8") return false;
  if (name == "q8_0") return CpuRoundsInputsOfIntegers(target, format.format);
  if (name == "w8a8") {
    return CpuRoundsInt8Inputs(target, format.format) ||
           CpuRoundsInputsOfIntegers(target, format.format);
  }
  return CpuRoundsInputsOfCodes(target, format.format);
}

}  // namespace minisgl
