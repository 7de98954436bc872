// The order of stored outputs against the decoder's.
#pragma once

#include <cstdint>
#include <vector>

#include "minisgl/tensor/weight_tensor.h"
#include "minisgl/weights/model_config.h"

namespace minisgl::model {

// The permutation of rows that turns rotary pairs (2 i, 2 i + 1) of the first `rotary_dim` features
// of each head into pairs (i, i + rotary_dim / 2). Applied to both queries and keys, it does not
// change attention scores.
std::vector<int64_t> HalvesOfPairs(int32_t num_heads, int32_t head_dim, int32_t rotary_dim);

// The permutation of rows that puts the last `rotary_dim` features of each head before the
// `plain_dim` others, turning pairs (2 i, 2 i + 1) of them into pairs (i, i + rotary_dim / 2) if
// they are `interleaved`.
std::vector<int64_t> RotatedFirst(int32_t num_heads, int32_t plain_dim, int32_t rotary_dim,
                                  bool interleaved);

// 0, 2, 4, ..., then 1, 3, 5, ...; REQUIRES an even count.
std::vector<int64_t> EvensThenOdds(int64_t count);

// Rows [first, first + count) of each of `num_parts` parts of `width` rows, one part after another.
std::vector<int64_t> RowsOfParts(int64_t num_parts, int64_t width, int64_t first, int64_t count);

// The matrices of heads that stand `step` outputs apart: of each, `count` outputs from `first` on.
// As experts of one part each.
std::vector<std::vector<WeightTensor>> MatricesOfHeads(const WeightTensor& all, int64_t first,
                                                       int64_t count, int64_t step);

// `matrix` in f32, in the memory of `values`.
WeightTensor ExpandMatrix(const WeightTensor& matrix, std::vector<float>* values);

// Rows of the fused products before a mixer with a state. `scalars`: decays, then gains if there
// are any.
struct StateParts {
  std::vector<int64_t> input, gate, scalars;
};
// The parts of one product of gates, the inputs of the convolution, and decays.
StateParts Mamba2Parts(const StateConfig& states);
// The parts of a product of queries, keys, values and gates by group, and of another of gains and
// decays by group (`scalars` are its rows).
StateParts DeltaPartsByGroup(const StateConfig& states);

// Factors of a convolution's channels: those of its inputs.
std::vector<float> ChannelFactors(const StateConfig& states);

}  // namespace minisgl::model
