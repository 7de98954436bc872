// Quantizing a block by the rules of weight_format.h, in plain code, with which the engines'
// vectors must agree to the bit. Shared by packing and the oracle.
#pragma once

#include <cstdint>

#include "minisgl/tensor/weight_format.h"

namespace minisgl::tensor {

// Blocks whose largest magnitude is below this are zeros: its reciprocal would not be finite.
inline constexpr float kQuantSmallest = 1e-30f;

// Quantizes `count` <= kQuantBlock weights to q[count] and returns their scale, a bf16. If a weight
// is not finite, the scale is NaN and all q are 0.
uint16_t QuantizeWeights(const float* weights, int64_t count, int8_t* q);

// The same by the rule of int4: q are in [-8, 7].
uint16_t QuantizeWeightsInt4(const float* weights, int64_t count, int8_t* q);

// The same as QuantizeWeights, of activations, with their f32 scale.
float QuantizeActivations(const float* x, int64_t count, int8_t* q);

}  // namespace minisgl::tensor
