// The matrices and formats of bench_cpu_kernels, and made-up quantized matrices for the formats
// that a checkpoint has as codes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

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

inline const NamedFormat kFormats[] = {
    {"bf16", DType::kBF16},
    {"f16", DType::kF16},
    {"f32", DType::kF32},
    {"int8", {DType::kBF16, Quantization::kInt8}},
    {"int4", {DType::kBF16, Quantization::kStored}},
    {"fp8", {DType::kBF16, Quantization::kStored}},
    {"w8a8", {DType::kBF16, Quantization::kStored}},
    {"nvfp4", {DType::kBF16, Quantization::kStored}},
    {"q4_k", {DType::kBF16, Quantization::kStored}, "Q4_K"},
    {"q6_k", {DType::kBF16, Quantization::kStored}, "Q6_K"},
    {"q4_0", {DType::kBF16, Quantization::kStored}, "Q4_0"},
    {"q8_0", {DType::kBF16, Quantization::kStored}, "Q8_0"},
    {"iq4_xs", {DType::kBF16, Quantization::kStored}, "IQ4_XS"},
    {"iq3_s", {DType::kBF16, Quantization::kStored}, "IQ3_S"},
    {"iq3_xxs", {DType::kBF16, Quantization::kStored}, "IQ3_XXS"},
    {"iq2_s", {DType::kBF16, Quantization::kStored}, "IQ2_S"},
    {"iq2_xs", {DType::kBF16, Quantization::kStored}, "IQ2_XS"},
    {"iq2_xxs", {DType::kBF16, Quantization::kStored}, "IQ2_XXS"},
    {"iq1_m", {DType::kBF16, Quantization::kStored}, "IQ1_M"},
    {"iq1_s", {DType::kBF16, Quantization::kStored}, "IQ1_S"},
    {"tq2_0", {DType::kBF16, Quantization::kStored}, "TQ2_0"},
    {"tq1_0", {DType::kBF16, Quantization::kStored}, "TQ1_0"}};

inline bool IsNvfp4(const NamedFormat& format) { return std::string_view(format.name) == "nvfp4"; }

// Bits of a checkpoint's codes; 0 for other formats.
inline int32_t CodeBits(const NamedFormat& format) {
  if (format.format.quantization != Quantization::kStored || format.blocks != nullptr) return 0;
  return std::string_view(format.name) == "int4" || IsNvfp4(format) ? 4 : 8;
}
// Their groups: of 16 with a scale in e4m3, or of 128 with one in bf16.
inline int64_t CodeGroup(const NamedFormat& format) { return IsNvfp4(format) ? 16 : 128; }
inline DType CodeScaleType(const NamedFormat& format) {
  return IsNvfp4(format) ? DType::kE4M3 : DType::kBF16;
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
  const uint64_t scales = num_in / static_cast<uint64_t>(CodeGroup(format));
  return num_out *
         (CeilDiv(num_in * bits, uint64_t{8}) + scales * DTypeBytes(CodeScaleType(format)));
}

// Codes of type e4m3 from random bytes: one in 4,096 subnormal, twice as many as the demo model has
// in blocks of 128, and none that is no number.
inline std::vector<std::byte> E4M3Codes(const std::byte* bytes, uint64_t count) {
  constexpr uint8_t kLeastNormal = 8, kNormals = 119, kSign = 0x80;
  std::vector<std::byte> codes(count);
  for (uint64_t i = 0; i < count; ++i) {
    const auto byte = static_cast<uint8_t>(bytes[i]);
    const int magnitude = i % 4096 == 0 ? 1 + byte % 7 : kLeastNormal + byte % kNormals;
    codes[i] = static_cast<std::byte>((byte & kSign) | magnitude);
  }
  return codes;
}

// A quantized matrix whose codes, or blocks, are the bytes of `codes`, and whose scales are all
// `scale`, which has two bytes. w8a8: integers, whose inputs may be rounded to int8. REQUIRES rows
// of whole blocks.
inline WeightTensor Codes(const NamedMatrix& matrix, const NamedFormat& format,
                          const std::byte* codes, const std::byte* scale) {
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
  weights.numbers = IsNvfp4(format)       ? E2M1Numbers()
                    : bits == 4           ? OffsetNumbers(4)
                    : weights.int8_inputs ? SignedNumbers()
                                          : E4M3Numbers();
  weights.group_inputs = weights.int8_inputs ? matrix.num_in : CodeGroup(format);
  weights.num_groups = CeilDiv(matrix.num_in, weights.group_inputs);
  weights.scales = {scale, CodeScaleType(format), 1, 0, 0};
  // As compressed-tensors has it.
  if (IsNvfp4(format)) weights.global_scale = 1234.5f;
  weights.divides_by_global = IsNvfp4(format);
  return WeightTensor(matrix.num_out, matrix.num_in, weights);
}

// True if products with matrices of `format` are of integers.
inline bool RoundsInputs(const std::string& target, const NamedFormat& format) {
  const std::string_view name = format.name;
  if (name == "fp8") return false;
  const bool is_compact = format.blocks != nullptr && FindBlockFormat(format.blocks)->is_compact;
  if (name == "q8_0" || name == "iq4_xs" || is_compact)
    return CpuRoundsInputsOfIntegers(target, format.format);
  if (name == "w8a8") {
    return CpuRoundsInt8Inputs(target, format.format) ||
           CpuRoundsInputsOfIntegers(target, format.format);
  }
  return CpuRoundsInputsOfCodes(target, format.format);
}

}  // namespace minisgl
