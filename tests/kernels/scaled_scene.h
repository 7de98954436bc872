// Matrices of type e4m3 as checkpoints have them, and the inputs of products with them as the rule
// of kernels/scaled_input.h rounds them, for tests of such products.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/kernel_data.h"
#include "minisgl/tensor/weight_tensor.h"

namespace minisgl::cuda {

// A matrix of e4m3 in memory of its own: a scale for each row, or for blocks of 128 x 128.
class StoredE4M3 {
 public:
  StoredE4M3(InputRounding rounding, int64_t num_out, int64_t num_in, float input_scale,
             uint64_t seed)
      : num_out_(num_out), num_in_(num_in) {
    const std::vector<float> values = RandomFloats(num_out * num_in, seed);
    for (size_t i = 0; i < values.size(); ++i) {
      const auto code = static_cast<uint8_t>(static_cast<int>(values[i] * 4000) & 0xFF);
      codes_.push_back((code & 0x7F) == 0x7F ? 0x30 : code);
    }
    const bool has_blocks = rounding == InputRounding::kGroups;
    const int64_t outputs = has_blocks ? 128 : 1, inputs = has_blocks ? 128 : num_in;
    groups_ = (num_in + inputs - 1) / inputs;
    const int64_t rows = (num_out + outputs - 1) / outputs;
    for (const float value : RandomFloats(rows * groups_, seed + 1)) {
      scales_.push_back(std::abs(value) / 256 + 0x1p-10f);
    }
    weights_.codes.data = reinterpret_cast<const std::byte*>(codes_.data());
    weights_.codes.other_step = num_in;
    weights_.numbers = E4M3Numbers();
    weights_.scales = {reinterpret_cast<const std::byte*>(scales_.data()), DType::kF32, outputs,
                       groups_ * 4, 4};
    weights_.num_groups = groups_;
    weights_.group_inputs = inputs;
    weights_.e4m3_inputs = rounding;
    weights_.input_scale = input_scale;
  }
  WeightTensor Tensor() const { return WeightTensor(num_out_, num_in_, weights_); }
  QuantizedWeights* weights() { return &weights_; }
  float* scales() { return scales_.data(); }

 private:
  int64_t num_out_, num_in_, groups_ = 0;
  std::vector<uint8_t> codes_;
  std::vector<float> scales_;
  QuantizedWeights weights_;
};

inline float NearestE4M3(float x) {
  if (std::isnan(x)) return x;
  const float size = std::min(std::abs(x), 448.0f);
  int exponent = -6;
  if (size >= 0x1p-6f) exponent = std::ilogb(size);
  const float unit = std::ldexp(1.0f, exponent - 3);
  return std::copysign(std::min(std::nearbyint(size / unit) * unit, 448.0f), x);
}

// A token's inputs as they are rounded: the numbers that products have.
inline std::vector<double> RoundedInputsOf(InputRounding rounding, float fixed,
                                           std::span<const float> x) {
  std::vector<double> rounded;
  const size_t unit = rounding == InputRounding::kGroups ? 128 : x.size();
  for (size_t begin = 0; begin < x.size(); begin += unit) {
    const auto part = x.subspan(begin, std::min(unit, x.size() - begin));
    float most = 0x1p-100f;
    for (const float value : part) most = std::max(most, std::abs(value));
    const bool is_fixed = rounding == InputRounding::kTensor;
    const float scale = is_fixed ? fixed : most / 448.0f;
    const float inverse = is_fixed ? 1.0f / fixed : 448.0f / most;
    for (const float value : part) {
      rounded.push_back(static_cast<double>(scale) * NearestE4M3(value * inverse));
    }
  }
  return rounded;
}

}  // namespace minisgl::cuda
