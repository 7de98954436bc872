// The form in which a device keeps a matrix of codes: rows of codes, and the scales, zero points
// or offsets of their groups, each in an array of rows of its own. A weight is
//   (number(code) - zero) * scale, or number(code) * scale + offset
// in f32, with each product and sum rounded once: the number of WeightTensor::ReadRow, bit for bit.
//
// There are few forms, and each takes about the bytes of the file. What a checkpoint has in another
// form is expanded.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "minisgl/tensor/code_kinds.h"
#include "minisgl/tensor/dtype.h"
#include "minisgl/tensor/weight_format.h"
#include "minisgl/tensor/weight_tensor.h"

namespace minisgl {

struct CodeForm {
  // Inputs of a line, which four lanes of a kernel load with 16 bytes each; rows are whole lines.
  static constexpr int64_t kLineBytes = 64;

  RowCodes codes = RowCodes::kInt8;
  GroupScales scales = GroupScales::kStored;
  DType scale_type = DType::kF32;               // f32, f16, bf16; of kStored also e8m0
  int64_t group_inputs = 0;                     // of one scale: a multiple of 8, or all inputs
  int64_t base_groups = 0;                      // of kSteps: groups that share a base
  bool has_zeros = false, has_offsets = false;  // at most one
  bool adds_zero = false;                       // 0 is added to each weight: -0 becomes 0
  std::array<float, 16> numbers = {};

  bool operator==(const CodeForm&) const = default;

  int64_t line_inputs() const {
    return codes == RowCodes::kTable4 || codes == RowCodes::kInt6 ? 2 * kLineBytes : kLineBytes;
  }
  int64_t num_groups(int64_t num_in) const { return (num_in + group_inputs - 1) / group_inputs; }
  int64_t num_lines(int64_t num_in) const { return (num_in + line_inputs() - 1) / line_inputs(); }
  // Bases of a row; 0: scales have none.
  int64_t num_bases(int64_t num_in) const;
  // Bytes of a row in each array; 0 if the form has no such array.
  int64_t code_bytes(int64_t num_in) const { return num_lines(num_in) * kLineBytes; }
  int64_t upper_bytes(int64_t num_in) const {  // bits 4 and 5 of codes of 6 bits
    return codes == RowCodes::kInt6 ? num_lines(num_in) * (kLineBytes / 2) : 0;
  }
  int64_t scale_bytes(int64_t num_in) const;  // stored scales, or steps
  int64_t base_bytes(int64_t num_in) const {
    return num_bases(num_in) * static_cast<int64_t>(DTypeBytes(scale_type));
  }
  int64_t zero_bytes(int64_t num_in) const { return has_zeros ? num_groups(num_in) : 0; }
  // Bytes of a row in all arrays.
  int64_t row_bytes(int64_t num_in) const;
};

// A run of parts, one below the other, of one form.
struct CodedParts {
  CodeForm form;
  size_t first = 0, count = 0;  // of the parts
};

// The forms of `parts`, which are stacked: the fewest runs. Nothing, with the reason in *why, if
// one of them cannot be kept as codes.
std::optional<std::vector<CodedParts>> FormsOf(std::span<const WeightTensor> parts,
                                               std::string* why);

// The form of weights that are quantized as they are loaded. REQUIRES int8 or int4.
CodeForm FormOfQuantized(Quantization quantization, int64_t num_in);

// Writes the codes of output `out` of `part`, in the numbers of `form`, to codes[num_in]. REQUIRES
// a form of FormsOf for this part.
void ReadFormCodes(const WeightTensor& part, int64_t out, const CodeForm& form, uint8_t* codes);

// A row's scales, zero points and offsets, as they stand in the arrays of a form.
struct RowScales {
  std::vector<std::byte> scales, bases;
  std::vector<int8_t> zeros;
  std::vector<std::byte> offsets, offset_bases;  // in the form of scales and bases
};
// REQUIRES the same.
void ReadFormScales(const WeightTensor& part, int64_t out, const CodeForm& form, RowScales* row);

// Quantizes the weights of a row by the rules of weight_format.h.
void QuantizeFormRow(const WeightTensor& part, int64_t out, const CodeForm& form, uint8_t* codes,
                     RowScales* row);

// The weights of a row of codes and scales in `form`.
void ReadFormRow(const CodeForm& form, const uint8_t* codes, const RowScales& scales,
                 int64_t num_in, float* row);

}  // namespace minisgl
