// See packed_matrix.h.
#include "cpu/packed_matrix.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "cpu/memory.h"
#include "minisgl/base/checked_math.h"

namespace minisgl {
namespace {

// Element `index` of a row that begins at `row`, widened. Files do not align their tensors.
float Widen(const std::byte* row, DType dtype, int64_t index) {
  if (dtype == DType::kF32) {
    float value;
    std::memcpy(&value, row + index * 4, sizeof(value));
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, row + index * 2, sizeof(bits));
  return dtype == DType::kBF16 ? Bf16ToFloat(bits) : F16ToFloat(bits);
}

// Row `index` of `part`, rounded to `dtype` and widened again.
void ReadSourceRow(const TensorView& part, int64_t index, DType dtype, float* row) {
  const int64_t width = part.shape[1];
  const std::byte* source = part.data + static_cast<size_t>(index * width) * DTypeBytes(part.dtype);
  for (int64_t i = 0; i < width; ++i) row[i] = Widen(source, part.dtype, i);
  if (part.dtype == dtype || dtype == DType::kF32) return;
  for (int64_t i = 0; i < width; ++i) {
    row[i] =
        dtype == DType::kBF16 ? Bf16ToFloat(FloatToBf16(row[i])) : F16ToFloat(FloatToF16(row[i]));
  }
}

// Where the weight of (input, lane) lies in a panel, in elements.
int64_t IndexInPanel(DType dtype, int64_t input, int64_t lane) {
  if (dtype == DType::kBF16) return (input / 2 * kPanelWidth + lane) * 2 + input % 2;
  return input * kPanelWidth + lane;
}

void WriteRow(const float* row, int64_t lane, const PackedMatrix& matrix, std::byte* panel) {
  for (int64_t i = 0; i < matrix.num_in; ++i) {
    const int64_t index = IndexInPanel(matrix.dtype, i, lane);
    if (matrix.dtype == DType::kF32) {
      std::memcpy(panel + index * 4, &row[i], 4);
    } else {
      const uint16_t bits = matrix.dtype == DType::kBF16 ? FloatToBf16(row[i]) : FloatToF16(row[i]);
      std::memcpy(panel + index * 2, &bits, 2);
    }
  }
}

}  // namespace

void PackedMatrix::ReadRow(int64_t out, float* row) const {
  const std::byte* source = panel(out / kPanelWidth);
  for (int64_t i = 0; i < num_in; ++i) {
    row[i] = Widen(source, dtype, IndexInPanel(dtype, i, out % kPanelWidth));
  }
}

Result<PackedMatrix> PackParts(std::span<const TensorView> parts, DType dtype, ThreadPool* pool) {
  PackedMatrix matrix;
  matrix.dtype = dtype;
  matrix.num_in = parts[0].shape[1];
  std::vector<std::pair<const TensorView*, int64_t>> sources;  // of each output: part and row
  for (const TensorView& part : parts) {
    MINISGL_CHECK(part.shape.size() == 2 && part.shape[1] == matrix.num_in,
                  "a part of shape {} in a matrix of {} inputs", ShapeToString(part.shape),
                  matrix.num_in);
    matrix.num_out += part.shape[0];
    for (int64_t row = 0; row < part.shape[0]; ++row) sources.emplace_back(&part, row);
  }
  const int64_t num_panels = CeilDiv(matrix.num_out, kPanelWidth);
  const size_t num_bytes =
      static_cast<size_t>(num_panels * matrix.panel_stride()) * DTypeBytes(dtype);
  MINISGL_ASSIGN_OR_RETURN(matrix.data, AllocateZeroed(num_bytes));
  pool->ParallelFor(num_panels, [&](int64_t panel, int) {
    std::vector<float> row(matrix.num_in);
    const int64_t first = panel * kPanelWidth;
    const int64_t lanes = std::min(kPanelWidth, matrix.num_out - first);
    for (int64_t lane = 0; lane < lanes; ++lane) {
      const auto& [part, index] = sources[first + lane];
      ReadSourceRow(*part, index, dtype, row.data());
      WriteRow(row.data(), lane, matrix, matrix.panel(panel));
    }
  });
  return matrix;
}

bool HoldsSame(const PackedMatrix& matrix, const TensorView& part, DType dtype) {
  if (matrix.dtype != dtype || part.shape != std::vector{matrix.num_out, matrix.num_in}) {
    return false;
  }
  std::vector<float> held(matrix.num_in), wanted(matrix.num_in);
  for (int64_t out = 0; out < matrix.num_out; ++out) {
    matrix.ReadRow(out, held.data());
    ReadSourceRow(part, out, dtype, wanted.data());
    if (std::memcmp(held.data(), wanted.data(), held.size() * sizeof(float)) != 0) return false;
  }
  return true;
}

}  // namespace minisgl
