// Products with matrices that are kept as codes (coded_matrix.h): a group of outputs is expanded
// into the memory of the thread, from where the kernel for dense weights reads it.
#pragma once

#include "cpu/kernels/kernels.h"
#include "cpu/memory.h"

namespace minisgl::cpu {

// Calls kernel.multiply for a block of any matrix. `buffer` is the thread's, for expanded weights;
// it is not touched for other matrices.
void MultiplyBlock(CpuTarget target, const LinearKernel& kernel, const LinearBlock& block,
                   FloatBuffer* buffer);

// Bytes of `buffer` for matrices of `num_in` inputs whose products read `dtype`.
int64_t ExpandedBytes(DType dtype, int64_t num_in);

}  // namespace minisgl::cpu
