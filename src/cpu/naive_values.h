// Single activations of any dtype, for the oracle.
#pragma once

#include <cmath>
#include <cstdint>

#include "minisgl/ops_params.h"
#include "minisgl/tensor/dtype.h"

namespace minisgl::cpu {

// Reads element `index`. Put writes it, rounded to nearest.
inline double Get(ConstActivationPtr x, int64_t index) {
  switch (x.dtype) {
    case DType::kBF16:
      return Bf16ToFloat(x.as<uint16_t>()[index]);
    case DType::kF16:
      return F16ToFloat(x.as<uint16_t>()[index]);
    default:
      break;
  }
  return x.as<float>()[index];
}

inline void Put(ActivationPtr x, int64_t index, double value) {
  const auto rounded = static_cast<float>(value);
  switch (x.dtype) {
    case DType::kBF16:
      x.as<uint16_t>()[index] = FloatToBf16(rounded);
      return;
    case DType::kF16:
      x.as<uint16_t>()[index] = FloatToF16(rounded);
      return;
    default:
      x.as<float>()[index] = rounded;
  }
}

inline double NaiveSigmoid(double x) { return 1 / (1 + std::exp(-x)); }

}  // namespace minisgl::cpu
