// See attention_block.h.
#include "cpu/kernels/attention_block.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "minisgl/base/check.h"

namespace minisgl::cpu {
namespace {

constexpr int64_t kPanelsPerTile = kTileKeys / kPanelWidth;

int64_t RoundUp(int64_t floats) { return (floats + 15) / 16 * 16; }

// Floats of a tile's copied keys and values.
int64_t TileCopyFloats(int64_t head_dim, int64_t value_dim) {
  return kTileKeys * (head_dim + RoundUp(value_dim));
}

float ToFloat(float x) { return x; }
float ToFloat(uint16_t bf16) { return Bf16ToFloat(bf16); }

// Copies the keys [begin, end) of the tile as [head_dim][kTileKeys], 16 keys at a time, so that
// writes fill cache lines.
template <typename T>
void CopyKeys(const T* const* keys, int64_t begin, int64_t end, int64_t head_dim,
              int64_t element_stride, float* to) {
  for (int64_t panel = begin / kPanelWidth * kPanelWidth; panel < end; panel += kPanelWidth) {
    const int64_t first = std::max(begin, panel), last = std::min(end, panel + kPanelWidth);
    for (int64_t e = 0; e < head_dim; ++e) {
      for (int64_t key = first; key < last; ++key) {
        to[e * kTileKeys + key] = ToFloat(keys[key][e * element_stride]);
      }
    }
  }
}

// Copies the values of the keys that some row sees as [kTileKeys][value_width], zeros past
// value_dim.
template <typename T>
void CopyValues(const QueryBlock& block, const T* const* values, float* to, Tile* tile) {
  for (int64_t key = tile->key_begin; key < tile->key_end; ++key) {
    float* const row = to + key * block.value_width;
    for (int64_t e = 0; e < block.value_dim; ++e) row[e] = ToFloat(values[key][e]);
    std::fill(row + block.value_dim, row + block.value_width, 0.0f);
    tile->values[key] = row;
  }
}

// Finds the first element, of type T, of each key and value that some row sees.
template <typename T>
void FindElements(const QueryBlock& block, const BlockSegment& segment, const Tile& tile,
                  int64_t key_stride, const T** keys, const T** values) {
  const KvLayer& kv = block.params->kv;
  const int64_t value_stride = kv.value_slot_stride();
  int64_t page = (tile.first + tile.key_begin) / kv.page_size;
  int64_t offset = (tile.first + tile.key_begin) % kv.page_size;
  for (int64_t key = tile.key_begin; key < tile.key_end; ++page, offset = 0) {
    const T* const base = kv.base.as<T>() + segment.pages[page] * kv.page_stride;
    const T* const head = base + block.kv_head * kv.head_stride + offset * key_stride;
    const T* const value =
        base + kv.v_offset + block.kv_head * kv.value_head_stride() + offset * value_stride;
    const int64_t count = std::min(kv.page_size - offset, tile.key_end - key);
    for (int64_t i = 0; i < count; ++i) keys[key + i] = head + i * key_stride;
    for (int64_t i = 0; i < count; ++i) values[key + i] = value + i * value_stride;
    key += count;
  }
}

// Finds panel `panel` of a tile's pairs, whose first key is at position `key`: the start of its
// keys, and its rows of values.
void FindPanel(const QueryBlock& block, const BlockSegment& segment, int64_t key, int64_t panel,
               const uint32_t** keys, const uint32_t** values) {
  constexpr int64_t kPairs = kPanelWidth / 2;
  const KvLayer& kv = block.params->kv;
  const auto* const base =
      kv.base.as<uint16_t>() + segment.pages[key / kv.page_size] * kv.page_stride;
  const auto* const value = base + kv.v_offset + block.kv_head * kv.value_head_stride();
  const int64_t offset = key % kv.page_size;
  keys[panel] = reinterpret_cast<const uint32_t*>(base + block.kv_head * kv.head_stride) + offset;
  const auto* const first = reinterpret_cast<const uint32_t*>(value) + offset / 2 * block.value_dim;
  for (int64_t pair = 0; pair < kPairs; ++pair) {
    values[panel * kPairs + pair] = first + pair * block.value_dim;
  }
}

void FindPairs(const QueryBlock& block, const BlockSegment& segment, Tile* tile) {
  PairTile& pairs = tile->pairs;
  pairs.key_stride = block.params->kv.page_size;
  for (int64_t panel = 0; panel < kPanelsPerTile; ++panel) {
    const int64_t first = tile->first + SeenPanel(*tile, panel) * kPanelWidth;
    FindPanel(block, segment, first, panel, pairs.keys, pairs.values);
  }
}

// Finds the keys of a tile as they are stored.
template <typename T>
void FindRows(const QueryBlock& block, const BlockSegment& segment, Tile* tile) {
  const T *keys[kTileKeys], *values[kTileKeys];
  FindElements(block, segment, *tile, block.params->kv.slot_stride, keys, values);
  for (int64_t key = 0; key < kTileKeys; ++key) {
    const int64_t seen = std::clamp(key, tile->key_begin, tile->key_end - 1);
    tile->rows[key] = reinterpret_cast<const std::byte*>(keys[seen]);
  }
}

// Sets the tile's floats: in place, or copied to `scratch`.
void FindFloats(const QueryBlock& block, const BlockSegment& segment, float* scratch, Tile* tile) {
  const KvLayer& kv = block.params->kv;
  const KeyLayout layout(kv, block.params->head_dim);
  float* const key_copy = scratch;
  float* const value_copy = scratch + kTileKeys * block.head_dim;
  const bool is_f32 = kv.base.dtype == DType::kF32;
  const bool in_place = is_f32 && layout.transposed && kv.page_size % kPanelWidth == 0;
  const float* keys[kTileKeys];
  if (is_f32) {
    FindElements(block, segment, *tile, layout.slot_stride, keys, tile->values);
    if (!in_place) {
      CopyKeys(keys, tile->key_begin, tile->key_end, block.head_dim, layout.element_stride,
               key_copy);
    }
    if (block.value_width != block.value_dim) CopyValues(block, tile->values, value_copy, tile);
  } else {
    const uint16_t *bf16_keys[kTileKeys], *bf16_values[kTileKeys];
    FindElements(block, segment, *tile, kv.slot_stride, bf16_keys, bf16_values);
    CopyKeys(bf16_keys, tile->key_begin, tile->key_end, block.head_dim, 1, key_copy);
    CopyValues(block, bf16_values, value_copy, tile);
  }
  tile->key_stride = in_place ? layout.element_stride : kTileKeys;
  for (int64_t panel = 0; panel < kPanelsPerTile; ++panel) {
    const int64_t seen = SeenPanel(*tile, panel) * kPanelWidth;
    const int64_t key = std::max(seen, tile->key_begin);
    tile->keys[panel] = in_place ? keys[key] - (key - seen) : key_copy + seen;
    tile->panel_values[panel] = tile->values[key];
  }
}

}  // namespace

int64_t AttentionStateFloats(int64_t num_query_rows, int64_t value_dim) {
  return RoundUp(2 * num_query_rows) + num_query_rows * RoundUp(value_dim);
}

int64_t AttentionScratchFloats(int64_t num_query_rows, int64_t head_dim, int64_t value_dim) {
  const int64_t tile = TileCopyFloats(head_dim, value_dim) + kTileKeys * HeadPairs(head_dim) +
                       kTileKeys / 2 * RoundUp(value_dim);
  return 2 * RoundUp(num_query_rows) + RoundUp(num_query_rows * head_dim) +
         RoundUp(num_query_rows * HeadPairs(head_dim)) +
         2 * AttentionStateFloats(num_query_rows, value_dim) + tile;
}

void MakeQueryBlock(const AttentionParams& params, const AttentionItem& item, float** scratch,
                    QueryBlock* block) {
  MINISGL_CHECK(item.num_segments <= kQueryRowsMax, "{} segments of an item", item.num_segments);
  block->params = &params;
  block->kv_head = item.kv_head;
  block->group_size = params.num_heads / params.num_kv_heads;
  block->first_head = item.kv_head * block->group_size;
  block->num_rows = item.num_tokens * block->group_size;
  block->head_dim = params.head_dim;
  block->value_dim = params.value_dim();
  block->value_width = RoundUp(block->value_dim);
  const bool is_f32 = params.kv.base.dtype == DType::kF32;
  block->has_rows = params.kv.values_in_keys && block->value_dim % kPanelWidth == 0 &&
                    (is_f32 || block->head_dim % kPanelWidth == 0);
  block->has_pairs =
      KeepsPairs(params.kv, params.head_dim, params.value_dim()) || (block->has_rows && !is_f32);
  block->has_codes = params.kv.has_codes();
  if (block->has_codes) {
    MINISGL_CHECK(block->head_dim % kPanelWidth == 0 && block->value_dim % kPanelWidth == 0,
                  "codes of heads of {} and {}", block->head_dim, block->value_dim);
    block->has_rows = false;
    block->has_pairs = true;
  }
  block->num_segments = item.num_segments;
  block->positions = reinterpret_cast<int32_t*>(*scratch);
  *scratch += RoundUp(block->num_rows);
  block->key_ends = reinterpret_cast<int32_t*>(*scratch);
  *scratch += RoundUp(block->num_rows);
  block->q = *scratch;
  *scratch += RoundUp(block->num_rows * block->head_dim);
  block->q_pairs = reinterpret_cast<uint32_t*>(*scratch);
  *scratch += RoundUp(block->num_rows * HeadPairs(block->head_dim));
  int64_t row = 0;
  for (int64_t i = 0; i < item.num_segments; ++i) {
    const AttentionSegment& from = item.segments[i];
    BlockSegment& to = block->segments[i];
    to.pages = params.page_table + params.table_row[from.row] * params.page_table_stride;
    to.token_begin = from.token_begin;
    to.num_tokens = from.token_end - from.token_begin;
    // The row's last token is at kv_len - 1.
    to.first_position =
        int64_t{params.kv_len[from.row]} - (params.row_begin[from.row + 1] - from.token_begin);
    to.key_begin = params.first_key;
    if (params.sliding_window > 0) {
      to.key_begin = std::max(to.key_begin, to.first_position - params.sliding_window + 1);
    }
    const auto end_of = [&](int64_t token) {
      return params.key_end != nullptr ? params.key_end[from.token_begin + token]
                                       : static_cast<int32_t>(to.first_position + token + 1);
    };
    to.key_end = end_of(to.num_tokens - 1);
    to.shared_tiles = from.shared_tiles;
    to.row_begin = row;
    for (int64_t token = 0; token < to.num_tokens; ++token) {
      std::fill_n(block->positions + row, block->group_size,
                  static_cast<int32_t>(to.first_position + token));
      std::fill_n(block->key_ends + row, block->group_size, end_of(token));
      row += block->group_size;
    }
    to.row_end = row;
  }
}

void CopyQueries(const QueryBlock& block) {
  const AttentionParams& p = *block.params;
  const int64_t token_width = p.token_width();
  const int64_t floats = block.group_size * block.head_dim;
  float* to = block.q;
  for (int64_t i = 0; i < block.num_segments; ++i) {
    const BlockSegment& segment = block.segments[i];
    const float* from =
        p.qkv.f32() + segment.token_begin * token_width + block.first_head * block.head_dim;
    for (int64_t t = 0; t < segment.num_tokens; ++t, to += floats) {
      std::memcpy(to, from + t * token_width, static_cast<size_t>(floats) * sizeof(float));
    }
  }
}

void PlaceStates(QueryBlock* block, float* memory) {
  block->states = reinterpret_cast<RowState*>(memory);
  block->values = memory + RoundUp(2 * block->num_rows);
}

void ClearStates(const QueryBlock& block, const BlockSegment& segment, bool has_values) {
  const int64_t num_rows = segment.row_end - segment.row_begin;
  std::fill_n(block.states + segment.row_begin, num_rows,
              RowState{-std::numeric_limits<float>::infinity(), 0.0f});
  if (!has_values) return;
  std::fill_n(block.values + segment.row_begin * block.value_width, num_rows * block.value_width,
              0.0f);
}

int64_t SeenPanel(const Tile& tile, int64_t panel) {
  return std::clamp(panel, tile.key_begin / kPanelWidth, (tile.key_end - 1) / kPanelWidth);
}

void LoadTile(const QueryBlock& block, const BlockSegment& segment, int64_t first, float* scratch,
              Tile* tile) {
  tile->first = first;
  tile->key_begin = std::max<int64_t>(0, segment.key_begin - first);
  tile->key_end = std::min(kTileKeys, segment.key_end - first);
  tile->scratch = scratch;
  tile->pairs.scratch =
      reinterpret_cast<uint32_t*>(scratch + TileCopyFloats(block.head_dim, block.value_dim));
  if (block.has_codes) return;
  if (block.has_rows && block.has_pairs) {
    FindRows<uint16_t>(block, segment, tile);
  } else if (block.has_rows) {
    FindRows<float>(block, segment, tile);
  } else if (block.has_pairs) {
    FindPairs(block, segment, tile);
  } else {
    FindFloats(block, segment, scratch, tile);
  }
}

void FindNextTile(const QueryBlock& block, const BlockSegment& segment, int64_t first, Tile* tile) {
  const KvLayer& kv = block.params->kv;
  PairTile& pairs = tile->pairs;
  if (block.has_pairs) {
    std::copy_n(pairs.keys, kPanelsPerTile, pairs.next_keys);
    std::copy_n(pairs.values, kTileKeys / 2, pairs.next_values);
    pairs.num_next = 0;
  } else {
    std::copy_n(tile->keys, kPanelsPerTile, tile->next_keys);
    if (kv.page_size % kPanelWidth != 0 || kv.base.dtype != DType::kF32) return;
  }
  if (kv.values_in_keys || block.has_codes || first < segment.key_begin) return;
  for (int64_t panel = 0; panel < kPanelsPerTile; ++panel) {
    const int64_t key = first + panel * kPanelWidth;
    if (key >= segment.key_end) return;
    if (block.has_pairs) {
      FindPanel(block, segment, key, panel, pairs.next_keys, pairs.next_values);
      pairs.num_next = panel + 1;
      continue;
    }
    tile->next_keys[panel] = kv.base.f32() + segment.pages[key / kv.page_size] * kv.page_stride +
                             block.kv_head * kv.head_stride + key % kv.page_size;
  }
}

// Prefetches into the second-level cache: the first is full of this tile.
void FetchNextPairs(const QueryBlock& block, const PairTile& tile, int64_t part,
                    int64_t num_parts) {
  const auto fetch = [](const uint32_t* line) {
    __builtin_prefetch(line, /*rw=*/0, /*locality=*/2);
  };
  const int64_t pairs = block.head_dim / 2, rows = tile.num_next * kPanelWidth / 2;
  for (int64_t panel = 0; panel < tile.num_next; ++panel) {
    for (int64_t pair = pairs * part / num_parts; pair < pairs * (part + 1) / num_parts; ++pair) {
      fetch(tile.next_keys[panel] + pair * tile.key_stride);
    }
  }
  for (int64_t row = rows * part / num_parts; row < rows * (part + 1) / num_parts; ++row) {
    for (int64_t e = 0; e < block.value_dim; e += kPanelWidth) fetch(tile.next_values[row] + e);
  }
}

bool SeesSplit(const BlockSegment& segment, int64_t split) {
  return segment.key_begin < (split + 1) * kSplitKeys && segment.key_end > split * kSplitKeys;
}

int64_t RunEnd(const QueryBlock& block, int64_t segment, int64_t first) {
  const int64_t tile = first / kTileKeys;
  ++segment;
  while (segment < block.num_segments && block.segments[segment].shared_tiles > tile) ++segment;
  return segment;
}

Rows RowsThatSee(const QueryBlock& block, int64_t segment_begin, int64_t segment_end,
                 int64_t first) {
  const BlockSegment& segment = block.segments[segment_begin];
  if (segment_end - segment_begin > 1) {  // a shared tile: all rows see it
    return {segment.row_begin, block.segments[segment_end - 1].row_end};
  }
  const int64_t window = block.params->sliding_window;
  int64_t first_row = segment.row_begin;
  while (block.key_ends[first_row] <= first) first_row += block.group_size;
  int64_t end_token = segment.num_tokens;
  if (window > 0) {
    // The last token that sees the tile's last key is at that key's position + window - 1.
    end_token = std::min(end_token, first + kTileKeys - 1 + window - segment.first_position);
  }
  return {first_row, segment.row_begin + end_token * block.group_size};
}

}  // namespace minisgl::cpu
