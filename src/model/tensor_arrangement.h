// The order of stored outputs against the decoder's.
#pragma once

#include <cstdint>
#include <vector>

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

}  // namespace minisgl::model
