// See stacked_matrix.h.
#include "stacked_matrix.h"

#include <algorithm>
#include <cstring>
#include <vector>

namespace minisgl::cuda {
namespace {

// Writes `count` numbers to `out`, as elements of type `dtype`.
void Narrow(const float* from, size_t count, DType dtype, std::byte* out) {
  if (dtype == DType::kF32) {
    std::memcpy(out, from, count * sizeof(float));
    return;
  }
  for (size_t i = 0; i < count; ++i) {
    const uint16_t bits = dtype == DType::kBF16 ? FloatToBf16(from[i]) : FloatToF16(from[i]);
    std::memcpy(out + i * sizeof(bits), &bits, sizeof(bits));
  }
}

// Writes elements [first, first + count) of row `row` to `out`, as elements of type `dtype`.
// `scratch`: a row as f32.
void ReadElements(const WeightTensor& part, int64_t row, size_t first, size_t count, DType dtype,
                  std::vector<float>* scratch, std::byte* out) {
  const std::byte* const dense = part.dtype() == dtype ? part.DenseRow(row) : nullptr;
  if (dense != nullptr) {
    std::memcpy(out, dense + first * DTypeBytes(dtype), count * DTypeBytes(dtype));
    return;
  }
  scratch->resize(static_cast<size_t>(part.num_in()));
  part.ReadRow(row, scratch->data());
  Narrow(scratch->data() + first, count, dtype, out);
}

}  // namespace

StackedMatrix::StackedMatrix(std::span<const WeightTensor> parts, DType dtype)
    : parts_(parts), dtype_(dtype) {
  MINISGL_CHECK(!parts.empty(), "a stacked matrix without parts");
  num_in_ = parts[0].num_in();
  for (const WeightTensor& part : parts) {
    MINISGL_CHECK(part.num_in() == num_in_, "a part of {} inputs in a matrix of {}", part.num_in(),
                  num_in_);
    num_out_ += part.num_out();
  }
}

void StackedMatrix::Read(std::byte* out, size_t offset, size_t num_bytes) const {
  const size_t width = DTypeBytes(dtype_);
  MINISGL_CHECK(offset % width == 0 && num_bytes % width == 0, "the range cuts an element");
  size_t left = num_bytes / width;
  if (left == 0) return;
  const auto row_size = static_cast<size_t>(num_in_);
  size_t first = offset / width % row_size;  // within the row
  auto row = static_cast<int64_t>(offset / width / row_size);
  std::vector<float> scratch;
  for (const WeightTensor& part : parts_) {
    for (; row < part.num_out() && left > 0; ++row) {
      const size_t count = std::min(left, row_size - first);
      ReadElements(part, row, first, count, dtype_, &scratch, out);
      out += count * width;
      left -= count;
      first = 0;
    }
    row -= part.num_out();
    if (left == 0) return;
  }
  MINISGL_CHECK(left == 0, "{} elements past the end of a matrix", left);
}

}  // namespace minisgl::cuda
