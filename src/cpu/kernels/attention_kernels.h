// The interface between attention's planning (attention_plan.h, cpu_ops.cc) and its kernels
// (attention.cc); kernels.h has that of the other operations.
#pragma once

#include <cstdint>

#include "cpu/kernels/kernels.h"

namespace minisgl::cpu {

// Keys are processed in tiles of 64 positions, aligned to multiples of 64. Splits of 512 positions
// are summed separately and merged in order, so that several threads can share one long row.
inline constexpr int64_t kTileKeys = 64;
inline constexpr int64_t kSplitKeys = 512;
// Maximum number of query rows (tokens x heads of one KV head) that pass over a tile of keys while
// it is in the cache. Enough that reading the tile costs little; few enough to fit a small
// second-level cache together with it (96 rows of 128 elements: queries, also rounded, and two sums
// of values take 175 KB; the tile 64 KB, as pairs 32 KB).
inline constexpr int64_t kQueryRowsMax = 96;

// Maximum number of query rows that pass over a tile together, in any kernel.
inline constexpr int64_t kAttentionRowsMax = 16;

// Some tokens of one row.
struct AttentionSegment {
  int32_t row;
  int32_t token_begin, token_end;  // of the step's tokens
  // Tiles [0, shared_tiles) are the same memory as those of the previous segment of the item, and
  // every token of both segments sees all their keys. 0 for an item's first segment.
  int64_t shared_tiles;
};

// Segments against splits [split_begin, split_end) of their keys, for the query heads of one KV
// head. A segment takes no part in a split that begins after its last key.
struct AttentionItem {
  const AttentionSegment* segments;
  int32_t num_segments;
  int32_t kv_head;
  int64_t num_tokens;  // sum over the segments
  int64_t split_begin, split_end;
  // Offset of the states of its splits, AttentionStateFloats floats each, one after another. -1: no
  // states are stored; splits are merged at once.
  int64_t state_begin = -1;
};

struct Bf16Products;  // attention_bf16.h

// `states`: the memory that state_begin is an offset into.
struct AttentionKernels {
  // Writes the states of the item's splits, or the output if state_begin is -1. Returns the number
  // of tiles of keys that were read. `products`: the bf16 products to use; null: this target's own,
  // in f32.
  int64_t (*attend)(const AttentionParams&, const AttentionItem&, const Bf16Products* products,
                    float* states, float* scratch);
  // Merges the states and writes the output.
  void (*merge)(const AttentionParams&, const AttentionItem&, float* states, float* scratch);
};
using GetAttentionKernels = AttentionKernels (*)();
const PerTarget<GetAttentionKernels>& AttentionKernelGetters();

// Floats of scratch for items of at most `num_query_rows` query rows (tokens x heads), and floats
// of one split's states.
int64_t AttentionScratchFloats(int64_t num_query_rows, int64_t head_dim, int64_t value_dim);
int64_t AttentionStateFloats(int64_t num_query_rows, int64_t value_dim);

}  // namespace minisgl::cpu
