// Matrices that are kept as the blocks of the file (CodeOrder::kBlocks), because codes of 8 bits
// would take two to five times the memory: how they are packed, and how products decode them, a
// group of outputs at a time, for kernels that multiply with codes of 8 bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "cpu/coded_matrix.h"
#include "cpu/kernels/kernels.h"
#include "cpu/memory.h"
#include "minisgl/base/status.h"
#include "minisgl/tensor/weight_tensor.h"

namespace minisgl::cpu {

// True if `parts` can be stacked as blocks: all are of one format that is worth it
// (BlockFormat::is_compact), in whole blocks.
bool HaveCommonBlocks(std::span<const WeightTensor> parts);

// Stacks `parts` along the outputs, in CodeOrder::kBlocks. REQUIRES HaveCommonBlocks(parts).
Result<CodedMatrix> PackBlocks(std::span<const WeightTensor> parts, Packing packing);

// Expands a panel of a matrix in CodeOrder::kBlocks, as ExpandPanel does. `expand` is that of the
// same type for CodeOrder::kWords.
void ExpandBlockPanel(const CodedMatrix& matrix, int64_t panel, DType dtype, ExpandPanel expand,
                      std::byte* out);

// Multiplies with a group of outputs of a matrix in CodeOrder::kBlocks, by `multiply` for codes in
// CodeOrder::kQuads with scales in f32, whose groups are of whole kQuantBlock inputs. Groups of
// half as many are two products: of the first half of each block, and of the second.
// `memory`: BlockProductBytes(), in whole cache lines.
void MultiplyByBlocks(const LinearBlock& block, MultiplyCodes multiply, std::byte* memory);

// The bytes for a matrix of `num_in` inputs, of any format.
int64_t BlockProductBytes(int64_t num_in);

}  // namespace minisgl::cpu
