// What matrix products with tiles (linear_amx.cc, linear_bytes_amx.cc) share: how rows are cut, and
// how outputs are written.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "cpu/kernels/amx_tiles.h"
#include "cpu/kernels/kernels.h"

namespace minisgl::cpu {

// Rows that pass over a pair of panels together: two tiles, so that each tile of weights and of x
// is loaded for two products.
inline constexpr int64_t kPartRows = 2 * kTileRows;
// Rows in a chunk of a product, and their bytes: half of the second-level cache (2 MiB on each
// processor with AMX) may hold the rows, because each weight that is read again comes from a slower
// memory than x.
inline constexpr int64_t kChunkRows = 512;
inline constexpr int64_t kChunkBytes = int64_t{1} << 20;
static_assert(kChunkRows <= kAnyLinearRowsMax && kChunkBytes <= kAnyLinearChunkBytes);
static_assert(kChunkRows * kGroupWidth <= kLinearScratchFloats);

// Where the sums of a row and a panel of the group are, in tiles, until they are complete: in
// `out`, where rows are often a power of two apart, they would evict each other from the
// first-level cache.
inline float* SumsOf(const LinearBlock& linear, int64_t row, int64_t panel) {
  constexpr int64_t kPanels = kGroupWidth / kPanelWidth;
  return linear.scratch + (row / kTileRows * kPanels + panel) * kTileFloats +
         row % kTileRows * kPanelWidth;
}

struct OutputRange {
  int64_t first_row, num_rows, first_panel, num_panels;
};

// out = sums (+ bias), for some rows and panels of the group. Many rows are written past the
// caches: they would be evicted before they are read, and a line that is written there need not be
// read first. (Outputs of one group alone, of experts, are read at once.)
template <class Tiles>
void StoreOutputs(const LinearBlock& linear, const OutputRange& range) {
  constexpr int64_t kStreamRowsMin = 128;  // 32 KiB for each group
  const int64_t first = linear.group * kGroupWidth;
  const int64_t num_columns = std::min(kGroupWidth, linear.weight->num_out - first);
  const bool streams = linear.num_rows >= kStreamRowsMin && linear.out_stride > kGroupWidth &&
                       linear.out_stride % kPanelWidth == 0 &&
                       reinterpret_cast<uintptr_t>(linear.out) % kTileRowBytes == 0;
  // Calls body(row, its sums, column in the group, width) for each panel of each row.
  const auto for_each = [&](const auto& body) {
    for (int64_t row = range.first_row; row < range.first_row + range.num_rows; ++row) {
      for (int64_t i = 0; i < range.num_panels; ++i) {
        const int64_t panel = range.first_panel + i, column = panel * kPanelWidth;
        body(row, SumsOf(linear, row, panel), column, std::min(kPanelWidth, num_columns - column));
      }
    }
  };
  // All biases first: after a wide vector was written, narrow ones are slow until Fence.
  if (linear.bias != nullptr) {
    for_each([&](int64_t, float* sums, int64_t column, int64_t width) {
      for (int64_t i = 0; i < width; ++i) sums[i] += linear.bias[first + column + i];
    });
  }
  for_each([&](int64_t row, const float* sums, int64_t column, int64_t width) {
    float* const out = linear.out + row * linear.out_stride + column;
    if (streams && width == kPanelWidth) {
      Tiles::Stream(sums, out);
    } else {
      std::memcpy(out, sums, static_cast<size_t>(width) * sizeof(float));
    }
  });
  if (streams) Tiles::Fence();
}

}  // namespace minisgl::cpu
