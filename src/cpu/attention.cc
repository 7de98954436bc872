// Causal attention over paged keys and values with an online softmax.
//
// Order of every result, whatever it is computed with: keys in tiles of kTileKeys positions at
// multiples of it; scores summed over head_dim one multiply-add after another; a tile's weighted
// values summed key by key, then added to the running sum; splits of kSplitKeys positions on their
// own, merged in order. A key that a query must not see is never multiplied, so what lies in
// unwritten slots does not matter.
//
// An item passes its query rows (tokens x heads of one KV head) over each tile while it is in the
// cache. Keys of a page are read where they lie if the page holds whole panels of 16 positions,
// else they are copied to scratch.
#include "cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/attention.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "cpu/attention_block.h"
#include "cpu/kernels.h"
#include "cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace minisgl {
namespace HWY_NAMESPACE {

// Scores of kRows query rows against the tile's keys [0, tile.key_end), 64 floats a row.
template <int kRows>
HWY_INLINE void ScoreRows(const QueryBlock& block, const Tile& tile, const float* q,
                          float* scores) {
  constexpr int kVectors = VectorsPerRow<kRows>();
  const F32 d;
  const Floats scale = hn::Set(d, block.params->scale);
  for (int64_t column = 0; column < tile.key_end; column += kVectors * kLanes) {
    StridedOperand<kVectors> keys;
    keys.stride = static_cast<size_t>(tile.key_stride);
    MINISGL_UNROLL for (int v = 0; v < kVectors; ++v) {
      const int64_t first = column + v * kLanes;
      keys.start[v] = tile.keys[first / kPanelWidth] + first % kPanelWidth;
    }
    Floats sum[kRows][kVectors];
    SetZero(sum);
    const auto width = static_cast<size_t>(block.head_dim);
    MultiplyAccumulate(q, width, keys, width, sum);
    MINISGL_UNROLL for (int r = 0; r < kRows; ++r) {
      MINISGL_UNROLL for (int v = 0; v < kVectors; ++v) {
        hn::Store(hn::Mul(sum[r][v], scale), d, scores + r * kTileKeys + column + v * kLanes);
      }
    }
  }
}

// Turns the scores of keys [begin, end) of the tile into weights relative to the row's new maximum,
// updates the row's maximum and sum of weights, and returns what the earlier values are to be
// multiplied by.
HWY_INLINE float SoftmaxRow(const AttentionParams& p, int64_t begin, int64_t end, float* scores,
                            RowState* state) {
  const F32 d;
  const float masked = hn::GetLane(hn::Neg(hn::Inf(d)));
  for (int64_t key = 0; key < begin; ++key) scores[key] = masked;
  for (int64_t key = end; key < kTileKeys; ++key) scores[key] = masked;
  if (p.logit_softcap > 0) {
    const Floats cap = hn::Set(d, p.logit_softcap);
    const int64_t first = begin / kLanes * kLanes;
    for (int64_t key = first; key < end; key += kLanes) {
      const Floats s = hn::Load(d, scores + key);
      const Floats capped = hn::Mul(cap, Tanh(hn::Div(s, cap)));
      // A masked score must stay -infinity.
      hn::Store(hn::IfThenElse(hn::Eq(s, hn::Set(d, masked)), s, capped), d, scores + key);
    }
  }
  Floats largest = hn::Set(d, state->maximum);
  for (int64_t key = 0; key < kTileKeys; key += kLanes) {
    largest = hn::Max(largest, hn::Load(d, scores + key));
  }
  const float maximum = hn::GetLane(hn::MaxOfLanes(d, largest));
  Floats sum = hn::Zero(d);
  for (int64_t key = 0; key < kTileKeys; key += kLanes) {
    const Floats weight = Exp(hn::Sub(hn::Load(d, scores + key), hn::Set(d, maximum)));
    hn::Store(weight, d, scores + key);
    sum = hn::Add(sum, weight);
  }
  const float rescale = hn::GetLane(Exp(hn::Set(d, state->maximum - maximum)));
  state->weight_sum = state->weight_sum * rescale + hn::GetLane(hn::SumOfLanes(d, sum));
  state->maximum = maximum;
  return rescale;
}

// values[r] = values[r] * rescale[r] + sum over keys [begin, end) of weights[r][key] * v[key], for
// kVectors vectors of the head from `column` on.
template <int kRows, int kVectors>
HWY_INLINE void AddValueColumns(const Tile& tile, int64_t begin, int64_t end, const float* weights,
                                const float* rescale, float* values, int64_t width,
                                int64_t column) {
  const F32 d;
  Floats sum[kRows][kVectors];
  SetZero(sum);
  const ScatteredOperand<kVectors> rows = {tile.values + begin, static_cast<size_t>(column)};
  MultiplyAccumulate(weights + begin, static_cast<size_t>(kTileKeys), rows,
                     static_cast<size_t>(end - begin), sum);
  MINISGL_UNROLL for (int r = 0; r < kRows; ++r) {
    MINISGL_UNROLL for (int v = 0; v < kVectors; ++v) {
      float* to = values + r * width + column + v * kLanes;
      hn::Store(hn::MulAdd(hn::Load(d, to), hn::Set(d, rescale[r]), sum[r][v]), d, to);
    }
  }
}

template <int kRows>
HWY_INLINE void AddValues(const Tile& tile, int64_t begin, int64_t end, const float* weights,
                          const float* rescale, float* values, int64_t width) {
  constexpr int kVectors = VectorsPerRow<kRows>();
  int64_t column = 0;
  for (; column + kVectors * kLanes <= width; column += kVectors * kLanes) {
    AddValueColumns<kRows, kVectors>(tile, begin, end, weights, rescale, values, width, column);
  }
  for (; column < width; column += kLanes) {
    AddValueColumns<kRows, 1>(tile, begin, end, weights, rescale, values, width, column);
  }
}

// Calls Function<rows>(arguments...) for 1 to kRowsMax rows.
#define MINISGL_FOR_ROWS(rows, Function, ...) \
  switch (rows) {                             \
    case 1:                                   \
      Function<1>(__VA_ARGS__);               \
      break;                                  \
    case 2:                                   \
      Function<2>(__VA_ARGS__);               \
      break;                                  \
    case 3:                                   \
      Function<3>(__VA_ARGS__);               \
      break;                                  \
    case 4:                                   \
      Function<4>(__VA_ARGS__);               \
      break;                                  \
    case 5:                                   \
      Function<5>(__VA_ARGS__);               \
      break;                                  \
    default:                                  \
      Function<6>(__VA_ARGS__);               \
      break;                                  \
  }

// Query rows [row, row + num_rows), num_rows <= kRowsMax, all of which see some key of the tile.
HWY_NOINLINE void AttendRows(const QueryBlock& block, const Tile& tile, int64_t row,
                             int64_t num_rows) {
  HWY_ALIGN float scores[kRowsMax * kTileKeys];
  float rescale[kRowsMax];
  MINISGL_FOR_ROWS(num_rows, ScoreRows, block, tile, block.q + row * block.head_dim, scores);
  for (int64_t r = 0; r < num_rows; ++r) {
    const KeyRange keys = VisibleKeys(block, tile, row + r);
    rescale[r] = SoftmaxRow(*block.params, keys.begin, keys.end, scores + r * kTileKeys,
                            &block.states[row + r]);
  }
  // Rows that see the same keys go together: all of them away from the diagonal, a token's heads on
  // it.
  for (int64_t r = 0; r < num_rows;) {
    const KeyRange keys = VisibleKeys(block, tile, row + r);
    int64_t same = 1;
    while (r + same < num_rows && VisibleKeys(block, tile, row + r + same) == keys) ++same;
    MINISGL_FOR_ROWS(same, AddValues, tile, keys.begin, keys.end, scores + r * kTileKeys,
                     rescale + r, block.values + (row + r) * block.value_width, block.value_width);
    r += same;
  }
}

// All keys of one split.
HWY_INLINE void AttendSplit(const QueryBlock& block, int64_t split, float* scratch) {
  ClearStates(block);
  const int64_t begin = MaxOf(block.key_begin, split * kSplitKeys);
  const int64_t end = MinOf(block.key_end, (split + 1) * kSplitKeys);
  for (int64_t first = begin / kTileKeys * kTileKeys; first < end; first += kTileKeys) {
    Tile tile;
    LoadTile(block, first, scratch, &tile);
    const KeyRange rows = RowsThatSee(block, tile);
    for (int64_t row = rows.begin; row < rows.end; row += kRowsMax) {
      AttendRows(block, tile, row, MinOf(kRowsMax, rows.end - row));
    }
  }
}

// a and b scaled to their common maximum and added.
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

HWY_INLINE void WriteOutput(const QueryBlock& block, const RowState* states, const float* values) {
  const F32 d;
  const AttentionParams& p = *block.params;
  for (int64_t row = 0; row < block.num_rows; ++row) {
    const int64_t token = block.token_begin + row / block.group_size;
    const int64_t head = block.first_head + row % block.group_size;
    RowState state = states[row];
    float scale = 1;
    if (p.sinks != nullptr) {
      const float maximum = MaxOf(state.maximum, p.sinks[head]);
      scale = hn::GetLane(Exp(hn::Set(d, state.maximum - maximum)));
      state.weight_sum =
          state.weight_sum * scale + hn::GetLane(Exp(hn::Set(d, p.sinks[head] - maximum)));
    }
    const float* from = values + row * block.value_width;
    float* out = p.out.f32() + (token * p.num_heads + head) * block.head_dim;
    for (int64_t e = 0; e < block.head_dim; ++e) out[e] = from[e] * scale / state.weight_sum;
  }
}

void Attend(const AttentionParams& p, const AttentionItem& item, float* scratch) {
  QueryBlock block = MakeQueryBlock(p, item, &scratch);
  CopyQueries(block);
  const int64_t state_floats = AttentionStateFloats(block.num_rows, block.head_dim);
  if (item.states != nullptr) {
    for (int64_t split = item.split_begin; split < item.split_end; ++split) {
      PlaceStates(&block, item.states + (split - item.split_begin) * state_floats);
      AttendSplit(block, split, scratch);
    }
    return;
  }
  PlaceStates(&block, scratch);
  RowState* const merged_states = block.states;
  float* const merged_values = block.values;
  scratch += state_floats;
  AttendSplit(block, item.split_begin, scratch + state_floats);
  PlaceStates(&block, scratch);
  scratch += state_floats;
  for (int64_t split = item.split_begin + 1; split < item.split_end; ++split) {
    AttendSplit(block, split, scratch);
    for (int64_t row = 0; row < block.num_rows; ++row) {
      const int64_t at = row * block.value_width;
      MergeRow(&merged_states[row], merged_values + at, block.states[row], block.values + at,
               block.value_width);
    }
  }
  WriteOutput(block, merged_states, merged_values);
}

void MergeSplits(const AttentionParams& p, const AttentionItem& item, float* scratch) {
  QueryBlock block = MakeQueryBlock(p, item, &scratch);
  const int64_t state_floats = AttentionStateFloats(block.num_rows, block.head_dim);
  PlaceStates(&block, item.states);
  RowState* const merged_states = block.states;
  float* const merged_values = block.values;
  for (int64_t split = item.split_begin + 1; split < item.split_end; ++split) {
    PlaceStates(&block, item.states + (split - item.split_begin) * state_floats);
    for (int64_t row = 0; row < block.num_rows; ++row) {
      const int64_t at = row * block.value_width;
      MergeRow(&merged_states[row], merged_values + at, block.states[row], block.values + at,
               block.value_width);
    }
  }
  WriteOutput(block, merged_states, merged_values);
}

AttentionKernels GetAttention() { return {Attend, MergeSplits}; }

}  // namespace HWY_NAMESPACE
}  // namespace minisgl
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace minisgl {

const PerTarget<GetAttentionKernels>& AttentionKernelGetters() {
  static constexpr PerTarget<GetAttentionKernels> kTable = MINISGL_PER_TARGET(GetAttention);
  return kTable;
}

}  // namespace minisgl
#endif
