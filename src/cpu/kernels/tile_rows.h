// What matrix products with tiles (linear_amx.cc, linear_bytes_amx.cc) share: how rows are cut, and
// how outputs are written.
#pragma once

#include <cstdint>

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

// True if outputs are written past the caches, 16 at a time: they would be evicted before they are
// read, and a line that is written there need not be read first. (Outputs of one group alone, of
// experts, are read at once.)
inline bool StreamsOutputs(const LinearBlock& linear) {
  constexpr int64_t kRowsMin = 128;  // 32 KiB for each group
  constexpr int64_t kLine = 64;
  return linear.num_rows >= kRowsMin && linear.out_stride > kGroupWidth &&
         linear.out_stride % kPanelWidth == 0 &&
         reinterpret_cast<uintptr_t>(linear.out) % kLine == 0;
}

}  // namespace minisgl::cpu
