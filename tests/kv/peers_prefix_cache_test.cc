// Scenarios that other prefix caches of the field are tested for (tests/sim/PEERS.md).
#include <gtest/gtest.h>

#include <algorithm>

#include "minisgl/kv/cache_manager.h"

namespace minisgl {
namespace {

using Tokens = std::vector<TokenId>;
using Pages = std::vector<PageId>;

Tokens Sequence(TokenId from, int count) {
  Tokens tokens;
  for (TokenId i = 0; i < count; ++i) tokens.push_back(from + i);
  return tokens;
}

// Offers pages for all of `tokens`. Returns what the cache then holds of them.
Pages InsertAll(PrefixCache& cache, const Tokens& tokens, const Pages& pages) {
  PrefixNode* root = cache.Match({}).node;
  cache.Lock(root);
  const PrefixInsertion insertion = cache.Insert(root, 0, tokens, pages);
  cache.Unlock(root);
  cache.CheckInvariants({});
  return insertion.pages;
}

// Takes and inserts as many pages as `tokens` fill.
Pages TakeAndInsert(CacheManager& manager, const Tokens& tokens, int32_t page_size) {
  Pages pages;
  manager.Take(static_cast<int32_t>(tokens.size()) / page_size, &pages);
  return InsertAll(manager.cache(), tokens, pages);
}

TEST(PrefixCacheTest, AnEmptyCacheHoldsNothing) {
  for (const int32_t page_size : {1, 4, 16}) {
    for (const bool keeps : {true, false}) {
      const auto cache = keeps ? MakeRadixCache(page_size) : MakeNaiveCache();
      EXPECT_EQ(cache->keeps_pages(), keeps);
      EXPECT_EQ(cache->num_evictable(), 0);
      EXPECT_EQ(cache->num_locked(), 0);
      EXPECT_TRUE(cache->Match(Sequence(1, 40)).pages.empty());
      EXPECT_TRUE(cache->Match({}).pages.empty());
      cache->CheckInvariants({});
    }
  }
}

TEST(PrefixCacheTest, SizesAndPagesAddUp) {
  const auto cache = MakeRadixCache(1);
  InsertAll(*cache, {1, 2, 3}, {10, 20, 30});
  EXPECT_EQ(cache->num_evictable(), 3);
  InsertAll(*cache, {4, 5}, {40, 50});
  EXPECT_EQ(cache->num_evictable(), 5);
  Pages pages = cache->AllPages();
  std::sort(pages.begin(), pages.end());
  EXPECT_EQ(pages, (Pages{10, 20, 30, 40, 50}));
}

TEST(PrefixCacheTest, WhatIsFoundIsWholePages) {
  struct Case {
    int32_t page_size;
    int length;
  };
  for (const auto& [page_size, length] : {Case{1, 5}, Case{2, 5}, Case{4, 6}, Case{4, 4}}) {
    const auto cache = MakeRadixCache(page_size);
    const int32_t whole = length / page_size;
    Tokens tokens = Sequence(1, length);
    Pages pages;
    for (PageId page = 0; page < whole; ++page) pages.push_back(page);
    InsertAll(*cache, Tokens(tokens.begin(), tokens.begin() + whole * page_size), pages);
    EXPECT_EQ(cache->Match(tokens).pages, pages);
    tokens.pop_back();
    EXPECT_EQ(static_cast<int32_t>(cache->Match(tokens).pages.size()), (length - 1) / page_size);
  }
}

TEST(PrefixCacheTest, LooksThatSplitNodesChangeNothing) {
  for (const int32_t page_size : {1, 2}) {
    const auto cache = MakeRadixCache(page_size);
    const auto pages_of = [&](int tokens, PageId from) {
      Pages pages;
      for (PageId i = 0; i < tokens / page_size; ++i) pages.push_back(from + i);
      return pages;
    };
    const Tokens trunk{1, 2, 3, 4, 5, 6, 7, 8}, branch{1, 2, 9, 10};
    const Pages trunk_pages = pages_of(8, 0);
    InsertAll(*cache, trunk, trunk_pages);
    Pages branch_pages = pages_of(4, 50);
    branch_pages = InsertAll(*cache, branch, branch_pages);
    EXPECT_EQ(branch_pages[0], trunk_pages[0]) << "what they share is the trunk's";
    const int32_t size = (8 + 2) / page_size;
    EXPECT_EQ(cache->num_evictable(), size);
    const auto first = [&](int tokens) {
      return Pages(trunk_pages.begin(), trunk_pages.begin() + tokens / page_size);
    };
    EXPECT_EQ(cache->Match(Tokens{1, 2, 3, 4, 70, 71}).pages, first(4));
    EXPECT_EQ(cache->Match(trunk).pages, trunk_pages);
    EXPECT_EQ(cache->Match(Tokens{1, 2, 3, 4, 5, 6, 70, 71}).pages, first(6));
    EXPECT_EQ(cache->Match(branch).pages, branch_pages);
    EXPECT_EQ(cache->num_evictable(), size);
    cache->CheckInvariants({});
  }
}

TEST(PrefixCacheTest, TheSameTokensAtTwoPlacesAreTwoPages) {
  const auto cache = MakeRadixCache(4);
  const Tokens once{1, 2, 3, 4}, twice{1, 2, 3, 4, 1, 2, 3, 4};
  InsertAll(*cache, twice, {5, 6});
  EXPECT_EQ(cache->num_evictable(), 2);
  EXPECT_EQ(cache->Match(once).pages, (Pages{5}));
  EXPECT_EQ(cache->Match(twice).pages, (Pages{5, 6}));
  Pages freed;
  cache->Evict(1, &freed);
  EXPECT_EQ(freed, (Pages{6})) << "the later one: the earlier is its prefix";
  EXPECT_EQ(cache->Match(twice).pages, (Pages{5}));
}

TEST(PrefixCacheTest, AStemOfManyIsHeldOnce) {
  constexpr int kStem = 100, kTails = 500;
  const auto cache = MakeRadixCache(1);
  PageId next = 0;
  for (int tail = 0; tail < kTails; ++tail) {
    Tokens tokens = Sequence(1, kStem);
    tokens.push_back(1000 + tail);
    Pages pages;
    while (pages.size() < tokens.size()) pages.push_back(next++);
    const Pages held = InsertAll(*cache, tokens, pages);
    EXPECT_EQ(held[kStem - 1], kStem - 1) << "the first one's";
    EXPECT_EQ(held.back(), pages.back());
  }
  EXPECT_EQ(cache->num_evictable(), kStem + kTails);
}

TEST(PrefixCacheTest, InsertionGoesOnFromTheMiddleOfAPrefix) {
  const auto cache = MakeRadixCache(4);
  const Tokens tokens = Sequence(1, 12);
  PrefixNode* root = cache->Match({}).node;
  cache->Lock(root);
  PrefixNode* two = cache->Insert(root, 0, std::span(tokens).first(8), Pages{0, 1}).node;
  cache->Lock(two);
  cache->Unlock(root);
  const PrefixInsertion third = cache->Insert(two, 2, tokens, Pages{0, 1, 2});
  EXPECT_EQ(third.pages, (Pages{2}));
  cache->Unlock(two);
  EXPECT_EQ(cache->Match(tokens).pages, (Pages{0, 1, 2}));
  cache->CheckInvariants({});
}

TEST(PrefixCacheDeathTest, UnlockingMoreOftenThanLockingIsABug) {
  for (const bool keeps : {true, false}) {
    const auto cache = keeps ? MakeRadixCache(1) : MakeNaiveCache();
    PrefixNode* root = cache->Match({}).node;
    cache->Lock(root);
    cache->Unlock(root);
    EXPECT_DEATH(cache->Unlock(root), "unlock without a lock");
  }
}

TEST(PrefixPagesTest, APrefixIsFoundWhileItIsInUseAndAfter) {
  CacheManager manager(10, MakeRadixCache(4));
  PrefixCache& cache = manager.cache();
  const Tokens stem = Sequence(1, 12);
  const Pages pages = TakeAndInsert(manager, stem, 4);
  PrefixNode* first = cache.Match(stem).node;
  cache.Lock(first);
  Tokens longer = stem;
  longer.push_back(99);
  const PrefixMatch second = cache.Match(longer);  // the first uses it
  EXPECT_EQ(second.pages, pages);
  cache.Lock(second.node);
  EXPECT_EQ(cache.num_locked(), 3) << "a page counts once, however many lock it";
  EXPECT_EQ(manager.num_available(), 7);
  cache.Unlock(first);
  EXPECT_EQ(manager.num_available(), 7);
  cache.Unlock(second.node);
  EXPECT_EQ(manager.num_available(), 10);
  EXPECT_EQ(cache.Match(stem).pages, pages);  // no lock is left
  Pages all;
  manager.Take(10, &all);
  EXPECT_TRUE(cache.Match(stem).pages.empty());
  EXPECT_EQ(manager.num_evicted(), 3);
  manager.CheckInvariants(all);
}

TEST(PrefixPagesTest, FreePagesGoFirstThenTheEndOfTheOldestPrefix) {
  CacheManager manager(10, MakeRadixCache(4));
  const Tokens old_tokens = Sequence(1, 20), young_tokens = Sequence(50, 12);
  const Pages old_pages = TakeAndInsert(manager, old_tokens, 4);
  const Pages young_pages = TakeAndInsert(manager, young_tokens, 4);
  manager.cache().Match(std::span(old_tokens).first(8));  // its first two pages are used again
  Pages taken;
  manager.Take(2, &taken);
  EXPECT_EQ(manager.num_evicted(), 0);
  const Pages order{old_pages[4],   old_pages[3],   old_pages[2], young_pages[2],
                    young_pages[1], young_pages[0], old_pages[1], old_pages[0]};
  for (const PageId page : order) {
    taken.clear();
    manager.Take(1, &taken);
    EXPECT_EQ(taken, (Pages{page}));
  }
}

TEST(PrefixPagesTest, APageTakenAgainIsNoLongerFound) {
  CacheManager manager(1, MakeRadixCache(4));
  const Tokens tokens = Sequence(1, 4);
  const Pages pages = TakeAndInsert(manager, tokens, 4);
  Pages again;
  manager.Take(1, &again);
  EXPECT_EQ(again, pages);
  EXPECT_TRUE(manager.cache().Match(tokens).pages.empty());
  EXPECT_TRUE(manager.cache().AllPages().empty());
  manager.CheckInvariants(again);
}

TEST(PrefixPagesTest, WhatARequestFoundIsNotEvictedForIt) {
  CacheManager manager(2, MakeRadixCache(4));
  const Tokens found = Sequence(1, 4), other = Sequence(50, 4);
  const Pages found_pages = TakeAndInsert(manager, found, 4);
  const Pages other_pages = TakeAndInsert(manager, other, 4);
  manager.cache().Match(other);  // the found one is the older
  const PrefixMatch match = manager.cache().Match(found);
  manager.cache().Lock(match.node);
  EXPECT_EQ(manager.num_available(), 1);
  Pages taken;
  manager.Take(1, &taken);
  EXPECT_EQ(taken, other_pages);
  EXPECT_EQ(manager.cache().PathPages(match.node), found_pages);
  manager.cache().Unlock(match.node);
}

TEST(PrefixPagesTest, ACacheThatKeepsNothingFindsAndOwnsNothing) {
  CacheManager manager(5, MakeNaiveCache());
  Pages pages;
  manager.Take(3, &pages);
  EXPECT_TRUE(InsertAll(manager.cache(), Sequence(1, 12), pages).empty());
  EXPECT_TRUE(manager.cache().Match(Sequence(1, 12)).pages.empty());
  manager.CheckInvariants(pages);  // they are still the caller's
  manager.Give(pages);
  pages.clear();
  manager.Take(4, &pages);
  EXPECT_EQ(manager.num_available(), 1);
}

TEST(PrefixPagesDeathTest, MorePagesThanThereAreCannotBeTaken) {
  CacheManager manager(2, MakeNaiveCache());
  Pages pages;
  EXPECT_DEATH(manager.Take(3, &pages), "3 pages wanted, 2 available");
  PagePool pool(1);
  pool.Take();
  EXPECT_DEATH(pool.Take(), "no free page");
}

}  // namespace
}  // namespace minisgl
