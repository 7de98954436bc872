// The plan of a step's attention.
//
// PlanKernel: one block of 256 threads, once for each step. It takes 256 rows at a time: a prefix
// sum of the number of pieces of each row, then a thread for each piece, which finds its row by
// bisection. Shared memory: 290 words. Traffic: 32 bytes for each item of decode rows, 16 for each
// other item, and 16 for each row, the last twice and once more for each size of items that is
// tried: at most about 200 KB.
#include <algorithm>
#include <cstdint>

#include "kernels/attention_arguments.h"
#include "kernels/attention_choice.h"
#include "kernels/attention_workspace.h"
#include "minisgl/base/checked_math.h"

namespace minisgl::cuda {
namespace {

using device::Shared;
using device::Vec;

constexpr int kPlanThreads = 256;
constexpr int32_t kCutShiftMax = 22;  // one item, as no row has 2^31 keys

struct PlanArguments {
  DeviceAttentionPlan plan;
  const int32_t* row_begin;
  const int32_t* kv_len;
  int32_t num_rows;
  int32_t num_decode_rows;
  const int32_t* decode_rows;  // [1] null: num_decode_rows
  int32_t group;
  int32_t tile_rows;         // M rows of a tile of rows that extend
  int32_t decode_tile_rows;  // of a tile of a decode row in decode_list
  int32_t item_rows;         // upper bound on the rows of a group's item
  int32_t cut_items_max;     // upper bound on the items of cut tiles in a list
  bool uses_decode_list;     // decode rows are in decode_list instead of the items
  int32_t item_works;        // works of an item of the decode kernel: KV heads, times M tiles
  int32_t decode_blocks;     // of the decode kernel that run at once
  int32_t split_times_max;
  int32_t window;  // 0: no layer has one
  SharedPrefixes shared;
  int32_t split_keys_min = kSplitKeysMin;  // of the step; set by the kernel
};

// scan[i] = number of pieces of this round's rows before its row i, for i in [0, 256]: an inclusive
// sum in each warp, then over the warps' totals.
MINISGL_DEVICE void ScanPieces(int32_t pieces, Shared<int32_t> scan, Shared<int32_t> totals) {
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  int32_t sum = pieces;
#pragma unroll
  for (int offset = 1; offset < 32; offset *= 2) {
    const int32_t below = __shfl_up_sync(0xffffffffu, sum, offset);
    if (lane >= offset) sum += below;
  }
  if (lane == 31) totals[warp] = sum;
  __syncthreads();  // totals are written; no thread reads the last round's scan any more
  for (int w = 0; w < warp; ++w) {
    const int32_t total = totals[w];
    sum += total;
  }
  scan[thread + 1] = sum;
  if (thread == 0) scan[0] = 0;
  __syncthreads();  // the scan is written; totals may be written again
}

// Cuts rows [begin, end) into count(row) pieces each, and calls store(i, row, piece) for piece i of
// all. Returns the number of pieces.
template <typename Count, typename Store>
MINISGL_DEVICE int32_t CutRows(int32_t begin, int32_t end, Shared<int32_t> scan,
                               Shared<int32_t> totals, const Count& count, const Store& store) {
  const int thread = static_cast<int>(threadIdx.x);
  int32_t done = 0;
  for (int32_t first = begin; first < end; first += kPlanThreads) {
    const int32_t row = first + thread;
    ScanPieces(row < end ? count(row) : 0, scan, totals);
    const int32_t num_pieces = scan[kPlanThreads];
    for (int32_t piece = thread; piece < num_pieces; piece += kPlanThreads) {
      int32_t low = 0, high = kPlanThreads;  // scan[low] <= piece < scan[high]
      while (high - low > 1) {
        const int32_t middle = (low + high) / 2;
        const int32_t before = scan[middle];
        (before <= piece ? low : high) = middle;
      }
      const int32_t before = scan[low];
      store(done + piece, first + low, piece - before);
    }
    done += num_pieces;
  }
  return done;
}

// A power of two.
MINISGL_DEVICE int32_t SplitKeys(const PlanArguments& p, int32_t row) {
  const int32_t keys = AttentionSplitKeys(p.kv_len[row]);
  return keys > p.split_keys_min ? keys : p.split_keys_min;
}

MINISGL_DEVICE int32_t NumSplits(const PlanArguments& p, int32_t row) {
  return DivideUp(p.kv_len[row], SplitKeys(p, row));
}

// Whole splits of `row` that its group shares.
MINISGL_DEVICE int32_t SharedSplits(const PlanArguments& p, int32_t row) {
  if (p.shared.num_groups == nullptr) return 0;
  return p.shared.shared_splits[row] / (SplitKeys(p, row) / AttentionSplitKeys(p.kv_len[row]));
}

// Splits of `row` before the largest window.
MINISGL_DEVICE int32_t HiddenSplits(const PlanArguments& p, int32_t row) {
  const int32_t hidden = p.kv_len[row] - p.window;
  return hidden > 0 ? hidden / SplitKeys(p, row) : 0;
}

MINISGL_DEVICE void StoreItem(const PlanArguments& p, int32_t* items, int32_t i, int32_t row,
                              int32_t split, int32_t first_query, int32_t num_queries) {
  const int32_t kv_len = p.kv_len[row];
  const Vec<int32_t, 4> what = {row, split, kv_len, SplitKeys(p, row)};
  const Vec<int32_t, 4> whose = {first_query, num_queries, 0, 0};
  int32_t* const item = items + int64_t{i} * kItemWords;
  device::StoreVec(item, what);
  device::StoreVec(item + 4, whose);
}

// Lengths of splits (powers of two) that decode rows have, or-ed.
MINISGL_DEVICE uint32_t FindSplitLengths(const PlanArguments& p, Shared<int32_t> totals) {
  const int thread = static_cast<int>(threadIdx.x);
  uint32_t lengths = 0;
  for (int32_t row = thread; row < p.num_decode_rows; row += kPlanThreads) {
    lengths |= static_cast<uint32_t>(SplitKeys(p, row));
  }
  lengths = __reduce_or_sync(0xffffffffu, lengths);
  __syncthreads();  // no thread reads the totals of a scan any more
  if (thread % 32 == 0) totals[thread / 32] = static_cast<int32_t>(lengths);
  __syncthreads();  // every warp's lengths are there
  for (int w = 0; w < kPlanThreads / 32; ++w) {
    const int32_t others = totals[w];
    lengths |= static_cast<uint32_t>(others);
  }
  __syncthreads();  // totals may be written again
  return lengths;
}

// The least length of the step's splits. The fewer, the less there is to end and to merge (about
// 2 us each, beside others), but every block should have two works, so that all end at about the
// same time. Measured on an H200, 64 rows of 1,024 keys and 8 heads: 256 keys 92 us, 512 80 us,
// 1,024 71 us; of 4,096 keys: 315, 276, 271 us.
MINISGL_DEVICE int32_t ChooseSplitKeys(const PlanArguments& p, Shared<int32_t> scan,
                                       Shared<int32_t> totals) {
  int32_t pieces = 0;
  for (int32_t row = static_cast<int32_t>(threadIdx.x); row < p.num_decode_rows;
       row += kPlanThreads) {
    const int32_t kv_len = p.kv_len[row];
    pieces += DivideUp(p.window > 0 && p.window < kv_len ? p.window : kv_len, kSplitKeysMin);
  }
  ScanPieces(pieces, scan, totals);
  const int32_t all = scan[kPlanThreads];
  const int64_t works = int64_t{all} * p.item_works;
  int32_t times = 1;
  while (times < p.split_times_max && works * 8 >= int64_t{times} * 2 * 15 * p.decode_blocks) {
    times *= 2;
  }
  return kSplitKeysMin * times;
}

// Places the parts of the decode rows.
MINISGL_DEVICE void PlanParts(const PlanArguments& p, Shared<int32_t> scan,
                              Shared<int32_t> totals) {
  int32_t num_parts = 0;
  for (int32_t first = 0; first < p.num_decode_rows; first += kPlanThreads) {
    const int32_t row = first + static_cast<int32_t>(threadIdx.x);
    const bool there = row < p.num_decode_rows;
    ScanPieces(there ? NumSplits(p, row) : 0, scan, totals);
    const int32_t before = scan[static_cast<int>(threadIdx.x)];
    if (there) p.plan.part_begin[row] = num_parts + before;
    const int32_t round = scan[kPlanThreads];
    num_parts += round;
  }
}

// The items of a group's splits: each has at most item_rows rows, and they are as even as possible.
// The items of one split are neighbours and run together: the first reads the split's keys from
// memory, the others read them from the second-level cache.
struct GroupCut {
  int32_t begin, num_rows, num_items;
};

MINISGL_DEVICE GroupCut CutGroup(const PlanArguments& p, int32_t group) {
  const int32_t begin = p.shared.group_begin[group];
  const int32_t num_rows = p.shared.group_begin[group + 1] - begin;
  return {begin, num_rows, DivideUp(num_rows, p.item_rows)};
}

// Writes the items of `split_keys` keys from item `first` on, most work first: items of groups,
// whole splits, the ends of rows. Returns the number of items.
MINISGL_DEVICE int32_t PlanItemsOf(const PlanArguments& p, int32_t split_keys, int32_t first,
                                   Shared<int32_t> scan, Shared<int32_t> totals) {
  const auto has_length = [&](int32_t row) { return SplitKeys(p, row) == split_keys; };
  int32_t num_shared = 0;
  if (p.shared.num_groups != nullptr) {
    num_shared = CutRows(
        0, p.shared.num_groups[0], scan, totals,
        [&](int32_t group) {
          const GroupCut cut = CutGroup(p, group);
          const int32_t row = p.shared.rows[cut.begin];
          return has_length(row) ? SharedSplits(p, row) * cut.num_items : 0;
        },
        [&](int32_t i, int32_t group, int32_t piece) {
          const GroupCut cut = CutGroup(p, group);
          const int32_t item = piece % cut.num_items;
          const int32_t begin = cut.begin + item * cut.num_rows / cut.num_items;
          const int32_t end = cut.begin + (item + 1) * cut.num_rows / cut.num_items;
          StoreItem(p, p.plan.items, first + i, p.shared.rows[begin], piece / cut.num_items, begin,
                    end - begin);
        });
  }
  const int32_t num_whole = CutRows(
      0, p.num_decode_rows, scan, totals,
      [&](int32_t row) {
        return has_length(row) ? p.kv_len[row] / split_keys - SharedSplits(p, row) : 0;
      },
      [&](int32_t i, int32_t row, int32_t piece) {
        StoreItem(p, p.plan.items, first + num_shared + i, row, SharedSplits(p, row) + piece, 0, 1);
      });
  const int32_t num_full = num_shared + num_whole;
  return num_full + CutRows(
                        0, p.num_decode_rows, scan, totals,
                        [&](int32_t row) {
                          return has_length(row) && p.kv_len[row] % split_keys != 0 ? 1 : 0;
                        },
                        [&](int32_t i, int32_t row, int32_t) {
                          StoreItem(p, p.plan.items, first + num_full + i, row,
                                    p.kv_len[row] / split_keys, 0, 1);
                        });
}

// The same for the layers with a window, of the splits that it shows. They share none.
MINISGL_DEVICE int32_t PlanWindowItemsOf(const PlanArguments& p, int32_t split_keys, int32_t first,
                                         Shared<int32_t> scan, Shared<int32_t> totals) {
  return CutRows(
      0, p.num_decode_rows, scan, totals,
      [&](int32_t row) {
        const bool has_length = SplitKeys(p, row) == split_keys;
        return has_length ? NumSplits(p, row) - HiddenSplits(p, row) : 0;
      },
      [&](int32_t i, int32_t row, int32_t piece) {
        StoreItem(p, p.plan.window_items, first + i, row, HiddenSplits(p, row) + piece, 0, 1);
      });
}

struct ItemCounts {
  int32_t items = 0, window_items = 0;
};

// Writes the items, the longest splits first, so that blocks take short ones last.
MINISGL_DEVICE ItemCounts PlanItems(const PlanArguments& p, Shared<int32_t> scan,
                                    Shared<int32_t> totals) {
  PlanParts(p, scan, totals);
  if (p.shared.num_groups != nullptr) {
    const int32_t num_shared_rows = p.shared.group_begin[p.shared.num_groups[0]];
    for (int32_t i = static_cast<int32_t>(threadIdx.x); i < num_shared_rows; i += kPlanThreads) {
      p.plan.queries[i] = p.shared.rows[i];
    }
  }
  ItemCounts counts;
  for (uint32_t lengths = FindSplitLengths(p, totals); lengths != 0;) {
    const int32_t longest = 1 << (31 - __clz(static_cast<int>(lengths)));
    lengths &= ~static_cast<uint32_t>(longest);
    counts.items += PlanItemsOf(p, longest, counts.items, scan, totals);
    if (p.window > 0) {
      counts.window_items += PlanWindowItemsOf(p, longest, counts.window_items, scan, totals);
    }
  }
  return counts;
}

// Rows [begin, end) in tiles of tile_rows M rows, for the extend kernel.
struct TiledRows {
  int32_t begin, end;
  int32_t tile_rows;

  MINISGL_DEVICE int32_t NumTiles(const PlanArguments& p, int32_t row) const {
    return DivideUp((p.row_begin[row + 1] - p.row_begin[row]) * p.group, tile_rows);
  }
};

// Items of a tile of the row, of 2^shift splits each.
MINISGL_DEVICE int32_t NumTileItems(const PlanArguments& p, int32_t row, int32_t shift) {
  const int32_t items = DivideUp(DivideUp(p.kv_len[row], kExtendSplitKeys), 1 << shift);
  return items > 1 ? items : 1;
}

MINISGL_DEVICE int32_t NumCutItems(const PlanArguments& p, const TiledRows& rows, int32_t row,
                                   int32_t shift) {
  const int32_t items = NumTileItems(p, row, shift);
  return items > 1 ? items * rows.NumTiles(p, row) : 0;
}

template <typename Count>
MINISGL_DEVICE int32_t SumRows(const TiledRows& rows, Shared<int32_t> scan, Shared<int32_t> totals,
                               const Count& count) {
  int32_t sum = 0;
  for (int32_t first = rows.begin; first < rows.end; first += kPlanThreads) {
    const int32_t row = first + static_cast<int32_t>(threadIdx.x);
    ScanPieces(row < rows.end ? count(row) : 0, scan, totals);
    const int32_t round = scan[kPlanThreads];
    sum += round;
  }
  return sum;
}

// Chooses the size of items: the smallest (by nodes of the tree) for which the items of cut tiles
// are few enough, and no smaller than an equal share of all splits. So tiles that fill the device
// are not cut, and a long row beside them is.
MINISGL_DEVICE int32_t ChooseCutShift(const PlanArguments& p, const TiledRows& rows,
                                      Shared<int32_t> scan, Shared<int32_t> totals) {
  const int32_t num_splits = SumRows(rows, scan, totals, [&](int32_t row) {
    return NumTileItems(p, row, 0) * rows.NumTiles(p, row);
  });
  int32_t shift = 0;
  while (shift < kCutShiftMax) {
    const int32_t items =
        SumRows(rows, scan, totals, [&](int32_t row) { return NumCutItems(p, rows, row, shift); });
    if (items <= p.cut_items_max && num_splits >> shift <= p.cut_items_max) break;
    shift += kFoldShift;
  }
  return shift;
}

MINISGL_DEVICE void PlanTiles(const PlanArguments& p, const TiledRows& rows, const ExtendList& list,
                              Shared<int32_t> scan, Shared<int32_t> totals) {
  const int32_t shift = ChooseCutShift(p, rows, scan, totals);
  // A row's last tile sees the most keys and comes first.
  const auto store = [&](int32_t i, int32_t row, int32_t place, int32_t item) {
    const Vec<int32_t, 4> words = {row, (rows.NumTiles(p, row) - 1 - place) * rows.tile_rows,
                                   item << shift, 0};
    device::StoreVec(list.items + int64_t{i} * kExtendItemWords, words);
  };
  const int32_t cut = CutRows(
      rows.begin, rows.end, scan, totals,
      [&](int32_t row) { return NumCutItems(p, rows, row, shift); },
      [&](int32_t i, int32_t row, int32_t piece) {
        const int32_t items = NumTileItems(p, row, shift);
        store(i, row, piece / items, piece % items);
      });
  const int32_t whole = CutRows(
      rows.begin, rows.end, scan, totals,
      [&](int32_t row) { return NumTileItems(p, row, shift) > 1 ? 0 : rows.NumTiles(p, row); },
      [&](int32_t i, int32_t row, int32_t piece) { store(cut + i, row, piece, 0); });
  if (threadIdx.x == 0) {
    list.counts[ExtendList::kItems] = cut + whole;
    list.counts[ExtendList::kCutItems] = cut;
    list.counts[ExtendList::kCutShift] = shift;
  }
}

// All places are free.
MINISGL_DEVICE void FillPlaces(const PlaceQueue& queue) {
  const uint32_t num_places = static_cast<uint32_t>(queue.num_places);
  for (uint32_t i = threadIdx.x; i < num_places; i += kPlanThreads) queue.words[2 + i] = i + 1;
  if (threadIdx.x == 0) {
    queue.words[0] = 0;
    queue.words[1] = num_places;
  }
}

MINISGL_KERNEL void MINISGL_LAUNCH_BOUNDS(kPlanThreads, 1) PlanKernel(PlanArguments p) {
  device::GridRelease();
  device::GridWait();
  device::SharedArena arena;
  const Shared<int32_t> scan = arena.Take<int32_t>(kPlanThreads + 1);
  const Shared<int32_t> totals = arena.Take<int32_t>(kPlanThreads / 32);
  if (p.decode_rows != nullptr) p.num_decode_rows = p.decode_rows[0];
  if (p.uses_decode_list) {
    PlanTiles(p, {0, p.num_decode_rows, p.decode_tile_rows}, p.plan.decode_list, scan, totals);
  } else {
    p.split_keys_min = ChooseSplitKeys(p, scan, totals);
    const ItemCounts counts = PlanItems(p, scan, totals);
    if (threadIdx.x == 0) {
      p.plan.counts[0] = counts.items;
      p.plan.counts[1] = counts.window_items;
    }
  }
  PlanTiles(p, {p.num_decode_rows, p.num_rows, p.tile_rows}, p.plan.extend_list, scan, totals);
  FillPlaces(p.plan.small_places);
  FillPlaces(p.plan.large_places);
}

}  // namespace

DeviceAttentionPlan DivideWorkspace(const AttentionWorkspace& workspace) {
  Divider divider(workspace.memory);
  return Divide(workspace, &divider);
}

size_t AttentionWorkspaceBytes(const DeviceLimits& limits, int num_multiprocessors) {
  Divider divider(nullptr);
  Divide({.limits = limits, .num_multiprocessors = num_multiprocessors}, &divider);
  return divider.num_bytes();
}

CudaError LaunchPlanAttention(const LaunchContext& context, const AttentionPlanParams& params,
                              const AttentionWorkspace& workspace, bool deterministic) {
  const ExtendChoice choice = FindExtendingRows(context, params).choice;
  const int32_t group = params.num_heads / params.num_kv_heads;
  const bool wide = IsWide(HeadsOf(params));
  const PlanArguments arguments = {
      .plan = DivideWorkspace(workspace),
      .row_begin = params.row_begin,
      .kv_len = params.kv_len,
      .num_rows = params.num_rows,
      .num_decode_rows = params.num_decode_rows,
      .decode_rows = params.decode_rows,
      .group = group,
      .tile_rows = choice.tile_rows(),
      .decode_tile_rows = wide ? WideDecode(context, params).tile_rows() : kTileRows,
      .item_rows = std::max(1, SharedTileRows(params.head_dim) / group),
      .cut_items_max = static_cast<int32_t>(MaxCutItems(context, workspace) / params.num_kv_heads),
      .uses_decode_list = deterministic || wide,
      .item_works = params.num_kv_heads * DivideUp(group, kTileRows),
      .decode_blocks = context.num_multiprocessors * DecodeBlocks(params.head_dim),
      .split_times_max = context.split_times_max,
      .window = params.sliding_window,
      .shared = params.shared};
  constexpr size_t kSharedBytes = ((kPlanThreads + 1) * 4 + 15) / 16 * 16 + kPlanThreads / 32 * 4;
  return Launch(
      context,
      {.grid = {1}, .block = {kPlanThreads}, .shared_bytes = kSharedBytes, .programmatic = true},
      PlanKernel, arguments);
}

}  // namespace minisgl::cuda
