// Quantizing a block by the rules of weight_format.h, in plain code: what the engines' vectors must
// agree with to the bit. Shared by packing and the oracle.
#pragma once

#include <cstdint>

#include "minisgl/tensor/weight_format.h"

namespace minisgl::tensor {

// Blocks whose largest magnitude is below this are zeros: its reciprocal would not be finite.
inline constexpr float kQuantSmallest = 1e-30f;

// Of `count` <= kQuantBlock weights: q[count]; returns the scale, a bf16. A block with a value that
// is not finite has the scale NaN and q of 0.
uint16_t QuantizeWeights(const float* weights, int64_t count, int8_t* q);

// The same by the rule of int4: q are in [-8, 7].
uint16_t QuantizeWeightsInt4(const float* weights, int64_t count, int8_t* q);

// The same as QuantizeWeights, of activations, with their f32 scale.
float QuantizeActivations(const float* x, int64_t count, int8_t* q);

}  // namespace minisgl::tensor
