// What the kernels of products with codes share (gemv_codes.cu, gemv_code_lines.cuh).
#pragma once

#include "kernels/chunk.h"
#include "kernels/coded_rows.h"
#include "kernels/gemv_input.h"
#include "kernels/gemv_parts.h"

namespace minisgl::cuda {
namespace gemv_codes {

// Loads of a lane in flight, each of all its rows of a tile.
template <int ROWS8>
inline constexpr int kSlots = 4 / ROWS8;
inline constexpr int kWarpsPerProcessor = 16;  // 128 registers for each thread
inline constexpr int kThreadsMax = kWarpsPerProcessor * device::kWarpSize;

struct CodeLinesParams {
  CodedRows rows;
  GemvInput input;
  ProductEnd end;
  int num_tiles;
  int run;        // neighbouring groups that a warp takes
  int run_lines;  // whole lines of them; 0: they are none, or are not read as such
  int num_slots;  // of a warp in a tile: lines, or groups
  bool aligned;   // rows of x are whole chunks of 16 bytes
  // A walk over whole lines: the lines of other warps between two runs of a warp, the inputs by
  // which a warp's lines begin later than the lines of the warp before it, and the inputs between a
  // line's first group and the group at place j.
  int skipped_lines;
  int warp_inputs;
  int place_inputs[4];
};

MINISGL_DEVICE int WarpOfThread() { return static_cast<int>(threadIdx.x) / device::kWarpSize; }

// A lane's rows of a tile.
template <int ROWS8>
struct TileRows {
  int row[ROWS8];
  bool valid;
};

template <int ROWS8>
MINISGL_DEVICE TileRows<ROWS8> RowsOfLane(const CodeLinesParams& p, int tile) {
  TileRows<ROWS8> rows = {.row = {}, .valid = tile < p.num_tiles};
#pragma unroll
  for (int n = 0; n < ROWS8; ++n) {
    rows.row[n] = RowOfTile<8 * ROWS8>(
        p.end, tile, n * 8 + static_cast<int>(threadIdx.x) % device::kWarpSize / 4);
  }
  return rows;
}

// gemv_code_lines.cu, gemv_code_lines_f16.cu: the kernel that is made for this kind of scales.
// Returns false if there is none. REQUIRES whole lines and aligned rows of x.
bool LaunchCodeLines(const LaunchContext& context, const LaunchShape& shape,
                     const CodeLinesParams& p, int64_t tile_tokens, int64_t tile_rows,
                     CudaError* error);
bool LaunchCodeLinesF16(const LaunchContext& context, const LaunchShape& shape,
                        const CodeLinesParams& p, int64_t tile_tokens, int64_t tile_rows,
                        CudaError* error);

}  // namespace gemv_codes
}  // namespace minisgl::cuda
