// The pages of the pool and of the prefix cache, and pages that wait for the end of a step.
//
// Every page is in exactly one place: free, in the cache, taken by a caller, or deferred. One
// thread.
//
// Window pages, if the engine has them: a page gets one when it is taken, may lose it to another
// page that reclaims it, and returns it when it is freed. A deferred page keeps its window page by
// a claim, because the step in flight may still write it.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "minisgl/base/ids.h"
#include "minisgl/kv/page_pool.h"
#include "minisgl/kv/prefix_cache.h"
#include "minisgl/kv/window_pool.h"

namespace minisgl {

class CacheManager {
 public:
  // num_window_pages 0: no page has a window page.
  CacheManager(int32_t num_pages, std::unique_ptr<PrefixCache> cache, int32_t num_window_pages = 0);

  PrefixCache& cache() { return *cache_; }
  const PrefixCache& cache() const { return *cache_; }
  const PagePool& pool() const { return pool_; }
  // Null if there are no window pages.
  WindowPool* windows() { return windows_.get(); }
  const WindowPool* windows() const { return windows_.get(); }

  // Pages that Take can give now.
  int32_t num_available() const { return pool_.num_free() + cache_->num_evictable(); }
  // Pages that will be free after the steps in flight are collected.
  int32_t num_deferred() const { return num_deferred_; }
  // Deferred pages with a window page.
  int32_t num_deferred_windows() const { return num_deferred_windows_; }

  // Appends `count` pages to `pages`, and evicts if the pool has too few. Each has a window page,
  // not claimed yet. REQUIRES count <= num_available(), and <= windows()->num_available().
  void Take(int32_t count, std::vector<PageId>* pages);
  // Frees pages now.
  void Give(std::span<const PageId> pages);
  // Frees pages after step `fence` is collected, because a step in flight may still read or write
  // them.
  void GiveAfter(StepId fence, std::span<const PageId> pages);
  // Steps up to `step` have been collected.
  void Collected(StepId step);

  // Evicts all pages without a lock. Returns the number of pages still cached.
  int32_t Reset();

  int64_t num_evicted() const { return num_evicted_; }

  // Checks I1 and I2: each page is in exactly one place. `taken`: every page that callers hold, not
  // counting pages of the cache. `window_claims`: every claim of theirs on a window page.
  void CheckInvariants(std::span<const PageId> taken,
                       std::span<const PageId> window_claims = {}) const;

 private:
  struct Deferred {
    StepId fence;
    std::vector<PageId> pages;
  };
  // True if a deferred page has a window page, by a claim. A hole stays a hole until it is free.
  bool HasWindow(PageId page) const { return windows_ != nullptr && windows_->Has(page); }

  void CheckWindows(std::span<const PageId> claims) const;

  PagePool pool_;
  std::unique_ptr<PrefixCache> cache_;
  std::unique_ptr<WindowPool> windows_;
  std::deque<Deferred> deferred_;  // fences never decrease
  int32_t num_deferred_ = 0, num_deferred_windows_ = 0;
  int64_t num_evicted_ = 0;
};

}  // namespace minisgl
