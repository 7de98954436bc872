// A quantized matrix [out, in] as the checkpoint has it, or as packing quantized it (int4 and int8
// of weight_format.h): codes, and the scales and zero points or offsets of their groups, in panels
// of 16 outputs. kernels/expand_codes-inl.h expands a panel to the weights
//   (number - zero) * scale, or number * scale + offset, in f32,
// which are those of WeightTensor::ReadRow, and rounds them to bf16 where products have operands of
// that type: a product has the bits that it would have with the expanded matrix.
//
// The order of codes is that of the kernels that read them (CodeOrder).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "minisgl/tensor/block_format.h"
#include "minisgl/tensor/dtype.h"

namespace minisgl::cpu {

inline constexpr int64_t kPanelWidth = 16;

enum class CodeKind : uint8_t {
  kCounting4,  // 4 bits; CodedMatrix::numbers, each one more than the last
  kSigned4,    // 4 bits; the same, the last eight those of the first eight, negated
  kCounting6,  // 6 bits, of kWords alone; numbers[0] is that of code 0, each one more than the last
  kInt8,       // two's complement
  kE4M3,
};

// What a scale is made of, and an offset. No step of type e4m3 is NaN (WeightTensor::CheckNumbers).
// In lanes of the last panel that have no output, scales may be NaN.
enum class ScaleSteps : uint8_t {
  kNone,         // it is stored as such
  kIntegers,     // a step, an integer of 8 bits, times a factor, which several groups share
  kE4M3,         // a step of type e4m3 times a factor in f32
  kE4M3Divided,  // a step of type e4m3 divided by a factor in f32
};

enum class CodeOrder : uint8_t {
  // For vectors that run over outputs. Codes of 4 bits: for each eight inputs of a panel 16 words
  // of 32 bits, a word for each output, the first input in the lowest bits. Codes of 6 bits: for
  // each sixteen inputs the words of their lower four bits, then 16 words of their upper two bits:
  // byte i of a word has those of inputs 2 i, 2 i + 1, 2 i + 8 and 2 i + 9, the first lowest.
  // Codes of 8 bits: for each input of a panel 16 bytes.
  kWords,
  // For tiles whose rows are outputs. The panels of a group of 64 outputs lie beside each other:
  // for each 128 inputs a line of each output in turn. A line of 8 bits has its codes in order; one
  // of 4 bits is 32 words of 16 bits, and nibble n of word w is the code of input 32 n + w.
  kLines,
  // Codes of 8 bits for products of integers, four inputs at a time: for each four inputs of a
  // panel, padded to sixteen times four, a quad of each of the 16 outputs.
  kQuads,
  // Codes of type e4m3 for products in f32: the same, but the two middle inputs of a quad are
  // exchanged, so that every other byte is of the next input (kernels/linear_e4m3-inl.h).
  kSplitQuads,
  // Rows of blocks (block_format.h), codes and scales together: for each block of a panel's inputs
  // the blocks of its 16 outputs, zeros if it has fewer outputs. Products decode them
  // (block_panels.h).
  kBlocks,
};
// The orders of the codes of a matrix.
struct CodeOrders {
  CodeOrders(CodeOrder all)  // NOLINT: one for all
      : small(all), bytes(all), e4m3(all), integers(all), int8_inputs(all), quantized_int8(all) {}
  CodeOrder small;  // if they have 4 bits, or 8 that fit in 6
  CodeOrder bytes;  // of others
  CodeOrder e4m3;
  CodeOrder integers;         // of those that linear_int8.cc can multiply (HasIntegerBlocks)
  CodeOrder int8_inputs;      // of those whose format asks for inputs of int8 (HasInt8Inputs)
  CodeOrder quantized_int8;   // of weights that packing quantizes to int8
  bool keeps_blocks = false;  // compact blocks (BlockFormat::is_compact) are kBlocks instead
};

inline constexpr int64_t kWordInputs = 8;  // of a word of 4-bit codes
// Inputs of a unit in the layout of 6-bit codes, and words of 32 bits of an output in it.
inline constexpr int64_t kUnitInputs = 16, kUnitWords = 3;
inline constexpr int64_t kQuadInputs = 4;
// The place of an input's code in a quad of kSplitQuads.
constexpr int64_t SplitQuadPlace(int64_t input) { return input % 2 * 2 + input / 2 % 2; }
inline constexpr int64_t kLineInputs = 128;
inline constexpr int64_t kLinePanels = 4;  // of a group
inline constexpr int64_t kSubnormalShare = 1024;
inline constexpr float kMovedScaleMax = 128;

struct CodedMatrix {
  int64_t num_out = 0, num_in = 0;
  CodeOrder order = CodeOrder::kWords;
  CodeKind kind = CodeKind::kCounting4;
  std::array<float, 16> numbers = {};  // of codes of 4 bits, and of the first ones of 6
  int64_t group_inputs = 0;            // of one scale; the last group may have fewer
  // The type of scales and offsets, or of their factors: bf16 or f16 if it holds all exactly, else
  // f32; f32 for factors of steps of type e4m3.
  DType scale_type = DType::kF32;
  ScaleSteps steps = ScaleSteps::kNone;
  int64_t factor_groups = 0;  // with steps: groups that share a factor, a power of two
  bool has_zeros = false, has_offsets = false;  // at most one
  // With kSplitQuads: codes may be widened by moving their bits (kernels/e4m3-inl.h). At most one
  // in kSubnormalShare is a subnormal number, as an f32 with which some processors take long, and
  // no scale is kMovedScaleMax or more.
  bool moves_bits = false;
  const BlockFormat* blocks = nullptr;  // with kBlocks: their format
  std::shared_ptr<const void> data;     // codes, then scales, then zeros or offsets; or blocks

  bool has_4_bits() const { return kind == CodeKind::kCounting4 || kind == CodeKind::kSigned4; }
  bool has_6_bits() const { return kind == CodeKind::kCounting6; }
  int64_t num_panels() const { return (num_out + kPanelWidth - 1) / kPanelWidth; }
  int64_t num_groups() const { return (num_in + group_inputs - 1) / group_inputs; }
  int64_t panel_bytes() const;  // of codes
  int64_t scale_bytes() const;  // of a panel's scales, and of its offsets; not with kBlocks
  int64_t step_bytes() const { return steps == ScaleSteps::kNone ? 0 : num_groups() * kPanelWidth; }
  size_t num_bytes() const;

  // REQUIRES order != kLines
  const std::byte* codes(int64_t panel) const {
    return static_cast<const std::byte*>(data.get()) + panel * panel_bytes();
  }
  // The line of output `out` with inputs from kLineInputs * index on. REQUIRES order == kLines
  const std::byte* line(int64_t out, int64_t index) const {
    return static_cast<const std::byte*>(data.get()) + LineOffset(out, index);
  }
  int64_t LineOffset(int64_t out, int64_t index) const;
  int64_t line_bytes() const { return has_4_bits() ? kLineInputs / 2 : kLineInputs; }
  // [num_groups][16]; with steps, a byte for each, then [groups of factors][16] factors
  const std::byte* scales(int64_t panel) const {
    return static_cast<const std::byte*>(data.get()) + num_panels() * panel_bytes() +
           panel * scale_bytes();
  }
  // In the form of scales; null: there are none
  const std::byte* offsets(int64_t panel) const {
    return has_offsets ? scales(num_panels() + panel) : nullptr;
  }
  // [num_groups][16] the numbers of the zero points; null: all are 0
  const int8_t* zeros(int64_t panel) const;

  // The scale of a group and an output of a panel. REQUIRES order != kBlocks
  float ScaleOf(int64_t panel, int64_t group, int64_t lane) const {
    return FactorAt(scales(panel), group, lane);
  }
  // Writes the weights of output `out` to row[num_in].
  void ReadRow(int64_t out, float* row) const;

 private:
  uint8_t CodeAt(int64_t out, int64_t input) const;
  // An element of a panel's scales or offsets.
  float FactorAt(const std::byte* of_panel, int64_t group, int64_t lane) const;
};

}  // namespace minisgl::cpu
