// What enters and leaves the prefix cache, reported as it happens, on the thread of the cache.
//
// A page is in the cache at most once, so its id names what it holds from Stored to Evicted.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "minisgl/base/ids.h"
#include "minisgl/base/prefix_key.h"

namespace minisgl {

class CacheObserver {
 public:
  virtual ~CacheObserver() = default;

  // `pages` entered the cache with `key`, pages.size() whole pages of it, each page behind the one
  // before it. `parent` is the cached page before the first one; unset: a prompt begins there.
  virtual void Stored(std::optional<PageId> parent, const PrefixKey& key,
                      std::span<const PageId> pages) = 0;
  // `pages` left the cache, each after the pages that follow it in its prefix.
  virtual void Evicted(std::span<const PageId> pages) = 0;
  // The cache was reset: after Evicted of all pages without a lock. `pages_left` remain.
  virtual void Reset(int64_t pages_left) = 0;
};

}  // namespace minisgl
