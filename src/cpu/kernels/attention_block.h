// The scalar part of attention.cc, compiled once: which rows see which keys, where tiles of keys
// and values lie, and the layout of an item's scratch.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/kernels/attention_kernels.h"

namespace minisgl::cpu {

// The running softmax of one query row: the largest score, and the sum of exp(score - largest). The
// identity has the sum 0.
struct RowState {
  float maximum;
  float weight_sum;
};

// Consecutive tokens of one request.
struct BlockSegment {
  const int32_t* pages;    // the request's row of the page table
  int64_t token_begin;     // index of its first token in the step
  int64_t first_position;  // position of that token
  int64_t num_tokens;
  int64_t row_begin, row_end;  // its query rows in the block
  int64_t key_begin, key_end;  // keys that some token sees
  int64_t shared_tiles;        // tiles shared with the previous segment
};

// The query rows of an item: the query heads of one KV head, for each token of its segments.
struct QueryBlock {
  const AttentionParams* params;
  int64_t kv_head;
  int64_t group_size;  // query heads for each KV head
  int64_t first_head;
  int64_t num_rows;  // tokens * group_size; row = token * group_size + head
  int64_t head_dim;
  int64_t value_dim;
  int64_t value_width;  // value_dim rounded up to 16
  int64_t num_segments;
  // Keys and values are kept as pairs of bf16 (KeepsPairs), or made such pairs from rows or codes.
  bool has_pairs;
  // They are codes: LoadTile sets only the tile's bounds, and ExpandTile (attention_codes-inl.h)
  // makes pairs of them.
  bool has_codes;
  // Keys hold their values, in whole vectors: LoadTile finds rows, and ArrangeRows
  // (attention_rows-inl.h) makes keys and values of them.
  bool has_rows;
  BlockSegment segments[kQueryRowsMax];
  int32_t* positions;  // [num_rows] position of the row's token
  int32_t* key_ends;   // [num_rows] the keys before this are those that the token may see
  float* q;            // [num_rows, head_dim]
  uint32_t* q_pairs;   // [num_rows, ceil(head_dim / 2)] as pairs of bf16; attention_bf16.h
  RowState* states;    // [num_rows]
  float* values;       // [num_rows, value_width] weighted sums relative to the row's maximum
};

// The keys and values of a tile as pairs of bf16, the first in the low half (attention_bf16.h). Set
// by LoadTile if they are stored as pairs, otherwise by Bf16Products::round_tile.
struct PairTile {
  // Elements 2p and 2p + 1 of key j of panel i are keys[i][p * key_stride + j].
  const uint32_t* keys[kTileKeys / kPanelWidth];
  int64_t key_stride;
  // values[p] is [value_width]: one element of the values of keys 2p and 2p + 1.
  const uint32_t* values[kTileKeys / 2];
  // If they are stored as pairs: the next tile's, for prefetching; for a panel that does not exist,
  // this tile's again.
  const uint32_t* next_keys[kTileKeys / kPanelWidth];
  const uint32_t* next_values[kTileKeys / 2];
  int64_t num_next;  // panels of the next tile that exist
  // If they are not stored as pairs: room for [ceil(head_dim / 2), kTileKeys] and [kTileKeys / 2,
  // value_width].
  uint32_t* scratch;
};

// Positions [first, first + kTileKeys). If the block has pairs, the float pointers are set by
// WidenTile, and only if they are needed.
struct Tile {
  int64_t first;
  int64_t key_begin, key_end;  // keys that some row sees, counted from `first`
  // Element e of key j of panel i is keys[i][e * key_stride + j].
  const float* keys[kTileKeys / kPanelWidth];
  int64_t key_stride;
  // For prefetching: where the values of each panel begin, and the panels of the next tile (or this
  // tile's again).
  const float* panel_values[kTileKeys / kPanelWidth];
  const float* next_keys[kTileKeys / kPanelWidth];
  // The value of each key in [key_begin, key_end): value_width readable floats.
  const float* values[kTileKeys];
  float* scratch;  // room for [head_dim, kTileKeys] keys and [kTileKeys, value_width] values
  // If the block has rows: each key as it is stored; of a key that no row sees, the nearest that
  // one sees.
  const std::byte* rows[kTileKeys];
  PairTile pairs;
};

// The keys of a tile that each of some query rows sees, counted from the tile's first. [all_begin,
// all_end) are the keys that all of them see; if there are none, both are kTileKeys.
struct VisibleKeys {
  int64_t begin[kAttentionRowsMax], end[kAttentionRowsMax];
  int64_t last_end = 0;  // the largest `end`
  int64_t all_begin = 0, all_end = kTileKeys;
  bool is_ragged = false;  // rows see different keys
};

// Number of pairs of a head's elements; an odd last element has a pair to itself.
inline int64_t HeadPairs(int64_t head_dim) { return (head_dim + 1) / 2; }

struct Rows {
  int64_t begin, end;
};

// Places the queries and positions at `*scratch` and advances it past them.
void MakeQueryBlock(const AttentionParams& params, const AttentionItem& item, float** scratch,
                    QueryBlock* block);
void CopyQueries(const QueryBlock& block);
// Places the block's states at `memory`, which has AttentionStateFloats floats.
void PlaceStates(QueryBlock* block, float* memory);
// Resets the states of a segment's rows. Clears their values too if `has_values`: if they are going
// to be added to.
void ClearStates(const QueryBlock& block, const BlockSegment& segment, bool has_values);

// Sets `tile` to the keys and values from position `first` on: as pairs if the block has pairs,
// otherwise as floats; or to their rows if it has rows. Copies them to `scratch` if they cannot be
// read in place.
void LoadTile(const QueryBlock& block, const BlockSegment& segment, int64_t first, float* scratch,
              Tile* tile);

// Sets what `tile` holds of the next tile: the segment's, from position `first` on.
void FindNextTile(const QueryBlock& block, const BlockSegment& segment, int64_t first, Tile* tile);
// The panel to read for `panel`. A panel that no row sees may have no page: the nearest one that is
// seen replaces it, and its scores are masked.
int64_t SeenPanel(const Tile& tile, int64_t panel);
// Prefetches part `part` of `num_parts` of the next tile's pairs.
void FetchNextPairs(const QueryBlock& block, const PairTile& tile, int64_t part, int64_t num_parts);

// True if some token of the segment sees a key of the split.
bool SeesSplit(const BlockSegment& segment, int64_t split);
// The end of the run of segments, beginning with `segment`, that share the tile at position
// `first`.
int64_t RunEnd(const QueryBlock& block, int64_t segment, int64_t first);
// The query rows of a run of segments that see some key of the tile at position `first`.
Rows RowsThatSee(const QueryBlock& block, int64_t segment_begin, int64_t segment_end,
                 int64_t first);

}  // namespace minisgl::cpu
