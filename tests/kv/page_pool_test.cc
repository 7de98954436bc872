#include "minisgl/kv/page_pool.h"

#include <gtest/gtest.h>

#include <set>

namespace minisgl {
namespace {

TEST(PagePoolTest, GivesEveryPageOnce) {
  PagePool pool(10);
  std::set<PageId> pages;
  while (pool.num_free() > 0) pages.insert(pool.Take());
  EXPECT_EQ(pages.size(), 10u);
  EXPECT_EQ(*pages.begin(), 0);
  EXPECT_EQ(*pages.rbegin(), 9);
}

TEST(PagePoolTest, ReusesTheLastPageFreedFirst) {
  PagePool pool(10);
  const PageId a = pool.Take(), b = pool.Take();
  pool.Give(a);
  pool.Give(b);
  EXPECT_EQ(pool.Take(), b);
  EXPECT_EQ(pool.Take(), a);
  pool.CheckInvariants();
}

TEST(PagePoolDeathTest, ASecondFreeIsABug) {
  PagePool pool(3);
  const PageId page = pool.Take();
  pool.Give(page);
  EXPECT_DEATH(pool.Give(page), "freed twice");
  EXPECT_DEATH(pool.Give(7), "not of this pool");
}

}  // namespace
}  // namespace minisgl
