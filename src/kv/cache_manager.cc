#include "minisgl/kv/cache_manager.h"

#include "minisgl/base/check.h"

namespace minisgl {

CacheManager::CacheManager(int32_t num_pages, std::unique_ptr<PrefixCache> cache)
    : pool_(num_pages), cache_(std::move(cache)) {}

void CacheManager::Take(int32_t count, std::vector<PageId>* pages) {
  MINISGL_CHECK(count <= num_available(), "{} pages wanted, {} available", count, num_available());
  if (count > pool_.num_free()) {
    std::vector<PageId> evicted;
    cache_->Evict(count - pool_.num_free(), &evicted);
    num_evicted_ += static_cast<int64_t>(evicted.size());
    Give(evicted);
  }
  for (int32_t i = 0; i < count; ++i) pages->push_back(pool_.Take());
}

void CacheManager::Give(std::span<const PageId> pages) {
  for (PageId page : pages) pool_.Give(page);
}

void CacheManager::GiveAfter(StepId fence, std::span<const PageId> pages) {
  if (pages.empty()) return;
  MINISGL_CHECK(deferred_.empty() || deferred_.back().fence <= fence, "a fence before its elder");
  if (deferred_.empty() || deferred_.back().fence < fence) deferred_.push_back({fence, {}});
  auto& waiting = deferred_.back().pages;
  waiting.insert(waiting.end(), pages.begin(), pages.end());
  num_deferred_ += static_cast<int32_t>(pages.size());
}

void CacheManager::Collected(StepId step) {
  while (!deferred_.empty() && deferred_.front().fence <= step) {
    num_deferred_ -= static_cast<int32_t>(deferred_.front().pages.size());
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

void CacheManager::CheckInvariants(std::span<const PageId> taken) const {
  pool_.CheckInvariants();
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
    MINISGL_CHECK(place[static_cast<size_t>(page)] != nullptr, "I1: page {} is nowhere", page);
  }
}

}  // namespace minisgl
