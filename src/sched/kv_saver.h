// Prefixes that a KvSource is to keep. Each is held by a lock in the prefix cache, and by holds of
// its snapshots, until the source has read it, or until its pages or slots are needed. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "minisgl/kv/prefix_cache.h"
#include "minisgl/sched/kv_source.h"
#include "sched/request_state.h"
#include "sched/state_ledger.h"

namespace minisgl::sched {

class KvSaver {
 public:
  // `source` may be null: then nothing is saved.
  KvSaver(KvSource* source, PrefixCache* cache, StateLedger* states, int32_t page_size)
      : source_(source), cache_(cache), states_(states), page_size_(page_size) {}

  // Locks the prefix that `state` locks, for Offer after the request was released: only then its
  // last state is in the cache. Null if nothing is saved.
  PrefixNode* LockFor(const RequestState& state);
  // Offers the whole blocks of the prefix of `state` that ends at `node`, which is locked for this.
  // Does nothing with null.
  void Offer(const RequestState& state, PrefixNode* node);
  // Drops the latest save that was not dropped yet. False if there is none. Its pages may still be
  // locked: by others, or because the source reads some of them.
  bool DropOne();
  // Unlocks what the source has read.
  void CollectSaved();

  int64_t num_saves() const { return static_cast<int64_t>(saves_.size()); }
  // Saves that were dropped while the source read some of their pages. Their pages come soon.
  int64_t num_dropping() const { return num_dropping_; }
  // Pages under all locks; shared ones count for each.
  int64_t num_pages() const { return num_pages_; }
  int64_t saved_pages() const { return saved_pages_; }
  int64_t dropped_pages() const { return dropped_pages_; }
  int64_t saved_states() const { return saved_states_; }
  // Every lock held, one entry each.
  std::vector<PrefixNode*> Locks() const;
  // Every hold of a snapshot, likewise.
  std::vector<StateSlot> Holds() const;
  // Calls visit(id, node, pages) for each save: the pages of its blocks.
  template <typename Visit>
  void ForEach(const Visit& visit) const {
    for (const auto& [id, save] : saves_) visit(id, save.node, save.pages);
  }

 private:
  struct Save {
    PrefixNode* node = nullptr;
    int32_t locked_pages = 0;
    std::vector<PageId> pages;
    std::vector<StateSlot> states;  // held
    bool is_dropping = false;
  };
  // Snapshots of the prefix that ends at `node`, at ends of blocks of `block` tokens.
  std::vector<KvState> StatesOf(const PrefixNode* node, int32_t block) const;
  void End(const KvSaveResult& result);

  KvSource* source_;
  PrefixCache* cache_;
  StateLedger* states_;
  int32_t page_size_;
  std::map<KvSaveId, Save> saves_;
  KvSaveId last_id_ = 0;
  int64_t num_dropping_ = 0, num_pages_ = 0;
  int64_t saved_pages_ = 0, dropped_pages_ = 0, saved_states_ = 0;
};

}  // namespace minisgl::sched
