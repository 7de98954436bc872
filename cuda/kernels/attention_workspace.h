// The workspace of attention: upper bounds on what a step needs, and how the memory is divided.
// Host code, part of attention_plan.cu and attention.cu.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/attention_arguments.h"
#include "kernels/attention_state.h"
#include "minisgl/base/checked_math.h"

namespace minisgl::cuda {

inline int64_t MaxSplits(const DeviceLimits& limits) {
  return std::min<int64_t>(kSplitsMax, CeilDiv<int64_t>(limits.max_seq_len, kSplitKeysMin));
}

// Upper bound on the tiles of `rows` rows with `tokens` tokens in total: each row's last tile may
// be short.
inline int64_t MaxTiles(int64_t tokens, int64_t rows, int32_t group, int32_t tile_rows) {
  return tokens * group / tile_rows + rows;
}

// Upper bound on the items of cut tiles of a list, times KV heads: twice as many as blocks of the
// large kernel run at once, so that the last round of them is short.
inline int64_t MaxCutItems(int64_t num_multiprocessors, const DeviceLimits& limits) {
  return limits.max_seq_len > kExtendSplitKeys ? 4 * num_multiprocessors : 0;
}
inline int64_t MaxCutItems(const LaunchContext& context, const AttentionWorkspace& workspace) {
  return MaxCutItems(std::min(context.num_multiprocessors, workspace.num_multiprocessors),
                     workspace.limits);
}

// Divides the workspace into pieces, 256-byte aligned. With null memory it only measures.
class Divider {
 public:
  explicit Divider(void* memory) : memory_(static_cast<unsigned char*>(memory)) {}
  template <typename T>
  void Take(T** piece, int64_t count) {
    if (memory_ != nullptr) *piece = reinterpret_cast<T*>(memory_ + num_bytes_);
    num_bytes_ += (static_cast<size_t>(count) * sizeof(T) + 255) / 256 * 256;
  }
  size_t num_bytes() const { return num_bytes_; }
  // Goes on behind the longer of two divisions that began at the same place.
  void Join(const Divider& other) { num_bytes_ = std::max(num_bytes_, other.num_bytes_); }

 private:
  unsigned char* memory_;
  size_t num_bytes_ = 0;
};

// Upper bounds of the extend kernel in a step, times KV heads, for a size of tiles.
struct ExtendBounds {
  int64_t tiles, cut_items;
  int64_t places;  // blocks that run at once and have several splits
};

// `blocks`: of a multiprocessor.
inline ExtendBounds BoundExtend(const AttentionWorkspace& workspace, int32_t tile_rows,
                                int32_t blocks) {
  const DeviceLimits& limits = workspace.limits;
  const int32_t group = limits.num_heads / limits.num_kv_heads;
  ExtendBounds bounds;
  bounds.tiles =
      MaxTiles(limits.max_tokens, limits.max_rows, group, tile_rows) * limits.num_kv_heads;
  bounds.cut_items =
      std::min(MaxCutItems(workspace.num_multiprocessors, limits),
               bounds.tiles * CeilDiv<int64_t>(limits.max_seq_len, kExtendSplitKeys));
  bounds.places = limits.max_seq_len > kExtendSplitKeys
                      ? std::min<int64_t>(int64_t{workspace.num_multiprocessors} * blocks,
                                          bounds.tiles + bounds.cut_items)
                      : 0;
  return bounds;
}
inline bool HasWideHeads(const DeviceLimits& limits) {
  return limits.has_codes || IsWide(limits.head_dim, limits.heads().value_dim());
}
// The tiles of wide heads: of 16 M rows, of 64, and of a number between.
inline constexpr int32_t kWideTileRowsMax = 4 * kTileRows;

// Shared memory allows five blocks.
inline ExtendBounds BoundSmallExtend(const AttentionWorkspace& workspace) {
  return BoundExtend(workspace, kTileRows, HasWideHeads(workspace.limits) ? 2 : 5);
}
// Registers allow as many blocks as ExtendShape asks for. Wide tiles of 32 M rows have no more
// items than tiles of 16, and no more blocks run at once than with tiles of 64.
inline ExtendBounds BoundLargeExtend(const AttentionWorkspace& workspace) {
  if (HasWideHeads(workspace.limits)) return BoundExtend(workspace, 2 * kTileRows, 1);
  return BoundExtend(workspace, kLargeTileRows, workspace.limits.head_dim > 128 ? 1 : 2);
}

inline void DivideList(int64_t max_items, Divider* divider, ExtendList* list) {
  divider->Take(&list->counts, ExtendList::kNumCounts);
  divider->Take(&list->items, max_items * kExtendItemWords);
}

inline void DividePlaces(int64_t num_places, Divider* divider, PlaceQueue* queue) {
  queue->num_places = static_cast<int32_t>(num_places);
  divider->Take(&queue->words, 2 + num_places);
}

inline void DivideLists(const AttentionWorkspace& workspace, Divider* divider,
                        DeviceAttentionPlan* plan) {
  const DeviceLimits& limits = workspace.limits;
  const ExtendBounds small = BoundSmallExtend(workspace);
  const int64_t decode_tiles =
      int64_t{limits.max_rows} * DivideUp(limits.num_heads / limits.num_kv_heads, kTileRows);
  DivideList(decode_tiles + small.cut_items, divider, &plan->decode_list);
  DivideList(small.tiles + small.cut_items, divider, &plan->extend_list);
  divider->Take(&plan->met, small.cut_items);
  DividePlaces(small.places, divider, &plan->small_places);
  DividePlaces(BoundLargeExtend(workspace).places, divider, &plan->large_places);
}

inline void DivideImages(const AttentionWorkspace& workspace, Divider* divider,
                         DeviceAttentionPlan* plan) {
  const DeviceLimits& limits = workspace.limits;
  const ExtendBounds small = BoundSmallExtend(workspace), large = BoundLargeExtend(workspace);
  const bool wide = HasWideHeads(limits);
  const int64_t small_image = wide ? kWideImageFloats : ImageFloats(limits.head_dim);
  const int64_t large_image = small_image * (wide ? kWideTileRowsMax : kLargeTileRows) / kTileRows;
  const int64_t max_splits = CeilDiv<int64_t>(limits.max_seq_len, kExtendSplitKeys);
  plan->fold_levels = 0;
  for (int64_t splits = 1; splits < max_splits; splits <<= kFoldShift) ++plan->fold_levels;
  divider->Take(&plan->images,
                std::max(small.cut_items * small_image, large.cut_items * large_image));
  divider->Take(&plan->kept, plan->fold_levels *
                                 std::max(small.places * small_image, large.places * large_image));
}

inline DeviceAttentionPlan Divide(const AttentionWorkspace& workspace, Divider* divider) {
  const DeviceLimits& limits = workspace.limits;
  const int32_t group = limits.num_heads / limits.num_kv_heads;
  const int64_t items = limits.max_rows * MaxSplits(limits);
  DeviceAttentionPlan plan;
  divider->Take(&plan.counts, 2);
  divider->Take(&plan.items, items * kItemWords);
  divider->Take(&plan.window_items, items * kItemWords);
  divider->Take(&plan.queries, limits.max_rows);
  divider->Take(&plan.part_begin, limits.max_rows);
  divider->Take(&plan.arrived,
                int64_t{limits.max_rows} * limits.num_kv_heads * DivideUp(group, kTileRows));
  divider->Take(&plan.works_taken, 1);
  DivideLists(workspace, divider, &plan);
  Divider images = *divider;  // from here on the extend kernel's, and the decode kernel's parts
  DivideImages(workspace, &images, &plan);
  if (HasWideHeads(limits)) {  // there is no decode kernel
    divider->Join(images);
    return plan;
  }
  divider->Take(&plan.states, items * limits.num_heads * 2);
  divider->Take(&plan.sums, items * limits.num_heads * limits.head_dim);
  divider->Join(images);
  return plan;
}

}  // namespace minisgl::cuda
