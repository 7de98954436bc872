// The bookkeeping of attention.cc that needs no vectors, compiled once: which rows and keys meet,
// where tiles of keys and values lie, and how an item's scratch is laid out.
#pragma once

#include <cstdint>

#include "cpu/kernels.h"

namespace minisgl {

// The running softmax of one query row: the largest score, and the sum of exp(score - largest).
// Identity: the sum is 0.
struct RowState {
  float maximum;
  float weight_sum;
};

// The query rows of an item: consecutive tokens of one request, and for each the query heads of one
// KV head.
struct QueryBlock {
  const AttentionParams* params;
  const int32_t* pages;  // of the request
  int64_t kv_head;
  int64_t token_begin;     // first of the step's tokens
  int64_t first_position;  // of that token
  int64_t num_tokens;
  int64_t group_size;  // query heads of a KV head
  int64_t first_head;
  int64_t num_rows;  // num_tokens * group_size; row = token * group_size + head
  int64_t head_dim;
  int64_t value_width;         // head_dim rounded up to 16
  int64_t key_begin, key_end;  // keys that some row sees
  float* q;                    // [num_rows, head_dim]
  RowState* states;            // [num_rows]
  float* values;  // [num_rows, value_width] weighted sums relative to the row's maximum
};

// Positions [first, first + kTileKeys).
struct Tile {
  int64_t first;
  int64_t key_begin, key_end;                  // that some row sees, counted from `first`
  const float* keys[kTileKeys / kPanelWidth];  // of panel i: element e of its key j is keys[i][e *
                                               // key_stride + j]
  int64_t key_stride;
  const float*
      values[kTileKeys];  // of each key in [key_begin, key_end): value_width readable floats
};

struct KeyRange {
  int64_t begin, end;
  bool operator==(const KeyRange&) const = default;
};

// Takes the queries' room from `*scratch` and moves it on.
QueryBlock MakeQueryBlock(const AttentionParams& params, const AttentionItem& item,
                          float** scratch);
void CopyQueries(const QueryBlock& block);
// Puts the block's states at `memory`, AttentionStateFloats of it.
void PlaceStates(QueryBlock* block, float* memory);
void ClearStates(const QueryBlock& block);

// Finds, and where needed copies to `scratch`, the keys and values of positions `first` on.
void LoadTile(const QueryBlock& block, int64_t first, float* scratch, Tile* tile);

// Keys of the tile, counted from its first, that a query row sees; empty for rows outside
// RowsThatSee.
KeyRange VisibleKeys(const QueryBlock& block, const Tile& tile, int64_t row);
// Query rows that see some key of the tile.
KeyRange RowsThatSee(const QueryBlock& block, const Tile& tile);

}  // namespace minisgl
