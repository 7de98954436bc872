// Products with matrices that are kept as codes (coded_matrix.h). For few rows the kernel reads the
// codes, if it can. Otherwise a group of outputs is expanded into the memory of the thread, from
// where the kernel for dense weights reads it. Both give the same bits.
#pragma once

#include "cpu/kernels/kernels.h"
#include "cpu/memory.h"

namespace minisgl::cpu {

// Calls kernel.multiply for a block of any matrix. `buffer` is the thread's, for expanded weights;
// it is not touched for other matrices.
void MultiplyBlock(CpuTarget target, const LinearKernel& kernel, const LinearBlock& block,
                   FloatBuffer* buffer);

// The type of expanded weights, of a matrix whose format has `dtype`: bf16 if the products of
// `target` round both factors to it, else f32, which spares another conversion.
DType ExpandedType(CpuTarget target, DType dtype);

// The order of codes that the kernels of `target` read fastest, of a matrix whose format has
// `dtype`. They read CodeOrder::kWords too.
CodeOrder CodeOrderOf(CpuTarget target, DType dtype);

// Bytes of `buffer`, at most, for matrices of `num_in` inputs.
int64_t ExpandedBytes(int64_t num_in);

}  // namespace minisgl::cpu
