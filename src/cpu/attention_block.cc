// See attention_block.h.
#include "cpu/attention_block.h"

#include <algorithm>
#include <cstring>
#include <limits>

namespace minisgl {
namespace {

constexpr int64_t kPanelsPerTile = kTileKeys / kPanelWidth;

int64_t RoundUp(int64_t floats) { return (floats + 15) / 16 * 16; }

// The keys of [begin, end) of the tile as [head_dim][kTileKeys]. Sixteen keys at a time, so that
// writes fill lines.
void CopyKeys(const float* const* keys, int64_t begin, int64_t end, int64_t head_dim,
              int64_t element_stride, float* to) {
  for (int64_t panel = begin / kPanelWidth * kPanelWidth; panel < end; panel += kPanelWidth) {
    const int64_t first = std::max(begin, panel), last = std::min(end, panel + kPanelWidth);
    for (int64_t e = 0; e < head_dim; ++e) {
      for (int64_t key = first; key < last; ++key) {
        to[e * kTileKeys + key] = keys[key][e * element_stride];
      }
    }
  }
}

}  // namespace

int64_t AttentionStateFloats(int64_t num_query_rows, int64_t head_dim) {
  return RoundUp(2 * num_query_rows) + num_query_rows * RoundUp(head_dim);
}

int64_t AttentionScratchFloats(int64_t num_query_rows, int64_t head_dim) {
  const int64_t tile = kTileKeys * (head_dim + RoundUp(head_dim));
  return RoundUp(num_query_rows * head_dim) + 2 * AttentionStateFloats(num_query_rows, head_dim) +
         tile;
}

QueryBlock MakeQueryBlock(const AttentionParams& params, const AttentionItem& item,
                          float** scratch) {
  QueryBlock block = {};
  block.params = &params;
  block.pages = params.page_table + int64_t{params.table_row[item.row]} * params.page_table_stride;
  block.kv_head = item.kv_head;
  block.token_begin = item.token_begin;
  block.num_tokens = item.token_end - item.token_begin;
  // The row's last token is at kv_len - 1.
  block.first_position =
      int64_t{params.kv_len[item.row]} - (params.row_begin[item.row + 1] - item.token_begin);
  block.group_size = params.num_heads / params.num_kv_heads;
  block.first_head = item.kv_head * block.group_size;
  block.num_rows = block.num_tokens * block.group_size;
  block.head_dim = params.head_dim;
  block.value_width = RoundUp(block.head_dim);
  block.key_end = block.first_position + block.num_tokens;
  if (params.sliding_window > 0) {
    block.key_begin = std::max<int64_t>(0, block.first_position - params.sliding_window + 1);
  }
  block.q = *scratch;
  *scratch += RoundUp(block.num_rows * block.head_dim);
  return block;
}

void CopyQueries(const QueryBlock& block) {
  const AttentionParams& p = *block.params;
  const int64_t token_width = (int64_t{p.num_heads} + 2 * int64_t{p.num_kv_heads}) * p.head_dim;
  const int64_t floats = block.group_size * block.head_dim;
  for (int64_t t = 0; t < block.num_tokens; ++t) {
    const float* from =
        p.qkv.f32() + (block.token_begin + t) * token_width + block.first_head * block.head_dim;
    std::memcpy(block.q + t * floats, from, static_cast<size_t>(floats) * sizeof(float));
  }
}

void PlaceStates(QueryBlock* block, float* memory) {
  block->states = reinterpret_cast<RowState*>(memory);
  block->values = memory + RoundUp(2 * block->num_rows);
}

void ClearStates(const QueryBlock& block) {
  std::fill_n(block.states, block.num_rows,
              RowState{-std::numeric_limits<float>::infinity(), 0.0f});
  std::fill_n(block.values, block.num_rows * block.value_width, 0.0f);
}

void LoadTile(const QueryBlock& block, int64_t first, float* scratch, Tile* tile) {
  const KvLayer& kv = block.params->kv;
  const KeyLayout layout(kv, block.params->head_dim);
  tile->first = first;
  tile->key_begin = std::max<int64_t>(0, block.key_begin - first);
  tile->key_end = std::min(kTileKeys, block.key_end - first);

  const float* keys[kTileKeys];
  int64_t page = (first + tile->key_begin) / kv.page_size;
  int64_t offset = (first + tile->key_begin) % kv.page_size;
  for (int64_t key = tile->key_begin; key < tile->key_end; ++key) {
    const float* at =
        kv.base.f32() + block.pages[page] * kv.page_stride + block.kv_head * kv.head_stride;
    keys[key] = at + offset * layout.slot_stride;
    tile->values[key] = at + offset * kv.slot_stride + kv.v_offset;
    if (++offset == kv.page_size) {
      offset = 0;
      ++page;
    }
  }

  float* const key_copy = scratch;
  float* const value_copy = scratch + kTileKeys * block.head_dim;
  const bool in_place = layout.transposed && kv.page_size % kPanelWidth == 0;
  if (!in_place) {
    CopyKeys(keys, tile->key_begin, tile->key_end, block.head_dim, layout.element_stride, key_copy);
  }
  tile->key_stride = in_place ? layout.element_stride : kTileKeys;
  for (int64_t panel = 0; panel < kPanelsPerTile; ++panel) {
    // Panels that no row sees may have no page: another stands for them, and their scores are
    // masked.
    const int64_t seen =
        std::clamp(panel * kPanelWidth, tile->key_begin / kPanelWidth * kPanelWidth,
                   (tile->key_end - 1) / kPanelWidth * kPanelWidth);
    const int64_t key = std::max(seen, tile->key_begin);
    tile->keys[panel] = in_place ? keys[key] - (key - seen) : key_copy + seen;
  }
  if (block.value_width == block.head_dim) return;
  for (int64_t key = tile->key_begin; key < tile->key_end; ++key) {
    float* to = value_copy + key * block.value_width;
    std::copy_n(tile->values[key], block.head_dim, to);
    std::fill(to + block.head_dim, to + block.value_width, 0.0f);
    tile->values[key] = to;
  }
}

KeyRange VisibleKeys(const QueryBlock& block, const Tile& tile, int64_t row) {
  const int64_t position = block.first_position + row / block.group_size;
  const int64_t window = block.params->sliding_window;
  const int64_t begin = window > 0 ? position - window + 1 - tile.first : 0;
  return {std::max<int64_t>(0, begin), std::min(kTileKeys, position + 1 - tile.first)};
}

KeyRange RowsThatSee(const QueryBlock& block, const Tile& tile) {
  const int64_t window = block.params->sliding_window;
  const int64_t first_token = std::max<int64_t>(0, tile.first - block.first_position);
  int64_t end_token = block.num_tokens;
  if (window > 0) {
    // The last that sees the tile's last key is at that key's position + window - 1.
    end_token = std::min(end_token, tile.first + kTileKeys - 1 + window - block.first_position);
  }
  return {first_token * block.group_size, end_token * block.group_size};
}

}  // namespace minisgl
