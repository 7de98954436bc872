// A tile of M rows of a row of the step, as an item of the plan has it: which tokens and keys it
// has, and how its splits are folded (attention_fold.cuh). The kernels that take such items are
// built on it: attention_extend.cuh and attention_wide.cuh, attention_pictures.cuh, whose tokens
// may see keys after their own (AttentionParams::key_end), or none of the first (first_key), and
// attention_distances.cuh, which adds numbers to scores, too (AttentionParams::distance_bias).
#pragma once

#include "device/device.h"
#include "kernels/attention_arguments.h"
#include "kernels/attention_fold.cuh"

namespace minisgl::cuda {

// What decides a tile's scores beside products and the window.
enum class TileKeys {
  kCausal,
  kEnds,       // key_end and first_key
  kDistances,  // key_end and distance_bias
};

// AttentionParams::key_end, first_key and distance_bias, of tiles that have them. A tile without
// them has the members, and so the code, of one that knows nothing of them.
template <TileKeys KEYS>
struct TileKeyEnds {
  const int32_t* key_end;
  int32_t first_key;
};
template <>
struct TileKeyEnds<TileKeys::kCausal> {};
template <>
struct TileKeyEnds<TileKeys::kDistances> {
  const int32_t* key_end;
  const float* distances;  // of head 0: at a key's position less the token's
  int64_t distance_stride;
  float per_scale;  // 1 / AttentionParams::scale, because products are scaled later
};

template <typename T, TileKeys KEYS = TileKeys::kCausal>
class ExtendTile : private TileKeyEnds<KEYS> {
 public:
  static constexpr int kWords = 4;  // in shared memory

  // `rows_max`: M rows of a tile that is full.
  MINISGL_DEVICE ExtendTile(const AttentionArguments<T>& args, int32_t rows_max,
                            TileKeyEnds<KEYS> ends = {})
      : TileKeyEnds<KEYS>(ends), args_(args), rows_max_(rows_max) {}

  MINISGL_DEVICE int32_t NumWorks() const {
    return args_.list.counts[ExtendList::kItems] * args_.num_kv_heads;
  }

 protected:
  // Work `work` is an item of the list and a KV head. False if no token of the tile sees a key of
  // the item.
  MINISGL_DEVICE bool FindItem(int32_t work) {
    item_index_ = work / args_.num_kv_heads;
    kv_head_ = work % args_.num_kv_heads;
    const ExtendItem item = FindTile();
    pages_ = args_.page_table + args_.table_row[item.row] * args_.page_table_stride;
    low_ = TileLow();
    high_ = TileHigh();
    if (IsCut()) {
      const int32_t begin = item.begin * kExtendSplitKeys;
      const int32_t end = begin + (kExtendSplitKeys << CutShift());
      low_ = low_ > begin ? low_ : begin;
      high_ = high_ < end ? high_ : end;
    }
    return low_ < high_;
  }

  MINISGL_DEVICE int32_t Position(int32_t tile_row) const {
    return first_position_ + (first_row_ + tile_row) / args_.group;
  }

  // End of the keys that an M row sees; of the last one for an M row past the tile's last.
  MINISGL_DEVICE int32_t High(int32_t tile_row) const {
    if constexpr (KEYS == TileKeys::kCausal) {
      return Position(tile_row) + 1;
    } else {
      return this->key_end[TokenOf(tile_row < num_rows_ ? tile_row : num_rows_ - 1)];
    }
  }

  // What is added to the product of an M row and key 0; that for key k is k elements on. Of the
  // last one for an M row past the tile's last.
  MINISGL_DEVICE const float* Distances(int32_t tile_row) const {
    const int32_t row = tile_row < num_rows_ ? tile_row : num_rows_ - 1;
    return this->distances + HeadOf(row) * this->distance_stride - Position(row);
  }
  MINISGL_DEVICE float PerScale() const { return this->per_scale; }

  // Keys that any token of the tile sees.
  MINISGL_DEVICE int32_t TileLow() const { return Low(Position(0) + 1); }
  MINISGL_DEVICE int32_t TileHigh() const { return High(num_rows_ - 1); }

  // The first visible key of the token at position high - 1.
  MINISGL_DEVICE int32_t Low(int32_t high) const {
    const int32_t low = high > args_.window ? high - args_.window : 0;
    if constexpr (KEYS == TileKeys::kEnds) return low > this->first_key ? low : this->first_key;
    return low;
  }

  MINISGL_DEVICE int32_t HeadOf(int32_t tile_row) const {
    return kv_head_ * args_.group + (first_row_ + tile_row) % args_.group;
  }

  MINISGL_DEVICE int64_t TokenOf(int32_t tile_row) const {
    return first_token_ + (first_row_ + tile_row) / args_.group;
  }

  // Folds the block's part of the tile, whose split `split` has ended, as far as it can, and stores
  // it or leaves it to another block. True if the block then has the whole tile. Three functions of
  // the block:
  //   store(image)  stores the part in an image of `image_floats` floats
  //   clear()       makes it a part of no keys
  //   fold(image)   folds an image into it
  template <typename Store, typename Clear, typename Fold>
  MINISGL_DEVICE bool FoldSplits(int32_t split, const PlaceQueue& places, int32_t image_floats,
                                 const Store& store, const Clear& clear, const Fold& fold) {
    const int32_t low = TileLow() / kExtendSplitKeys;
    const int32_t high = (TileHigh() - 1) / kExtendSplitKeys + 1;
    HeldSplits held = {split, split + 1};
    while (held.begin > low || held.end < high) {
      const int32_t boundary = held.FindBoundary();
      if (low < boundary && boundary < high) {
        const float* image = nullptr;
        if (IsWithinItem(boundary)) {
          if (held.end == boundary) {
            TakePlaceAtFirst(split, places);
            store(Kept(held.shift, image_floats));
            clear();
            return false;
          }
          image = Kept(held.shift, image_floats);
        } else {
          image = Meet(boundary, image_floats, store);
          if (image == nullptr) return false;
        }
        fold(image);
      }
      held.Fold();
    }
    return true;
  }

  // After the last split.
  MINISGL_DEVICE void EndFolds(const PlaceQueue& places) {
    if (low_ / kExtendSplitKeys < (high_ - 1) / kExtendSplitKeys) {
      __syncthreads();  // no thread reads its stored image any more
      if (threadIdx.x == 0) ReturnPlace(places, words_[kPlaceWord]);
    }
  }

  const AttentionArguments<T>& args_;
  const int32_t rows_max_;
  device::Shared<uint32_t> words_;  // [kWords]
  const int32_t* pages_ = nullptr;
  int32_t item_index_ = 0, kv_head_ = 0;
  int32_t first_row_ = 0, num_rows_ = 0;  // the tile's M rows
  int32_t first_token_ = 0;               // the row's first token
  int32_t first_position_ = 0;            // position of the row's first token
  int32_t low_ = 0, high_ = 0;            // keys of the item that any token of the tile sees

 private:
  enum Word { kPlaceWord, kMetWord };  // of words_

  MINISGL_DEVICE ExtendItem LoadItem() const {
    const auto item = device::LoadVec<4>(static_cast<const int32_t*>(args_.list.items) +
                                         int64_t{item_index_} * kExtendItemWords);
    return {item[0], item[1], item[2]};
  }
  MINISGL_DEVICE ExtendItem FindTile() {
    const ExtendItem item = LoadItem();
    first_row_ = item.first;
    first_token_ = args_.row_begin[item.row];
    const int32_t num_tokens = args_.row_begin[item.row + 1] - first_token_;
    first_position_ = args_.kv_len[item.row] - num_tokens;
    const int32_t rest = num_tokens * args_.group - first_row_;
    num_rows_ = rest < rows_max_ ? rest : rows_max_;
    return item;
  }
  MINISGL_DEVICE bool IsCut() const {
    return item_index_ < args_.list.counts[ExtendList::kCutItems];
  }
  MINISGL_DEVICE int32_t CutShift() const { return args_.list.counts[ExtendList::kCutShift]; }
  MINISGL_DEVICE bool IsWithinItem(int32_t boundary) const {
    return !IsCut() || boundary % (1 << CutShift()) != 0;
  }

  // The image that waits at a boundary of the tree's level kFoldShift * level == shift.
  MINISGL_DEVICE float* Kept(int32_t shift, int32_t image_floats) const {
    const uint32_t place = words_[kPlaceWord];
    return args_.plan.kept +
           (int64_t{place} * args_.plan.fold_levels + shift / kFoldShift) * image_floats;
  }

  // Takes the block's place, if `split` is the first that it puts by.
  MINISGL_DEVICE void TakePlaceAtFirst(int32_t split, const PlaceQueue& places) {
    if (split != low_ / kExtendSplitKeys) return;
    if (threadIdx.x == 0) words_[kPlaceWord] = TakePlace(places);
    __syncthreads();  // the place is there
  }

  // Comes to the boundary between two items of the tile. If the block on the other side has been
  // there, returns the image that it left; otherwise leaves an image and returns null.
  template <typename Store>
  MINISGL_DEVICE const float* Meet(int32_t boundary, int32_t image_floats, const Store& store) {
    const int32_t begin = LoadItem().begin, shift = CutShift();
    const int32_t behind = item_index_ + ((boundary - begin) >> shift);  // item after the boundary
    uint32_t* const met = args_.plan.met + behind * args_.num_kv_heads + kv_head_;
    const uint32_t own =
        static_cast<uint32_t>(item_index_) * static_cast<uint32_t>(args_.num_kv_heads) +
        static_cast<uint32_t>(kv_head_);
    if (threadIdx.x == 0) words_[kMetWord] = device::AtomicAddGlobal(met, 0u);
    __syncthreads();  // the word is there
    uint32_t other = words_[kMetWord];
    if (other == 0) {
      store(args_.plan.images + int64_t{own} * image_floats);
      __syncthreads();  // every thread has stored its part, and read the word
      if (threadIdx.x == 0) {
        device::ThreadFence();  // a block that sees `own` sees the image
        words_[kMetWord] = device::AtomicExchangeGlobal(met, own + 1);
      }
      __syncthreads();  // the word is there
      other = words_[kMetWord];
      if (other == 0) return nullptr;
    }
    if (threadIdx.x == 0) {
      device::ThreadFence();  // this block sees the other's image after the barrier
      *met = 0;
    }
    __syncthreads();  // the image may be read; the word may be written again
    return args_.plan.images + int64_t{other - 1} * image_floats;
  }
};

}  // namespace minisgl::cuda
