#include "minisgl/kv/window_pool.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "minisgl/base/window_math.h"
#include "minisgl/kv/cache_manager.h"

namespace minisgl {
namespace {

// Compares with the definition: the pages with a key that some query from `length` on sees.
TEST(WindowMathTest, AgreesWithCountingPositions) {
  for (const int32_t page_size : {1, 2, 4, 7}) {
    for (int32_t window = 1; window <= 20; ++window) {
      const WindowMath math{page_size, window};
      for (int32_t length = 0; length < 50; ++length) {
        const int32_t first_key = length < window - 1 ? 0 : length - (window - 1);
        EXPECT_EQ(math.FirstPage(length), first_key / page_size);
        if (length % page_size != 0 || length < window) continue;
        EXPECT_EQ(math.PagesBefore(), length / page_size - first_key / page_size);
      }
      for (int32_t count = 1; count <= 9; ++count) {
        int32_t most = 0;
        for (int32_t length = 0; length < 60; ++length) {
          const int32_t last_page = (length + count - 1) / page_size;
          most = std::max(most, last_page - math.FirstPage(length) + 1);
        }
        EXPECT_EQ(math.PagesOf(count), most)
            << page_size << " a page, window " << window << ", " << count << " queries";
      }
    }
  }
}

TEST(WindowPoolTest, EveryPageBeginsAsAHoleAndGetsOneOfItsOwn) {
  WindowPool pool(10, 3);
  EXPECT_EQ(pool.num_available(), 3);
  std::vector<bool> seen(3, false);
  for (const PageId page : {9, 4, 0}) {
    EXPECT_FALSE(pool.Has(page));
    pool.Assign(page);
    ASSERT_TRUE(pool.Has(page));
    EXPECT_FALSE(seen[static_cast<size_t>(pool.WindowOf(page))]);
    seen[static_cast<size_t>(pool.WindowOf(page))] = true;
  }
  EXPECT_EQ(pool.num_free(), 0);
  EXPECT_EQ(pool.num_available(), 3) << "nobody claims them";
  pool.CheckInvariants({});
}

TEST(WindowPoolTest, ReclaimsTheLeastRecentlyClaimedFirst) {
  WindowPool pool(10, 3);
  for (const PageId page : {1, 2, 3}) pool.Assign(page);
  pool.Claim(1);
  pool.Unclaim(1);  // the freshest from here on
  const WindowPageId of_2 = pool.WindowOf(2);
  pool.Assign(5);
  EXPECT_FALSE(pool.Has(2));
  EXPECT_EQ(pool.WindowOf(5), of_2);
  pool.Assign(6);
  EXPECT_FALSE(pool.Has(3));
  pool.Assign(7);
  EXPECT_FALSE(pool.Has(1));
  EXPECT_EQ(pool.num_reclaimed(), 3);
  pool.CheckInvariants({});
}

TEST(WindowPoolTest, AClaimedPageKeepsItsWindowPageUntilTheLastClaimGoes) {
  WindowPool pool(10, 2);
  pool.Assign(1);
  pool.Assign(2);
  pool.Claim(1);
  pool.Claim(1);
  EXPECT_EQ(pool.num_available(), 1);
  pool.Assign(3);
  EXPECT_TRUE(pool.Has(1));
  EXPECT_FALSE(pool.Has(2));
  pool.Unclaim(1);
  pool.Assign(4);
  EXPECT_TRUE(pool.Has(1)) << "somebody else claims it still";
  pool.CheckInvariants(std::vector<PageId>{1});
  pool.Unclaim(1);
  pool.Assign(5);
  EXPECT_FALSE(pool.Has(4));
  pool.Assign(6);
  EXPECT_FALSE(pool.Has(1));
}

TEST(WindowPoolTest, AMovedWindowPageKeepsItsPlaceInTheOrder) {
  WindowPool pool(10, 2);
  pool.Assign(1);
  pool.Assign(2);
  const WindowPageId moved = pool.WindowOf(1);
  pool.Move(1, 8);
  EXPECT_FALSE(pool.Has(1));
  EXPECT_EQ(pool.WindowOf(8), moved);
  pool.Move(1, 7);  // a hole has no window page to move
  EXPECT_FALSE(pool.Has(7));
  pool.Release(1);
  EXPECT_EQ(pool.num_free(), 0);
  pool.Assign(3);
  EXPECT_FALSE(pool.Has(8)) << "it was the oldest before it moved";
  pool.CheckInvariants({});
}

TEST(WindowPoolDeathTest, BugsAbort) {
  WindowPool pool(4, 1);
  EXPECT_DEATH(pool.Claim(1), "no window page");
  EXPECT_DEATH(pool.Unclaim(1), "no claim");
  pool.Assign(1);
  EXPECT_DEATH(pool.Assign(1), "already has a window page");
  pool.Claim(1);
  EXPECT_DEATH(pool.Assign(2), "no window page");
  EXPECT_DEATH(pool.Release(1), "freed and claimed");
  EXPECT_DEATH(pool.Move(1, 2), "cannot move");
  EXPECT_DEATH(pool.CheckInvariants({}), "I5");
}

// Random calls, checked against plain counters.
TEST(WindowPoolTest, RandomCallsKeepTheBooks) {
  std::mt19937 random(7);
  WindowPool pool(20, 6);
  std::vector<PageId> claims;
  for (int i = 0; i < 20000; ++i) {
    const auto page = static_cast<PageId>(random() % 20);
    switch (random() % 5) {
      case 0:
        if (!pool.Has(page) && pool.num_available() > 0) pool.Assign(page);
        break;
      case 1:
        if (std::find(claims.begin(), claims.end(), page) == claims.end()) pool.Release(page);
        break;
      case 2:
        if (!pool.Has(page) || claims.size() > 8) break;
        pool.Claim(page);
        claims.push_back(page);
        break;
      case 3:
        if (claims.empty()) break;
        pool.Unclaim(claims.back());
        claims.pop_back();
        break;
      default: {
        const auto to = static_cast<PageId>(random() % 20);
        if (std::find(claims.begin(), claims.end(), page) != claims.end() || pool.Has(to)) break;
        pool.Move(page, to);
      }
    }
    pool.CheckInvariants(claims);
    for (const PageId claimed : claims) ASSERT_TRUE(pool.Has(claimed));
  }
  EXPECT_GT(pool.num_reclaimed(), 100);
}

TEST(CacheManagerWindowTest, PagesComeWithAWindowPageAndGiveItBack) {
  CacheManager manager(6, MakeRadixCache(2), 4);
  std::vector<PageId> pages;
  manager.Take(3, &pages);
  EXPECT_EQ(manager.windows()->num_free(), 1);
  for (const PageId page : pages) EXPECT_TRUE(manager.windows()->Has(page));
  manager.Give(pages);
  EXPECT_EQ(manager.windows()->num_free(), 4);
  manager.CheckInvariants({});
}

TEST(CacheManagerWindowTest, ADeferredPageKeepsItsWindowPageUntilItsFence) {
  CacheManager manager(6, MakeRadixCache(2), 2);
  std::vector<PageId> pages, others;
  manager.Take(2, &pages);
  manager.GiveAfter(5, pages);
  EXPECT_EQ(manager.windows()->num_available(), 0);
  EXPECT_EQ(manager.num_deferred_windows(), 2);
  manager.CheckInvariants({});
  manager.Collected(5);
  EXPECT_EQ(manager.num_deferred_windows(), 0);
  EXPECT_EQ(manager.windows()->num_free(), 2);
  manager.Take(2, &others);
  manager.CheckInvariants(others);
}

// A deferred hole is freed without a window page.
TEST(CacheManagerWindowTest, AHoleMayBeDeferred) {
  CacheManager manager(6, MakeRadixCache(2), 2);
  std::vector<PageId> pages;
  manager.Take(2, &pages);
  manager.Take(1, &pages);  // reclaims from the first
  EXPECT_FALSE(manager.windows()->Has(pages[0]));
  manager.GiveAfter(3, pages);
  EXPECT_EQ(manager.num_deferred_windows(), 2);
  manager.Collected(3);
  manager.CheckInvariants({});
  EXPECT_EQ(manager.pool().num_free(), 6);
}

TEST(CacheManagerWindowTest, EvictionFreesWindowPages) {
  CacheManager manager(2, MakeRadixCache(1), 2);
  std::vector<PageId> pages;
  manager.Take(2, &pages);
  const std::vector<TokenId> tokens = {1, 2};
  PrefixNode* root = manager.cache().Match({}).node;
  manager.cache().Lock(root);
  manager.cache().Insert(root, 0, tokens, pages);
  manager.cache().Unlock(root);
  std::vector<PageId> taken;
  manager.Take(1, &taken);
  EXPECT_EQ(manager.windows()->num_reclaimed(), 0);
  EXPECT_TRUE(manager.windows()->Has(taken[0]));
  manager.CheckInvariants(taken);
  EXPECT_EQ(manager.Reset(), 0);
  EXPECT_EQ(manager.windows()->num_free(), 1);
}

}  // namespace
}  // namespace minisgl
