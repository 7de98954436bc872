// Selects the tokens of a row that top-k, top-p and min-p keep, without a sort.
//
// Likely tokens are few and in few tiles. The tiles' summaries give a logit below which no token
// can be kept (FindCut). Only the tiles that reach it are read again; if the logits at or above it
// fit into shared memory, the row is not read after that. The exact cut is found by radix
// selection: histograms of 8 bits of the logit's order-preserving key, from the highest bit in
// which candidates can differ. Tokens whose logit is at the cut are kept by ascending id.
#pragma once

#include "kernels/sample_tiles.h"

namespace minisgl::cuda::sample {

inline constexpr int kDigitBits = 8;
inline constexpr int kNumBins = 1 << kDigitBits;

// Maximum number of candidates in shared memory: 32 KiB, so that a multiprocessor has room for two
// blocks and their first-level cache. The nucleus of a peaked distribution has about a hundred.
inline constexpr int kBufferSize = 4096;

// A block's place: the row, its tiles' summaries and the workspace.
struct PlaceBlock {
  Row row;
  int num_tiles;
  Shared<float> tile_largest;  // [num_tiles]
  Shared<uint64_t> tile_sum;   // [num_tiles]
  Shared<uint32_t> tile_list;  // [num_tiles] the tiles to read again, ascending
  Shared<uint32_t> touched;    // [num_tiles] 1: bias, penalties or bans changed a logit
  Shared<uint64_t> scratch;    // [kScratchWords]
  // [kNumBins] sums as two words: shared memory adds 32 bits in one operation, 64 bits in a loop.
  Shared<uint32_t> bin_low;
  Shared<uint32_t> bin_high;
  Shared<uint32_t> counter;      // [1]
  Shared<float> buffer_logit;    // [kBufferSize] candidates
  Shared<int32_t> buffer_token;  // [kBufferSize]
  int num_listed = 0;            // tiles of tile_list, or of the buffer
  int num_buffered = -1;         // -1: candidates are read from the row

  MINISGL_DEVICE void SetBuffered(int count) {
    num_buffered = count;
    num_listed = (count + kTileSize - 1) / kTileSize;
  }
  MINISGL_DEVICE uint64_t Bin(int i) const {
    return uint64_t(bin_high[i]) << 32 | uint64_t(bin_low[i]);
  }
  // Listed tile i: from the buffer if candidates are buffered, otherwise from the row.
  MINISGL_DEVICE Tile LoadListed(int i) const {
    if (num_buffered < 0) return LoadTile(row, static_cast<int>(uint32_t(tile_list[i])));
    Tile tile;
#pragma unroll
    for (int e = 0; e < kPerLane; ++e) {
      const int index = PlaceInRow(i, e);
      tile.logit[e] = -kInfinity;
      tile.token[e] = -1;
      if (index < num_buffered) {
        tile.logit[e] = buffer_logit[index];
        tile.token[e] = buffer_token[index];
      }
    }
    return tile;
  }
};

inline constexpr int kLastToken = 0x7fffffff;

// The tokens kept so far.
struct Kept {
  Weight weight;
  float lowest;                 // tokens of larger logits are kept;
  int last_token = kLastToken;  // of this logit, tokens up to this one
  uint64_t min_weight = 1;

  MINISGL_DEVICE bool Has(float logit, int token) const {
    return logit > lowest || (logit == lowest && token <= last_token);
  }
  // 0 if the token is not kept.
  MINISGL_DEVICE uint64_t operator()(float logit, int token) const {
    if (!Has(logit, token)) return 0;
    const uint64_t w = weight(logit);
    return w >= min_weight ? w : 0;
  }
};

// An order-preserving key of a logit; -0 and 0 have the same.
MINISGL_DEVICE uint32_t KeyOf(float logit) {
  const uint32_t bits = __builtin_bit_cast(uint32_t, logit + 0.0f);
  return bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
}

MINISGL_DEVICE float LogitOf(uint32_t key) {
  return __builtin_bit_cast(float, key >> 31 != 0 ? key & 0x7fffffffu : ~key);
}

// Sets tile_sum to the sum of weight_of(logit, token) over each listed tile; returns the total.
template <typename WeightOf>
MINISGL_DEVICE uint64_t SumListed(const PlaceBlock& block, const WeightOf& weight_of) {
  uint64_t total = 0;
  for (int i = Warp(); i < block.num_listed; i += kWarps) {
    const Tile values = block.LoadListed(i);
    uint64_t sum = 0;
#pragma unroll
    for (int e = 0; e < kPerLane; ++e) sum += weight_of(values.logit[e], values.token[e]);
    sum = WarpSum(sum);
    if (Lane() == 0) {
      block.tile_sum[i] = sum;
      total += sum;
    }
  }
  return BlockSum(total, block.scratch);
}

// Returns the first token at which the running sum by ascending id exceeds the target. REQUIRES a
// preceding SumListed with the same weights, and target < its result.
template <typename WeightOf>
MINISGL_DEVICE int FindListed(const PlaceBlock& block, uint64_t target, const WeightOf& weight_of) {
  const Found found = BlockFind(block.num_listed, target, block.scratch,
                                [&](int i) -> uint64_t { return block.tile_sum[i]; });
  return FindInTile(block.LoadListed(found.index), target - found.before, weight_of);
}

struct Rank {
  float logit;     // the logit at which the running sum by descending logit reaches the target
  uint64_t above;  // the sum over larger logits
  uint64_t at;     // the sum over logits equal to it
  bool reached;
};

// Makes the histogram of weight_of(logit, token) over bin_of(logit). bin_of is called if the weight
// is not 0, and returns kNumBins for no bin.
template <typename WeightOf, typename BinOf>
MINISGL_DEVICE void FillBins(const PlaceBlock& block, const WeightOf& weight_of,
                             const BinOf& bin_of) {
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < kNumBins; i += kThreads) {
    block.bin_low[i] = 0;
    block.bin_high[i] = 0;
  }
  __syncthreads();
  for (int i = Warp(); i < block.num_listed; i += kWarps) {
    const Tile values = block.LoadListed(i);
#pragma unroll
    for (int e = 0; e < kPerLane; ++e) {
      const uint64_t weight = weight_of(values.logit[e], values.token[e]);
      if (weight == 0) continue;
      const int bin = bin_of(values.logit[e]);
      if (bin == kNumBins) continue;
      const auto low = static_cast<uint32_t>(weight);
      const uint32_t old = AtomicAddShared(block.bin_low + bin, low);
      // The number of carries does not depend on the order of adding.
      const uint32_t high = static_cast<uint32_t>(weight >> 32) + (old + low < old ? 1u : 0u);
      if (high != 0) AtomicAddShared(block.bin_high + bin, high);
    }
  }
  __syncthreads();
}

// Finds the bin in which the running sum exceeds target.
MINISGL_DEVICE Found FindBin(const PlaceBlock& block, uint64_t target) {
  return BlockFind(kNumBins, target, block.scratch,
                   [&](int i) -> uint64_t { return block.Bin(i); });
}

// Equal slices of [lowest, highest], from the top: a first digit that spreads logits more evenly
// than the bits of their keys do.
struct Slices {
  float highest;
  float per_logit;

  MINISGL_DEVICE Slices(float high, float low)
      : highest(high), per_logit(high > low ? (kNumBins - 1) / (high - low) : 0.0f) {}
  MINISGL_DEVICE int operator()(float logit) const {
    // fminf also maps NaN (from an infinite range) to the last slice.
    return static_cast<int>(fminf((highest - logit) * per_logit, float{kNumBins - 1}));
  }
};

// Reads the tokens with a weight into the buffer, in any order. Leaves `block` unchanged if they do
// not fit.
template <typename WeightOf>
MINISGL_DEVICE void BufferSlice(PlaceBlock* block, const WeightOf& weight_of) {
  if (threadIdx.x == 0) block->counter[0] = 0;
  __syncthreads();
  for (int i = Warp(); i < block->num_listed; i += kWarps) {
    const Tile values = block->LoadListed(i);
#pragma unroll
    for (int e = 0; e < kPerLane; ++e) {
      if (weight_of(values.logit[e], values.token[e]) == 0) continue;
      const auto index = static_cast<int>(AtomicAddShared(block->counter, 1u));
      if (index >= kBufferSize) continue;
      block->buffer_logit[index] = values.logit[e];
      block->buffer_token[index] = values.token[e];
    }
  }
  __syncthreads();
  const uint32_t count = block->counter[0];
  if (count <= kBufferSize) block->SetBuffered(static_cast<int>(count));
}

// Finds the logit at which the running sum of weight_of(logit, token), by descending logit, reaches
// target >= 1. REQUIRES weight 0 for logits outside [lowest, highest].
template <typename WeightOf>
MINISGL_DEVICE Rank SelectRank(PlaceBlock block, float highest, float lowest, uint64_t target,
                               const WeightOf& weight_of) {
  Rank rank = {};
  const Slices slice_of(highest, lowest);
  int slice = -1;
  const auto in_slice = [&](float logit, int token) -> uint64_t {
    const uint64_t weight = weight_of(logit, token);
    return weight == 0 || slice < 0 || slice_of(logit) == slice ? weight : 0;
  };
  if (block.num_buffered < 0) {
    FillBins(block, weight_of, slice_of);
    const Found found = FindBin(block, target - 1);
    if (found.index < 0) return rank;
    rank.above = found.before;
    slice = found.index;
    BufferSlice(&block, in_slice);
  }

  const uint32_t highest_key = KeyOf(highest);
  const uint64_t range = highest_key - KeyOf(lowest);
  int shift = 0;
  while (range >> (shift + kDigitBits) != 0) shift += kDigitBits;
  uint32_t chosen = 0;
  for (; shift >= 0; shift -= kDigitBits) {
    FillBins(block, in_slice, [&](float logit) {
      const uint64_t below = highest_key - KeyOf(logit);
      const bool matches = below >> (shift + kDigitBits) == chosen;
      return matches ? static_cast<int>((below >> shift) % kNumBins) : kNumBins;
    });
    const Found found = FindBin(block, target - rank.above - 1);
    if (found.index < 0) return rank;
    rank.above += found.before;
    rank.at = block.Bin(found.index);
    chosen = chosen << kDigitBits | static_cast<uint32_t>(found.index);
  }
  rank.logit = LogitOf(highest_key - chosen);
  rank.reached = true;
  return rank;
}

// Keeps the tokens that rank before `rank`, and the first num_left of the `num_equal` tokens of its
// logit.
MINISGL_DEVICE void Cut(const PlaceBlock& block, const Rank& rank, uint64_t num_equal,
                        uint64_t num_left, Kept* kept) {
  if (num_left < num_equal) {
    const auto equal = [&](float logit, int token) -> uint64_t {
      return logit == rank.logit && kept->Has(logit, token) ? 1 : 0;
    };
    SumListed(block, equal);
    kept->last_token = FindListed(block, num_left - 1, equal);
  } else if (rank.logit != kept->lowest) {
    kept->last_token = kLastToken;
  }
  kept->lowest = rank.logit;
}

MINISGL_DEVICE void KeepTopK(const PlaceBlock& block, int top_k, Kept* kept) {
  const auto num_left = static_cast<uint64_t>(top_k);
  const Rank rank =
      SelectRank(block, kept->weight.largest, kept->lowest, num_left,
                 [&](float logit, int token) -> uint64_t { return kept->Has(logit, token); });
  if (rank.reached) Cut(block, rank, rank.at, num_left - rank.above, kept);
}

// The weight that the nucleus has to reach.
MINISGL_DEVICE uint64_t TopPTarget(float top_p, uint64_t total) {
  const double target = ceil(static_cast<double>(top_p) * static_cast<double>(total));
  return target >= 1 ? static_cast<uint64_t>(target) : 1;
}

// `total`: the weight of all tokens kept so far, listed or not.
MINISGL_DEVICE void KeepTopP(const PlaceBlock& block, float top_p, uint64_t total, Kept* kept) {
  const uint64_t target = TopPTarget(top_p, total);
  const Rank rank = SelectRank(block, kept->weight.largest, kept->lowest, target, *kept);
  if (!rank.reached) return;
  const uint64_t each = kept->weight(rank.logit);
  const uint64_t num_left = (target - rank.above + each - 1) / each;
  Cut(block, rank, rank.at / each, num_left, kept);
}

// Number of cuts tried: logits of 2^-1, 2^-2, ... 2^-41 of the largest weight. Below the last all
// weights are 0, up to the rounding of the cut itself.
inline constexpr int kNumCuts = 41;

// Returns the highest cut such that all tokens that top-k, or else top-p, or else min-p keeps are
// at or above it. Each warp tries some cuts, from the tiles' summaries only:
//   top-k: k tiles reach the cut, so k logits do;
//   top-p: the weight below the cut is at most `allowed`, the weight that top-p may drop. For a
//     tile that does not reach the cut, the weight below is its sum; for another it is at most its
//     sum minus its largest weight, and at most the cut's weight for each of its other logits;
//   min-p: the cut weighs at most min_weight.
MINISGL_DEVICE float FindCut(const PlaceBlock& block, const Weight& weight, int top_k,
                             bool has_top_p, uint64_t allowed, uint64_t min_weight) {
  const auto cut_logit = [&](int cut) {
    const float half_below = static_cast<float>(cut) / weight.scale;
    return fmaxf(weight.largest - half_below - half_below, -kLargestFloat);
  };
  int best = -(kNumCuts + 1);
  for (int cut = Warp() + 1; cut <= kNumCuts && best < -kNumCuts; cut += kWarps) {
    const float logit = cut_logit(cut);
    const uint64_t cut_weight = weight(logit);
    bool holds = cut_weight <= min_weight;
    if (top_k > 0 || has_top_p) {
      uint64_t sum = 0;
      for (int i = Lane(); i < block.num_tiles; i += kWarpSize) {
        const float largest = block.tile_largest[i];
        if (top_k > 0) {
          sum += largest >= logit ? 1 : 0;
        } else {
          const uint64_t all = block.tile_sum[i];
          const uint64_t others = (kTileSize - 1) * cut_weight;
          sum += largest < logit ? all : min(all - weight(largest), others);
        }
      }
      sum = WarpSum(sum);
      holds = top_k > 0 ? sum >= static_cast<uint64_t>(top_k) : sum <= allowed;
    }
    if (holds) best = -cut;
  }
  return cut_logit(-BlockMax(best, -(kNumCuts + 1), block.scratch.As<int>()));
}

// Lists the tiles that reach `lowest`.
MINISGL_DEVICE void ListTiles(PlaceBlock* block, float lowest) {
  const int per_thread = (block->num_tiles + kThreads - 1) / kThreads;
  const int begin = static_cast<int>(threadIdx.x) * per_thread;
  const int end = min(begin + per_thread, block->num_tiles);
  uint64_t mine = 0;
  for (int i = begin; i < end; ++i) mine += block->tile_largest[i] >= lowest ? 1 : 0;
  const BlockPrefix prefix = BlockExclusiveSum(mine, block->scratch);
  auto next = static_cast<int>(prefix.before);
  for (int i = begin; i < end; ++i) {
    if (block->tile_largest[i] >= lowest) block->tile_list[next++] = static_cast<uint32_t>(i);
  }
  block->num_listed = static_cast<int>(prefix.total);
  __syncthreads();
}

// Copies the logits at or above `lowest` to the buffer, by ascending token, if they fit.
MINISGL_DEVICE void BufferListed(PlaceBlock* block, float lowest) {
  const auto reaches = [lowest](float logit) { return logit >= lowest ? 1u : 0u; };
  if (threadIdx.x == 0) block->counter[0] = 0;
  __syncthreads();
  for (int i = Warp(); i < block->num_listed; i += kWarps) {
    const Tile values = block->LoadListed(i);
    uint32_t count = 0;
#pragma unroll
    for (int e = 0; e < kPerLane; ++e) count += reaches(values.logit[e]);
    count = WarpSum(count);
    uint32_t before = 0;
    if (Lane() == 0) {
      block->tile_sum[i] = count;
      before = AtomicAddShared(block->counter, count);
    }
    // A row with too many logits is detected in its first tiles.
    if (__shfl_sync(0xffffffffu, before, 0) + count > kBufferSize) break;
  }
  __syncthreads();
  const uint32_t total = block->counter[0];
  if (total > kBufferSize) return;
  // Each tile's offset in the buffer: the sum of the counts before it.
  const int per_thread = (block->num_listed + kThreads - 1) / kThreads;
  const int begin = static_cast<int>(threadIdx.x) * per_thread;
  const int end = min(begin + per_thread, block->num_listed);
  uint64_t mine = 0;
  for (int i = begin; i < end; ++i) mine += block->tile_sum[i];
  uint64_t running = BlockExclusiveSum(mine, block->scratch).before;
  for (int i = begin; i < end; ++i) {
    const uint64_t count = block->tile_sum[i];
    block->tile_sum[i] = running;
    running += count;
  }
  __syncthreads();
  for (int i = Warp(); i < block->num_listed; i += kWarps) {
    const Tile values = block->LoadListed(i);
    auto base = static_cast<int>(uint64_t(block->tile_sum[i]));
#pragma unroll
    for (int load = 0; load < kLoads; ++load) {
      uint64_t count = 0;
#pragma unroll
      for (int e = 0; e < kPerLoad; ++e) count += reaches(values.logit[load * kPerLoad + e]);
      const uint64_t inclusive = WarpInclusiveSum(count);
      int next = base + static_cast<int>(inclusive - count);
#pragma unroll
      for (int e = 0; e < kPerLoad; ++e) {
        const int index = load * kPerLoad + e;
        if (reaches(values.logit[index]) == 0) continue;
        block->buffer_logit[next] = values.logit[index];
        block->buffer_token[next++] = values.token[index];
      }
      base += static_cast<int>(__shfl_sync(0xffffffffu, inclusive, kWarpSize - 1));
    }
  }
  block->SetBuffered(static_cast<int>(total));
  __syncthreads();
}

}  // namespace minisgl::cuda::sample
