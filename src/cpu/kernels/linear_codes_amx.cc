// out = x w^T + bias for few rows and a matrix of codes (coded_matrix.h), with the tiles of AMX.
// Runs on CpuTarget::kAmx, and over SoftwareTiles anywhere.
//
// The weights are the first factor of a product of tiles here, so that a row of a tile is 32 inputs
// of one output, as they are expanded. Each element is the same sum in the same order as in
// linear_amx.cc: x and w change places in every product alone.
#include <algorithm>
#include <cstring>

#include "cpu/kernels/amx_tiles.h"
#include "cpu/kernels/kernels.h"

namespace minisgl::cpu {
namespace {

constexpr int64_t kLineTiles = kLineInputs / kTileInputs;
constexpr int kSumTiles = static_cast<int>(kLinePanels);
static_assert(kLinePanels * kPanelWidth == kGroupWidth && kCodesRowsMax == kTileRows);

template <class Tiles>
class CodesBlock {
 public:
  CodesBlock(const LinearBlock& linear, const LineKernels& kernels)
      : linear_(linear),
        codes_(*linear.weight->coded),
        lines_(codes_, linear.group),
        num_panels_(lines_.num_panels()),
        kernels_(kernels) {}

  void Run() {
    Shape();
    SetSumsZero();
    for (int64_t panel = 0; panel < num_panels_; ++panel) Expand(panel, 0);
    for (int64_t first = 0; first < codes_.num_in; first += kLineInputs) AddLine(first);
    StoreSums();
    tiles_.Release();
    StoreOutputs();
  }

 private:
  // Tiles: the panels' sums, [outputs, rows], from 0 on; x; weights.
  static constexpr int kX = kSumTiles, kWeights = kX + 1;

  void Shape() {
    const int64_t row_bytes = 4 * linear_.num_rows;
    TileConfig config;
    for (int panel = 0; panel < kSumTiles; ++panel) config.Set(panel, kTileRows, row_bytes);
    config.Set(kX, kTileRows, row_bytes);
    for (int tile = kWeights; tile < kNumTiles; ++tile) config.Set(tile, kTileRows);
    tiles_.Configure(config);
  }

  void SetSumsZero() {
    tiles_.template SetZero<0>();
    tiles_.template SetZero<1>();
    tiles_.template SetZero<2>();
    tiles_.template SetZero<3>();
  }

  void Expand(int64_t panel, int64_t first) {
    const int64_t line = first / kLineInputs;
    kernels_.expand(lines_, panel, line, expanded_[line % 2][panel][0]);
  }

  // Adds the products of the inputs of a line, from input `first` on, while the next one is
  // expanded.
  void AddLine(int64_t first) {
    const int64_t next = first + kLineInputs, left = codes_.num_in - first;
    const int64_t num_tiles = std::min(kLineTiles, (left + kTileInputs - 1) / kTileInputs);
    for (int64_t tile = 0; tile < std::max(num_tiles, num_panels_); ++tile) {
      if (tile < num_tiles) {
        LoadX(first + tile * kTileInputs, std::min(kTileInputs, left - tile * kTileInputs));
        const auto& panels = expanded_[first / kLineInputs % 2];
        AddTile<0>(panels[0][tile]);
        if (num_panels_ > 1) AddTile<1>(panels[1][tile]);
        if (num_panels_ > 2) AddTile<2>(panels[2][tile]);
        if (num_panels_ > 3) AddTile<3>(panels[3][tile]);
      }
      if (tile < num_panels_ && next < codes_.num_in) Expand(tile, next);
    }
  }

  // Loads `count` inputs of all rows, from `input` on: pairs of inputs are rows of the tile.
  void LoadX(int64_t input, int64_t count) {
    const std::byte* from = linear_.x + input * 2;
    int64_t stride = linear_.x_stride;
    if (count < kTileInputs) {
      std::memset(x_rest_, 0, sizeof(x_rest_));
      for (int64_t r = 0; r < linear_.num_rows; ++r) {
        std::memcpy(x_rest_[r], from + r * stride, static_cast<size_t>(count * 2));
      }
      from = x_rest_[0];
      stride = kTileRowBytes;
    }
    if (linear_.num_rows == 1) return tiles_.template Load<kX>(from, 4);
    // The transposition reads sixteen rows.
    if (linear_.num_rows < kTileRows && from != x_rest_[0]) {
      for (int64_t r = 0; r < linear_.num_rows; ++r) {
        std::memcpy(x_rest_[r], from + r * stride, kTileRowBytes);
      }
      from = x_rest_[0];
      stride = kTileRowBytes;
    }
    kernels_.transpose(from, stride, x_pairs_[0]);
    tiles_.template Load<kX>(x_pairs_[0], kTileRowBytes);
  }

  template <int kPanel>
  void AddTile(const std::byte* weights) {
    constexpr int kTile = kWeights + kPanel % (kNumTiles - kWeights);
    tiles_.template Load<kTile>(weights, kTileRowBytes);
    tiles_.template MultiplyAdd<kPanel, kTile, kX>();
  }

  void StoreSums() {
    tiles_.template Store<0>(linear_.scratch, kTileRowBytes);
    tiles_.template Store<1>(linear_.scratch + kTileFloats, kTileRowBytes);
    tiles_.template Store<2>(linear_.scratch + 2 * kTileFloats, kTileRowBytes);
    tiles_.template Store<3>(linear_.scratch + 3 * kTileFloats, kTileRowBytes);
  }

  // out = sums (+ bias)
  void StoreOutputs() const {
    const int64_t first = linear_.group * kGroupWidth;
    const int64_t width = std::min(kGroupWidth, codes_.num_out - first);
    for (int64_t r = 0; r < linear_.num_rows; ++r) {
      float* const out = linear_.out + r * linear_.out_stride;
      const float* const sums = linear_.scratch + r;
      for (int64_t i = 0; i < width; ++i) {
        const float sum = sums[i * kTileRows];
        out[i] = linear_.bias == nullptr ? sum : sum + linear_.bias[first + i];
      }
    }
  }

  const LinearBlock& linear_;
  const CodedMatrix& codes_;
  const CodeLines lines_;
  const int64_t num_panels_;
  const LineKernels kernels_;
  Tiles tiles_;
  alignas(64) std::byte expanded_[2][kSumTiles][kLineTiles][kTileBytes];
  alignas(64) std::byte x_pairs_[kTileRows][kTileRowBytes];
  alignas(64) std::byte x_rest_[kTileRows][kTileRowBytes];
};

}  // namespace

#if MINISGL_HAS_AMX
void MultiplyCodesByTiles(const LinearBlock& linear) {
  CodesBlock<HardwareTiles>(linear, Bf16LineKernels()).Run();
}
#endif

void MultiplyCodesByStandIn(const LinearBlock& linear) {
  CodesBlock<SoftwareTiles>(linear, LineKernelsInSoftware()).Run();
}

}  // namespace minisgl::cpu
