// out = x w^T + bias for weights of 8-bit integers in CodeOrder::kQuads (coded_matrix.h), with the
// tiles of AMX. Runs where HasTiles(), and over SoftwareTiles anywhere.
//
// Each row of x is quantized once for all outputs: q = round(x * 127 / m) with m the largest
// magnitude of the row, to nearest, ties to even; its scale is m / 127. A row below kQuantSmallest
// is 0; one with a value that is not finite has the scale NaN. An output is the sum of the products
// of integers, exact in 32 bits, as f32; times the product of the two scales; plus the bias.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "cpu/kernels/amx_tiles.h"
#include "cpu/kernels/bf16_dot.h"
#include "cpu/kernels/kernels.h"
#include "cpu/kernels/tile_rows.h"
#include "minisgl/base/checked_math.h"
#include "tensor/quantize.h"

namespace minisgl::cpu {
namespace {

// Inputs of a tile: a row of 64 bytes.
constexpr int64_t kStepInputs = kTileRowBytes;
static_assert(kQuadInputs * 16 == kStepInputs);
// Tiles of inputs for which all rows pass over two panels before the next: 32 KiB of weights, which
// then come from the first-level cache.
constexpr int64_t kBlockSteps = 16;
constexpr int64_t kChunkBytes = int64_t{1} << 20;
// Prefetch distance in tiles of a panel.
constexpr int64_t kTilesAhead = 4;

int64_t NumSteps(int64_t num_in) { return CeilDiv(num_in, kStepInputs); }

// A row of x: the q's, with zeros up to a whole tile; its scale.
int64_t ScaleAt(int64_t num_in) { return NumSteps(num_in) * kStepInputs; }

float ScaleOfRow(const std::byte* row, int64_t num_in) {
  float scale;
  std::memcpy(&scale, row + ScaleAt(num_in), sizeof(scale));
  return scale;
}

void StoreScale(float scale, int64_t num_in, std::byte* row) {
  std::memcpy(row + ScaleAt(num_in), &scale, sizeof(scale));
}

void QuantizeRowInSoftware(const float* x, int64_t num_in, std::byte* row) {
  std::memset(row, 0, static_cast<size_t>(ScaleAt(num_in)));
  StoreScale(tensor::QuantizeActivations(x, num_in, reinterpret_cast<int8_t*>(row)), num_in, row);
}

// Products of up to kPartRows rows and two panels. Tiles: sums of row tile i and panel p in
// 2 i + p, x of row tile i in kX + i, weights of panel p in kWeights + p.
template <class Tiles>
class BytesBlock {
 public:
  explicit BytesBlock(const LinearBlock& linear)
      : linear_(linear),
        codes_(*linear.weight->coded),
        num_steps_(NumSteps(codes_.num_in)),
        first_panel_(linear.group * kGroupPanels),
        num_panels_(std::min(kGroupPanels, codes_.num_panels() - first_panel_)) {}

  void Run() {
    for (int64_t panel = 0; panel < num_panels_; ++panel) {
      for (int64_t lane = 0; lane < kPanelWidth; ++lane) {
        scales_[panel * kPanelWidth + lane] = codes_.ScaleOf(first_panel_ + panel, 0, lane);
      }
    }
    // One part of the rows needs no weights again.
    const int64_t block = linear_.num_rows <= kPartRows ? num_steps_ : kBlockSteps;
    for (int64_t panel = 0; panel < num_panels_; panel += 2) {
      for (begin_ = 0; begin_ < num_steps_; begin_ = end_) {
        end_ = std::min(num_steps_, begin_ + block);
        for (int64_t row = 0; row < linear_.num_rows; row += kPartRows) MultiplyPart(row, panel);
      }
    }
    tiles_.Release();
    ScaleSums();
    StoreOutputs<Tiles>(linear_, {0, linear_.num_rows, 0, num_panels_});
  }

 private:
  static constexpr int kX = 4, kWeights = 6;
  static constexpr int64_t kGroupPanels = kGroupWidth / kPanelWidth;

  // Adds the products of the block's inputs, of a part of the rows and two panels.
  void MultiplyPart(int64_t row, int64_t panel) {
    num_rows_ = std::min(kPartRows, linear_.num_rows - row);
    Shape();
    const bool has_second = panel + 1 < num_panels_;
    if (num_rows_ > kTileRows) {
      has_second ? Multiply<2, 2>(row, panel) : Multiply<2, 1>(row, panel);
    } else {
      has_second ? Multiply<1, 2>(row, panel) : Multiply<1, 1>(row, panel);
    }
  }

  int64_t RowsOfTile(int tile) const {
    return std::clamp<int64_t>(num_rows_ - tile * kTileRows, 0, kTileRows);
  }

  void Shape() {
    if (num_rows_ == shaped_rows_) return;
    shaped_rows_ = num_rows_;
    TileConfig config;
    for (int tile = 0; tile < 2; ++tile) {
      config.Set(2 * tile, RowsOfTile(tile));
      config.Set(2 * tile + 1, RowsOfTile(tile));
      config.Set(kX + tile, RowsOfTile(tile));
      config.Set(kWeights + tile, kTileRows);
    }
    tiles_.Configure(config);
  }

  template <int kRowTiles, int kPanels>
  void Multiply(int64_t row, int64_t panel) {
    const auto sums_of = [&](int tile) {
      return SumsOf(linear_, row + tile / 2 * kTileRows, panel + tile % 2);
    };
    ForTiles<kRowTiles, kPanels>([&]<int kTile>() { BeginSums<kTile>(sums_of(kTile)); });
    const std::byte* x = linear_.x + row * linear_.x_stride;
    const std::byte* const second = x + kTileRows * linear_.x_stride;
    const int64_t panel_bytes = codes_.panel_bytes();
    const std::byte* w = codes_.codes(first_panel_ + panel) + begin_ * kTileBytes;
    for (int64_t step = begin_; step < end_; ++step) {
      const int64_t at = step * kStepInputs;
      Fetch<kPanels>(w + kTilesAhead * kTileBytes, panel_bytes);
      tiles_.template Load<kX>(x + at, linear_.x_stride);
      if constexpr (kRowTiles == 2) tiles_.template Load<kX + 1>(second + at, linear_.x_stride);
      tiles_.template Load<kWeights>(w, kTileRowBytes);
      tiles_.template MultiplyAddBytes<0, kX, kWeights>();
      if constexpr (kRowTiles == 2) tiles_.template MultiplyAddBytes<2, kX + 1, kWeights>();
      if constexpr (kPanels == 2) {
        tiles_.template Load<kWeights + 1>(w + panel_bytes, kTileRowBytes);
        tiles_.template MultiplyAddBytes<1, kX, kWeights + 1>();
        if constexpr (kRowTiles == 2) tiles_.template MultiplyAddBytes<3, kX + 1, kWeights + 1>();
      }
      w += kTileBytes;
    }
    ForTiles<kRowTiles, kPanels>(
        [&]<int kTile>() { tiles_.template Store<kTile>(sums_of(kTile), kTileRowBytes); });
  }

  // Calls body<t>() for the tiles of sums.
  template <int kRowTiles, int kPanels, typename Body>
  void ForTiles(const Body& body) {
    body.template operator()<0>();
    if constexpr (kPanels == 2) body.template operator()<1>();
    if constexpr (kRowTiles == 2) body.template operator()<2>();
    if constexpr (kRowTiles == 2 && kPanels == 2) body.template operator()<3>();
  }

  template <int kTile>
  void BeginSums(const float* sums) {
    if (begin_ == 0) return tiles_.template SetZero<kTile>();
    tiles_.template Load<kTile>(reinterpret_cast<const std::byte*>(sums), kTileRowBytes);
  }

  // Few rows read weights as fast as memory delivers them.
  template <int kPanels>
  void Fetch(const std::byte* from, int64_t panel_bytes) const {
    if (num_rows_ > kTileRows) return;
    for (int64_t line = 0; line < kTileBytes; line += kTileRowBytes) {
      __builtin_prefetch(from + line);
      if (kPanels == 2) __builtin_prefetch(from + panel_bytes + line);
    }
  }

  // Makes all sums to outputs without bias.
  void ScaleSums() const {
    for (int64_t row = 0; row < linear_.num_rows; ++row) {
      const float scale = ScaleOfRow(linear_.x + row * linear_.x_stride, codes_.num_in);
      for (int64_t panel = 0; panel < num_panels_; ++panel) {
        float* const outputs = SumsOf(linear_, row, panel);
        int32_t sums[kPanelWidth];
        std::memcpy(sums, outputs, sizeof(sums));
        for (int64_t i = 0; i < kPanelWidth; ++i) {
          outputs[i] = static_cast<float>(sums[i]) * (scale * scales_[panel * kPanelWidth + i]);
        }
      }
    }
  }

  const LinearBlock& linear_;
  const CodedMatrix& codes_;
  const int64_t num_steps_, first_panel_, num_panels_;
  int64_t begin_ = 0, end_ = 0;  // the steps of the block
  int64_t num_rows_ = 0, shaped_rows_ = 0;
  Tiles tiles_;
  float scales_[kGroupWidth];
};

template <class Tiles>
void MultiplyBytes(const LinearBlock& linear) {
  BytesBlock<Tiles>(linear).Run();
}

template <class Tiles>
LinearKernel MakeKernel() {
  return {.multiply_codes = MultiplyBytes<Tiles>,
          .codes_order = CodeOrder::kQuads,
          .codes_rows_max = kChunkRows,
          .prepare = QuantizeRowInSoftware,
          .row_bytes = BytesRowBytes,
          .rows_max = kChunkRows,
          .rows_multiple = kPartRows,
          .chunk_bytes = kChunkBytes};
}

}  // namespace

int64_t BytesRowBytes(int64_t num_in) {
  return ScaleAt(num_in) + static_cast<int64_t>(sizeof(float));
}

LinearKernel BytesStandInLinearKernel() { return MakeKernel<SoftwareTiles>(); }

#if !MINISGL_HAS_AMX
LinearKernel BytesAmxLinearKernel() { return {}; }
#endif

}  // namespace minisgl::cpu

#if MINISGL_HAS_AMX

MINISGL_BF16_DOT_BEGIN
namespace minisgl::cpu {
namespace {

// QuantizeRowInSoftware by vectors. Masks, because GCC 12 warns of the forms without.
void QuantizeRow(const float* x, int64_t num_in, std::byte* row) {
  constexpr int64_t kLanes = 16;
  constexpr __mmask16 kAll = 0xFFFF;
  const auto mask_of = [&](int64_t i) {
    return num_in - i >= kLanes ? kAll : static_cast<__mmask16>((uint32_t{1} << (num_in - i)) - 1);
  };
  // Magnitudes as integers, so that a NaN counts as the largest.
  const __m512i magnitude = _mm512_set1_epi32(0x7FFFFFFF);
  __m512i largest = _mm512_setzero_si512();
  for (int64_t i = 0; i < num_in; i += kLanes) {
    const __m512i bits = _mm512_maskz_loadu_epi32(mask_of(i), x + i);
    largest = _mm512_maskz_max_epi32(kAll, largest, _mm512_maskz_and_epi32(kAll, bits, magnitude));
  }
  alignas(64) int32_t lanes[kLanes];
  _mm512_store_si512(lanes, largest);
  const int32_t largest_bits = *std::max_element(lanes, lanes + kLanes);
  float scale = 0, inverse = 0;
  if (largest_bits >= 0x7F800000) {
    scale = std::numeric_limits<float>::quiet_NaN();
  } else if (std::bit_cast<float>(largest_bits) >= tensor::kQuantSmallest) {
    scale = std::bit_cast<float>(largest_bits) / 127.0f;
    inverse = 127.0f / std::bit_cast<float>(largest_bits);
  }
  const __m512 by = _mm512_set1_ps(inverse);
  const int64_t end = ScaleAt(num_in);
  for (int64_t i = 0; i < end; i += kLanes) {
    const __mmask16 mask = i >= num_in || inverse == 0 ? __mmask16{0} : mask_of(i);
    const __m512 scaled = _mm512_maskz_mul_ps(mask, _mm512_maskz_loadu_ps(mask, x + i), by);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(row + i),
                     _mm512_maskz_cvtsepi32_epi8(kAll, _mm512_maskz_cvtps_epi32(kAll, scaled)));
  }
  StoreScale(scale, num_in, row);
}

}  // namespace

LinearKernel BytesAmxLinearKernel() {
  LinearKernel kernel = MakeKernel<HardwareTiles>();
  kernel.prepare = QuantizeRow;
  return kernel;
}

}  // namespace minisgl::cpu
MINISGL_BF16_DOT_END

#endif
