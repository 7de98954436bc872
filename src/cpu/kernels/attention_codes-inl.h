// Tiles of keys and values that are kept as codes of 8 bits with scales (KvLayer): they are
// expanded to pairs of bf16, exactly. Compiled once for each instruction set (simd-inl.h).
#if defined(MINISGL_CPU_ATTENTION_CODES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MINISGL_CPU_ATTENTION_CODES_INL_H_
#undef MINISGL_CPU_ATTENTION_CODES_INL_H_
#else
#define MINISGL_CPU_ATTENTION_CODES_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "cpu/kernels/attention_block.h"
#include "cpu/kernels/attention_rows-inl.h"
#include "cpu/kernels/e4m3-inl.h"
#include "cpu/kernels/kernels.h"
#include "cpu/kernels/simd-inl.h"
#include "minisgl/tensor/e4m3_scale.h"

HWY_BEFORE_NAMESPACE();
namespace minisgl::cpu {
namespace HWY_NAMESPACE {

// Codes of 16 pairs, as wide as the scales of 16 keys, each twice.
constexpr int64_t kCodesPerRow = 2 * kPanelWidth;

// The scales of a row of codes: of keys, one for each two codes, or of values, two in turn.
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
// What is added to the bits of a code, and what is put over the sum: NaN of a scale of NaN.
class RowScales {
 public:
  HWY_INLINE void SetKey(int64_t key, uint8_t scale) {
    moves_[key] = MoveOf(scale) * 0x10001u;
    nans_[key] = NanOf(scale) * 0x10001u;
  }
  HWY_INLINE void SetPair(uint8_t first, uint8_t second) {
    hn::Store(hn::Set(D32(), MoveOf(first) | MoveOf(second) << 16), D32(), moves_);
    hn::Store(hn::Set(D32(), NanOf(first) | NanOf(second) << 16), D32(), nans_);
  }

  // to[i] = codes[i] * the scale of i, as bf16, for one row of pairs.
  HWY_INLINE void Expand(const uint8_t* HWY_RESTRICT codes, uint32_t* HWY_RESTRICT to) const {
    const D16 d;
    const hn::Rebind<uint8_t, D16> d8;
    // Subnormal codes as normal numbers of the same exponents, some of which are below 0.
    alignas(64) static constexpr uint16_t kSubnormal[32] = {0, 0xFF00, 0xFF80, 0xFFC0,
                                                            0, 0x20,   0x40,   0x60};
    const auto words = hn::PromoteTo(d, hn::LoadU(d8, codes));
    const auto size = hn::And(words, hn::Set(d, 0x7F));
    const auto low = hn::And(words, hn::Set(d, 7));
    const hn::Vec<D16> small{_mm512_permutexvar_epi16(low.raw, hn::Load(d, kSubnormal).raw)};
    const auto is_small = hn::Lt(size, hn::Set(d, 8));
    const auto bits = hn::IfThenElse(is_small, small, hn::ShiftLeft<4>(size));
    const auto moved = hn::Add(bits, hn::BitCast(d, hn::Load(D32(), moves_)));
    const auto number = hn::IfThenZeroElse(hn::Eq(size, hn::Zero(d)), moved);
    const auto sign = hn::ShiftLeft<8>(hn::And(words, hn::Set(d, 0x80)));
    const auto nans = hn::BitCast(d, hn::Load(D32(), nans_));
    hn::StoreU(hn::BitCast(D32(), hn::Or3(number, sign, nans)), D32(), to);
  }

 private:
  using D16 = hn::CappedTag<uint16_t, 32>;
  using D32 = hn::CappedTag<uint32_t, 16>;
  // From the exponent of a code, 2^-7 at 0, to that of a bf16 times the scale.
  static HWY_INLINE uint32_t MoveOf(uint8_t scale) {
    return (static_cast<uint32_t>(scale) - 7) << 7 & 0xFFFF;
  }
  static HWY_INLINE uint32_t NanOf(uint8_t scale) { return scale == kE4M3ScaleNaN ? 0x7FC0 : 0; }

  HWY_ALIGN uint32_t moves_[kPanelWidth] = {};
  HWY_ALIGN uint32_t nans_[kPanelWidth] = {};
};
#else
class RowScales {
 public:
  HWY_INLINE void SetKey(int64_t key, uint8_t scale) {
    scales_[2 * key] = scales_[2 * key + 1] = NumberOf(scale);
  }
  HWY_INLINE void SetPair(uint8_t first, uint8_t second) {
    for (int64_t i = 0; i < kCodesPerRow; i += 2) {
      scales_[i] = NumberOf(first);
      scales_[i + 1] = NumberOf(second);
    }
  }

  HWY_INLINE void Expand(const uint8_t* HWY_RESTRICT codes, uint32_t* HWY_RESTRICT to) const {
    const hn::RebindToUnsigned<F32> du;
    const hn::Rebind<uint16_t, F32> d16;
    auto* const halves = reinterpret_cast<uint16_t*>(to);
    MINISGL_UNROLL for (int64_t i = 0; i < kCodesPerRow; i += kLanes) {
      const Floats x = hn::Mul(WidenE4M3(codes + i), hn::Load(F32(), scales_ + i));
      const auto bits = hn::ShiftRight<16>(hn::BitCast(du, x));
      hn::StoreU(hn::TruncateTo(d16, bits), d16, halves + i);
    }
  }

 private:
  static HWY_INLINE float NumberOf(uint8_t scale) {
    const uint32_t bits = E4M3ScaleBits(scale);
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
  }

  HWY_ALIGN float scales_[kCodesPerRow] = {};
};
#endif

// The codes and the scales of the keys, or the values, of one panel that some row sees.
struct CodePanel {
  const uint8_t* codes[kPanelWidth];
  const uint8_t* scales[kPanelWidth];
  int64_t begin, end;  // keys of the panel that have codes
};

// Finds the codes of a panel whose first key is at position `first`, one key after another.
HWY_INLINE void FindCodes(const QueryBlock& block, const BlockSegment& segment, const Tile& tile,
                          int64_t panel, bool is_value, CodePanel* found) {
  const KvLayer& kv = block.params->kv;
  found->begin = MaxOf<int64_t>(0, tile.key_begin - panel * kPanelWidth);
  found->end = MinOf<int64_t>(kPanelWidth, tile.key_end - panel * kPanelWidth);
  const int64_t first = tile.first + panel * kPanelWidth;
  const int64_t head = block.kv_head * (is_value ? kv.value_head_stride() : kv.head_stride);
  for (int64_t i = found->begin; i < found->end; ++i) {
    const int64_t offset = (first + i) % kv.page_size;
    const uint8_t* const page =
        kv.base.as<uint8_t>() + segment.pages[(first + i) / kv.page_size] * kv.page_stride;
    found->codes[i] =
        page + head +
        (is_value ? kv.v_offset + offset * kv.value_slot_stride() : offset * kv.slot_stride);
    found->scales[i] =
        page + (is_value ? kv.v_scales : kv.k_scales) + block.kv_head * kv.page_size + offset;
  }
}

// Rows of codes of a panel, from codes that are one key after another.
HWY_NOINLINE void ExpandScattered(const QueryBlock& block, const BlockSegment& segment,
                                  const Tile& tile, int64_t panel, uint32_t* keys,
                                  uint32_t* values) {
  RowScales scales;
  uint8_t row[kCodesPerRow] = {};
  CodePanel found;
  FindCodes(block, segment, tile, panel, /*is_value=*/false, &found);
  for (int64_t i = found.begin; i < found.end; ++i) scales.SetKey(i, *found.scales[i]);
  for (int64_t pair = 0; pair < block.head_dim / 2; ++pair) {
    for (int64_t i = found.begin; i < found.end; ++i) {
      memcpy(row + 2 * i, found.codes[i] + 2 * pair, 2);
    }
    scales.Expand(row, keys + pair * kTileKeys);
  }
  FindCodes(block, segment, tile, panel, /*is_value=*/true, &found);
  for (int64_t i = 0; i < kPanelWidth; i += 2) {
    const bool has_first = i >= found.begin && i < found.end;
    const bool has_second = i + 1 >= found.begin && i + 1 < found.end;
    scales.SetPair(has_first ? *found.scales[i] : kE4M3ScaleMin,
                   has_second ? *found.scales[i + 1] : kE4M3ScaleMin);
    for (int64_t e = 0; e < block.value_dim; e += kPanelWidth) {
      for (int64_t k = 0; k < kPanelWidth; ++k) {
        row[2 * k] = has_first ? found.codes[i][e + k] : 0;
        row[2 * k + 1] = has_second ? found.codes[i + 1][e + k] : 0;
      }
      scales.Expand(row, values + i / 2 * block.value_width + e);
    }
  }
}

// The same from codes that are kept as pairs. Prefetches the panel of the segment's next tile, row
// by row.
HWY_INLINE void ExpandPairs(const QueryBlock& block, const BlockSegment& segment, const Tile& tile,
                            int64_t panel, uint32_t* keys, uint32_t* values) {
  const KvLayer& kv = block.params->kv;
  const int64_t key = tile.first + panel * kPanelWidth, offset = key % kv.page_size;
  const uint8_t* const page =
      kv.base.as<uint8_t>() + segment.pages[key / kv.page_size] * kv.page_stride;
  const int64_t next_key = key + kTileKeys < segment.key_end ? key + kTileKeys : key;
  const uint8_t* const next_page =
      kv.base.as<uint8_t>() + segment.pages[next_key / kv.page_size] * kv.page_stride;
  const uint8_t* next = next_page + block.kv_head * kv.head_stride + 2 * offset;
  PrefetchStream(next_page + kv.k_scales + block.kv_head * kv.page_size + offset);
  PrefetchStream(next_page + kv.v_scales + block.kv_head * kv.page_size + offset);
  const uint8_t* const key_scales = page + kv.k_scales + block.kv_head * kv.page_size + offset;
  const uint8_t* const value_scales = page + kv.v_scales + block.kv_head * kv.page_size + offset;
  RowScales scales;
  for (int64_t i = 0; i < kPanelWidth; ++i) scales.SetKey(i, key_scales[i]);
  const uint8_t* from = page + block.kv_head * kv.head_stride + 2 * offset;
  for (int64_t pair = 0; pair < block.head_dim / 2; ++pair) {
    PrefetchStream(next + 2 * pair * kv.page_size);
    scales.Expand(from + 2 * pair * kv.page_size, keys + pair * kTileKeys);
  }
  const int64_t value =
      kv.v_offset + block.kv_head * kv.value_head_stride() + offset * block.value_dim;
  from = page + value;
  next = next_page + value;
  for (int64_t i = 0; i < kPanelWidth; i += 2) {
    scales.SetPair(value_scales[i], value_scales[i + 1]);
    for (int64_t e = 0; e < block.value_dim; e += kPanelWidth) {
      PrefetchStream(next + i * block.value_dim + 2 * e);
      scales.Expand(from + i * block.value_dim + 2 * e, values + i / 2 * block.value_width + e);
    }
  }
}

// Makes the tile's pairs. Of a panel of which no key is seen, the nearest one that is seen takes
// the place, as SeenPanel says.
HWY_INLINE void ExpandTile(const QueryBlock& block, const BlockSegment& segment, Tile* tile) {
  constexpr int64_t kPanels = kTileKeys / kPanelWidth, kPairs = kPanelWidth / 2;
  PairTile& pairs = tile->pairs;
  const bool keeps_pairs =
      KeepsCodePairs(block.params->kv, block.params->head_dim, block.params->value_dim());
  uint32_t* const keys = pairs.scratch;
  uint32_t* const values = keys + kTileKeys * HeadPairs(block.head_dim);
  pairs.key_stride = kTileKeys;
  for (int64_t panel = 0; panel < kPanels; ++panel) {
    const int64_t seen = SeenPanel(*tile, panel);
    uint32_t* const of_keys = keys + seen * kPanelWidth;
    uint32_t* const of_values = values + seen * kPairs * block.value_width;
    if (seen == panel && keeps_pairs) {
      ExpandPairs(block, segment, *tile, panel, of_keys, of_values);
    } else if (seen == panel) {
      ExpandScattered(block, segment, *tile, panel, of_keys, of_values);
    }
    pairs.keys[panel] = of_keys;
    for (int64_t pair = 0; pair < kPairs; ++pair) {
      pairs.values[panel * kPairs + pair] = of_values + pair * block.value_width;
    }
  }
}

// What LoadTile leaves to be done.
HWY_INLINE void ArrangeTile(const QueryBlock& block, const BlockSegment& segment, Tile* tile) {
  if (block.has_rows) ArrangeRows(block, tile);
  if (block.has_codes) ExpandTile(block, segment, tile);
}

}  // namespace HWY_NAMESPACE
}  // namespace minisgl::cpu
HWY_AFTER_NAMESPACE();

#endif
