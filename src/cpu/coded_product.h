// Products with matrices that are kept as codes (coded_matrix.h). Some have kernels of their own,
// which round x to int8. Of the others a group of outputs is expanded into the memory of the
// thread, from where the kernel for dense weights reads it; for few rows it reads the codes, if it
// can. Both give the same bits.
#pragma once

#include <span>

#include "cpu/kernels/kernels.h"
#include "cpu/memory.h"

namespace minisgl::cpu {

// True if products of `target` with codes of 4 and 6 bits, in matrices whose format has `dtype`,
// are products of integers: the target does not use tiles for them, and the dtype is not f32. On
// targets without tiles, those with integers of 8 bits, too (HasIntegerBlocks).
bool HasIntegerProductsOfType(CpuTarget target, DType dtype);

// True if products of `target` with 8-bit integers whose format asks for inputs of int8
// (HasInt8Inputs), in matrices whose format has `dtype`, follow it (linear_bytes_amx.cc).
bool HasByteProductsOfType(CpuTarget target, DType dtype);

// True if `target` keeps weights that are quantized to int8 (weight_format.h), in matrices whose
// format has `dtype`, as codes, which its products widen to bf16 for tiles.
bool WidensInt8(CpuTarget target, DType dtype);

// True if products of `target` with the matrix are those of integers, with blocks of x rounded to
// int8: codes of 4 and 6 bits with groups of a multiple of 16 inputs or one group for all
// (linear_codes_int8.cc), or integers of 8 bits (linear_int8.cc).
bool HasIntegerProducts(CpuTarget target, const PackedMatrix& weight);

// The kernel for a matrix of any kind, and for matrices of one shape and format, which read the
// same rows of x: if their kinds differ, that of expanded weights. REQUIRES at least one.
LinearKernel KernelOf(CpuTarget target, const PackedMatrix& weight);
LinearKernel KernelOf(CpuTarget target, std::span<const PackedMatrix> weights);

// Calls kernel.multiply for a block of any matrix. `buffer` is the thread's, for expanded weights;
// it is not touched for other matrices.
void MultiplyBlock(CpuTarget target, const LinearKernel& kernel, const LinearBlock& block,
                   FloatBuffer* buffer);

// True if codes of a matrix of `format` may be expanded on some target.
bool MayHaveCodes(const WeightFormat& format);

// The type of expanded weights, of a matrix whose format has `dtype`: bf16 if the products of
// `target` round both factors to it, else f32, which spares another conversion.
DType ExpandedType(CpuTarget target, DType dtype);

// The orders of codes that the kernels of `target` read fastest, of a matrix whose format has
// `dtype`. They read CodeOrder::kWords too.
CodeOrders CodeOrdersOf(CpuTarget target, DType dtype);

// Bytes of `buffer`, at most, for matrices of `num_in` inputs.
int64_t ExpandedBytes(int64_t num_in);

}  // namespace minisgl::cpu
