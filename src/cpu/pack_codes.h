// Packs matrices that a checkpoint holds as codes, or quantizes them to int4, to a CodedMatrix.
#pragma once

#include <cstdint>
#include <span>

#include "cpu/coded_matrix.h"
#include "minisgl/base/status.h"
#include "minisgl/base/thread_pool.h"
#include "minisgl/tensor/weight_tensor.h"

namespace minisgl::cpu {

// True if the matrices `parts` can be stacked as codes: all are quantized with codes of one kind in
// the same groups of neighbouring inputs, with scales and offsets of one form.
bool HaveCommonCodes(std::span<const WeightTensor> parts);

// True if the products of `parts`, which HaveCommonCodes, can be those of integers with inputs that
// are rounded to int8, as their format asks: the codes are integers with one scale an output.
bool HasInt8Inputs(std::span<const WeightTensor> parts);

// Stacks `parts` along the outputs; in lines only if a tile has at most two groups of inputs.
// REQUIRES HaveCommonCodes(parts).
Result<CodedMatrix> PackCodes(std::span<const WeightTensor> parts, CodeOrders orders,
                              ThreadPool* pool);

// A matrix of int4 (weight_format.h) without data.
CodedMatrix EmptyInt4Matrix(int64_t num_out, int64_t num_in, CodeOrder order);

// Stacks `parts` along the outputs, quantized to int4.
Result<CodedMatrix> QuantizeToInt4(std::span<const WeightTensor> parts, CodeOrder order,
                                   ThreadPool* pool);

}  // namespace minisgl::cpu
