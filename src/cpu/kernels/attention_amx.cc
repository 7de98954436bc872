// Bf16Products with the tiles of AMX (attention_bf16.h, amx_tiles.h).
//
// Order of every sum, whatever other rows a row is computed with: a score by 32 elements of the
// head, as one product of tiles adds them; a tile's weighted values by panels of 16 keys, likewise,
// then added to the running sum. Keys that a row does not see have the weight 0.
#include "cpu/kernels/attention_bf16.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>

#include "cpu/kernels/amx_tiles.h"
#include "cpu/kernels/bf16_dot.h"
#include "cpu/kernels/kernels.h"

namespace minisgl::cpu::amx_stand_in {
namespace {

using Tiles = SoftwareTiles;

void RoundRow(const float* x, int64_t count, std::byte* row) { RoundRowInSoftware(x, count, row); }

#include "cpu/kernels/attention_amx-inl.h"

void RoundQueries(const QueryBlock& block) {
  const int64_t num_pairs = HeadPairs(block.head_dim);
  for (int64_t row = 0; row < block.num_rows; ++row) {
    RoundRow(block.q + row * block.head_dim, block.head_dim,
             reinterpret_cast<std::byte*>(block.q_pairs + row * num_pairs));
  }
}

// A pair from two floats.
uint32_t RoundPair(float even, float odd) {
  const float both[2] = {even, odd};
  uint32_t pair;
  RoundRow(both, 2, reinterpret_cast<std::byte*>(&pair));
  return pair;
}

void RoundTile(const QueryBlock& block, const Tile& tile, PairTile* pairs) {
  const int64_t num_pairs = HeadPairs(block.head_dim), width = block.value_width;
  uint32_t* const keys = pairs->scratch;
  uint32_t* const values = keys + kTileKeys * num_pairs;
  for (int64_t key = tile.key_begin; key < tile.key_end; ++key) {
    const float* from = tile.keys[key / kPanelWidth] + key % kPanelWidth;
    for (int64_t pair = 0; pair < num_pairs; ++pair, from += 2 * tile.key_stride) {
      const float odd = 2 * pair + 1 < block.head_dim ? from[tile.key_stride] : 0.0f;
      keys[pair * kTileKeys + key] = RoundPair(from[0], odd);
    }
  }
  const auto value = [&](int64_t key, int64_t e) {
    return key >= tile.key_begin && key < tile.key_end ? tile.values[key][e] : 0.0f;
  };
  for (int64_t pair = 0; pair < kTilePairs; ++pair) {
    for (int64_t e = 0; e < width; ++e) {
      values[pair * width + e] = RoundPair(value(2 * pair, e), value(2 * pair + 1, e));
    }
    pairs->values[pair] = values + pair * width;
  }
  for (int64_t panel = 0; panel < kPanels; ++panel) {
    pairs->keys[panel] = keys + panel * kPanelWidth;
  }
  pairs->key_stride = kTileKeys;
}

}  // namespace
}  // namespace minisgl::cpu::amx_stand_in

#if MINISGL_HAS_AMX

MINISGL_BF16_DOT_BEGIN
namespace minisgl::cpu::amx {
namespace {

using Tiles = HardwareTiles;

void RoundRow(const float* x, int64_t count, std::byte* row) { RoundRowToBf16(x, count, row); }

#include "cpu/kernels/attention_amx-inl.h"

}  // namespace
}  // namespace minisgl::cpu::amx
MINISGL_BF16_DOT_END

namespace minisgl::cpu {

const Bf16Products* AttentionAmxProducts() {
  static const Bf16Products products = {kTileRows,
                                        AttentionBf16Products()->round_queries,
                                        AttentionBf16Products()->round_tile,
                                        amx::ScoreTiles,
                                        amx::AddValueTiles,
                                        amx::ReleaseTiles};
  return &products;
}

}  // namespace minisgl::cpu

#else

namespace minisgl::cpu {

const Bf16Products* AttentionAmxProducts() { return nullptr; }

}  // namespace minisgl::cpu

#endif

namespace minisgl::cpu {

const Bf16Products* AttentionAmxStandInProducts() {
  static constexpr Bf16Products kProducts = {kTileRows,
                                             amx_stand_in::RoundQueries,
                                             amx_stand_in::RoundTile,
                                             amx_stand_in::ScoreTiles,
                                             amx_stand_in::AddValueTiles,
                                             amx_stand_in::ReleaseTiles};
  return &kProducts;
}

}  // namespace minisgl::cpu
