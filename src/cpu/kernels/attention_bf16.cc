// See attention_bf16.h. Compiled for one instruction set, as linear_bf16.cc is.
//
// Order of every sum, whatever other rows a row is computed with: a score by pairs of elements; a
// tile's weighted values by pairs of keys (positions 2p and 2p + 1), then added to the running sum.
// The instruction adds the two products of a pair and takes subnormal numbers as 0. If a row sees
// only one key of a pair, the other key's value is replaced by 0, so that its content does not
// matter.
#include "cpu/kernels/attention_bf16.h"

#include <cstddef>

#include "cpu/kernels/bf16_dot.h"
#include "cpu/kernels/kernels.h"

MINISGL_BF16_DOT_BEGIN
namespace minisgl::cpu {
namespace {

using bf16_dot::kLanes;
using bf16_dot::SetZero;

constexpr int64_t kTilePairs = kTileKeys / 2;
// Maximum number of vectors of a row of sums: 6 rows of 4 leave registers for the operands.
constexpr int kVectorsMax = 4;

// 16 pairs (even[i], odd[i]) as bf16.
inline __m512i RoundPairs(__m512 even, __m512 odd) {
  const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24,
                                         8, 23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  return _mm512_permutexvar_epi16(order, (__m512i)_mm512_cvtne2ps_pbh(odd, even));
}

void RoundQueries(const QueryBlock& block) {
  const int64_t num_pairs = HeadPairs(block.head_dim);
  for (int64_t row = 0; row < block.num_rows; ++row) {
    const float* const from = block.q + row * block.head_dim;
    RoundRowToBf16(from, block.head_dim,
                   reinterpret_cast<std::byte*>(block.q_pairs + row * num_pairs));
  }
}

// Rounds a panel of 16 keys at a time.
void RoundKeys(const QueryBlock& block, const Tile& tile, uint32_t* pairs) {
  const int64_t num_pairs = HeadPairs(block.head_dim);
  for (int64_t panel = 0; panel * kLanes < tile.key_end; ++panel) {
    const float* from = tile.keys[panel];
    uint32_t* to = pairs + panel * kLanes;
    for (int64_t pair = 0; pair < num_pairs; ++pair) {
      const bool has_odd = 2 * pair + 1 < block.head_dim;
      const __m512 odd = has_odd ? _mm512_loadu_ps(from + tile.key_stride) : _mm512_setzero_ps();
      _mm512_storeu_si512(to, RoundPairs(_mm512_loadu_ps(from), odd));
      from += 2 * tile.key_stride;
      to += kTileKeys;
    }
  }
}

void RoundValues(const QueryBlock& block, const Tile& tile, uint32_t* pairs) {
  const auto value = [&](int64_t key, int64_t column) {
    return key >= tile.key_begin && key < tile.key_end ? _mm512_loadu_ps(tile.values[key] + column)
                                                       : _mm512_setzero_ps();
  };
  for (int64_t pair = tile.key_begin / 2; 2 * pair < tile.key_end; ++pair) {
    uint32_t* const to = pairs + pair * block.value_width;
    for (int64_t column = 0; column < block.value_width; column += kLanes) {
      const __m512i both = RoundPairs(value(2 * pair, column), value(2 * pair + 1, column));
      _mm512_storeu_si512(to + column, both);
    }
  }
}

void RoundTile(const QueryBlock& block, const Tile& tile, PairTile* pairs) {
  uint32_t* const keys = pairs->scratch;
  uint32_t* const values = keys + kTileKeys * HeadPairs(block.head_dim);
  RoundKeys(block, tile, keys);
  RoundValues(block, tile, values);
  for (int64_t panel = 0; panel * kLanes < kTileKeys; ++panel) {
    pairs->keys[panel] = keys + panel * kLanes;
  }
  pairs->key_stride = kTileKeys;
  for (int64_t pair = 0; pair < kTilePairs; ++pair) {
    pairs->values[pair] = values + pair * block.value_width;
  }
}

// Vector v of row k of the keys or the values of a tile, and of the next tile.
struct KeyPairs {
  const uint32_t* const* panels;
  const uint32_t* const* next;
  int64_t stride;
  const uint32_t* At(int64_t k, int v) const { return panels[v] + k * stride; }
  const uint32_t* Next(int64_t k, int v) const { return next[v] + k * stride; }
};
struct ValuePairs {
  const uint32_t* const* rows;
  const uint32_t* const* next;
  int64_t column;
  const uint32_t* At(int64_t k, int v) const { return rows[k] + column + v * kLanes; }
  const uint32_t* Next(int64_t k, int v) const { return next[k] + column + v * kLanes; }
};

// sum[r][v] += the products of pairs x[r * x_stride + k] and w.At(k, v), for k = 0, 1, ..., num_k -
// 1 in this order. If kFetches, prefetches a line into the second-level cache for each line read.
template <bool kFetches, int kRows, int kVectors, class Operand>
inline void AddProducts(const uint32_t* x, int64_t x_stride, const Operand& w, int64_t num_k,
                        __m512 (&sum)[kRows][kVectors]) {
  for (int64_t k = 0; k < num_k; ++k) {
    __m512bh operand[kVectors];
    MINISGL_UNROLL for (int v = 0; v < kVectors; ++v) {
      if (kFetches) __builtin_prefetch(w.Next(k, v), /*rw=*/0, /*locality=*/2);
      operand[v] = (__m512bh)_mm512_loadu_si512(w.At(k, v));
    }
    MINISGL_UNROLL for (int r = 0; r < kRows; ++r) {
      const auto both = (__m512bh)_mm512_set1_epi32(static_cast<int32_t>(x[r * x_stride + k]));
      MINISGL_UNROLL for (int v = 0; v < kVectors; ++v) {
        sum[r][v] = _mm512_dpbf16_ps(sum[r][v], both, operand[v]);
      }
    }
  }
}

template <bool kFetches, int kRows, int kVectors>
inline void ScoreKeys(const QueryBlock& block, const Tile& tile, int64_t row, float* scores) {
  const int64_t num_pairs = HeadPairs(block.head_dim);
  const __m512 scale = _mm512_set1_ps(block.params->scale);
  __m512 sum[kRows][kVectors];
  SetZero(sum);
  const KeyPairs keys = {tile.pairs.keys, tile.pairs.next_keys, tile.pairs.key_stride};
  AddProducts<kFetches>(block.q_pairs + row * num_pairs, num_pairs, keys, num_pairs, sum);
  MINISGL_UNROLL for (int r = 0; r < kRows; ++r) {
    MINISGL_UNROLL for (int v = 0; v < kVectors; ++v) {
      _mm512_storeu_ps(scores + r * kTileKeys + v * kLanes, _mm512_mul_ps(sum[r][v], scale));
    }
  }
}

template <bool kFetches, int kRows>
void ScoreRows(const QueryBlock& block, const Tile& tile, int64_t row, int64_t key_end,
               float* scores) {
  static_assert(kTileKeys == kVectorsMax * kLanes);
  if (key_end > kTileKeys / 2) {
    ScoreKeys<kFetches, kRows, kVectorsMax>(block, tile, row, scores);
  } else {
    ScoreKeys<kFetches, kRows, kVectorsMax / 2>(block, tile, row, scores);
  }
}

// Pairs of keys of a tile.
struct PairRange {
  int64_t begin, end;
};

// Adds the pairs of `range` that a row sees to its sums; for a pair of which it sees one key, only
// that key.
template <int kVectors>
inline void AddSeenPairs(PairRange range, int64_t key_begin, int64_t key_end,
                         const uint32_t* weights, const ValuePairs& values,
                         __m512 (&sum)[kVectors]) {
  const int64_t first = key_begin / 2, last = (key_end + 1) / 2;
  if (range.begin < first) range.begin = first;
  if (range.end > last) range.end = last;
  for (int64_t pair = range.begin; pair < range.end; ++pair) {
    uint32_t seen = 0xFFFF'FFFF;
    if (2 * pair < key_begin) seen &= 0xFFFF'0000;
    if (2 * pair + 1 >= key_end) seen &= 0xFFFF;
    const __m512i mask = _mm512_set1_epi32(static_cast<int32_t>(seen));
    const auto both = (__m512bh)_mm512_set1_epi32(static_cast<int32_t>(weights[pair] & seen));
    MINISGL_UNROLL for (int v = 0; v < kVectors; ++v) {
      const __m512i value = _mm512_loadu_si512(values.At(pair, v));
      sum[v] = _mm512_dpbf16_ps(sum[v], both, (__m512bh)_mm512_and_si512(value, mask));
    }
  }
}

template <int kRows, int kVectors>
inline void AddSeenPairsOfRows(PairRange range, const VisibleKeys& keys, const uint32_t* weights,
                               const ValuePairs& values, __m512 (&sum)[kRows][kVectors]) {
  MINISGL_UNROLL for (int r = 0; r < kRows; ++r) {
    AddSeenPairs(range, keys.begin[r], keys.end[r], weights + r * kTilePairs, values, sum[r]);
  }
}

template <bool kFetches, int kRows, int kVectors>
inline void AddValueColumns(const Tile& tile, const VisibleKeys& keys, const uint32_t* weights,
                            const float* rescale, int64_t width, int64_t column, float* values) {
  // The pairs of which all rows see both keys.
  const PairRange all = {(keys.all_begin + 1) / 2, keys.all_end / 2};
  const ValuePairs pairs = {tile.pairs.values, tile.pairs.next_values, column};
  const ValuePairs seen = {pairs.rows + all.begin, pairs.next + all.begin, column};
  __m512 sum[kRows][kVectors];
  SetZero(sum);
  AddSeenPairsOfRows({0, all.begin}, keys, weights, pairs, sum);
  AddProducts<kFetches>(weights + all.begin, kTilePairs, seen, all.end - all.begin, sum);
  AddSeenPairsOfRows({all.end, kTilePairs}, keys, weights, pairs, sum);
  MINISGL_UNROLL for (int r = 0; r < kRows; ++r) {
    MINISGL_UNROLL for (int v = 0; v < kVectors; ++v) {
      float* const to = values + r * width + column + v * kLanes;
      const __m512 before = _mm512_loadu_ps(to);
      _mm512_storeu_ps(to, _mm512_fmadd_ps(before, _mm512_set1_ps(rescale[r]), sum[r][v]));
    }
  }
}

template <bool kFetches, int kRows>
void AddValueRows(const QueryBlock& block, const Tile& tile, const VisibleKeys& keys, int64_t row,
                  const float* weights, const float* rescale) {
  alignas(64) uint32_t pairs[kRows * kTilePairs];
  for (int64_t i = 0; i < kRows * kTilePairs; i += kLanes) {
    const __m512 first = _mm512_loadu_ps(weights + 2 * i);
    const __m512 second = _mm512_loadu_ps(weights + 2 * i + kLanes);
    _mm512_store_si512(pairs + i, (__m512i)_mm512_cvtne2ps_pbh(second, first));
  }
  const int64_t width = block.value_width;
  float* const values = block.values + row * width;
  int64_t column = 0;
  for (; column + kVectorsMax * kLanes <= width; column += kVectorsMax * kLanes) {
    AddValueColumns<kFetches, kRows, kVectorsMax>(tile, keys, pairs, rescale, width, column,
                                                  values);
  }
  for (; column < width; column += kLanes) {
    AddValueColumns<kFetches, kRows, 1>(tile, keys, pairs, rescale, width, column, values);
  }
}

using ScoreFunction = void (*)(const QueryBlock&, const Tile&, int64_t, int64_t, float*);
template <bool kFetches>
constexpr ScoreFunction kScore[kRowsMax] = {ScoreRows<kFetches, 1>, ScoreRows<kFetches, 2>,
                                            ScoreRows<kFetches, 3>, ScoreRows<kFetches, 4>,
                                            ScoreRows<kFetches, 5>, ScoreRows<kFetches, 6>};

void Score(const QueryBlock& block, const Tile& tile, int64_t row, int64_t num_rows,
           int64_t key_end, bool fetches, float* scores) {
  const ScoreFunction* const table = fetches ? kScore<true> : kScore<false>;
  table[num_rows - 1](block, tile, row, key_end, scores);
}

using AddFunction = void (*)(const QueryBlock&, const Tile&, const VisibleKeys&, int64_t,
                             const float*, const float*);
template <bool kFetches>
constexpr AddFunction kAdd[kRowsMax] = {AddValueRows<kFetches, 1>, AddValueRows<kFetches, 2>,
                                        AddValueRows<kFetches, 3>, AddValueRows<kFetches, 4>,
                                        AddValueRows<kFetches, 5>, AddValueRows<kFetches, 6>};

void AddValues(const QueryBlock& block, const Tile& tile, const VisibleKeys& keys, int64_t row,
               int64_t num_rows, bool fetches, const float* weights, const float* rescale) {
  const AddFunction* const table = fetches ? kAdd<true> : kAdd<false>;
  table[num_rows - 1](block, tile, keys, row, weights, rescale);
}

constexpr Bf16Products kProducts = {kRowsMax, RoundQueries, RoundTile, Score, AddValues, nullptr};

}  // namespace
}  // namespace minisgl::cpu
MINISGL_BF16_DOT_END

namespace minisgl::cpu {

const Bf16Products* AttentionBf16Products() { return &kProducts; }

}  // namespace minisgl::cpu
