// Pages of the pool and of the prefix cache under one roof, with pages that wait behind a step
// fence.
//
// Every page is in exactly one place: free, in the cache, taken by a caller, or deferred. One
// thread.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "minisgl/base/ids.h"
#include "minisgl/kv/page_pool.h"
#include "minisgl/kv/prefix_cache.h"

namespace minisgl {

class CacheManager {
 public:
  CacheManager(int32_t num_pages, std::unique_ptr<PrefixCache> cache);

  PrefixCache& cache() { return *cache_; }
  const PrefixCache& cache() const { return *cache_; }
  const PagePool& pool() const { return pool_; }

  // Pages that Take can give now.
  int32_t num_available() const { return pool_.num_free() + cache_->num_evictable(); }
  // Pages that will be free once the steps in flight are collected.
  int32_t num_deferred() const { return num_deferred_; }

  // Appends `count` pages to `pages`, evicting where the pool is short. REQUIRES count <=
  // num_available().
  void Take(int32_t count, std::vector<PageId>* pages);
  // Frees pages now.
  void Give(std::span<const PageId> pages);
  // Frees pages once step `fence` has been collected: a step in flight may still read or write
  // them.
  void GiveAfter(StepId fence, std::span<const PageId> pages);
  // Steps up to `step` have been collected.
  void Collected(StepId step);

  // Evicts everything that no lock holds; the number of pages still cached.
  int32_t Reset();

  int64_t num_evicted() const { return num_evicted_; }

  // I1, I2: each page in exactly one place. `taken`: every page that callers hold (not through the
  // cache).
  void CheckInvariants(std::span<const PageId> taken) const;

 private:
  struct Deferred {
    StepId fence;
    std::vector<PageId> pages;
  };
  PagePool pool_;
  std::unique_ptr<PrefixCache> cache_;
  std::deque<Deferred> deferred_;  // fences never decrease
  int32_t num_deferred_ = 0;
  int64_t num_evicted_ = 0;
};

}  // namespace minisgl
