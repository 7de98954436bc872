// How the splits of a tile of extend attention are folded, whichever blocks compute them.
//
// The tree. Splits are its leaves. A node has 4 children (2^kFoldShift), at multiples of their size
//   from position 0, and folds them from left to right. So every boundary between two splits stands
//   for one fold: of the part left of it in its node with the child right of it. The tree depends
//   on no row, no tile and no step, and a fold with nothing changes no bit, so a token's bits
//   depend on its keys alone.
// Within a block. A block that has several splits takes them in order. After a split it folds its
//   part with the images that wait at the boundaries to its left, then stores the result as the
//   image that waits at the boundary it has reached: at most one image at each level of the tree.
//   Only running blocks have this memory (PlaceQueue): 18 MB a level for E = 128 on 132
//   multiprocessors.
// Between blocks. Two blocks come to a boundary. The first leaves its image and ends; the second
//   folds the image into its own part and goes on up the tree. No block waits at a boundary. The
//   last one holds the tile. Each part has the same place in the tree as in a single block, so that
//   the bits are the same.
// Image. A stored part: for each 16 M rows E / 8 + 1 groups of a float4 for each lane, the sums as
//   the lane holds them, then {largest, sum} of its two rows. Loads and stores are whole lines.
#pragma once

#include "device/device.h"
#include "kernels/attention_arguments.h"
#include "kernels/attention_state.h"
#include "kernels/attention_tile.cuh"

namespace minisgl::cuda {

// The folded splits [begin, end) that a block holds, and the size of the children (2^shift splits)
// of the node in which they lie. Begins with one split and shift 0.
struct HeldSplits {
  int32_t begin, end, shift = 0;

  // The boundary that the splits are folded over next: that on their left if they are a child of
  // their node, or else that on their right. Goes up the tree until there is one.
  MINISGL_DEVICE int32_t FindBoundary() {
    while (!IsRight() && end % NodeSplits() == 0) shift += kFoldShift;
    return IsRight() ? begin : end;
  }
  // True if they are on the right of the boundary.
  MINISGL_DEVICE bool IsRight() const { return begin % NodeSplits() != 0; }
  // Adds what lies on the boundary's other side.
  MINISGL_DEVICE void Fold() {
    if (IsRight()) {
      begin -= begin % NodeSplits();
    } else {
      end += 1 << shift;
    }
  }
  MINISGL_DEVICE int32_t NodeSplits() const { return 1 << (shift + kFoldShift); }
};

// Stores the image of 16 M rows, whose sums are of whole rows. `image`: at this lane's first float.
template <int D>
MINISGL_DEVICE void StoreImage(float* image, const RowStates<D>& rows) {
  device::Vec<float, 4> group;
#pragma unroll
  for (int n = 0; n < D / 8; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) group[i] = rows.out[n][i];
    device::StoreVec(image + n * 128, group);
  }
  group = {rows.largest[0], rows.sum[0], rows.largest[1], rows.sum[1]};
  device::StoreVec(image + D / 8 * 128, group);
}

// Folds the image of 16 M rows into `rows`.
template <int D>
MINISGL_DEVICE void FoldImage(const float* image, int32_t num_rows, RowStates<D>* rows) {
  device::Vec<float, 4> group = device::LoadVec<4>(image + D / 8 * 128);
  FoldFactor factors[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    SoftmaxState state = {rows->largest[h], rows->sum[h]};
    factors[h] = FoldState({group[2 * h], group[2 * h + 1]}, &state);
    rows->largest[h] = state.largest;
    rows->sum[h] = state.sum;
  }
  constexpr int kAtOnce = 8;
#pragma unroll
  for (int begin = 0; begin < D / 8; begin += kAtOnce) {
    // Always true: the compiler moves no load across a branch. More at once would cost spills.
    if (device::Opaque(num_rows) == 0) continue;
#pragma unroll
    for (int n = begin; n < begin + kAtOnce && n < D / 8; ++n) {
      group = device::LoadVec<4>(image + n * 128);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        rows->out[n][i] = FoldValue(rows->out[n][i], group[i], factors[i / 2]);
      }
    }
  }
}

// The most tries of a wait in the queue of places, after which the kernel fails rather than hang.
// No right wait is so long: one try takes 0.3 us at least, an atomic's way to the second-level
// cache and back, so all of them more than a minute; a wait ends with another block's work, 20 us
// for each 512 keys, 0.04 s for a million. While the device runs other programs neither goes on.
inline constexpr uint32_t kPlaceTriesMax = 1u << 28;

// Calls try_once() until it returns true. False if it does not in `tries_max` calls.
template <typename Fn>
MINISGL_DEVICE bool TryOften(uint32_t tries_max, const Fn& try_once) {
  for (uint32_t tries = 1; !try_once(); ++tries) {
    if (tries == tries_max) return false;
    device::Sleep(100);
  }
  return true;
}

// Takes a place out of the queue; for one thread of a block. There is one for each block that can
// run at once on the multiprocessors that the workspace is for; if there are more, a block waits
// for another to end.
MINISGL_DEVICE uint32_t TakePlace(const PlaceQueue& queue, uint32_t tries_max = kPlaceTriesMax) {
  const uint32_t ticket = device::AtomicAddGlobal(queue.words, 1u);
  uint32_t* const entry = queue.words + 2 + ticket % static_cast<uint32_t>(queue.num_places);
  uint32_t place = 0;
  const bool is_taken = TryOften(tries_max, [&] {
    place = device::AtomicExchangeGlobal(entry, 0u);
    return place != 0;
  });
  if (!is_taken) device::Trap("a place for folds is lost");
  device::ThreadFence();  // the last block's accesses come before this block's
  return place - 1;
}

// Gives it back, after a barrier behind the block's last access. Blocks whose tickets are a whole
// turn of the queue apart have the same entry, and may come to it in any order: one waits until the
// other's place is taken, for which some block has a ticket. If it never is, this place is dropped,
// and the next block that would have it fails. (To fail here would cost the kernel of small tiles
// 0.6 % of its loop's instructions and a fifth of its code: the compiler doubles what follows.)
MINISGL_DEVICE void ReturnPlace(const PlaceQueue& queue, uint32_t place,
                                uint32_t tries_max = kPlaceTriesMax) {
  device::ThreadFence();  // this block's accesses come before the next block's
  const uint32_t ticket = device::AtomicAddGlobal(queue.words + 1, 1u);
  uint32_t* const entry = queue.words + 2 + ticket % static_cast<uint32_t>(queue.num_places);
  (void)TryOften(tries_max,
                 [&] { return device::AtomicCompareExchangeGlobal(entry, 0u, place + 1) == 0; });
}

}  // namespace minisgl::cuda
