// Matrices of any element type one below another, read as one row-major matrix of another type: the
// form in which weights lie on the device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "minisgl/tensor/tensor_view.h"

namespace minisgl {

class StackedMatrix {
 public:
  // REQUIRES one part at least, all of shape [out_i, num_in]; they must outlive this.
  StackedMatrix(std::span<const TensorView> parts, DType dtype);

  int64_t num_out() const { return num_out_; }
  int64_t num_in() const { return num_in_; }
  DType dtype() const { return dtype_; }
  size_t num_bytes() const { return static_cast<size_t>(num_out_ * num_in_) * DTypeBytes(dtype_); }

  // Writes bytes [offset, offset + num_bytes) of it, rounded to nearest where types differ.
  // REQUIRES whole elements; `out` aligned to one.
  void Read(std::byte* out, size_t offset, size_t num_bytes) const;

 private:
  std::span<const TensorView> parts_;
  DType dtype_;
  int64_t num_out_ = 0;
  int64_t num_in_ = 0;
};

}  // namespace minisgl
