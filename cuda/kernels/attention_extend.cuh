// Extend attention: chunks of prompts over a cached prefix, and drafts to be verified; in
// deterministic mode rows of one token too. Bound by the tensor cores for long chunks.
//
// A token's result depends on its position and keys only: keys are cut into splits of
// kExtendSplitKeys, each of which is computed on its own, in tiles of 64 keys in order, and folded
// in a fixed tree (attention_fold.cuh). A tile or a split that a row does not see leaves its state
// unchanged. (A value that is not finite does reach earlier tokens of the same row and M tile that
// share its key tile: 0 * NaN.)
//
// Work. The M rows of a row and KV head (M row m is query head m % G of token m / G), in tiles of
//   128, or of 16 if rows have few; a tile's keys in one item, or cut into several if there are too
//   few tiles to fill the device. The plan decides; no bit depends on it.
// Grid. items * HKV blocks; the KV heads of an item are neighbours. The grid has the maximum number
//   of items, and blocks past the end of the plan's list exit. A row's later tiles, which see more
//   keys, come first in the list. The kernel of 16 M rows has no more blocks than run at once if
//   they suffice for the tiles, and takes the items in turn: in a graph most are launched in vain.
// Block. 4 warps of 32 M rows: each fragment of K and V serves two products. (With 16 M rows of
//   E = 128 four warps would read 4 * 32 KB of fragments for each tile, 1,024 cycles at 128 bytes,
//   against 896 cycles of products: 4 * 128 mma at about 7 cycles on 4 tensor cores.) If E is 256,
//   8 warps of 16 rows, as 32 rows would need 256 registers for the output alone. The kernel of
//   16 M rows has one warp.
// Shared memory. Q, and a ring of 2 stages (1 if they do not fit) of 64 keys and values of E + 8
//   elements: 102 KB for E = 128, so that a multiprocessor with 227 KB holds 2 blocks.
// Traffic of a tile. 4 * E * 2 bytes of Q and out for each M row, and K and V of the keys that its
//   last token sees, mostly from the second-level cache; for each split after the first also
//   8 * (E + 8) bytes for each M row, within that cache.
// Operations. 4 * E for each query head and key, including masked keys of the last tile.
#pragma once

#include <algorithm>

#include "device/device.h"
#include "kernels/attention_arguments.h"
#include "kernels/attention_extend_tile.cuh"
#include "kernels/attention_fold.cuh"
#include "kernels/attention_state.h"
#include "kernels/attention_tile.cuh"
#include "kernels/launch.h"

namespace minisgl::cuda {

inline constexpr int kExtendKeys = 64;  // keys of a tile

template <int D, bool LARGE>
struct ExtendShape {
  static constexpr int kWarps = !LARGE ? 1 : D > 128 ? 8 : 4;
  static constexpr int kFragments = LARGE && D <= 128 ? 2 : 1;  // of 16 M rows, for each warp
  static constexpr int kWarpRows = 16 * kFragments;
  static constexpr int kRows = kWarps * kWarpRows;
  static constexpr int kThreads = kWarps * 32;
  // Registers for two blocks of 128 threads, or one of 256. The kernel of one warp is limited by
  // shared memory only.
  static constexpr int kBlocks = !LARGE ? 3 : D > 128 ? 1 : 2;
  static constexpr int kCopiesAtOnce = LARGE && D <= 128 ? 1 : 4;  // more would cost spills
  static constexpr int kPart = kExtendKeys * kPaddedRow<D>;   // elements of K, or V, of a stage
  static constexpr int kImage = kRows / 16 * ImageFloats(D);  // floats of a tile's image
  static_assert(kRows == (LARGE ? kLargeTileRows : kTileRows));
  static_assert(kExtendSplitKeys % kExtendKeys == 0);

  static constexpr size_t SharedBytes(int stages) {
    return (static_cast<size_t>(kRows) * kPaddedRow<D> + static_cast<size_t>(stages) * 2 * kPart) *
               2 +
           ExtendTile<device::bf16>::kWords * sizeof(uint32_t);
  }
};

// KEYS: see attention_pictures.cuh and attention_distances.cuh.
template <typename T, int D, bool LARGE, TileKeys KEYS = TileKeys::kCausal>
class ExtendBlock : public ExtendTile<T, KEYS> {
 public:
  using Shape = ExtendShape<D, LARGE>;
  using Tile = ExtendTile<T, KEYS>;
  static constexpr int kFragments = Shape::kFragments;

  MINISGL_DEVICE ExtendBlock(const AttentionArguments<T>& args, int stages,
                             TileKeyEnds<KEYS> ends = {})
      : Tile(args, Shape::kRows, ends),
        stages_(stages),
        lane_(static_cast<int>(threadIdx.x) % 32),
        warp_(static_cast<int>(threadIdx.x) / 32) {
    device::SharedArena arena;
    words_ = arena.Take<uint32_t>(Tile::kWords);
    query_ = arena.Take<T>(Shape::kRows * kPaddedRow<D>) + warp_ * Shape::kWarpRows * kPaddedRow<D>;
    ring_ = arena.Take<T>(stages * 2 * Shape::kPart);
  }

  // True if a token of work `work` sees a key of it.
  MINISGL_DEVICE bool FindWork(int32_t work) {
    const bool sees_keys = this->FindItem(work);
    // M rows past the tile's last count as its last, so that they do not cause masking.
    const int32_t first = warp_ * Shape::kWarpRows, last = first + Shape::kWarpRows - 1;
    own_first_high_ = High(first < num_rows_ ? first : num_rows_ - 1);
    own_last_high_ = Position(last < num_rows_ ? last : num_rows_ - 1) + 1;
    return sees_keys;
  }

  MINISGL_DEVICE void Run() {
    CopyQuery();
    RowStates<D> rows[kFragments];
#pragma unroll
    for (int m = 0; m < kFragments; ++m) rows[m].Clear();
    int32_t tile = low_ / kExtendKeys * kExtendKeys;
    FindKeys(tile);
    if (stages_ == 2) CopyTile(tile, 0);
    int stage = 0;
    while (tile < high_) {
      do {
        if (stages_ == 1) {
          __syncthreads();  // no warp reads the last tile any more
          CopyTile(tile, 0);
        }
        device::CopyAsyncWait<0>();
        __syncthreads();  // the tile's copies are there; no warp reads the other stage any more
        if (stages_ == 2) {
          if (tile + kExtendKeys < high_) CopyTile(tile + kExtendKeys, stage ^ 1);
        }
        Attend(tile, stage, rows);
        if (stages_ == 2) stage ^= 1;
        tile += kExtendKeys;
      } while (tile < high_ && tile % kExtendSplitKeys != 0);
      if (EndSplit((tile - kExtendKeys) / kExtendSplitKeys, rows)) {
#pragma unroll
        for (int m = 0; m < kFragments; ++m) {
#pragma unroll
          for (int h = 0; h < 2; ++h) StoreRow(rows[m], m, h);
        }
      }
    }
    this->EndFolds(Places());
  }

 private:
  using Tile::args_;
  using Tile::first_row_;
  using Tile::HeadOf;
  using Tile::High;
  using Tile::high_;
  using Tile::kv_head_;
  using Tile::Low;
  using Tile::low_;
  using Tile::num_rows_;
  using Tile::pages_;
  using Tile::Position;
  using Tile::TokenOf;
  using Tile::words_;

  static constexpr int kWarpKeys = kExtendKeys / Shape::kWarps;      // that a warp copies
  static constexpr int kCopyKeys = kWarpKeys < 32 ? kWarpKeys : 32;  // copied at a time
  static constexpr int kCopies = kWarpKeys / kCopyKeys;

  // Each warp copies the M rows that only it reads; rows past the tile's last become zeros.
  MINISGL_DEVICE void CopyQuery() const {
    const int32_t tile_row = warp_ * Shape::kWarpRows + lane_ % Shape::kWarpRows;
    const int64_t width = args_.num_heads + args_.other_heads;
    int64_t offset = -1;
    if (tile_row < num_rows_) {
      offset = (TokenOf(tile_row) * width + HeadOf(tile_row)) * D;
    }
    CopyRows<T, D, Shape::kWarpRows, false, Shape::kCopiesAtOnce>(query_, query_, args_.qkv, 0,
                                                                  offset, lane_);
    device::CopyAsyncCommit();
  }

  MINISGL_DEVICE void FindKeys(int32_t tile) {
#pragma unroll
    for (int c = 0; c < kCopies; ++c) {
      const int32_t key = tile + warp_ * kWarpKeys + c * kCopyKeys + lane_ % kCopyKeys;
      places_[c] = FindKey(args_, pages_, key, key >= low_ && key < high_);
    }
  }

  // Copies this warp's keys of `tile`, whose pages FindKeys has fetched, then fetches the pages of
  // the next tile.
  MINISGL_DEVICE void CopyTile(int32_t tile, int stage) {
    const device::Shared<T> part = ring_ + stage * 2 * Shape::kPart;
#pragma unroll
    for (int c = 0; c < kCopies; ++c) {
      const device::Shared<T> keys = part + (warp_ * kWarpKeys + c * kCopyKeys) * kPaddedRow<D>;
      const int32_t first = tile + warp_ * kWarpKeys + c * kCopyKeys;
      CopyKeys<T, D, kCopyKeys, Shape::kCopiesAtOnce>(
          args_, keys, keys + Shape::kPart, places_[c], first, kv_head_,
          tile >= low_ && tile + kExtendKeys <= high_, lane_);
    }
    device::CopyAsyncCommit();
    FindKeys(tile + kExtendKeys);
  }

  MINISGL_DEVICE void Attend(int32_t tile, int stage, RowStates<D> (&rows)[kFragments]) const {
    const device::Shared<T> keys = ring_ + stage * 2 * Shape::kPart;
    float scores[kFragments][kExtendKeys / 8][4];
    const device::Shared<T> corner = query_ + (lane_ % 16 * kPaddedRow<D> + lane_ / 16 * 8);
    MultiplyKeys<T, D, kExtendKeys, kFragments>(
        scores, keys, lane_, [&](int k, int m, uint32_t(&a)[4]) {
          device::LoadMatrix4<T>(a, corner + (m * 16 * kPaddedRow<D> + k * 16));
        });
    uint32_t weights[kFragments][kExtendKeys / 16][4];
    // True if every M row of the warp sees the whole tile.
    const bool whole = tile >= Low(own_last_high_) && tile + kExtendKeys <= own_first_high_;
#pragma unroll
    for (int m = 0; m < kFragments; ++m) {
      CapScores(scores[m], args_.score);
      if constexpr (KEYS == TileKeys::kDistances) AddDistances(tile, m, scores[m]);
      if (!whole) MaskTile(tile, m, scores[m]);
      UpdateStates<T, D, kExtendKeys / 8>(scores[m], args_.score.weight, weights[m], &rows[m]);
    }
    MultiplyValues<T, D, kExtendKeys, kFragments>(weights, keys + Shape::kPart, lane_, rows);
  }

  MINISGL_DEVICE void AddDistances(int32_t tile, int m, float (&scores)[kExtendKeys / 8][4]) const {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float* const distances = this->Distances(TileRow(m, h)) + tile + lane_ % 4 * 2;
#pragma unroll
      for (int n = 0; n < kExtendKeys / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          float* const score = &scores[n][2 * h + i];
          *score = fmaf(distances[n * 8 + i], this->PerScale(), *score);
        }
      }
    }
  }

  // M rows past the tile's last are masked by their index; they are not stored.
  MINISGL_DEVICE void MaskTile(int32_t tile, int m, float (&scores)[kExtendKeys / 8][4]) const {
    int32_t low[2], high[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int32_t position = Position(TileRow(m, h));
      high[h] = position + 1;
      low[h] = Low(high[h]);
      if constexpr (KEYS != TileKeys::kCausal) high[h] = High(TileRow(m, h));
    }
    MaskScores(scores, tile, low, high, lane_);
  }

  MINISGL_DEVICE int32_t TileRow(int m, int h) const {
    return warp_ * Shape::kWarpRows + m * 16 + h * 8 + lane_ / 4;
  }

  // Folds the block's part of the tile: see ExtendTile::FoldSplits.
  MINISGL_DEVICE bool EndSplit(int32_t split, RowStates<D> (&rows)[kFragments]) {
#pragma unroll
    for (int m = 0; m < kFragments; ++m) rows[m].SumLanes();
    return this->FoldSplits(
        split, Places(), Shape::kImage,
        [&](float* image) {
#pragma unroll
          for (int m = 0; m < kFragments; ++m) StoreImage<D>(image + InImage(m), rows[m]);
        },
        [&] {
#pragma unroll
          for (int m = 0; m < kFragments; ++m) rows[m].Clear();
        },
        [&](const float* image) {
#pragma unroll
          for (int m = 0; m < kFragments; ++m) {
            FoldImage<D>(image + InImage(m), num_rows_, &rows[m]);
          }
        });
  }

  MINISGL_DEVICE const PlaceQueue& Places() const {
    return LARGE ? args_.plan.large_places : args_.plan.small_places;
  }

  // Where fragment m of this lane is in the image of a tile.
  MINISGL_DEVICE int32_t InImage(int m) const {
    return (warp_ * kFragments + m) * ImageFloats(D) + device::Opaque(lane_) * 4;
  }

  MINISGL_DEVICE void StoreRow(const RowStates<D>& rows, int m, int h) const {
    const SoftmaxState state = {rows.largest[h], rows.sum[h]};
    const int32_t tile_row = TileRow(m, h);
    if (tile_row >= num_rows_) return;
    const int32_t head = HeadOf(tile_row);
    SoftmaxState all = state;
    if (args_.sinks != nullptr) all = Merge(state, SinkState(args_.sinks[head]));
    const float factor = Rescale(state.largest, all.largest) * Normaliser(all);
    T* const out = args_.out + (TokenOf(tile_row) * args_.num_heads + head) * D + lane_ % 4 * 2;
#pragma unroll
    for (int n = 0; n < D / 8; ++n) {
      StorePair(out + n * 8, rows.out[n][2 * h] * factor, rows.out[n][2 * h + 1] * factor);
    }
  }

  const int stages_, lane_, warp_;
  device::Shared<T> query_;  // [32 or 16][D + 8] this warp's
  device::Shared<T> ring_;   // [stages][K, V][64][D + 8]
  // The end of the keys that the first token of the warp's M rows sees, and the position after the
  // last one.
  int32_t own_first_high_ = 0, own_last_high_ = 0;
  KeyPlace places_[kCopies];  // this lane's keys of the tile that is copied next
};

template <typename T, int D, bool LARGE>
MINISGL_KERNEL void MINISGL_LAUNCH_BOUNDS((ExtendShape<D, LARGE>::kThreads),
                                          (ExtendShape<D, LARGE>::kBlocks))
    ExtendKernel(AttentionArguments<T> args, int stages) {
  device::GridRelease();
  device::GridWait();
  ExtendBlock<T, D, LARGE> block(args, stages);
  const int32_t num_works = block.NumWorks();
  int32_t work = static_cast<int32_t>(blockIdx.x);
  if constexpr (LARGE) {
    if (work < num_works && block.FindWork(work)) block.Run();
  } else {
    for (; work < num_works; work += static_cast<int32_t>(gridDim.x)) {
      if (block.FindWork(work)) block.Run();
      __syncthreads();  // shared memory may be written again
    }
  }
}

template <typename T>
CudaError LaunchExtend(const LaunchContext& context, AttentionArguments<T> arguments,
                       int32_t head_dim, ExtendChoice choice, const ExtendWork& work) {
  arguments.list = work.decode_rows ? arguments.plan.decode_list : arguments.plan.extend_list;
  const auto launch = [&]<int D, bool LARGE>() {
    using Shape = ExtendShape<D, LARGE>;
    const int64_t tiles = work.max_tiles * arguments.num_kv_heads;
    int64_t blocks = tiles + work.max_cut_items;
    if (!LARGE) {
      const int64_t at_once = int64_t{context.num_multiprocessors} * Shape::kBlocks;
      blocks = std::min(blocks, std::max(tiles, at_once));
    }
    return Launch(context,
                  {.grid = {static_cast<unsigned>(blocks)},
                   .block = {Shape::kThreads},
                   .shared_bytes = Shape::SharedBytes(choice.stages),
                   .programmatic = true},
                  ExtendKernel<T, D, LARGE>, arguments, choice.stages);
  };
  return DispatchHeadDim(head_dim, [&]<int D>() {
    return choice.large ? launch.template operator()<D, true>()
                        : launch.template operator()<D, false>();
  });
}

}  // namespace minisgl::cuda
