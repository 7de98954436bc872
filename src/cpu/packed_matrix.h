// A weight matrix [out, in] in the order that the kernels of linear*.cc read.
//
// The matrix is a sequence of panels of 16 outputs; the last is padded with zeros.
//
// Not quantized: a panel holds its inputs in order, and for each input the 16 weights in the dtype
// of the matrix. bf16 is stored in pairs of inputs: 16 words of 32 bits with the even input's
// weight in the low half, so that a shift or a mask widens a vector of them, and a word is an
// operand of the dot-product instruction. An odd number of inputs is padded with one zero.
//
// int8 (weight_format.h), for integer products: a panel holds its blocks of 32 inputs in order, the
// last padded with zeros. A block is 8 quads of inputs, each 16 words of four bytes q + 128. The
// scales follow the last panel: [panels][blocks][16] bf16.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "cpu/coded_matrix.h"
#include "minisgl/base/status.h"
#include "minisgl/base/thread_pool.h"
#include "minisgl/tensor/weight_format.h"
#include "minisgl/tensor/weight_tensor.h"

namespace minisgl::cpu {

struct PackedMatrix {
  int64_t num_out = 0;
  int64_t num_in = 0;
  WeightFormat format;
  std::shared_ptr<void> data;
  // If the format is kStored or kInt4, or kInt8 for tiles: the weights. `data` is null, and kernels
  // get the groups of outputs that they multiply expanded (coded_product.h), as if the matrix was
  // not quantized.
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

  // --- int8, not as codes ---
  int64_t num_blocks() const { return (num_in + kQuantBlock - 1) / kQuantBlock; }
  const uint8_t* int8_panel(int64_t index) const {
    return static_cast<const uint8_t*>(data.get()) +
           index * num_blocks() * kQuantBlock * kPanelWidth;
  }
  uint8_t* int8_panel(int64_t index) {
    return const_cast<uint8_t*>(std::as_const(*this).int8_panel(index));
  }
  const uint16_t* int8_scales(int64_t index) const {
    return reinterpret_cast<const uint16_t*>(int8_panel(num_panels())) +
           index * num_blocks() * kPanelWidth;
  }
  uint16_t* int8_scales(int64_t index) {
    return const_cast<uint16_t*>(std::as_const(*this).int8_scales(index));
  }

  // Writes the weights of output `out`, as floats, to row[num_in].
  void ReadRow(int64_t out, float* row) const;
};

// Packs the matrices `parts` (each [out_i, in]), stacked along the outputs, in `format`, rounded to
// nearest; codes in `orders`. A matrix of kStored whose parts have no common codes gets the dtype
// of the format.
Result<PackedMatrix> PackParts(std::span<const WeightTensor> parts, const WeightFormat& format,
                               CodeOrders orders, ThreadPool* pool);

}  // namespace minisgl::cpu
