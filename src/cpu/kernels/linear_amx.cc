// out = x w^T + bias for bf16 weights, with the tiles of AMX. Runs on CpuTarget::kAmx, and over
// SoftwareTiles anywhere.
//
// x is rounded to bf16 once for all outputs. Order of summation of every output, whatever the
// number of rows: 32 inputs at a time as one product of tiles adds them (amx_tiles.h), then the
// bias. A missing input counts as 0. Packed weights are tiles as they are: 16 pairs of inputs of a
// panel follow each other, 64 bytes each.
#include <algorithm>
#include <cstring>
#include <utility>

#include "cpu/kernels/amx_tiles.h"
#include "cpu/kernels/kernels.h"
#include "cpu/kernels/tile_rows.h"

namespace minisgl::cpu {
namespace {

constexpr int64_t kGroupPanels = kGroupWidth / kPanelWidth;
static_assert(kPanelWidth * 4 == kTileRowBytes && kPanelWidth == kTileRows);

// Tiles of inputs for which all rows pass over two panels before the next: 16 KiB of weights, which
// then come from the first-level cache.
constexpr int64_t kBlockTiles = 8;
// Prefetch distance in tiles for at most 16 rows, which read weights as fast as memory delivers
// them. The panels of a matrix follow each other.
constexpr int64_t kTilesAhead = 2;

int64_t RowBytes(int64_t num_in) { return (num_in + num_in % 2) * 2; }

// What is prefetched beside each tile of weights: `num_lines` of a tile that is `bytes_ahead` of
// it, from line `first_line` on.
struct Ahead {
  int64_t bytes_ahead;
  int first_line, num_lines;
};

// The operands of a part of the rows and some neighbouring panels.
struct Operands {
  const std::byte* x;
  int64_t x_stride;
  const std::byte* weights;  // the first panel
  int64_t panel_bytes;
  int64_t begin, end;  // tiles of inputs
  // The inputs after whole tiles, padded with zeros to tiles: of each tile of rows, of each panel.
  // Null: none are to be added.
  const std::byte* x_rest;
  const std::byte* weights_rest;
  // Sums of the tiles before `begin`, which are replaced: tiles of 16 x 16, those of a row tile
  // kGroupPanels apart from those of the next.
  float* sums;
};

// Tiles: sums 0 to 3, x from 4 on, and the last for weights.
template <int kRowTiles, int kPanels>
class Product {
 public:
  static_assert(kRowTiles <= 2 && kPanels <= 2);
  static constexpr int SumTile(int row_tile, int panel) { return panel * kRowTiles + row_tile; }

  template <class Tiles>
  static void Run(const Operands& o, const Ahead& ahead, Tiles* tiles) {
    ForEachSum([&]<int kRow, int kPanel>() {
      if (o.begin == 0) return tiles->template SetZero<SumTile(kRow, kPanel)>();
      const float* const sums = o.sums + (kRow * kGroupPanels + kPanel) * kTileFloats;
      tiles->template Load<SumTile(kRow, kPanel)>(reinterpret_cast<const std::byte*>(sums),
                                                  kTileRowBytes);
    });
    for (int64_t k = o.begin; k < o.end; ++k) {
      AddTiles(o.x + k * kTileRowBytes, o.x_stride, kTileRows * o.x_stride,
               o.weights + k * kTileBytes, o.panel_bytes, ahead, tiles);
    }
    if (o.x_rest != nullptr) {
      AddTiles(o.x_rest, kTileRowBytes, kTileBytes, o.weights_rest, kTileBytes, {}, tiles);
    }
    ForEachSum([&]<int kRow, int kPanel>() {
      tiles->template Store<SumTile(kRow, kPanel)>(
          o.sums + (kRow * kGroupPanels + kPanel) * kTileFloats, kTileRowBytes);
    });
  }

 private:
  static constexpr int kX = 4;
  static constexpr int kFirstWeights = kX + kRowTiles;
  static constexpr int kWeightTiles = kNumTiles - kFirstWeights;

  // Calls f<i>() for i in [0, kCount).
  template <int kCount, typename F>
  static void ForEach(const F& f) {
    [&]<int... kIndex>(std::integer_sequence<int, kIndex...>) {
      (f.template operator()<kIndex>(), ...);
    }
    (std::make_integer_sequence<int, kCount>());
  }
  // Calls f<row tile, panel>() for each sum.
  template <typename F>
  static void ForEachSum(const F& f) {
    ForEach<kRowTiles>([&]<int kRow>() {
      ForEach<kPanels>([&]<int kPanel>() { f.template operator()<kRow, kPanel>(); });
    });
  }

  template <class Tiles>
  static void AddTiles(const std::byte* x, int64_t x_stride, int64_t next_rows,
                       const std::byte* weights, int64_t next_panel, const Ahead& ahead,
                       Tiles* tiles) {
    ForEach<kRowTiles>(
        [&]<int kRow>() { tiles->template Load<kX + kRow>(x + kRow * next_rows, x_stride); });
    ForEach<kPanels>([&]<int kPanel>() {
      constexpr int kWeights = kFirstWeights + kPanel % kWeightTiles;
      const std::byte* const from = weights + kPanel * next_panel;
      tiles->template Load<kWeights>(from, kTileRowBytes);
      for (int line = 0; line < ahead.num_lines; ++line) {
        __builtin_prefetch(from + ahead.bytes_ahead + (ahead.first_line + line) * kTileRowBytes,
                           /*rw=*/0, /*locality=*/2);
      }
      ForEach<kRowTiles>([&]<int kRow>() {
        tiles->template MultiplyAdd<SumTile(kRow, kPanel), kX + kRow, kWeights>();
      });
    });
  }
};

// The product of one LinearBlock.
template <class Tiles>
class Block {
 public:
  explicit Block(const LinearBlock& linear) : linear_(linear), w_(*linear.weight) {
    const int64_t first = linear.group * kGroupWidth;
    const int64_t num_columns = std::min(kGroupWidth, w_.num_out - first);
    num_panels_ = (num_columns + kPanelWidth - 1) / kPanelWidth;
    panel_bytes_ = w_.panel_stride() * 2;
    weights_ = w_.panel(first / kPanelWidth);
    num_tiles_ = w_.num_in / kTileInputs;
    rest_bytes_ = RowBytes(w_.num_in) - num_tiles_ * kTileRowBytes;
    if (rest_bytes_ == 0) return;
    std::memset(x_rest_, 0, sizeof(x_rest_));
    std::memset(weights_rest_, 0, sizeof(weights_rest_));
    for (int64_t panel = 0; panel < num_panels_; ++panel) {
      std::memcpy(weights_rest_[panel], weights_ + panel * panel_bytes_ + num_tiles_ * kTileBytes,
                  static_cast<size_t>(rest_bytes_ * kTileRows));
    }
  }

  void Run() {
    if (linear_.num_rows <= kTileRows) {
      RunFewRows();
      StoreOutputs<Tiles>(linear_, {0, linear_.num_rows, 0, num_panels_});
    } else {
      for (int64_t panel = 0; panel < num_panels_; panel += 2) RunPanels(panel);
    }
    tiles_.Release();
  }

 private:
  struct Range {
    int64_t begin, count;
  };

  // Panels one after another, for memory delivers one stream faster than four.
  void RunFewRows() {
    for (int64_t panel = 0; panel < num_panels_; ++panel) {
      RunPart<1, 1>({0, linear_.num_rows}, panel, {0, num_tiles_},
                    {kTilesAhead * kTileBytes, 0, kTileRows});
    }
  }

  // Two panels from `panel` on, or one if there are no more, for all rows.
  void RunPanels(int64_t panel) {
    const bool both = panel + 1 < num_panels_;
    const int64_t num_parts = (linear_.num_rows + kPartRows - 1) / kPartRows;
    const int64_t block = num_parts <= 2 ? std::max<int64_t>(1, num_tiles_) : kBlockTiles;
    for (int64_t begin = 0; begin == 0 || begin < num_tiles_; begin += block) {
      const Range inputs = {begin, std::min(block, num_tiles_ - begin)};
      for (int64_t part = 0; part < num_parts; ++part) {
        const int64_t row = part * kPartRows;
        const Range rows = {row, std::min(kPartRows, linear_.num_rows - row)};
        // Each part prefetches its share of the next two panels' tiles.
        const auto line = [&](int64_t p) { return static_cast<int>(p * kTileRows / num_parts); };
        const Ahead ahead = {2 * panel_bytes_, line(part), line(part + 1) - line(part)};
        if (rows.count > kTileRows) {
          both ? RunPart<2, 2>(rows, panel, inputs, ahead)
               : RunPart<2, 1>(rows, panel, inputs, ahead);
        } else {
          both ? RunPart<1, 2>(rows, panel, inputs, ahead)
               : RunPart<1, 1>(rows, panel, inputs, ahead);
        }
        if (begin + block >= num_tiles_) {
          StoreOutputs<Tiles>(linear_, {rows.begin, rows.count, panel, both ? 2 : 1});
        }
      }
    }
  }

  template <int kRowTiles, int kPanels>
  void RunPart(Range rows, int64_t panel, Range inputs, const Ahead& ahead) {
    ShapeTiles(rows.count);
    const std::byte* const x = linear_.x + rows.begin * linear_.x_stride;
    const bool has_rest = rest_bytes_ > 0 && inputs.begin + inputs.count == num_tiles_;
    for (int64_t r = 0; has_rest && r < rows.count; ++r) {
      std::memcpy(x_rest_[r], x + r * linear_.x_stride + num_tiles_ * kTileRowBytes,
                  static_cast<size_t>(rest_bytes_));
    }
    Product<kRowTiles, kPanels>::Run({.x = x,
                                      .x_stride = linear_.x_stride,
                                      .weights = weights_ + panel * panel_bytes_,
                                      .panel_bytes = panel_bytes_,
                                      .begin = inputs.begin,
                                      .end = inputs.begin + inputs.count,
                                      .x_rest = has_rest ? x_rest_[0] : nullptr,
                                      .weights_rest = weights_rest_[panel],
                                      .sums = SumsOf(linear_, rows.begin, panel)},
                                     ahead, &tiles_);
  }

  // Shapes the tiles for `num_rows` rows of x, in one or two tiles.
  void ShapeTiles(int64_t num_rows) {
    if (num_rows == shaped_rows_) return;
    shaped_rows_ = num_rows;
    const int64_t first = std::min(num_rows, kTileRows), second = num_rows - first;
    TileConfig config;
    for (int tile = 0; tile < kNumTiles; ++tile) config.Set(tile, kTileRows);
    if (second == 0) {
      for (int tile = 0; tile <= 4; ++tile) config.Set(tile, first);
    } else {
      for (const int tile : {1, 3, 5}) config.Set(tile, second);  // Product::SumTile, kX + 1
    }
    tiles_.Configure(config);
  }

  const LinearBlock& linear_;
  const PackedMatrix& w_;
  int64_t num_panels_, panel_bytes_, num_tiles_;
  const std::byte* weights_;
  int64_t rest_bytes_;  // of a row of x after its whole tiles
  int64_t shaped_rows_ = 0;
  Tiles tiles_;
  // Not initialized if no inputs are left after the whole tiles.
  alignas(64) std::byte x_rest_[kPartRows][kTileRowBytes];
  alignas(64) std::byte weights_rest_[kGroupPanels][kTileBytes];
};

template <class Tiles>
void Multiply(const LinearBlock& linear) {
  Block<Tiles>(linear).Run();
}

template <class Tiles>
LinearKernel MakeKernel() {
  return {.multiply = Multiply<Tiles>,
          .codes_rows_max = kCodesRowsMax,
          .prepare = RoundRowToBf16,
          .row_bytes = RowBytes,
          .rows_max = kChunkRows,
          .rows_multiple = kPartRows,
          .chunk_bytes = kChunkBytes};
}

}  // namespace

void RoundRowInSoftware(const float* x, int64_t count, std::byte* row) {
  for (int64_t i = 0; i < count + count % 2; ++i) {
    const uint16_t bits = i < count ? FloatToBf16(SoftwareTiles::Flushed(x[i])) : 0;
    std::memcpy(row + 2 * i, &bits, sizeof(bits));
  }
}

#if MINISGL_HAS_AMX
LinearKernel AmxLinearKernel() {
  LinearKernel kernel = MakeKernel<HardwareTiles>();
  kernel.multiply_codes = MultiplyCodesByTiles;
  return kernel;
}
#else
LinearKernel AmxLinearKernel() { return {}; }
#endif

LinearKernel AmxStandInLinearKernel() {
  LinearKernel kernel = MakeKernel<SoftwareTiles>();
  kernel.prepare = RoundRowInSoftware;
  kernel.multiply_codes = MultiplyCodesByStandIn;
  return kernel;
}

}  // namespace minisgl::cpu
