// The works of a block of the decode kernel, in the order in which it takes them, in a ring in
// shared memory. A work is an item of the plan, a KV head and an M tile of query heads.
//
// Block b begins with work b. Then it takes the first work that no block has, from a counter of the
// launch, in three steps, so that no answer of memory is waited for: it takes the number while the
// ring of tiles is two tiles before the work's, loads the item while it is one tile before, and
// then enters the work.
#pragma once

#include "device/device.h"
#include "kernels/attention_arguments.h"

namespace minisgl::cuda {

// Entries of the ring of works. Works of one tile are entered up to 4 (stages + 1) before their
// end.
inline constexpr int32_t kWorksAhead = 8;
// An entry has the item's 6 words, the work's number, and its KV head and M tile.
inline constexpr int32_t kWorkWords = 8;

// A position in the works of a block: a tile of keys of one work.
struct DecodeWalk {
  int32_t work;  // its number; from num_works() on there is none, and nothing else is known
  DecodeItem item;
  int32_t kv_head, m_tile;
  int32_t low, high;  // keys of the split that the row sees
  int32_t tile;       // first key of the tile
};

template <typename T, int TILE_KEYS>
class DecodeWorks {
 public:
  // `entries`: [kWorksAhead][kWorkWords]
  MINISGL_DEVICE DecodeWorks(const AttentionArguments<T>& args, device::Shared<int32_t> entries)
      : args_(args),
        entries_(entries),
        m_tiles_(DivideUp(args.group, kTileRows)),
        num_works_(args.num_items[0] * args.num_kv_heads * m_tiles_) {
    Load();
  }

  MINISGL_DEVICE int32_t num_works() const { return num_works_; }
  MINISGL_DEVICE int32_t m_tiles() const { return m_tiles_; }  // of a row and KV head

  // Enters the block's next work that has visible keys. False if there is none. All threads.
  MINISGL_DEVICE bool Enter(DecodeWalk* walk) {
    const int32_t index = num_entered_++;
    is_taken_ = false;
    for (;;) {
      Store(index);
      __syncthreads();  // the entry is there
      const bool sees_keys = Read(index, walk);
      if (walk->work >= num_works_) return false;
      if (sees_keys) return true;
      Take();
      Load();
      __syncthreads();  // every warp has read the entry
    }
  }

  // Prepares the next work, if it is time: `rest` keys of the last one entered are not copied yet.
  MINISGL_DEVICE void Prepare(int32_t rest) {
    if (rest > 2 * TILE_KEYS) return;
    if (!is_taken_) Take();
    is_taken_ = true;
    if (rest <= TILE_KEYS) Load();
  }

  // Reads the index-th work entered. False if its row sees no key of it: a split before a window
  // that is shorter than the plan's. A thread may read it after a barrier behind Enter.
  MINISGL_DEVICE bool Read(int32_t index, DecodeWalk* walk) const {
    const device::Shared<int32_t> entry = EntryAt(index);
    const auto what = device::LoadShared<4>(entry), whose = device::LoadShared<4>(entry + 4);
    walk->item = {what[0], what[1], what[2], what[3], whose[0], whose[1]};
    walk->work = whose[2];
    walk->kv_head = whose[3] >> kTileBits;
    walk->m_tile = whose[3] & ((1 << kTileBits) - 1);
    const int32_t begin = walk->item.split * walk->item.split_keys;
    const int32_t seen = walk->item.kv_len - args_.window;
    walk->low = seen > begin ? seen : begin;
    const int32_t rest = walk->item.kv_len - begin;
    walk->high = begin + (rest < walk->item.split_keys ? rest : walk->item.split_keys);
    walk->tile = walk->low / TILE_KEYS * TILE_KEYS;
    return walk->low < walk->high;
  }

 private:
  static constexpr int kTileBits = 8;  // 4,096 query heads for a KV head

  static MINISGL_DEVICE int32_t NumBlocks() { return static_cast<int32_t>(gridDim.x); }

  MINISGL_DEVICE device::Shared<int32_t> EntryAt(int32_t index) const {
    return entries_ + index % kWorksAhead * kWorkWords;
  }

  // Takes the number of the next work. Every block of a launch takes until it gets none, num_works
  // times together: the last of them makes the counter zero again.
  MINISGL_DEVICE void Take() {
    if (threadIdx.x != 0) return;
    // Every block has one work at most.
    next_ = num_works_;
    if (num_works_ > NumBlocks()) {
      next_ = static_cast<int32_t>(device::AtomicAddGlobal(args_.plan.works_taken, 1u));
    }
  }

  // Loads the entry of the work that was taken: a word into each of the first lanes.
  MINISGL_DEVICE void Load() {
    if (threadIdx.x >= device::kWarpSize) return;
    const int lane = static_cast<int>(threadIdx.x);
    const int32_t work = NumBlocks() + __shfl_sync(device::kAllLanes, next_, 0);
    word_ = work;
    if (work >= num_works_ || lane == 6) return;
    const int32_t head = work / m_tiles_;
    if (lane < 6) word_ = args_.items[int64_t{head / args_.num_kv_heads} * kItemWords + lane];
    if (lane == 7) word_ = (head % args_.num_kv_heads) << kTileBits | (work - head * m_tiles_);
  }

  MINISGL_DEVICE void Store(int32_t index) const {
    if (threadIdx.x < kWorkWords) EntryAt(index)[static_cast<int>(threadIdx.x)] = word_;
    if (threadIdx.x == 0 && next_ + 1 == num_works_) *args_.plan.works_taken = 0;
  }

  const AttentionArguments<T>& args_;
  const device::Shared<int32_t> entries_;
  const int32_t m_tiles_, num_works_;
  int32_t num_entered_ = 0;
  bool is_taken_ = false;  // the work after the last one entered
  // Thread 0 only: the counter's answer for the next work. Block b's first work is b.
  int32_t next_ = static_cast<int32_t>(blockIdx.x) - NumBlocks();
  int32_t word_ = 0;  // thread i's, i < kWorkWords: word i of that work's entry
};

}  // namespace minisgl::cuda
