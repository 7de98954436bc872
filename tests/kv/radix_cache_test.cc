#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "minisgl/kv/prefix_cache.h"
#include "slow.h"

namespace minisgl {
namespace {

using Tokens = std::vector<TokenId>;
using Pages = std::vector<PageId>;

// Verbs for a cache, with pages of two tokens by default; letters are tokens.
class RadixCacheTest : public ::testing::Test {
 protected:
  explicit RadixCacheTest(int32_t page_size = 2)
      : page_size_(page_size), cache_(MakeRadixCache(page_size)) {}
  ~RadixCacheTest() override {
    for (PrefixNode* node : locked_) cache_->Unlock(node);
  }

  static Tokens T(const std::string& text) { return Tokens(text.begin(), text.end()); }

  // Inserts from the root; returns what the cache holds for it.
  Pages Insert(const std::string& text, const Pages& pages) {
    PrefixNode* root = cache_->Match({}).node;
    cache_->Lock(root);
    const PrefixInsertion insertion = cache_->Insert(root, 0, T(text), pages);
    cache_->Unlock(root);
    Check();
    return insertion.pages;
  }
  Pages Match(const std::string& text) {
    const Pages pages = cache_->Match(T(text)).pages;
    Check();
    return pages;
  }
  PrefixNode* Lock(const std::string& text) {
    PrefixNode* node = cache_->Match(T(text)).node;
    cache_->Lock(node);
    locked_.push_back(node);
    Check();
    return node;
  }
  void Unlock(PrefixNode* node) {
    cache_->Unlock(node);
    locked_.erase(std::find(locked_.begin(), locked_.end(), node));
    Check();
  }
  Pages Evict(int32_t count) {
    Pages freed;
    cache_->Evict(count, &freed);
    Check();
    return freed;
  }
  void Check() { cache_->CheckInvariants(locked_); }

  int32_t page_size_;
  std::unique_ptr<PrefixCache> cache_;
  std::vector<PrefixNode*> locked_;
};

TEST_F(RadixCacheTest, FindsWholePagesOfTheLongestPrefix) {
  Insert("abcdef", {1, 2, 3});
  EXPECT_EQ(Match("abcdef"), (Pages{1, 2, 3}));
  EXPECT_EQ(Match("abcdeX"), (Pages{1, 2}));
  EXPECT_EQ(Match("abcdefgh"), (Pages{1, 2, 3}));
  EXPECT_EQ(Match("a"), Pages{});
  EXPECT_EQ(Match("Xb"), Pages{});
}

TEST_F(RadixCacheTest, SplitKeepsBothHalvesReachable) {
  Insert("abcdef", {1, 2, 3});
  Insert("abcdXY", {9, 9, 4});
  EXPECT_EQ(Match("abcdef"), (Pages{1, 2, 3}));
  EXPECT_EQ(Match("abcdXY"), (Pages{1, 2, 4}));
  EXPECT_EQ(cache_->num_evictable(), 4);
}

TEST_F(RadixCacheTest, InsertionSaysWhichPagesItHadAlready) {
  Insert("abcd", {1, 2});
  EXPECT_EQ(Insert("abcdef", {7, 8, 3}), (Pages{1, 2, 3}));
}

TEST_F(RadixCacheTest, PrefixesThatShareLessThanAPageShareNothing) {
  Insert("abcd", {1, 2});
  Insert("aXcd", {3, 4});
  EXPECT_EQ(Match("aXcd"), (Pages{3, 4}));
  EXPECT_EQ(Match("abcd"), (Pages{1, 2}));
}

TEST_F(RadixCacheTest, LockedPrefixSurvivesEviction) {
  Insert("abcdef", {1, 2, 3});
  Insert("abXY", {1, 5});
  PrefixNode* node = Lock("abcd");
  EXPECT_EQ(cache_->num_locked(), 2);
  EXPECT_EQ(cache_->num_evictable(), 2);
  const Pages freed = Evict(2);
  EXPECT_EQ(std::set<PageId>(freed.begin(), freed.end()), (std::set<PageId>{3, 5}));
  EXPECT_EQ(Match("abcd"), (Pages{1, 2}));
  Unlock(node);
  EXPECT_EQ(cache_->num_evictable(), 2);
}

TEST_F(RadixCacheTest, EvictsTheLeastRecentlyUsedAndOnlyAsManyPagesAsAsked) {
  Insert("aabb", {1, 2});
  Insert("ccdd", {3, 4});
  Insert("eeff", {5, 6});
  Match("aabb");
  EXPECT_EQ(Evict(1), (Pages{4}));
  EXPECT_EQ(Evict(2), (Pages{3, 6}));
  EXPECT_EQ(Match("aabb"), (Pages{1, 2}));
}

TEST_F(RadixCacheTest, ALeafThatOthersLockDoesNotGrow) {
  Insert("abcd", {1, 2});
  PrefixNode* mine = Lock("abcd");
  PrefixNode* other = Lock("abcd");
  const PrefixInsertion insertion = cache_->Insert(mine, 2, T("abcdef"), Pages{1, 2, 3});
  Check();
  EXPECT_NE(insertion.node, other);
  Unlock(mine);
  EXPECT_EQ(cache_->num_locked(), 2) << "the other lock holds no page it did not ask for";
}

TEST_F(RadixCacheTest, ALockSurvivesASplitAboveIt) {
  Insert("abcdef", {1, 2, 3});
  PrefixNode* node = Lock("abcdef");
  Match("abXX");
  EXPECT_EQ(cache_->PathPages(node), (Pages{1, 2, 3}));
  EXPECT_EQ(cache_->num_locked(), 3);
}

TEST_F(RadixCacheTest, EvictingEverythingLeavesAnEmptyTree) {
  Insert("abcdef", {1, 2, 3});
  Insert("abcdXY", {1, 2, 4});
  EXPECT_EQ(Evict(4).size(), 4u);
  EXPECT_EQ(Match("abcd"), Pages{});
  EXPECT_EQ(cache_->num_evictable(), 0);
}

// Keeps what a cache reports: the prefix that ends with each cached page.
class Replay : public CacheObserver {
 public:
  void Stored(std::optional<PageId> parent, const PrefixKey& key,
              std::span<const PageId> pages) override {
    const std::span<const TokenId> tokens = key.tokens();
    ASSERT_EQ(tokens.size() % pages.size(), 0u);
    const size_t page_size = tokens.size() / pages.size();
    Tokens prefix = parent ? prefixes_.at(*parent) : Tokens();
    for (size_t i = 0; i < pages.size(); ++i) {
      const auto page_tokens = tokens.subspan(i * page_size, page_size);
      prefix.insert(prefix.end(), page_tokens.begin(), page_tokens.end());
      ASSERT_TRUE(prefixes_.emplace(pages[i], prefix).second) << "page " << pages[i] << " twice";
      ASSERT_TRUE(pages_.emplace(prefix, pages[i]).second) << "a prefix is stored twice";
    }
  }
  void Evicted(std::span<const PageId> pages) override {
    for (const PageId page : pages) {
      const Tokens prefix = prefixes_.at(page);
      prefixes_.erase(page);
      const auto place = pages_.erase(pages_.find(prefix));
      // Prefixes that begin with another one are sorted right behind it.
      const bool has_child = place != pages_.end() && place->first.size() > prefix.size() &&
                             std::equal(prefix.begin(), prefix.end(), place->first.begin());
      ASSERT_FALSE(has_child) << "page " << page << " is evicted before one behind it";
    }
  }
  void Reset(int64_t) override { FAIL() << "nothing resets this cache"; }

  const std::map<Tokens, PageId>& pages() const { return pages_; }

 private:
  std::map<PageId, Tokens> prefixes_;
  std::map<Tokens, PageId> pages_;
};

// Compares with a map from whole prefixes to pages, at several page sizes. What the cache reports
// gives the same map.
class RadixCacheModelTest : public ::testing::TestWithParam<int> {};

TEST_P(RadixCacheModelTest, BehavesAsAMapFromPrefixesToPages) {
  const auto page_size = static_cast<size_t>(GetParam());
  std::mt19937 random(static_cast<uint32_t>(GetParam()) * 7919);
  Replay replay;
  const auto cache = MakeRadixCache(GetParam(), &replay);
  std::map<Tokens, PageId> model;  // each whole-page prefix and the page that ends it
  std::vector<PrefixNode*> locked;
  PageId next_page = 0;
  for (int step = 0; step < 3000; ++step) {
    Tokens tokens;
    const size_t num_pages = 1 + random() % 6;
    for (size_t i = 0; i < num_pages * page_size; ++i) {
      tokens.push_back(static_cast<TokenId>(random() % (page_size == 1 ? 3 : 2)));
    }
    const auto prefix = [&](size_t pages) {
      return Tokens(tokens.begin(),
                    tokens.begin() + static_cast<std::ptrdiff_t>(pages * page_size));
    };
    const unsigned action = random() % 10;
    const PrefixMatch match = cache->Match(tokens);
    for (size_t i = 0; i < match.pages.size(); ++i)
      ASSERT_EQ(match.pages[i], model.at(prefix(i + 1)));
    if (match.pages.size() < num_pages) {
      ASSERT_FALSE(model.contains(prefix(match.pages.size() + 1)));
    }
    if (action < 4) {
      Pages pages = match.pages;
      while (pages.size() < num_pages) pages.push_back(next_page++);
      cache->Lock(match.node);
      const auto insertion =
          cache->Insert(match.node, static_cast<int32_t>(match.pages.size()), tokens, pages);
      cache->Unlock(match.node);
      for (size_t i = match.pages.size(); i < num_pages; ++i) model[prefix(i + 1)] = pages[i];
      ASSERT_EQ(cache->PathPages(insertion.node), pages);
    } else if (action < 6) {
      cache->Lock(match.node);
      locked.push_back(match.node);
    } else if (action < 8 && !locked.empty()) {
      const size_t at = random() % locked.size();
      cache->Unlock(locked[at]);
      locked.erase(locked.begin() + static_cast<std::ptrdiff_t>(at));
    } else if (cache->num_evictable() > 0) {
      Pages freed;
      cache->Evict(
          1 + static_cast<int32_t>(random() % static_cast<uint32_t>(cache->num_evictable())),
          &freed);
      for (PageId page : freed) {
        const auto found = std::find_if(model.begin(), model.end(),
                                        [page](const auto& entry) { return entry.second == page; });
        ASSERT_NE(found, model.end()) << "evicted a page twice";
        model.erase(found);
      }
    }
    ASSERT_EQ(cache->num_evictable() + cache->num_locked(), static_cast<int32_t>(model.size()));
    ASSERT_EQ(replay.pages(), model);
    cache->CheckInvariants(locked);
  }
  for (PrefixNode* node : locked) cache->Unlock(node);
}

INSTANTIATE_TEST_SUITE_P(PageSizes, RadixCacheModelTest, ::testing::Values(1, 2, 4, 16));

// A long chain of nodes, made by a branch at every token: neither use nor destruction may recurse
// along it.
TEST(RadixCacheDepthTest, AChainOfThousandsOfNodesIsNoProblem) {
  MarkSlow("a chain of thousands of nodes");
  const auto cache = MakeRadixCache(1);
  Tokens tokens(4000, 1);
  Pages pages(tokens.size());
  for (size_t i = 0; i < pages.size(); ++i) pages[i] = static_cast<PageId>(i);
  PrefixNode* root = cache->Match({}).node;
  cache->Lock(root);
  cache->Insert(root, 0, tokens, pages);
  cache->Unlock(root);
  // Matching each shorter prefix splits the one long node at each token.
  for (size_t length = 1; length < tokens.size(); ++length)
    cache->Match(std::span(tokens).first(length));
  EXPECT_EQ(cache->Match(tokens).pages, pages);
  cache->CheckInvariants({});
}

}  // namespace
}  // namespace minisgl
