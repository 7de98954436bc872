// The prefix cache: which pages hold the KV of which prefixes. Two kinds: RadixCache and NaiveCache
// (which keeps nothing). Ids and counts only; one thread.
//
// A page enters the cache when it is written and whole; from then on it belongs to the cache. A
// request holds pages of the cache by locking the node at which its prefix ends: a locked node and
// all its ancestors cannot be evicted. Nodes are keyed by whole pages of tokens and the
// marks in them (base/prefix_key.h). Tokens are compared as tokens, so prefixes can be confused
// only where two contents have one hash. Every key begins at place 0.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "minisgl/base/ids.h"
#include "minisgl/base/prefix_key.h"
#include "minisgl/kv/cache_observer.h"
#include "minisgl/kv/state_pool.h"

namespace minisgl {

struct PrefixNode;  // of the implementation; stays valid while locked

struct PrefixMatch {
  PrefixNode* node = nullptr;  // ends exactly at the match; the root if nothing matched
  std::vector<PageId> pages;   // of the matched prefix, from position 0 on
  // With states: the match ends where the deepest snapshot is, and that is in slot `state`;
  // `cached_pages` pages of the prefix are cached.
  StateSlot state = kZeroState;
  size_t cached_pages = 0;
};

// A snapshot on the path to a node.
struct PathState {
  int32_t num_pages = 0;  // it is the state after these pages of the prefix
  StateSlot slot = kZeroState;
};

struct PrefixInsertion {
  // Where the inserted prefix ends: lock it, then unlock the old one.
  PrefixNode* node = nullptr;
  // The pages that the cache holds from `first_page` on. If one differs from the page offered, the
  // cache had it already, and the caller keeps the offered page.
  std::vector<PageId> pages;
};

class PrefixCache {
 public:
  virtual ~PrefixCache() = default;

  // Returns the longest cached prefix of `key` in whole pages, and marks it as used now. May split
  // a node. With states it is the longest one that ends at a snapshot.
  virtual PrefixMatch Match(const PrefixKey& key) = 0;

  virtual void Lock(PrefixNode* node) = 0;
  virtual void Unlock(PrefixNode* node) = 0;

  // Adds pages[first_page...] below `from`, which ends at page `first_page` and is locked by the
  // caller. `key` holds exactly pages.size() whole pages. A cache that keeps nothing returns `from`
  // and no pages.
  virtual PrefixInsertion Insert(PrefixNode* from, int32_t first_page, const PrefixKey& key,
                                 std::span<const PageId> pages) = 0;

  // Makes the taken `slot` the snapshot after `key`, which is whole pages and at least one. Returns
  // false, and leaves the slot to the caller, if it is not cached or has a snapshot.
  virtual bool AttachState(const PrefixKey& key, StateSlot slot) = 0;

  // Drops `count` pages, least recently used first, and appends them to `freed`. REQUIRES count <=
  // num_evictable(). Costs O(pages dropped): no walk of the tree.
  virtual void Evict(int32_t count, std::vector<PageId>* freed) = 0;

  virtual int32_t num_evictable() const = 0;  // pages without a lock
  virtual int32_t num_locked() const = 0;     // pages with at least one lock

  // False if no page ever enters the cache (NaiveCache).
  virtual bool keeps_pages() const = 0;

  // Recounts structure, locks and counters (I3, I5). `locked_nodes`: every lock held now, one entry
  // each.
  virtual void CheckInvariants(std::span<PrefixNode* const> locked_nodes) const = 0;
  // The pages of the prefix that ends at `node`, from position 0 on.
  virtual std::vector<PageId> PathPages(const PrefixNode* node) const = 0;
  // The snapshots on the path to `node`, the deepest first.
  virtual std::vector<PathState> PathStates(const PrefixNode* node) const = 0;
  // Every page held, in no particular order.
  virtual std::vector<PageId> AllPages() const = 0;
};

// page_size >= 1. `observer` and `states` (of a model with recurrent layers) may be null; otherwise
// they outlive the cache.
std::unique_ptr<PrefixCache> MakeRadixCache(int32_t page_size, CacheObserver* observer = nullptr,
                                            StatePool* states = nullptr);
std::unique_ptr<PrefixCache> MakeNaiveCache();

}  // namespace minisgl
