// The two products of attention, queries with keys and weights with values, by the dot-product
// instruction of AVX512-BF16, which does twice the work of multiply-adds: queries, keys, weights of
// keys and values are rounded to bf16, scores and sums stay f32. For CpuTarget::kAvx512Bf16 and
// models whose numbers are bf16 (KvLayer::rounds_to_bf16); attention.cc does the rest.
//
// Where the KV storage allows it (KeepsPairs) keys and values are kept rounded, in pairs as the
// instruction wants them and in the first half of the room that their floats would take, so that a
// tile is read as it lies and half as much is read; elsewhere they are kept as floats and rounded
// tile by tile, to the same bits.
#pragma once

#include <cstdint>

#include "cpu/attention_block.h"

namespace minisgl {

struct Bf16Products {
  // block.q to block.q_pairs.
  void (*round_queries)(const QueryBlock& block);
  // The tile's pairs from its floats.
  void (*round_tile)(const QueryBlock& block, const Tile& tile, PairTile* pairs);
  // Scores of query rows [row, row + num_rows), at most kRowsMax, against the tile's keys [0,
  // tile.key_end), 64 floats a row; what lies past that end is undefined.
  void (*score)(const QueryBlock& block, const Tile& tile, int64_t row, int64_t num_rows,
                float* scores);
  // values = values * rescale + the weighted values of the keys that each row sees. `weights`: 64
  // floats a row, 0 where a row does not see the key.
  void (*add_values)(const QueryBlock& block, const Tile& tile, const VisibleKeys& keys,
                     int64_t row, int64_t num_rows, const float* weights, const float* rescale);
  // Writes k and v of a token to their slot, as pairs. REQUIRES KeepsPairs.
  WriteKv write_kv;
};

// Null where it is not compiled in.
const Bf16Products* AttentionBf16Products();

}  // namespace minisgl
