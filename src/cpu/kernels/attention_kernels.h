// The doors between attention's planning (attention_plan.h, cpu_ops.cc) and its kernels
// (attention.cc), as kernels.h has them for the other operations.
#pragma once

#include <cstdint>

#include "cpu/kernels/kernels.h"

namespace minisgl::cpu {

// Keys are taken in tiles of 64 positions, aligned to multiples of 64; splits of 512 positions are
// summed on their own and then merged in order, so that one long row can be shared among threads.
inline constexpr int64_t kTileKeys = 64;
inline constexpr int64_t kSplitKeys = 512;
// Query rows (tokens x heads of one KV head) that pass over a tile of keys while it is in the
// cache: so many that reading it costs little, so few that they fit a small second-level cache
// together with it (96 of 128 elements: queries, also rounded, and two sums of values 175 KB, the
// tile 64 KB, as pairs 32).
inline constexpr int64_t kQueryRowsMax = 96;

// Some tokens of one row.
struct AttentionSegment {
  int32_t row;
  int32_t token_begin, token_end;  // of the step's tokens
  // Tiles [0, shared_tiles) hold the same keys, in the same places, as those of the segment before
  // it in its item, and every token of both sees all of them; 0 for an item's first.
  int64_t shared_tiles;
};

// Segments against splits [split_begin, split_end) of their keys, for the query heads of one KV
// head. A segment whose keys end before a split has no part in it.
struct AttentionItem {
  const AttentionSegment* segments;
  int32_t num_segments;
  int32_t kv_head;
  int64_t num_tokens;  // of all segments
  int64_t split_begin, split_end;
  // Where the states of its splits lie one after another, AttentionStateFloats each; -1: nowhere,
  // they are merged at once.
  int64_t state_begin = -1;
};

struct Bf16Products;  // attention_bf16.h

// `states`: what state_begin counts from.
struct AttentionKernels {
  // Writes the states of the item's splits, or, where they lie nowhere, the output. Returns how
  // many tiles of keys were read. `products`: what multiplies, null: f32 by this target's own.
  int64_t (*attend)(const AttentionParams&, const AttentionItem&, const Bf16Products* products,
                    float* states, float* scratch);
  // Merges the states and writes the output.
  void (*merge)(const AttentionParams&, const AttentionItem&, float* states, float* scratch);
};
using GetAttentionKernels = AttentionKernels (*)();
const PerTarget<GetAttentionKernels>& AttentionKernelGetters();

// Floats of scratch for items of up to `num_query_rows` rows (tokens x heads), and of one split's
// states.
int64_t AttentionScratchFloats(int64_t num_query_rows, int64_t head_dim);
int64_t AttentionStateFloats(int64_t num_query_rows, int64_t head_dim);

}  // namespace minisgl::cpu
