// Sizes of a block of the decode kernel, by head size, and its shared memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/device.h"
#include "kernels/attention_arguments.h"
#include "kernels/attention_tile.cuh"
#include "kernels/attention_works.cuh"

namespace minisgl::cuda {

template <int D>
struct DecodeShape {
  static constexpr int kWarps = D > 128 ? 2 : 4;
  static constexpr int kThreads = kWarps * 32;
  static constexpr int kBlocks = DecodeBlocks(D);  // of a multiprocessor
  static constexpr int kTileKeys = kWarps * 16;
  static constexpr int kPart = 16 * kPaddedRow<D>;  // elements of K, or V, of a warp's stage
  static constexpr int kSumRow = D + 8;             // floats; rows 8 banks apart
  static constexpr int kQueriesMax = SharedTileRows(D);
  // Fragments of an item, of 16 M rows each. The outputs of two fragments take 128 of a thread's
  // 255 registers if E is 128; one fragment takes as many if E is 256.
  static constexpr int kFragments = SharedTileRows(D) / kTileRows;
  static_assert(kSplitKeysMin % kTileKeys == 0);

  static size_t SharedBytes(int stages) {
    return (static_cast<size_t>(stages) * kWarps * 2 + (D > 128 ? 1 : 0)) * kPart * 2 +
           (kTileRows * kSumRow + kWarps * kTileRows * 2 + kQueriesMax) * sizeof(float) +
           kWorksAhead * kWorkWords * sizeof(int32_t);
  }
};

// The shared memory of a block. The ring last: where the others are does not depend on the number
// of stages.
template <typename T, int D>
struct DecodeMemory {
  using Shape = DecodeShape<D>;

  MINISGL_DEVICE explicit DecodeMemory(int stages) {
    device::SharedArena arena;
    sums = arena.Take<float>(kTileRows * Shape::kSumRow);
    states = arena.Take<float>(Shape::kWarps * kTileRows * 2);
    // Two fragments of the query take as many bytes as the sums of one. No work needs both at once.
    query = D > 128 ? arena.Take<T>(Shape::kPart) : sums.template As<T>();
    last = arena.Take<uint32_t>(Shape::kQueriesMax);
    works = arena.Take<int32_t>(kWorksAhead * kWorkWords);
    ring = arena.Take<T>(stages * Shape::kWarps * 2 * Shape::kPart);
  }

  device::Shared<float> sums;     // [16][D + 8] sums of the warps; factors of splits
  device::Shared<float> states;   // [warps][16][2]
  device::Shared<T> query;        // [16 or 32][D + 8]
  device::Shared<uint32_t> last;  // [32 or 16] this block merges the item's q-th row
  device::Shared<int32_t> works;  // [kWorksAhead][kWorkWords]
  device::Shared<T> ring;         // [warps][stages][K, V][16][D + 8]
};

}  // namespace minisgl::cuda
