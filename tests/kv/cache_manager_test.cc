#include "minisgl/kv/cache_manager.h"

#include <gtest/gtest.h>

namespace minisgl {
namespace {

TEST(CacheManagerTest, TakeEvictsWhenThePoolIsShort) {
  CacheManager manager(4, MakeRadixCache(1));
  std::vector<PageId> pages;
  manager.Take(3, &pages);
  PrefixNode* root = manager.cache().Match({}).node;
  manager.cache().Lock(root);
  manager.cache().Insert(root, 0, std::vector<TokenId>{1, 2, 3}, pages);
  manager.cache().Unlock(root);
  EXPECT_EQ(manager.num_available(), 4);
  std::vector<PageId> more;
  manager.Take(3, &more);
  manager.CheckInvariants(more);
  EXPECT_EQ(manager.num_evicted(), 2);
  EXPECT_EQ(manager.cache().Match(std::vector<TokenId>{1, 2, 3}).pages.size(), 1u);
}

TEST(CacheManagerTest, PagesWaitBehindTheirFence) {
  CacheManager manager(4, MakeNaiveCache());
  std::vector<PageId> pages;
  manager.Take(4, &pages);
  manager.GiveAfter(5, std::span(pages).first(2));
  manager.GiveAfter(6, std::span(pages).subspan(2));
  EXPECT_EQ(manager.num_available(), 0);
  EXPECT_EQ(manager.num_deferred(), 4);
  manager.CheckInvariants({});
  manager.Collected(4);
  EXPECT_EQ(manager.num_available(), 0);
  manager.Collected(5);
  EXPECT_EQ(manager.num_available(), 2);
  manager.Collected(6);
  EXPECT_EQ(manager.num_available(), 4);
  EXPECT_EQ(manager.num_deferred(), 0);
}

TEST(CacheManagerTest, ResetKeepsWhatIsLocked) {
  CacheManager manager(4, MakeRadixCache(1));
  std::vector<PageId> pages;
  manager.Take(3, &pages);
  PrefixNode* root = manager.cache().Match({}).node;
  manager.cache().Lock(root);
  manager.cache().Insert(root, 0, std::vector<TokenId>{1, 2, 3}, pages);
  manager.cache().Unlock(root);
  PrefixNode* node = manager.cache().Match(std::vector<TokenId>{1}).node;
  manager.cache().Lock(node);
  EXPECT_EQ(manager.Reset(), 1);
  EXPECT_EQ(manager.num_available(), 3);
  manager.cache().Unlock(node);
  EXPECT_EQ(manager.Reset(), 0);
}

TEST(CacheManagerDeathTest, APageInTwoPlacesOrNoneIsFound) {
  CacheManager manager(2, MakeNaiveCache());
  std::vector<PageId> pages;
  manager.Take(1, &pages);
  EXPECT_DEATH(manager.CheckInvariants({}), "I1: page . is in no place");
  pages.push_back(pages.front());
  EXPECT_DEATH(manager.CheckInvariants(pages), "I1: page . is taken and taken");
}

}  // namespace
}  // namespace minisgl
