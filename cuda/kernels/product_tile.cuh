// A tile of a matrix product: 16 or 64 rows of x times 64 rows of weights, by a block of 4 warps.
//
// The block copies 64 elements of K of its rows at a time into shared memory, several steps ahead,
// and multiplies them on the tensor cores (mma m16n8k16, x as the first operand). Each warp
// computes 16 of the outputs for all rows. An element is summed in one chain in the order of K, in
// tiles of 16 rows as in tiles of 64, and the rows of a product do not interact.
#pragma once

#include "device/device.h"
#include "kernels/chunk.h"

namespace minisgl::cuda {

inline constexpr int kTileThreads = 128;
inline constexpr int kOutsOfWarp = 16;
inline constexpr int kTileOuts = kTileThreads / device::kWarpSize * kOutsOfWarp;
inline constexpr int kStep = 64;                // elements of K at a time: rows of 128 bytes
inline constexpr int kChunks = kStep / kChunk;  // chunks of 16 bytes in a row of a step
inline constexpr int kRowsAtOnce =
    kTileThreads / kChunks;  // rows copied by one copy of each thread
static_assert(kRowsAtOnce == 16 && kTileOuts % kRowsAtOnce == 0);

// Chunk c of row r is stored in the place of chunk c ^ (r % 8), so that the 8 rows of 16 bytes that
// a matrix load reads at once are in different banks.
MINISGL_DEVICE int TileOffset(int row, int chunk) {
  return row * kStep + (chunk ^ row % 8) * kChunk;
}

// A tile of ROWS16 * 16 rows of x. Shared memory holds kSteps steps of K at a time.
template <int ROWS16>
struct ProductShape {
  static constexpr int kRows = 16 * ROWS16;
  static constexpr int kSteps = ROWS16 == 1 ? 6 : 4;  // 60 KB and 64 KB: three blocks at once
  static constexpr size_t kBytes = size_t{2} * kSteps * (kRows + kTileOuts) * kStep;
};

template <typename T, int ROWS16>
class ProductTile {
 public:
  using Shape = ProductShape<ROWS16>;

  // `aligned`: all rows are whole chunks of 16 bytes. `anything`: device memory.
  MINISGL_DEVICE ProductTile(device::SharedArena* arena, int num_in, bool aligned,
                             const void* anything)
      : num_in_(num_in),
        aligned_(aligned),
        anything_(static_cast<const T*>(anything)),
        lane_(static_cast<int>(threadIdx.x) % device::kWarpSize),
        row_(static_cast<int>(threadIdx.x) / kChunks),
        chunk_(static_cast<int>(threadIdx.x) % kChunks),
        first_out_(static_cast<int>(threadIdx.x) / device::kWarpSize * kOutsOfWarp),
        x_tiles_(arena->Take<T>(Shape::kSteps * Shape::kRows * kStep)),
        weight_tiles_(arena->Take<T>(Shape::kSteps * kTileOuts * kStep)) {}

  MINISGL_DEVICE int lane() const { return lane_; }
  // The warp's first output in the tile.
  MINISGL_DEVICE int first_out() const { return first_out_; }

  // row_of(i): row i of the tile's weights, or of x; null if there is none.
  template <typename RowOf>
  MINISGL_DEVICE void SetWeights(const RowOf& row_of) {
#pragma unroll
    for (int i = 0; i < kWeightCopies; ++i) weights_[i] = row_of(i * kRowsAtOnce + row_);
  }
  template <typename RowOf>
  MINISGL_DEVICE void SetRows(const RowOf& row_of) {
#pragma unroll
    for (int i = 0; i < ROWS16; ++i) x_[i] = row_of(i * kRowsAtOnce + row_);
  }

  // sums += the warp's products: of each 16 rows, two groups of 8 outputs.
  MINISGL_DEVICE void Multiply(float (&sums)[ROWS16][2][4]) const {
    const int num_steps = (num_in_ + kStep - 1) / kStep;
    for (int step = 0; step < Shape::kSteps - 1; ++step) {
      if (step < num_steps) {
        Copy(weights_, weight_tiles_, step, step);
        Copy(x_, x_tiles_, step, step);
      }
      device::CopyAsyncCommit();
    }
    for (int step = 0; step < num_steps; ++step) {
      device::CopyAsyncWait<Shape::kSteps - 2>();
      __syncthreads();  // rows of this step are visible, rows of the previous step no longer in use
      const int ahead = step + Shape::kSteps - 1;
      if (ahead < num_steps) {
        Copy(weights_, weight_tiles_, ahead, ahead % Shape::kSteps);
        Copy(x_, x_tiles_, ahead, ahead % Shape::kSteps);
      }
      device::CopyAsyncCommit();
      const int place = step % Shape::kSteps;
      MultiplyStep(x_tiles_ + place * Shape::kRows * kStep,
                   weight_tiles_ + (place * kTileOuts + first_out_) * kStep, sums);
    }
  }

 private:
  static constexpr int kWeightCopies = kTileOuts / kRowsAtOnce;

  // Copies this thread's chunks of a step, one of each row, to the place of a step in `tiles`.
  template <int COUNT>
  MINISGL_DEVICE void Copy(const T* const (&rows)[COUNT], device::Shared<T> tiles, int step,
                           int place) const {
    const int k = step * kStep + chunk_ * kChunk;
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
      const bool valid = rows[i] != nullptr && k < num_in_;
      const T* const from = valid ? rows[i] + k : anything_;
      const device::Shared<T> to =
          tiles + (TileOffset(row_, chunk_) + (place * COUNT + i) * kRowsAtOnce * kStep);
      if (aligned_) {
        device::CopyAsync16(to, from, valid);
        continue;
      }
      device::Vec<T, kChunk> elements;
#pragma unroll
      for (int e = 0; e < kChunk; ++e) {
        elements[e] = valid && k + e < num_in_ ? from[e] : device::FromFloat<T>(0);
      }
      device::StoreShared(to, elements);
    }
  }

  // Adds the warp's products of one step.
  MINISGL_DEVICE void MultiplyStep(device::Shared<T> x, device::Shared<T> weights,
                                   float (&sums)[ROWS16][2][4]) const {
#pragma unroll
    for (int k = 0; k < kStep / 16; ++k) {
      // Lane l addresses row l % 8 of matrix l / 8. The matrices: outputs 0-7 with chunks 2 k and
      // 2 k + 1, then outputs 8-15 with the same chunks.
      uint32_t w[4];
      device::LoadMatrix4<T>(
          w, weights + TileOffset(lane_ % 8 + lane_ / 16 * 8, 2 * k + lane_ / 8 % 2));
      const uint32_t low[2] = {w[0], w[1]}, high[2] = {w[2], w[3]};
#pragma unroll
      for (int m = 0; m < ROWS16; ++m) {
        // The matrices: rows 0-7 and 8-15 of chunk 2 k, then of chunk 2 k + 1.
        uint32_t a[4];
        device::LoadMatrix4<T>(
            a, x + TileOffset(m * 16 + lane_ % 8 + lane_ / 8 % 2 * 8, 2 * k + lane_ / 16));
        device::Mma16816<T>(sums[m][0], a, low);
        device::Mma16816<T>(sums[m][1], a, high);
      }
    }
  }

  const int num_in_;
  const bool aligned_;
  const T* const anything_;
  const int lane_, row_, chunk_, first_out_;
  const device::Shared<T> x_tiles_, weight_tiles_;
  // Those rows of which this thread copies a chunk of every step; null: zeros.
  const T* weights_[kWeightCopies];
  const T* x_[ROWS16];
};

// The same steps for kernels that make their tiles themselves.

// Copies this thread's chunks of a step, one of each row, to the place of a step in `tiles`. The
// rows are those from its own on, each kRowsAtOnce further; null: zeros. `k`: the first input of
// the chunks. `aligned`: all rows are whole chunks of 16 bytes. `anything`: device memory.
template <typename T, int COUNT>
MINISGL_DEVICE void CopyTileStep(const T* const (&rows)[COUNT], device::Shared<T> tiles, int k,
                                 int place, int num_in, bool aligned, const T* anything) {
  const int row = static_cast<int>(threadIdx.x) / kChunks;
  const int chunk = static_cast<int>(threadIdx.x) % kChunks;
#pragma unroll
  for (int i = 0; i < COUNT; ++i) {
    const bool valid = rows[i] != nullptr && k < num_in;
    const T* const from = valid ? rows[i] + k : anything;
    const device::Shared<T> to =
        tiles + (TileOffset(row, chunk) + (place * COUNT + i) * kRowsAtOnce * kStep);
    if (aligned) {
      device::CopyAsync16(to, from, valid);
      continue;
    }
    device::Vec<T, kChunk> elements;
#pragma unroll
    for (int e = 0; e < kChunk; ++e) {
      elements[e] = valid && k + e < num_in ? from[e] : device::FromFloat<T>(0);
    }
    device::StoreShared(to, elements);
  }
}

// Adds a warp's products of one step. `weights`: the rows of its 16 outputs.
template <typename T, int ROWS16>
MINISGL_DEVICE void MultiplyTileStep(device::Shared<T> x, device::Shared<T> weights, int lane,
                                     float (&sums)[ROWS16][2][4]) {
#pragma unroll
  for (int k = 0; k < kStep / 16; ++k) {
    // Lane l addresses row l % 8 of matrix l / 8. The matrices: outputs 0-7 with chunks 2 k and
    // 2 k + 1, then outputs 8-15 with the same chunks.
    uint32_t w[4];
    device::LoadMatrix4<T>(w, weights + TileOffset(lane % 8 + lane / 16 * 8, 2 * k + lane / 8 % 2));
    const uint32_t low[2] = {w[0], w[1]}, high[2] = {w[2], w[3]};
#pragma unroll
    for (int m = 0; m < ROWS16; ++m) {
      // The matrices: rows 0-7 and 8-15 of chunk 2 k, then of chunk 2 k + 1.
      uint32_t a[4];
      device::LoadMatrix4<T>(
          a, x + TileOffset(m * 16 + lane % 8 + lane / 8 % 2 * 8, 2 * k + lane / 16));
      device::Mma16816<T>(sums[m][0], a, low);
      device::Mma16816<T>(sums[m][1], a, high);
    }
  }
}

}  // namespace minisgl::cuda
