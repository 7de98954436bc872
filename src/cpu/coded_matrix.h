// A quantized matrix [out, in] as the checkpoint has it, or as packing quantized it (int4 of
// weight_format.h): codes, and the scales and zero points of their groups, in panels of 16 outputs.
// kernels/expand_codes.cc expands a panel to the weights
//   (number - zero) * scale, in f32,
// which are those of WeightTensor::ReadRow, and rounds them to bf16 where products have operands of
// that type: a product has the bits that it would have with the expanded matrix.
//
// Codes of 4 bits: for each eight inputs of a panel 16 words of 32 bits, a word for each output,
// the first input in the lowest bits. Codes of 8 bits: for each input of a panel 16 bytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "minisgl/base/status.h"
#include "minisgl/base/thread_pool.h"
#include "minisgl/tensor/weight_tensor.h"

namespace minisgl::cpu {

inline constexpr int64_t kPanelWidth = 16;

enum class CodeKind : uint8_t {
  kCounting4,  // 4 bits; CodedMatrix::numbers, each one more than the last
  kSigned4,    // 4 bits; the same, the last eight those of the first eight, negated
  kInt8,       // two's complement
  kE4M3,
};

struct CodedMatrix {
  int64_t num_out = 0, num_in = 0;
  CodeKind kind = CodeKind::kCounting4;
  std::array<float, 16> numbers = {};  // of codes of 4 bits
  int64_t group_inputs = 0;            // of one scale; the last group may have fewer
  DType scale_type = DType::kF32;      // bf16 if it holds all scales exactly, else f32
  bool has_zeros = false;
  std::shared_ptr<const void> data;  // codes, then scales, then zeros

  bool has_4_bits() const { return kind == CodeKind::kCounting4 || kind == CodeKind::kSigned4; }
  int64_t num_panels() const { return (num_out + kPanelWidth - 1) / kPanelWidth; }
  int64_t num_groups() const { return (num_in + group_inputs - 1) / group_inputs; }
  int64_t panel_bytes() const;  // of codes
  int64_t scale_bytes() const;  // of a panel's scales
  size_t num_bytes() const;

  const std::byte* codes(int64_t panel) const {
    return static_cast<const std::byte*>(data.get()) + panel * panel_bytes();
  }
  // [num_groups][16]
  const std::byte* scales(int64_t panel) const {
    return codes(num_panels()) + panel * scale_bytes();
  }
  // [num_groups][16] the numbers of the zero points; null: all are 0
  const int8_t* zeros(int64_t panel) const;

  // Writes the weights of output `out` to row[num_in].
  void ReadRow(int64_t out, float* row) const;
};

// True if the matrices `parts` can be stacked as codes: all are quantized with codes of one kind in
// the same groups of neighbouring inputs.
bool HaveCommonCodes(std::span<const WeightTensor> parts);

// Stacks `parts` along the outputs. REQUIRES HaveCommonCodes(parts).
Result<CodedMatrix> PackCodes(std::span<const WeightTensor> parts, ThreadPool* pool);

// A matrix of int4 (weight_format.h) without data.
CodedMatrix EmptyInt4Matrix(int64_t num_out, int64_t num_in);

// Stacks `parts` along the outputs, quantized to int4.
Result<CodedMatrix> QuantizeToInt4(std::span<const WeightTensor> parts, ThreadPool* pool);

}  // namespace minisgl::cpu
