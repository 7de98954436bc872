// Causal attention over paged keys and values with an online softmax.
//
// Order of every sum, whatever other rows a row is computed with:
//   - keys in tiles of kTileKeys positions, aligned to multiples of it;
//   - a score over head_dim, one multiply-add after another;
//   - a tile's weighted values key by key, then added to the running sum;
//   - splits of kSplitKeys positions separately, merged in order.
// A key that a query must not see is never multiplied, so the content of unwritten slots does not
// matter.
//
// An item passes its query rows (tokens x heads of one KV head) over each tile while it is in the
// cache; rows of different requests that share the tile pass together. Keys of a page are read in
// place if the page holds whole panels of 16 positions, otherwise they are copied to scratch; codes
// are expanded there. Bf16Products (attention_bf16.h) replace the two products of this file.
#include "cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/kernels/attention.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "cpu/kernels/attention_bf16.h"
#include "cpu/kernels/attention_block.h"
#include "cpu/kernels/attention_codes-inl.h"
#include "cpu/kernels/attention_operands-inl.h"
#include "cpu/kernels/kernels.h"
#include "cpu/kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace minisgl::cpu {
namespace HWY_NAMESPACE {

// Both a multiple of every vector and enough for any number of rows.
constexpr int64_t kRowsPadded = kAttentionRowsMax;

// Maximum number of query rows that pass over a tile together. Each number of rows is a separate
// kernel: processors without AVX2 (before 2013) get fewer. The number does not change any bit of a
// row's output.
constexpr int64_t kBlockRows = kIsFallback ? 1 : HWY_TARGET == HWY_SSE4 ? 2 : kRowsMax;

// Scores of kRows query rows against the tile's keys [0, key_end), 64 floats a row.
template <int kRows, Read kRead>
HWY_INLINE void ScoreRows(const QueryBlock& block, const Tile& tile, const float* q,
                          int64_t key_end, float* scores) {
  constexpr int kVectors = VectorsPerRow<kRows>();
  const F32 d;
  const Floats scale = hn::Set(d, block.params->scale);
  for (int64_t column = 0; column < key_end; column += kVectors * kLanes) {
    Floats sum[kRows][kVectors];
    SetZero(sum);
    const auto width = static_cast<size_t>(block.head_dim);
    if constexpr (kRead == Read::kPairs) {
      PairedKeys<kVectors> keys;
      keys.stride = static_cast<size_t>(tile.pairs.key_stride);
      MINISGL_UNROLL for (int v = 0; v < kVectors; ++v) {
        const int64_t first = column + v * kLanes;
        keys.start[v] = tile.pairs.keys[first / kPanelWidth] + first % kPanelWidth;
        keys.fetch[v] = tile.pairs.next_keys[first / kPanelWidth];
      }
      MultiplyAccumulate(q, width, keys, width, sum);
    } else {
      FetchingKeys<kVectors> keys;
      keys.stride = static_cast<size_t>(tile.key_stride);
      MINISGL_UNROLL for (int v = 0; v < kVectors; ++v) {
        const int64_t first = column + v * kLanes;
        keys.start[v] = tile.keys[first / kPanelWidth] + first % kPanelWidth;
        keys.fetch[v] = tile.panel_values[first / kPanelWidth];
      }
      if constexpr (kRead == Read::kFetchingFloats) {
        MultiplyAccumulate(q, width, keys, width, sum);
      } else {
        MultiplyAccumulate(q, width, static_cast<const StridedOperand<kVectors>&>(keys), width,
                           sum);
      }
    }
    MINISGL_UNROLL for (int r = 0; r < kRows; ++r) {
      MINISGL_UNROLL for (int v = 0; v < kVectors; ++v) {
        hn::Store(hn::Mul(sum[r][v], scale), d, scores + r * kTileKeys + column + v * kLanes);
      }
    }
  }
}

HWY_NOINLINE VisibleKeys FindVisibleKeys(const QueryBlock& block, const Tile& tile, int64_t row,
                                         int64_t num_rows) {
  VisibleKeys keys;
  const int64_t window = block.params->sliding_window;
  for (int64_t r = 0; r < num_rows; ++r) {
    const int64_t past_own = block.positions[row + r] + 1 - tile.first;
    keys.begin[r] = MaxOf<int64_t>(0, block.params->first_key - tile.first);
    if (window > 0) keys.begin[r] = MaxOf(keys.begin[r], past_own - window);
    keys.end[r] = MinOf<int64_t>(kTileKeys, block.key_ends[row + r] - tile.first);
    keys.last_end = MaxOf(keys.last_end, keys.end[r]);
    keys.all_begin = MaxOf(keys.all_begin, keys.begin[r]);
    keys.all_end = MinOf(keys.all_end, keys.end[r]);
    keys.is_ragged |= keys.begin[r] != keys.begin[0] || keys.end[r] != keys.end[0];
  }
  if (keys.all_begin >= keys.all_end) keys.all_begin = keys.all_end = kTileKeys;
  return keys;
}

// exp(x) for x <= 0 or NaN, within 2 units in the last place; 0 below -87, close to where results
// become subnormal. Method: x = n ln 2 + r with |r| <= ln(2) / 2, exp(r) by a polynomial (fitted to
// 4e-9), times 2^n. Adding 1.5 * 2^23 rounds to an integer, which is then in the low bits of the
// sum.
HWY_INLINE Floats ExpOfNegative(Floats x) {
  const F32 d;
  const hn::RebindToSigned<F32> di;
  const Floats magic = hn::Set(d, 12582912.0f);
  const Floats shifted = hn::MulAdd(x, hn::Set(d, 1.44269504f), magic);
  const Floats n = hn::Sub(shifted, magic);
  // ln 2 in two parts: the first has 15 bits, so n times it is exact.
  Floats r = hn::NegMulAdd(n, hn::Set(d, 0.693145751953125f), x);
  r = hn::NegMulAdd(n, hn::Set(d, 1.42860677e-6f), r);
  Floats p = hn::Set(d, 0.0013814598f);
  p = hn::MulAdd(p, r, hn::Set(d, 0.008368717f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.04166839f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.16666521f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.49999994f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
  const Floats scale =
      hn::BitCast(d, hn::Add(hn::ShiftLeft<23>(hn::BitCast(di, shifted)), hn::Set(di, 127 << 23)));
  return hn::IfThenElse(hn::Lt(x, hn::Set(d, -87.0f)), hn::Zero(d), hn::Mul(p, scale));
}

HWY_INLINE void CapScores(float cap_value, int64_t begin, int64_t end, float* scores) {
  const F32 d;
  const Floats cap = hn::Set(d, cap_value);
  for (int64_t key = begin / kLanes * kLanes; key < end; key += kLanes) {
    const Floats s = hn::Load(d, scores + key);
    hn::Store(hn::Mul(cap, Tanh(hn::Div(s, cap))), d, scores + key);
  }
}

// Adds to each score what its key's distance from the row's token gives in the row's head.
HWY_NOINLINE void AddDistances(const QueryBlock& block, const Tile& tile, int64_t row,
                               int64_t num_rows, float* scores) {
  const F32 d;
  const AttentionParams& p = *block.params;
  for (int64_t r = 0; r < num_rows; ++r) {
    const int64_t head = block.first_head + (row + r) % block.group_size;
    const float* const bias = p.distance_bias + head * p.distance_stride + p.distance_origin +
                              tile.first - block.positions[row + r];
    for (int64_t key = 0; key < kTileKeys; key += kLanes) {
      float* const to = scores + r * kTileKeys + key;
      hn::Store(hn::Add(hn::Load(d, to), hn::LoadU(d, bias + key)), d, to);
    }
  }
}

// Scores of keys outside [begin, end) become -infinity.
HWY_INLINE void MaskScores(int64_t begin, int64_t end, float* scores) {
  const F32 d;
  const Floats masked = hn::Neg(hn::Inf(d));
  const Floats first = hn::Set(d, static_cast<float>(begin));
  const Floats past = hn::Set(d, static_cast<float>(end));
  for (int64_t key = 0; key < kTileKeys; key += kLanes) {
    const Floats index = hn::Iota(d, static_cast<float>(key));
    const auto seen = hn::And(hn::Ge(index, first), hn::Lt(index, past));
    hn::Store(hn::IfThenElse(seen, hn::Load(d, scores + key), masked), d, scores + key);
  }
}

// Turns scores of the visible keys into weights relative to each row's new maximum, updates the
// rows' maxima and sums of weights, and sets `rescale`: the factors for the earlier values.
HWY_NOINLINE void SoftmaxRows(const AttentionParams& p, const VisibleKeys& keys, int64_t num_rows,
                              float* scores, RowState* states, float* rescale) {
  constexpr int kVectors = static_cast<int>(kTileKeys) / kLanes;
  const F32 d;
  HWY_ALIGN float maximum[kRowsPadded];
  for (int64_t r = 0; r < num_rows; ++r) {
    float* const row = scores + r * kTileKeys;
    if (p.logit_softcap > 0) CapScores(p.logit_softcap, keys.begin[r], keys.end[r], row);
    if (keys.begin[r] > 0 || keys.end[r] < kTileKeys) MaskScores(keys.begin[r], keys.end[r], row);
    Floats largest = hn::Set(d, states[r].maximum);
    MINISGL_UNROLL for (int v = 0; v < kVectors; ++v) {
      largest = hn::Max(largest, hn::Load(d, row + v * kLanes));
    }
    maximum[r] = hn::GetLane(hn::MaxOfLanes(d, largest));
    rescale[r] = states[r].maximum - maximum[r];
    states[r].maximum = maximum[r];
  }
  for (int64_t r = 0; r < num_rows; r += kLanes) {
    hn::Store(ExpOfNegative(hn::Load(d, rescale + r)), d, rescale + r);
  }
  for (int64_t r = 0; r < num_rows; ++r) {
    float* const row = scores + r * kTileKeys;
    const Floats largest = hn::Set(d, maximum[r]);
    Floats sum = hn::Zero(d);
    MINISGL_UNROLL for (int v = 0; v < kVectors; ++v) {
      const Floats weight = ExpOfNegative(hn::Sub(hn::Load(d, row + v * kLanes), largest));
      hn::Store(weight, d, row + v * kLanes);
      sum = hn::Add(sum, weight);
    }
    states[r].weight_sum = states[r].weight_sum * rescale[r] + hn::GetLane(hn::SumOfLanes(d, sum));
  }
}

// Vector `column` of a key's value.
template <Read kRead>
HWY_INLINE Floats LoadValue(const Tile& tile, int64_t key, int64_t column) {
  if constexpr (kRead == Read::kPairs) {
    const uint32_t* const pairs = tile.pairs.values[key / 2] + column;
    return key % 2 == 0 ? WidenHalves<0>(pairs) : WidenHalves<1>(pairs);
  } else {
    return hn::LoadU(F32(), tile.values[key] + column);
  }
}

// Adds the weighted values of keys [begin, end) to the sums of one row, which are in memory.
template <Read kRead, int kVectors>
HWY_NOINLINE void AddKeys(const Tile& tile, int64_t begin, int64_t end, const float* weights,
                          int64_t column, float* to) {
  const F32 d;
  Floats sum[kVectors];
  MINISGL_UNROLL for (int v = 0; v < kVectors; ++v) sum[v] = hn::Load(d, to + v * kLanes);
  for (int64_t key = begin; key < end; ++key) {
    const Floats weight = hn::Set(d, weights[key]);
    MINISGL_UNROLL for (int v = 0; v < kVectors; ++v) {
      sum[v] = hn::MulAdd(weight, LoadValue<kRead>(tile, key, column + v * kLanes), sum[v]);
    }
  }
  MINISGL_UNROLL for (int v = 0; v < kVectors; ++v) hn::Store(sum[v], d, to + v * kLanes);
}

// Adds for each row the keys that it sees before `all_begin`, from which on all rows see them, or
// (kAfter) from `all_end` on. In memory, whatever the number of rows: few tiles have such keys.
template <Read kRead, bool kAfter, int kRows, int kVectors>
HWY_INLINE void AddRaggedKeys(const Tile& tile, const VisibleKeys& keys, int64_t all_begin,
                              const float* weights, int64_t column,
                              Floats (&sum)[kRows][kVectors]) {
  constexpr bool kPairs = kRead == Read::kPairs;
  HWY_ALIGN float sums[kRows][kVectors * kLanes];
  MINISGL_UNROLL for (int r = 0; r < kRows; ++r) {
    MINISGL_UNROLL for (int v = 0; v < kVectors; ++v) {
      hn::Store(sum[r][v], F32(), sums[r] + v * kLanes);
    }
  }
#pragma GCC unroll 1
  for (int r = 0; r < kRows; ++r) {
    const int64_t begin = kAfter ? MaxOf(keys.begin[r], keys.all_end) : keys.begin[r];
    const int64_t end = kAfter ? keys.end[r] : MinOf(keys.end[r], all_begin);
    if (begin >= end) continue;
    AddKeys<kPairs ? kRead : Read::kFloats, kVectors>(tile, begin, end, weights + r * kTileKeys,
                                                      column, sums[r]);
  }
  MINISGL_UNROLL for (int r = 0; r < kRows; ++r) {
    MINISGL_UNROLL for (int v = 0; v < kVectors; ++v) {
      sum[r][v] = hn::Load(F32(), sums[r] + v * kLanes);
    }
  }
}

// Adds the weighted values of keys [begin, end), which all rows see, to their sums.
template <Read kRead, int kRows, int kVectors>
HWY_INLINE void AddSharedKeys(const Tile& tile, int64_t begin, int64_t end, const float* weights,
                              int64_t column, Floats (&sum)[kRows][kVectors]) {
  constexpr auto kStride = static_cast<size_t>(kTileKeys);
  const auto num_keys = static_cast<size_t>(end - begin);
  const ScatteredOperand<kVectors> rows = {tile.values + begin, static_cast<size_t>(column)};
  if constexpr (kRead == Read::kPairs) {
    const PairedValues<kVectors> pairs = {tile.pairs.values + begin / 2,
                                          tile.pairs.next_values + begin / 2,
                                          static_cast<size_t>(column)};
    MultiplyAccumulate(weights + begin, kStride, pairs, num_keys, sum);
  } else if constexpr (kRead == Read::kFetchingFloats) {
    FetchingValues<kVectors> fetching = {rows, {}, static_cast<size_t>(tile.key_stride)};
    MINISGL_UNROLL for (int v = 0; v < kVectors; ++v) {
      fetching.fetch[v] = tile.next_keys[(column + v * kLanes) % kTileKeys / kPanelWidth] +
                          column / kTileKeys * kTileKeys * tile.key_stride;
    }
    MultiplyAccumulate(weights + begin, kStride, fetching, num_keys, sum);
  } else {
    MultiplyAccumulate(weights + begin, kStride, rows, num_keys, sum);
  }
}

// values[r] = values[r] * rescale[r] + sum over the keys that row r sees of weights[r][key] *
// v[key], for kVectors vectors of the head from `column` on.
template <int kRows, int kVectors, Read kRead>
HWY_INLINE void AddValueColumns(const Tile& tile, const VisibleKeys& keys, const float* weights,
                                const float* rescale, float* values, int64_t width,
                                int64_t column) {
  const F32 d;
  Floats sum[kRows][kVectors];
  SetZero(sum);
  int64_t begin = keys.all_begin;
  // Half of a pair is added to each row by itself.
  const bool has_half = kRead == Read::kPairs && begin % 2 != 0 && begin < keys.all_end;
  if (has_half) ++begin;
  if (keys.is_ragged || has_half) {
    AddRaggedKeys<kRead, false>(tile, keys, begin, weights, column, sum);
  }
  AddSharedKeys<kRead>(tile, begin, keys.all_end, weights, column, sum);
  if (keys.is_ragged) AddRaggedKeys<kRead, true>(tile, keys, begin, weights, column, sum);
  MINISGL_UNROLL for (int r = 0; r < kRows; ++r) {
    MINISGL_UNROLL for (int v = 0; v < kVectors; ++v) {
      float* to = values + r * width + column + v * kLanes;
      hn::Store(hn::MulAdd(hn::Load(d, to), hn::Set(d, rescale[r]), sum[r][v]), d, to);
    }
  }
}

template <int kRows, Read kRead>
HWY_INLINE void AddValues(const Tile& tile, const VisibleKeys& keys, const float* weights,
                          const float* rescale, float* values, int64_t width) {
  constexpr int kVectors = VectorsPerRow<kRows>();
  int64_t column = 0;
  for (; column + kVectors * kLanes <= width; column += kVectors * kLanes) {
    AddValueColumns<kRows, kVectors, kRead>(tile, keys, weights, rescale, values, width, column);
  }
  for (; column < width; column += kLanes) {
    AddValueColumns<kRows, 1, kRead>(tile, keys, weights, rescale, values, width, column);
  }
}

// Attention of query rows [row, row + kRows), all of which see some key of the tile.
template <int kRows, Read kRead>
HWY_NOINLINE void AttendRows(const QueryBlock& block, const Tile& tile, int64_t row) {
  HWY_ALIGN float scores[kRows * kTileKeys];
  HWY_ALIGN float rescale[kRowsPadded] = {};
  const VisibleKeys keys = FindVisibleKeys(block, tile, row, kRows);
  ScoreRows<kRows, kRead>(block, tile, block.q + row * block.head_dim, keys.last_end, scores);
  if (block.params->distance_bias != nullptr) AddDistances(block, tile, row, kRows, scores);
  SoftmaxRows(*block.params, keys, kRows, scores, block.states + row, rescale);
  AddValues<kRows, kRead>(tile, keys, scores, rescale, block.values + row * block.value_width,
                          block.value_width);
}

// The same with bf16 products, for a tile that has pairs.
HWY_NOINLINE void AttendRowsBf16(const QueryBlock& block, const Bf16Products& products,
                                 const Tile& tile, int64_t row, int64_t num_rows, bool fetches) {
  HWY_ALIGN float scores[kAttentionRowsMax * kTileKeys];
  HWY_ALIGN float rescale[kRowsPadded] = {};
  const VisibleKeys keys = FindVisibleKeys(block, tile, row, num_rows);
  products.score(block, tile, row, num_rows, keys.last_end, fetches, scores);
  if (block.params->distance_bias != nullptr) AddDistances(block, tile, row, num_rows, scores);
  SoftmaxRows(*block.params, keys, num_rows, scores, block.states + row, rescale);
  products.add_values(block, tile, keys, row, num_rows, fetches, scores, rescale);
}

// Calls the kernel for `num_rows`. REQUIRES num_rows >= kRows.
template <Read kRead, int kRows = 1>
HWY_INLINE void AttendSome(const QueryBlock& block, const Tile& tile, int64_t row,
                           int64_t num_rows) {
  if constexpr (kRows < kBlockRows) {
    if (num_rows > kRows) return AttendSome<kRead, kRows + 1>(block, tile, row, num_rows);
  }
  AttendRows<kRows, kRead>(block, tile, row);
}

// Widens a row of pairs, a multiple of 16: the first of each to `first`, the second to `second`.
HWY_INLINE void WidenPairs(const uint32_t* HWY_RESTRICT pairs, int64_t count,
                           float* HWY_RESTRICT first, float* HWY_RESTRICT second) {
  const F32 d;
  for (int64_t i = 0; i < count; i += kLanes) {
    hn::StoreU(WidenHalves<0>(pairs + i), d, first + i);
    hn::StoreU(WidenHalves<1>(pairs + i), d, second + i);
  }
}

// Makes the tile's floats from its pairs: keys panel by panel, so that a panel's cache lines are
// neighbours.
HWY_INLINE void WidenTile(const QueryBlock& block, Tile* tile) {
  constexpr int64_t kPanels = kTileKeys / kPanelWidth;
  const int64_t head_dim = block.head_dim, value_dim = block.value_dim;
  const int64_t panel_begin = SeenPanel(*tile, 0), panel_end = SeenPanel(*tile, kPanels - 1) + 1;
  float* const values = tile->scratch + kTileKeys * head_dim;
  for (int64_t panel = panel_begin; panel < panel_end; ++panel) {
    float* const keys = tile->scratch + panel * kPanelWidth * head_dim;
    for (int64_t pair = 0; pair < head_dim / 2; ++pair) {
      float* const to = keys + 2 * pair * kPanelWidth;
      WidenPairs(tile->pairs.keys[panel] + pair * tile->pairs.key_stride, kPanelWidth, to,
                 to + kPanelWidth);
    }
    for (int64_t key = panel * kPanelWidth; key < (panel + 1) * kPanelWidth; key += 2) {
      float* const to = values + key * value_dim;
      WidenPairs(tile->pairs.values[key / 2], value_dim, to, to + value_dim);
      tile->values[key] = to;
      tile->values[key + 1] = to + value_dim;
    }
  }
  tile->key_stride = kPanelWidth;
  for (int64_t panel = 0; panel < kPanels; ++panel) {
    tile->keys[panel] = tile->scratch + SeenPanel(*tile, panel) * kPanelWidth * head_dim;
    tile->panel_values[panel] = tile->keys[panel];
  }
}

// If more rows than this pass over a tile of pairs, the tile is widened once for all of them, and
// each block of rows prefetches a part of the next tile. (The fallback always widens it.)
constexpr int64_t kPairRowsMax = kIsFallback ? 0 : 12;

HWY_INLINE void AttendFloats(const QueryBlock& block, const Tile& tile, int64_t row,
                             int64_t num_rows, bool reads_pairs, bool fetches) {
  if constexpr (!kIsFallback) {
    if (reads_pairs) return AttendSome<Read::kPairs>(block, tile, row, num_rows);
    if (fetches) return AttendSome<Read::kFetchingFloats>(block, tile, row, num_rows);
  }
  AttendSome<Read::kFloats>(block, tile, row, num_rows);
}

// Attention of query rows [begin, end), in blocks of about equal size. If there are few rows, the
// first block prefetches the tile's values and the next tile's keys, or the next tile if it reads
// pairs.
HWY_INLINE void AttendTile(const QueryBlock& block, const Bf16Products* products, Tile* tile,
                           int64_t begin, int64_t end) {
  const bool has_many = block.has_pairs && end - begin > kPairRowsMax;
  const bool reads_pairs = block.has_pairs && !has_many;
  if (products != nullptr && !block.has_pairs) products->round_tile(block, *tile, &tile->pairs);
  if (products == nullptr && has_many) WidenTile(block, tile);
  const int64_t rows_max = products == nullptr ? kBlockRows : products->rows_max;
  const int64_t all_blocks = (end - begin + rows_max - 1) / rows_max;
  int64_t num_blocks = all_blocks;
  for (bool is_first = true; begin < end; --num_blocks, is_first = false) {
    const int64_t num_rows = (end - begin + num_blocks - 1) / num_blocks;
    if (has_many) FetchNextPairs(block, tile->pairs, all_blocks - num_blocks, all_blocks);
    if (products != nullptr) {
      AttendRowsBf16(block, *products, *tile, begin, num_rows, is_first && reads_pairs);
    } else {
      const bool fetches = is_first && !has_many && !block.has_rows;
      AttendFloats(block, *tile, begin, num_rows, reads_pairs, fetches);
    }
    begin += num_rows;
  }
}

// Attention over all keys of one split. Returns the number of tiles read.
HWY_NOINLINE int64_t AttendSplit(const QueryBlock& block, const Bf16Products* products,
                                 int64_t split, float* scratch) {
  int64_t key_end = 0;
  for (int64_t i = 0; i < block.num_segments; ++i) {
    const BlockSegment& segment = block.segments[i];
    const bool has_part = SeesSplit(segment, split);
    ClearStates(block, segment, has_part);
    if (has_part) key_end = MaxOf(key_end, segment.key_end);
  }
  key_end = MinOf(key_end, (split + 1) * kSplitKeys);
  int64_t num_tiles = 0;
  for (int64_t first = split * kSplitKeys; first < key_end; first += kTileKeys) {
    for (int64_t i = 0, run_end = 0; i < block.num_segments; i = run_end) {
      run_end = RunEnd(block, i, first);
      const BlockSegment& segment = block.segments[i];
      if (first >= segment.key_end || first + kTileKeys <= segment.key_begin) continue;
      Tile tile;
      LoadTile(block, segment, first, scratch, &tile);
      ArrangeTile(block, segment, &tile);
      if (run_end < block.num_segments) {
        FindNextTile(block, block.segments[run_end], first, &tile);
      } else {
        FindNextTile(block, block.segments[0], first + kTileKeys, &tile);
      }
      const Rows rows = RowsThatSee(block, i, run_end, first);
      AttendTile(block, products, &tile, rows.begin, rows.end);
      ++num_tiles;
    }
  }
  return num_tiles;
}

// Adds b to a, both scaled to their common maximum.
HWY_INLINE void MergeRow(RowState* a, float* a_values, const RowState& b, const float* b_values,
                         int64_t width) {
  const F32 d;
  if (b.weight_sum == 0) return;  // saw no key
  if (a->weight_sum == 0) {
    *a = b;
    for (int64_t e = 0; e < width; e += kLanes)
      hn::Store(hn::Load(d, b_values + e), d, a_values + e);
    return;
  }
  const float maximum = MaxOf(a->maximum, b.maximum);
  const Floats a_scale = Exp(hn::Set(d, a->maximum - maximum));
  const Floats b_scale = Exp(hn::Set(d, b.maximum - maximum));
  a->weight_sum = a->weight_sum * hn::GetLane(a_scale) + b.weight_sum * hn::GetLane(b_scale);
  a->maximum = maximum;
  for (int64_t e = 0; e < width; e += kLanes) {
    const Floats scaled = hn::Mul(hn::Load(d, b_values + e), b_scale);
    hn::Store(hn::MulAdd(hn::Load(d, a_values + e), a_scale, scaled), d, a_values + e);
  }
}

// Adds the states of a later split, for the rows that see it.
HWY_NOINLINE void MergeSplit(const QueryBlock& later, int64_t split, RowState* states,
                             float* values) {
  for (int64_t i = 0; i < later.num_segments; ++i) {
    const BlockSegment& segment = later.segments[i];
    if (!SeesSplit(segment, split)) continue;
    for (int64_t row = segment.row_begin; row < segment.row_end; ++row) {
      const int64_t at = row * later.value_width;
      MergeRow(&states[row], values + at, later.states[row], later.values + at, later.value_width);
    }
  }
}

// out = values * scale / sum. `values` is padded to whole vectors; `out` has `width` elements.
HWY_INLINE void WriteRow(const float* values, float scale, float sum, int64_t width, float* out) {
  const F32 d;
  const Floats scales = hn::Set(d, scale), sums = hn::Set(d, sum);
  int64_t e = 0;
  for (; e + kLanes <= width; e += kLanes) {
    hn::StoreU(hn::Div(hn::Mul(hn::Load(d, values + e), scales), sums), d, out + e);
  }
  for (; e < width; ++e) out[e] = values[e] * scale / sum;
}

HWY_NOINLINE void WriteOutput(const QueryBlock& block, const RowState* states,
                              const float* values) {
  const F32 d;
  const AttentionParams& p = *block.params;
  for (int64_t i = 0; i < block.num_segments; ++i) {
    const BlockSegment& segment = block.segments[i];
    int64_t row = segment.row_begin;
    for (int64_t token = 0; token < segment.num_tokens; ++token) {
      for (int64_t g = 0; g < block.group_size; ++g, ++row) {
        const int64_t head = block.first_head + g;
        RowState state = states[row];
        float scale = 1;
        if (p.sinks != nullptr) {
          const float maximum = MaxOf(state.maximum, p.sinks[head]);
          scale = hn::GetLane(Exp(hn::Set(d, state.maximum - maximum)));
          state.weight_sum =
              state.weight_sum * scale + hn::GetLane(Exp(hn::Set(d, p.sinks[head] - maximum)));
        }
        WriteRow(
            values + row * block.value_width, scale, state.weight_sum, block.value_dim,
            p.out.f32() + ((segment.token_begin + token) * p.num_heads + head) * block.value_dim);
      }
    }
  }
}

int64_t AttendItem(const AttentionParams& p, const AttentionItem& item,
                   const Bf16Products* products, float* states, float* scratch) {
  QueryBlock block;
  MakeQueryBlock(p, item, &scratch, &block);
  CopyQueries(block);
  if (products != nullptr) products->round_queries(block);
  const int64_t state_floats = AttentionStateFloats(block.num_rows, block.value_dim);
  int64_t num_tiles = 0;
  if (item.state_begin >= 0) {
    for (int64_t split = item.split_begin; split < item.split_end; ++split) {
      PlaceStates(&block, states + item.state_begin + (split - item.split_begin) * state_floats);
      num_tiles += AttendSplit(block, products, split, scratch);
    }
    return num_tiles;
  }
  float* const tile_scratch = scratch + 2 * state_floats;
  PlaceStates(&block, scratch);
  RowState* const merged_states = block.states;
  float* const merged_values = block.values;
  num_tiles += AttendSplit(block, products, item.split_begin, tile_scratch);
  PlaceStates(&block, scratch + state_floats);
  for (int64_t split = item.split_begin + 1; split < item.split_end; ++split) {
    num_tiles += AttendSplit(block, products, split, tile_scratch);
    MergeSplit(block, split, merged_states, merged_values);
  }
  WriteOutput(block, merged_states, merged_values);
  return num_tiles;
}

int64_t Attend(const AttentionParams& p, const AttentionItem& item, const Bf16Products* products,
               float* states, float* scratch) {
  const int64_t num_tiles = AttendItem(p, item, products, states, scratch);
  if (products != nullptr && products->release != nullptr) products->release();
  return num_tiles;
}

void MergeSplits(const AttentionParams& p, const AttentionItem& item, float* states,
                 float* scratch) {
  QueryBlock block;
  MakeQueryBlock(p, item, &scratch, &block);
  const int64_t state_floats = AttentionStateFloats(block.num_rows, block.value_dim);
  PlaceStates(&block, states + item.state_begin);
  RowState* const merged_states = block.states;
  float* const merged_values = block.values;
  for (int64_t split = item.split_begin + 1; split < item.split_end; ++split) {
    PlaceStates(&block, states + item.state_begin + (split - item.split_begin) * state_floats);
    MergeSplit(block, split, merged_states, merged_values);
  }
  WriteOutput(block, merged_states, merged_values);
}

AttentionKernels GetAttention() { return {Attend, MergeSplits}; }

}  // namespace HWY_NAMESPACE
}  // namespace minisgl::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace minisgl::cpu {

const PerTarget<GetAttentionKernels>& AttentionKernelGetters() {
  static constexpr PerTarget<GetAttentionKernels> kTable = MINISGL_PER_TARGET(GetAttention);
  return kTable;
}

}  // namespace minisgl::cpu
#endif
