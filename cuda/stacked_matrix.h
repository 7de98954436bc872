// Matrices of any element type, stacked along the outputs and read as one row-major matrix of
// another type: the form of weights on the device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "minisgl/tensor/weight_tensor.h"

namespace minisgl::cuda {

class StackedMatrix {
 public:
  // REQUIRES at least one part, all of shape [out_i, num_in]. The parts must outlive this.
  StackedMatrix(std::span<const WeightTensor> parts, DType dtype);

  int64_t num_out() const { return num_out_; }
  int64_t num_in() const { return num_in_; }
  DType dtype() const { return dtype_; }
  size_t num_bytes() const { return static_cast<size_t>(num_out_ * num_in_) * DTypeBytes(dtype_); }

  // Writes bytes [offset, offset + num_bytes) of the stacked matrix to `out`, rounded to nearest if
  // types differ. REQUIRES whole elements, and `out` aligned to one.
  void Read(std::byte* out, size_t offset, size_t num_bytes) const;

 private:
  std::span<const WeightTensor> parts_;
  DType dtype_;
  int64_t num_out_ = 0;
  int64_t num_in_ = 0;
};

}  // namespace minisgl::cuda
