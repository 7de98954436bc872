// A matrix of codes of type e4m3 as cuBLASLt multiplies it with inputs of that type: the codes that
// the matrix has (coded_matrix.h), and its scales once more, in the library's form.
//
// The library reads a row's lines as 64 codes each. Lines permute the inputs of a row, in the same
// way for all rows, and inputs are rounded into the same order (kernels/scaled_input.h), so that
// sums over all inputs are the same. Scales of blocks need the blocks' inputs in one piece: lines
// of neighbours have them so, others are copied to a scratch first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "minisgl/tensor/code_kinds.h"
#include "minisgl/tensor/weight_tensor.h"

namespace minisgl::cuda {

struct CodedRun;

// Outputs [first, first + count), rows of run `run`, and the place of their first scale.
struct ScaledRows {
  int64_t first = 0, count = 0;
  size_t run = 0;
  size_t scales_at = 0;
};

struct ScaledMatrix {
  InputRounding rounding = InputRounding::kNone;  // kNone: its inputs are not rounded
  float input_scale = 1;                          // of kTensor: the largest one of the parts
  std::vector<ScaledRows> rows;                   // from top to bottom: a product for each
  std::shared_ptr<const void> scales;             // f32, on the device
};

// The same in host memory, before it has scales there.
struct ScaledForm {
  ScaledMatrix matrix;
  std::vector<float> scales;
};

// How the library multiplies `parts`, stacked, whose codes are `runs`. Nothing if the parts do not
// all round their inputs in one way, or if it has no product for their scales: a scale for each row
// of inputs kToken and kTensor, one for 128 x 128 weights of kGroups.
std::optional<ScaledForm> ScaledFormOf(std::span<const WeightTensor> parts,
                                       std::span<const CodedRun> runs);

}  // namespace minisgl::cuda
