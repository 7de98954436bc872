// The two products of attention, queries with keys and weights with values, by the dot-product
// instruction of AVX512-BF16, which does twice the work of multiply-adds: queries, keys, weights of
// keys and values are bf16, scores and sums stay f32. For CpuTarget::kAvx512Bf16 where keys and
// values are kept as bf16; attention.cc does the rest.
//
// Pairs (KeepsPairs) are read as they lie; other tiles are copied to pairs.
#pragma once

#include <cstdint>

#include "cpu/kernels/attention_block.h"

namespace minisgl::cpu {

struct Bf16Products {
  // block.q to block.q_pairs.
  void (*round_queries)(const QueryBlock& block);
  // The tile's pairs from its floats.
  void (*round_tile)(const QueryBlock& block, const Tile& tile, PairTile* pairs);
  // Scores of query rows [row, row + num_rows), at most kRowsMax, against the tile's keys [0,
  // key_end), 64 floats a row; what lies past that end is undefined.
  // Fetches the next tile's keys on the way, if asked to.
  void (*score)(const QueryBlock& block, const Tile& tile, int64_t row, int64_t num_rows,
                int64_t key_end, bool fetches, float* scores);
  // values = values * rescale + the weighted values of the keys that each row sees. `weights`: 64
  // floats a row, 0 where a row does not see the key. Fetches the next tile's values, if asked to.
  void (*add_values)(const QueryBlock& block, const Tile& tile, const VisibleKeys& keys,
                     int64_t row, int64_t num_rows, bool fetches, const float* weights,
                     const float* rescale);
};

// Null where it is not compiled in.
const Bf16Products* AttentionBf16Products();

}  // namespace minisgl::cpu
