// See tensor_arrangement.h.
#include "model/tensor_arrangement.h"

#include <cstring>
#include <new>
#include <utility>

namespace minisgl::model {
namespace {

Result<std::shared_ptr<std::byte[]>> Allocate(size_t num_bytes) {
  std::shared_ptr<std::byte[]> memory(new (std::nothrow) std::byte[num_bytes]);
  if (memory == nullptr) {
    return MakeStatus(StatusCode::kOutOfMemory, "no memory for {} bytes of weights", num_bytes);
  }
  return memory;
}

}  // namespace

TensorView Slice(const TensorView& view, int64_t index) {
  TensorView slice = {nullptr, view.dtype, {view.shape.begin() + 1, view.shape.end()}};
  slice.data = view.data + static_cast<size_t>(index) * slice.num_bytes();
  return slice;
}

Result<ArrangedTensor> TakeRows(const TensorView& view, std::span<const int64_t> rows) {
  const size_t row_bytes = view.num_bytes() / static_cast<size_t>(view.shape[0]);
  MINISGL_ASSIGN_OR_RETURN(auto memory, Allocate(rows.size() * row_bytes));
  for (size_t i = 0; i < rows.size(); ++i) {
    std::memcpy(memory.get() + i * row_bytes, view.data + static_cast<size_t>(rows[i]) * row_bytes,
                row_bytes);
  }
  ArrangedTensor taken = {view, memory};
  taken.view.data = memory.get();
  taken.view.shape[0] = static_cast<int64_t>(rows.size());
  return taken;
}

Result<ArrangedTensor> Transposed(const TensorView& matrix) {
  const size_t bytes = DTypeBytes(matrix.dtype);
  const auto rows = static_cast<size_t>(matrix.shape[0]);
  const auto columns = static_cast<size_t>(matrix.shape[1]);
  MINISGL_ASSIGN_OR_RETURN(auto memory, Allocate(matrix.num_bytes()));
  for (size_t row = 0; row < rows; ++row) {
    const std::byte* from = matrix.data + row * columns * bytes;
    for (size_t column = 0; column < columns; ++column) {
      std::memcpy(memory.get() + (column * rows + row) * bytes, from + column * bytes, bytes);
    }
  }
  return ArrangedTensor{{memory.get(), matrix.dtype, {matrix.shape[1], matrix.shape[0]}}, memory};
}

std::vector<int64_t> HalvesOfPairs(int32_t num_heads, int32_t head_dim, int32_t rotary_dim) {
  std::vector<int64_t> rows;
  for (int64_t head = 0; head < num_heads; ++head) {
    const int64_t first = head * head_dim;
    for (int64_t odd : {0, 1}) {
      for (int64_t i = 0; i < rotary_dim / 2; ++i) rows.push_back(first + 2 * i + odd);
    }
    for (int64_t e = rotary_dim; e < head_dim; ++e) rows.push_back(first + e);
  }
  return rows;
}

std::vector<int64_t> EvensThenOdds(int64_t count) {
  std::vector<int64_t> rows;
  for (int64_t odd : {0, 1}) {
    for (int64_t i = odd; i < count; i += 2) rows.push_back(i);
  }
  return rows;
}

}  // namespace minisgl::model
