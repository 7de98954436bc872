// The bookkeeping of attention.cc that needs no vectors, compiled once: which rows and keys meet,
// where tiles of keys and values lie, and how an item's scratch is laid out.
#pragma once

#include <cstdint>

#include "cpu/kernels/attention_kernels.h"

namespace minisgl::cpu {

// The running softmax of one query row: the largest score, and the sum of exp(score - largest).
// Identity: the sum is 0.
struct RowState {
  float maximum;
  float weight_sum;
};

// Consecutive tokens of one request.
struct BlockSegment {
  const int32_t* pages;    // of the request
  int64_t token_begin;     // first of the step's tokens
  int64_t first_position;  // of that token
  int64_t num_tokens;
  int64_t row_begin, row_end;  // of the block's query rows
  int64_t key_begin, key_end;  // keys that some token sees
  int64_t shared_tiles;        // with the segment before it
};

// The query rows of an item: for each token of its segments the query heads of one KV head.
struct QueryBlock {
  const AttentionParams* params;
  int64_t kv_head;
  int64_t group_size;  // query heads of a KV head
  int64_t first_head;
  int64_t num_rows;  // tokens * group_size; row = token * group_size + head
  int64_t head_dim;
  int64_t value_width;  // head_dim rounded up to 16
  int64_t num_segments;
  bool has_pairs;  // keys and values are kept as pairs of bf16 (KeepsPairs)
  BlockSegment segments[kQueryRowsMax];
  int32_t* positions;  // [num_rows] of the row's token
  float* q;            // [num_rows, head_dim]
  uint32_t* q_pairs;   // [num_rows, ceil(head_dim / 2)] as pairs of bf16; attention_bf16.h
  RowState* states;    // [num_rows]
  float* values;       // [num_rows, value_width] weighted sums relative to the row's maximum
};

// The keys and values of a tile as pairs of bf16, the first in the lower half (attention_bf16.h):
// found by LoadTile where they are kept so, else made by Bf16Products::round_tile.
struct PairTile {
  // Of panel i: elements 2p and 2p + 1 of its key j are keys[i][p * key_stride + j].
  const uint32_t* keys[kTileKeys / kPanelWidth];
  int64_t key_stride;
  // Of keys 2p and 2p + 1: [value_width] an element of both.
  const uint32_t* values[kTileKeys / 2];
  // Where they are kept as pairs: those of the tile after this one, for prefetching; where there is
  // no such panel, these again.
  const uint32_t* next_keys[kTileKeys / kPanelWidth];
  const uint32_t* next_values[kTileKeys / 2];
  int64_t num_next;  // panels that there are
  // Where they are not: room for [ceil(head_dim / 2), kTileKeys] and [kTileKeys / 2, value_width].
  uint32_t* scratch;
};

// Positions [first, first + kTileKeys). Where the block has pairs the floats are set by WidenTile,
// if they are wanted.
struct Tile {
  int64_t first;
  int64_t key_begin, key_end;                  // that some row sees, counted from `first`
  const float* keys[kTileKeys / kPanelWidth];  // of panel i: element e of its key j is keys[i][e *
                                               // key_stride + j]
  int64_t key_stride;
  // What is going to be read soon, for prefetching: where the values of each panel begin, and the
  // panels of the tile after this one (or these again).
  const float* panel_values[kTileKeys / kPanelWidth];
  const float* next_keys[kTileKeys / kPanelWidth];
  const float*
      values[kTileKeys];  // of each key in [key_begin, key_end): value_width readable floats
  float* scratch;         // room for [head_dim, kTileKeys] keys and [kTileKeys, value_width] values
  PairTile pairs;
};

// Keys of the tile that each of some query rows sees, counted from its first; `all` is what all of
// them see, or where there is nothing such, the tile's end.
struct VisibleKeys {
  int64_t begin[kRowsMax], end[kRowsMax];
  int64_t last_end = 0;  // the largest
  int64_t all_begin = 0, all_end = kTileKeys;
  bool is_ragged = false;  // they differ
};

// Pairs of a head's elements, an odd last one with nothing.
inline int64_t HeadPairs(int64_t head_dim) { return (head_dim + 1) / 2; }

struct Rows {
  int64_t begin, end;
};

// Takes the room of queries and positions from `*scratch` and moves it on.
void MakeQueryBlock(const AttentionParams& params, const AttentionItem& item, float** scratch,
                    QueryBlock* block);
void CopyQueries(const QueryBlock& block);
// Puts the block's states at `memory`, AttentionStateFloats of it.
void PlaceStates(QueryBlock* block, float* memory);
// Of the rows of a segment; their values only where they are going to be added to.
void ClearStates(const QueryBlock& block, const BlockSegment& segment, bool has_values);

// Finds, and where needed copies to `scratch`, the keys and values of positions `first` on: as
// pairs where the block has them, else as floats.
void LoadTile(const QueryBlock& block, const BlockSegment& segment, int64_t first, float* scratch,
              Tile* tile);

// What `tile` says of the tile after it: the segment's, of positions `first` on.
void FindNextTile(const QueryBlock& block, const BlockSegment& segment, int64_t first, Tile* tile);
// Panels that no row sees may have no page: another stands for them, and their scores are masked.
int64_t SeenPanel(const Tile& tile, int64_t panel);
// Asks for part `part` of `num_parts` of the next tile's pairs.
void FetchNextPairs(const QueryBlock& block, const PairTile& tile, int64_t part, int64_t num_parts);

// Of the keys of one split.
bool SeesSplit(const BlockSegment& segment, int64_t split);
// The end of the run of segments, from `segment` on, that share the tile of positions `first` on.
int64_t RunEnd(const QueryBlock& block, int64_t segment, int64_t first);
// Query rows of a run of segments that see some key of the tile of positions `first` on.
Rows RowsThatSee(const QueryBlock& block, int64_t segment_begin, int64_t segment_end,
                 int64_t first);

}  // namespace minisgl::cpu
