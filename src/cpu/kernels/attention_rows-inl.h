// Tiles of keys that hold their values (KvLayer::values_in_keys). They are stored one key after
// another, and arranged here as the products of attention read them. Compiled once for each
// instruction set (simd-inl.h).
#if defined(MINISGL_CPU_ATTENTION_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MINISGL_CPU_ATTENTION_ROWS_INL_H_
#undef MINISGL_CPU_ATTENTION_ROWS_INL_H_
#else
#define MINISGL_CPU_ATTENTION_ROWS_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "cpu/kernels/attention_block.h"
#include "cpu/kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace minisgl::cpu {
namespace HWY_NAMESPACE {

// to[word * kTileKeys + key] = rows[key][word] for `count` words. Four words of all keys at a time:
// the lines of the keys stay in the first-level cache while their words are read.
HWY_INLINE void TransposeWords(const uint32_t* const* rows, int64_t count,
                               uint32_t* HWY_RESTRICT to) {
  int64_t word = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::FixedTag<uint32_t, 4> d;
  const hn::FixedTag<uint64_t, 2> d64;
  for (; word + 4 <= count; word += 4) {
    uint32_t* const first = to + word * kTileKeys;
    for (int64_t key = 0; key < kTileKeys; key += 4) {
      const auto a = hn::LoadU(d, rows[key] + word), b = hn::LoadU(d, rows[key + 1] + word);
      const auto c = hn::LoadU(d, rows[key + 2] + word), e = hn::LoadU(d, rows[key + 3] + word);
      const auto ab_low = hn::BitCast(d64, hn::InterleaveLower(d, a, b));
      const auto ab_high = hn::BitCast(d64, hn::InterleaveUpper(d, a, b));
      const auto ce_low = hn::BitCast(d64, hn::InterleaveLower(d, c, e));
      const auto ce_high = hn::BitCast(d64, hn::InterleaveUpper(d, c, e));
      uint32_t* const out = first + key;
      hn::StoreU(hn::BitCast(d, hn::InterleaveLower(d64, ab_low, ce_low)), d, out);
      hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(d64, ab_low, ce_low)), d, out + kTileKeys);
      hn::StoreU(hn::BitCast(d, hn::InterleaveLower(d64, ab_high, ce_high)), d,
                 out + 2 * kTileKeys);
      hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(d64, ab_high, ce_high)), d,
                 out + 3 * kTileKeys);
    }
  }
#endif
  for (; word < count; ++word) {
    for (int64_t key = 0; key < kTileKeys; ++key) to[word * kTileKeys + key] = rows[key][word];
  }
}

// to[i] = the pair (first[i], second[i]), for a multiple of 16.
HWY_INLINE void PairElements(const uint16_t* first, const uint16_t* second, int64_t count,
                             uint32_t* HWY_RESTRICT to) {
  const hn::RebindToUnsigned<F32> d;
  const hn::Rebind<uint16_t, F32> d16;
  for (int64_t i = 0; i < count; i += kLanes) {
    const auto low = hn::PromoteTo(d, hn::LoadU(d16, first + i));
    const auto high = hn::PromoteTo(d, hn::LoadU(d16, second + i));
    hn::StoreU(hn::Or(low, hn::ShiftLeft<16>(high)), d, to + i);
  }
}

// Sets the keys and values of a tile from its rows: pairs of bf16 if the block has pairs, otherwise
// floats, whose values are read in place.
HWY_INLINE void ArrangeRows(const QueryBlock& block, Tile* tile) {
  constexpr int64_t kPanels = kTileKeys / kPanelWidth;
  const int64_t begin = block.head_dim - block.value_dim;  // of the value in a key
  const auto* const rows = reinterpret_cast<const uint32_t* const*>(tile->rows);
  if (block.has_pairs) {
    PairTile& pairs = tile->pairs;
    uint32_t* const values = pairs.scratch + kTileKeys * HeadPairs(block.head_dim);
    TransposeWords(rows, block.head_dim / 2, pairs.scratch);
    for (int64_t panel = 0; panel < kPanels; ++panel) {
      pairs.keys[panel] = pairs.scratch + panel * kPanelWidth;
    }
    pairs.key_stride = kTileKeys;
    for (int64_t pair = 0; pair < kTileKeys / 2; ++pair) {
      uint32_t* const to = values + pair * block.value_width;
      const auto* const first = reinterpret_cast<const uint16_t*>(tile->rows[2 * pair]) + begin;
      const auto* const second =
          reinterpret_cast<const uint16_t*>(tile->rows[2 * pair + 1]) + begin;
      PairElements(first, second, block.value_dim, to);
      pairs.values[pair] = to;
    }
    return;
  }
  TransposeWords(rows, block.head_dim, reinterpret_cast<uint32_t*>(tile->scratch));
  tile->key_stride = kTileKeys;
  for (int64_t panel = 0; panel < kPanels; ++panel) {
    tile->keys[panel] = tile->scratch + panel * kPanelWidth;
    tile->panel_values[panel] = tile->keys[panel];
  }
  for (int64_t key = 0; key < kTileKeys; ++key) {
    tile->values[key] = reinterpret_cast<const float*>(tile->rows[key]) + begin;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace minisgl::cpu
HWY_AFTER_NAMESPACE();

#endif
