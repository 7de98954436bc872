// The two products of attention, queries with keys and weights with values, in bf16: with the
// dot-product instruction of AVX512-BF16, which does twice the work of multiply-adds, or with tiles
// of AMX.
//
// Queries, keys, the softmax weights and values are bf16; scores and sums stay f32. Used on
// CpuTarget::kAvx512Bf16 and kAmx if keys and values are stored as bf16; attention.cc does the
// rest. Pairs (KeepsPairs) are read in place; other tiles are copied to pairs.
#pragma once

#include <cstdint>

#include "cpu/kernels/attention_block.h"

namespace minisgl::cpu {

struct Bf16Products {
  int64_t rows_max;  // query rows of one call, at most kAttentionRowsMax
  // Rounds block.q to block.q_pairs.
  void (*round_queries)(const QueryBlock& block);
  // Makes the tile's pairs from its floats.
  void (*round_tile)(const QueryBlock& block, const Tile& tile, PairTile* pairs);
  // Scores of query rows [row, row + num_rows), at most rows_max, against the tile's keys [0,
  // key_end), 64 floats a row; those past key_end are undefined. If `fetches`, prefetches the next
  // tile's keys.
  void (*score)(const QueryBlock& block, const Tile& tile, int64_t row, int64_t num_rows,
                int64_t key_end, bool fetches, float* scores);
  // values = values * rescale + the weighted values of the keys that each row sees. `weights`: 64
  // floats a row, 0 for keys that the row does not see. If `fetches`, prefetches the next tile's
  // values.
  void (*add_values)(const QueryBlock& block, const Tile& tile, const VisibleKeys& keys,
                     int64_t row, int64_t num_rows, bool fetches, const float* weights,
                     const float* rescale);
  // Called by a thread after the last of its calls for an item. Null: nothing is to be released.
  void (*release)();
};

// Null if it is not compiled in.
const Bf16Products* AttentionBf16Products();
const Bf16Products* AttentionAmxProducts();
// The same bits as AttentionAmxProducts without its tiles, slowly: for tests. Runs anywhere.
const Bf16Products* AttentionAmxStandInProducts();

}  // namespace minisgl::cpu
