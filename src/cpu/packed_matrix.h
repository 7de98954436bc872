// A weight matrix [out, in] in the order that the kernels of linear.cc read.
//
// Panels of 16 outputs, one after another, the last filled up with zeros; in a panel the inputs in
// order, and for each input its 16 weights in the dtype of the matrix. bf16 is kept in pairs of
// inputs: 16 words of 32 bits, the even input's weight in the low half, so that one shift or one
// mask widens a vector of them. An odd number of inputs is filled up with one zero.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "minisgl/base/status.h"
#include "minisgl/base/thread_pool.h"
#include "minisgl/tensor/tensor_view.h"

namespace minisgl {

inline constexpr int64_t kPanelWidth = 16;

struct PackedMatrix {
  int64_t num_out = 0;
  int64_t num_in = 0;
  DType dtype = DType::kF32;
  std::shared_ptr<void> data;

  // From a panel to the next, in elements.
  int64_t panel_stride() const { return (num_in + num_in % 2) * kPanelWidth; }
  const std::byte* panel(int64_t index) const {
    return static_cast<const std::byte*>(data.get()) +
           static_cast<size_t>(index * panel_stride()) * DTypeBytes(dtype);
  }
  std::byte* panel(int64_t index) {
    return const_cast<std::byte*>(std::as_const(*this).panel(index));
  }

  // The weights of output `out`, widened: row[num_in].
  void ReadRow(int64_t out, float* row) const;
};

// The matrices `parts` (each [out_i, in]) one below another, converted to `dtype` with rounding to
// nearest.
Result<PackedMatrix> PackParts(std::span<const TensorView> parts, DType dtype, ThreadPool* pool);

// True where `matrix` holds exactly what packing `part` in `dtype` would give.
bool HoldsSame(const PackedMatrix& matrix, const TensorView& part, DType dtype);

}  // namespace minisgl
