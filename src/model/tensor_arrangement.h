// Reorders stored tensors for the decoder: permutes rows, transposes matrices. Results own their
// memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "minisgl/base/status.h"
#include "minisgl/tensor/tensor_view.h"

namespace minisgl::model {

struct ArrangedTensor {
  TensorView view;
  std::shared_ptr<const std::byte[]> memory;  // null if the view is of a checkpoint
};

// Entry `index` of the first axis; shares the view's memory.
TensorView Slice(const TensorView& view, int64_t index);

// Copies the entries `rows` of the first axis, in that order.
Result<ArrangedTensor> TakeRows(const TensorView& view, std::span<const int64_t> rows);

// The transpose [n, m] of a matrix [m, n].
Result<ArrangedTensor> Transposed(const TensorView& matrix);

// The permutation of rows that turns rotary pairs (2 i, 2 i + 1) of the first `rotary_dim` features
// of each head into pairs (i, i + rotary_dim / 2). Applied to both queries and keys, it does not
// change attention scores.
std::vector<int64_t> HalvesOfPairs(int32_t num_heads, int32_t head_dim, int32_t rotary_dim);

// 0, 2, 4, ..., then 1, 3, 5, ...; REQUIRES an even count.
std::vector<int64_t> EvensThenOdds(int64_t count);

}  // namespace minisgl::model
