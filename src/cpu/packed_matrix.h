// A weight matrix [out, in] in the order that the kernels of linear*.cc read.
//
// A quantized matrix is one of codes (coded_matrix.h). Any other is a sequence of panels of 16
// outputs; the last is padded with zeros. A panel holds its inputs in order, and for each input the
// 16 weights in the dtype of the matrix. bf16 is stored in pairs of inputs: 16 words of 32 bits
// with the even input's weight in the low half, so that a shift or a mask widens a vector of them,
// and a word is an operand of the dot-product instruction. An odd number of inputs is padded with
// one zero.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "cpu/coded_matrix.h"
#include "cpu/memory.h"
#include "minisgl/base/status.h"
#include "minisgl/tensor/weight_format.h"
#include "minisgl/tensor/weight_tensor.h"

namespace minisgl::cpu {

struct PackedMatrix {
  int64_t num_out = 0;
  int64_t num_in = 0;
  WeightFormat format;
  std::shared_ptr<void> data;
  // The weights, if the format is quantized. `data` is null; kernels that do not read the codes get
  // the groups of outputs that they multiply expanded (coded_product.h), as if the matrix was not
  // quantized.
  std::shared_ptr<const CodedMatrix> coded;
  // Or matrices whose outputs follow each other, each with weights of its own; `data` and `coded`
  // are null. Kernels get these one after another.
  std::vector<PackedMatrix> stacked;

  int64_t num_panels() const { return (num_out + kPanelWidth - 1) / kPanelWidth; }
  size_t num_bytes() const;

  // --- not quantized ---
  // Distance between panels, in elements.
  int64_t panel_stride() const { return (num_in + num_in % 2) * kPanelWidth; }
  const std::byte* panel(int64_t index) const {
    return static_cast<const std::byte*>(data.get()) +
           static_cast<size_t>(index * panel_stride()) * DTypeBytes(format.dtype);
  }
  std::byte* panel(int64_t index) {
    return const_cast<std::byte*>(std::as_const(*this).panel(index));
  }

  // Writes the weights of output `out`, as floats, to row[num_in].
  void ReadRow(int64_t out, float* row) const;
};

// Packs the matrices `parts` (each [out_i, in]), stacked along the outputs, in `format`, rounded to
// nearest; codes in `orders`. A matrix of kStored whose parts have no common codes gets the dtype
// of the format.
Result<PackedMatrix> PackParts(std::span<const WeightTensor> parts, const WeightFormat& format,
                               CodeOrders orders, Packing packing);

}  // namespace minisgl::cpu
