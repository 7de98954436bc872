#include "minisgl/kv/cache_manager.h"

#include <algorithm>
#include <iterator>

#include "minisgl/base/check.h"

namespace minisgl {

CacheManager::CacheManager(int32_t num_pages, std::unique_ptr<PrefixCache> cache,
                           int32_t num_window_pages)
    : pool_(num_pages), cache_(std::move(cache)) {
  if (num_window_pages > 0) windows_ = std::make_unique<WindowPool>(num_pages, num_window_pages);
}

void CacheManager::Take(int32_t count, std::vector<PageId>* pages) {
  MINISGL_CHECK(count <= num_available(), "{} pages wanted, {} available", count, num_available());
  if (count > pool_.num_free()) {
    std::vector<PageId> evicted;
    cache_->Evict(count - pool_.num_free(), &evicted);
    num_evicted_ += static_cast<int64_t>(evicted.size());
    Give(evicted);
  }
  for (int32_t i = 0; i < count; ++i) {
    pages->push_back(pool_.Take());
    if (windows_ != nullptr) windows_->Assign(pages->back());
  }
}

void CacheManager::Give(std::span<const PageId> pages) {
  for (PageId page : pages) {
    if (windows_ != nullptr) windows_->Release(page);
    pool_.Give(page);
  }
}

void CacheManager::GiveAfter(StepId fence, std::span<const PageId> pages) {
  if (pages.empty()) return;
  MINISGL_CHECK(deferred_.empty() || deferred_.back().fence <= fence,
                "a fence before an earlier one");
  if (deferred_.empty() || deferred_.back().fence < fence) deferred_.push_back({fence, {}});
  auto& waiting = deferred_.back().pages;
  waiting.insert(waiting.end(), pages.begin(), pages.end());
  num_deferred_ += static_cast<int32_t>(pages.size());
  for (PageId page : pages) {
    if (!HasWindow(page)) continue;
    windows_->Claim(page);
    ++num_deferred_windows_;
  }
}

void CacheManager::Collected(StepId step) {
  while (!deferred_.empty() && deferred_.front().fence <= step) {
    num_deferred_ -= static_cast<int32_t>(deferred_.front().pages.size());
    for (PageId page : deferred_.front().pages) {
      if (!HasWindow(page)) continue;
      windows_->Unclaim(page);
      --num_deferred_windows_;
    }
    Give(deferred_.front().pages);
    deferred_.pop_front();
  }
}

int32_t CacheManager::Reset() {
  std::vector<PageId> evicted;
  cache_->Evict(cache_->num_evictable(), &evicted);
  Give(evicted);
  return cache_->num_locked();
}

void CacheManager::CheckWindows(std::span<const PageId> claims) const {
  if (windows_ == nullptr) {
    MINISGL_CHECK(claims.empty(), "I5: {} claims, but no window pages", claims.size());
    return;
  }
  std::vector<PageId> all(claims.begin(), claims.end());
  for (const Deferred& deferred : deferred_) {
    std::copy_if(deferred.pages.begin(), deferred.pages.end(), std::back_inserter(all),
                 [this](PageId page) { return HasWindow(page); });
  }
  MINISGL_CHECK(all.size() - claims.size() == static_cast<size_t>(num_deferred_windows_),
                "I5: {} deferred window pages, counter says {}", all.size() - claims.size(),
                num_deferred_windows_);
  windows_->CheckInvariants(all);
  for (PageId page = 0; page < pool_.num_pages(); ++page) {
    MINISGL_CHECK(!pool_.IsFree(page) || !windows_->Has(page),
                  "I1: page {} is free and has a window page", page);
  }
}

void CacheManager::CheckInvariants(std::span<const PageId> taken,
                                   std::span<const PageId> window_claims) const {
  pool_.CheckInvariants();
  CheckWindows(window_claims);
  std::vector<const char*> place(static_cast<size_t>(pool_.num_pages()), nullptr);
  const auto put = [&](PageId page, const char* where) {
    MINISGL_CHECK(page >= 0 && page < pool_.num_pages(), "I1: page {} ({}) is not of the pool",
                  page, where);
    const char*& at = place[static_cast<size_t>(page)];
    MINISGL_CHECK(at == nullptr, "I1: page {} is {} and {}", page, at, where);
    at = where;
  };
  for (PageId page = 0; page < pool_.num_pages(); ++page) {
    if (pool_.IsFree(page)) put(page, "free");
  }
  for (PageId page : cache_->AllPages()) put(page, "cached");
  for (PageId page : taken) put(page, "taken");
  for (const Deferred& deferred : deferred_) {
    for (PageId page : deferred.pages) put(page, "deferred");
  }
  for (PageId page = 0; page < pool_.num_pages(); ++page) {
    MINISGL_CHECK(place[static_cast<size_t>(page)] != nullptr, "I1: page {} is in no place", page);
  }
}

}  // namespace minisgl
