// Dispatch of element types known at run time: each function calls f.operator()<T>() with the
// device's type and returns the result.
#pragma once

#include "cuda_api.h"
#include "device/device.h"
#include "minisgl/base/check.h"
#include "minisgl/tensor/dtype.h"

namespace minisgl::cuda {

// REQUIRES dtype is kBF16 or kF16, the types of activations, keys and values.
template <typename F>
CudaError DispatchHalf(DType dtype, const F& f) {
  if (dtype == DType::kBF16) return f.template operator()<device::bf16>();
  MINISGL_CHECK(dtype == DType::kF16, "a kernel of 16-bit elements was given {}", DTypeName(dtype));
  return f.template operator()<device::f16>();
}

template <typename F>
CudaError DispatchDType(DType dtype, const F& f) {
  if (dtype == DType::kF32) return f.template operator()<float>();
  return DispatchHalf(dtype, f);
}

}  // namespace minisgl::cuda
