// Packs matrices that a checkpoint holds as codes, or quantizes them to int4 or int8, to a
// CodedMatrix.
#pragma once

#include <cstdint>
#include <span>

#include "cpu/coded_matrix.h"
#include "cpu/memory.h"
#include "minisgl/base/status.h"
#include "minisgl/tensor/weight_format.h"
#include "minisgl/tensor/weight_tensor.h"

namespace minisgl::cpu {

// True if the matrices `parts` can be stacked as codes: all are quantized with codes of one kind in
// the same groups of neighbouring inputs, with scales and offsets of one form.
bool HaveCommonCodes(std::span<const WeightTensor> parts);

// True if the products of `parts`, which HaveCommonCodes, can be those of integers with inputs that
// are rounded to int8, as their format asks: the codes are integers with one scale an output.
bool HasInt8Inputs(std::span<const WeightTensor> parts);

// True if the codes of `parts`, which HaveCommonCodes, are 8-bit integers without zero points, in
// groups of blocks of kQuantBlock inputs, of which there are a power of two, or in one group.
bool HasIntegerBlocks(std::span<const WeightTensor> parts);

// Stacks `parts` along the outputs; in lines only if a tile has at most two groups of inputs.
// REQUIRES HaveCommonCodes(parts).
Result<CodedMatrix> PackCodes(std::span<const WeightTensor> parts, CodeOrders orders,
                              Packing packing);

// True if packing in `format` quantizes the weights to codes: int4 and int8.
bool QuantizesToCodes(const WeightFormat& format);

// The matrix that these weights become, without data. REQUIRES QuantizesToCodes(format)
CodedMatrix EmptyQuantizedMatrix(const WeightFormat& format, int64_t num_out, int64_t num_in,
                                 CodeOrders orders);

// Stacks `parts` along the outputs, quantized. REQUIRES QuantizesToCodes(format)
Result<CodedMatrix> QuantizeToCodes(std::span<const WeightTensor> parts, const WeightFormat& format,
                                    CodeOrders orders, Packing packing);

}  // namespace minisgl::cpu
