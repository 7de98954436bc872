// The prefix cache with marks: what divides prefixes of the same token ids.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "minisgl/kv/prefix_cache.h"

namespace minisgl {
namespace {

using Tokens = std::vector<TokenId>;
using Marks = std::vector<KeyMark>;
using Pages = std::vector<PageId>;

constexpr ContentHash kCat = {7, 1}, kDog = {7, 2};
const Tokens kTokens = {1, 2, 3, 4, 5, 6, 7, 8};  // four pages of two

class RadixMarksTest : public ::testing::Test {
 protected:
  Pages Insert(const Marks& marks, const Pages& pages) {
    PrefixNode* root = cache_->Match({}).node;
    cache_->Lock(root);
    const PrefixKey key = PrefixKey(kTokens, marks).first(2 * pages.size());
    const PrefixInsertion insertion = cache_->Insert(root, 0, key, pages);
    cache_->Unlock(root);
    cache_->CheckInvariants({});
    return insertion.pages;
  }
  Pages Match(const Marks& marks, size_t num_tokens = 8) {
    const Pages pages = cache_->Match(PrefixKey(kTokens, marks).first(num_tokens)).pages;
    cache_->CheckInvariants({});
    return pages;
  }

  std::unique_ptr<PrefixCache> cache_ = MakeRadixCache(2);
};

TEST_F(RadixMarksTest, AMarkAtPlaceZeroDividesWholeTrees) {
  Insert({}, {1, 2, 3, 4});
  EXPECT_EQ(Match({{0, kCat}}), Pages{});
  Insert({{0, kCat}}, {11, 12, 13, 14});
  Insert({{0, kDog}}, {21, 22, 23, 24});
  EXPECT_EQ(Match({}), (Pages{1, 2, 3, 4}));
  EXPECT_EQ(Match({{0, kCat}}), (Pages{11, 12, 13, 14}));
  EXPECT_EQ(Match({{0, kDog}}), (Pages{21, 22, 23, 24}));
  EXPECT_EQ(Match({{0, kCat}, {0, kDog}}), Pages{});
}

// Places 2 and 3 are the two tokens of one page, 4 is the first of the next.
TEST_F(RadixMarksTest, PagesBeforeThePageOfADifferentMarkAreShared) {
  for (const int64_t place : {2, 3, 4, 7}) {
    cache_ = MakeRadixCache(2);
    const auto shared = static_cast<size_t>(place / 2);
    Insert({{place, kCat}}, {1, 2, 3, 4});
    const Pages whole = {1, 2, 3, 4};
    const Pages before(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(shared));
    EXPECT_EQ(Match({{place, kCat}}), whole);
    EXPECT_EQ(Match({}), before) << place;
    EXPECT_EQ(Match({{place, kDog}}), before) << place;
    EXPECT_EQ(Match({}, static_cast<size_t>(place)), before) << "whole pages of it";
    const Pages held = Insert({{place, kDog}}, {11, 12, 13, 14});
    EXPECT_EQ(held[shared], 11 + static_cast<PageId>(shared));
    EXPECT_EQ(Match({{place, kDog}}), held);
    EXPECT_EQ(Match({{place, kCat}}), whole);
  }
}

TEST_F(RadixMarksTest, SiblingsMayDifferByAMarkAlone) {
  Insert({{1, kCat}}, {1});
  Insert({{1, kDog}}, {2});
  Insert({{0, kCat}}, {3});
  Insert({{0, kCat}, {1, kCat}}, {4});
  Insert({}, {5});
  EXPECT_EQ(Match({{1, kCat}}), Pages{1});
  EXPECT_EQ(Match({{1, kDog}}), Pages{2});
  EXPECT_EQ(Match({{0, kCat}}), Pages{3});
  EXPECT_EQ(Match({{0, kCat}, {1, kCat}}), Pages{4});
  EXPECT_EQ(Match({}), Pages{5});
}

TEST_F(RadixMarksTest, ASplitDividesTheMarks) {
  const Marks marks = {{1, kCat}, {3, kDog}, {4, kCat}, {7, kDog}};
  for (const size_t cut : {2, 4, 6}) {
    cache_ = MakeRadixCache(2);
    Insert(marks, {1, 2, 3, 4});
    EXPECT_EQ(Match(marks, cut).size(), cut / 2);
    EXPECT_EQ(Match(marks), (Pages{1, 2, 3, 4})) << cut;
    Marks others = marks;
    others.pop_back();
    EXPECT_EQ(Match(others), (Pages{1, 2, 3})) << cut;
  }
}

// What is left of a node whose end was dropped grows again with other marks.
TEST_F(RadixMarksTest, ANodeThatLosesItsEndLosesTheMarksInIt) {
  Insert({{1, kCat}, {6, kCat}}, {1, 2, 3, 4});
  Pages freed;
  cache_->Evict(1, &freed);
  EXPECT_EQ(freed, Pages{4});
  cache_->CheckInvariants({});
  Insert({{1, kCat}}, {1, 2, 3, 5});
  EXPECT_EQ(Match({{1, kCat}}), (Pages{1, 2, 3, 5}));
  EXPECT_EQ(Match({{1, kCat}, {6, kCat}}), (Pages{1, 2, 3}));
}

TEST_F(RadixMarksTest, SnapshotsAreOfKeysWithTheirMarks) {
  StatePool states(4);
  cache_ = MakeRadixCache(2, nullptr, &states);
  Insert({{2, kCat}}, {1, 2});
  const StateSlot slot = states.Take();
  const Marks cat = {{2, kCat}}, dog = {{2, kDog}};
  EXPECT_FALSE(cache_->AttachState(PrefixKey(kTokens, dog).first(4), slot));
  EXPECT_TRUE(cache_->AttachState(PrefixKey(kTokens, cat).first(4), slot));
  EXPECT_EQ(cache_->Match(PrefixKey(kTokens, dog)).state, kZeroState);
  EXPECT_EQ(cache_->Match(PrefixKey(kTokens, cat)).state, slot);
}

// Tells each page with its whole prefix.
class MarkedReplay : public CacheObserver {
 public:
  using Prefix = std::pair<Tokens, Marks>;
  void Stored(std::optional<PageId> parent, const PrefixKey& key,
              std::span<const PageId> pages) override {
    Prefix prefix = parent ? prefixes.at(*parent) : Prefix();
    ASSERT_EQ(key.begin(), std::ssize(prefix.first));
    const size_t page_size = key.size() / pages.size();
    for (size_t i = 0; i < pages.size(); ++i) {
      const PrefixKey part = key.subspan(i * page_size, page_size);
      prefix.first.insert(prefix.first.end(), part.tokens().begin(), part.tokens().end());
      prefix.second.insert(prefix.second.end(), part.marks().begin(), part.marks().end());
      ASSERT_TRUE(prefixes.emplace(pages[i], prefix).second);
    }
  }
  void Evicted(std::span<const PageId> pages) override {
    for (const PageId page : pages) ASSERT_EQ(prefixes.erase(page), 1u);
  }
  void Reset(int64_t) override { FAIL() << "nothing resets this cache"; }

  std::map<PageId, Prefix> prefixes;
};

// Compares with a map from whole prefixes, tokens and marks, to pages.
class RadixMarksModelTest : public ::testing::TestWithParam<int> {};

TEST_P(RadixMarksModelTest, BehavesAsAMapFromKeysToPages) {
  const auto page_size = static_cast<size_t>(GetParam());
  std::mt19937 random(static_cast<uint32_t>(GetParam()) * 104729);
  MarkedReplay replay;
  const auto cache = MakeRadixCache(GetParam(), &replay);
  std::map<MarkedReplay::Prefix, PageId> model;
  PageId next_page = 0;
  for (int step = 0; step < 3000; ++step) {
    const size_t num_pages = 1 + random() % 5;
    Tokens tokens(num_pages * page_size, 1);
    if (random() % 2 == 0) tokens[random() % tokens.size()] = 2;
    Marks marks;
    for (unsigned i = random() % 4; i > 0; --i) {
      marks.push_back({static_cast<int64_t>(random() % tokens.size()), {0, random() % 2}});
    }
    std::sort(marks.begin(), marks.end());
    const PrefixKey key(tokens, marks);
    const auto prefix = [&](size_t pages) {
      const PrefixKey part = key.first(pages * page_size);
      return MarkedReplay::Prefix{{part.tokens().begin(), part.tokens().end()},
                                  {part.marks().begin(), part.marks().end()}};
    };
    const PrefixMatch match = cache->Match(key);
    for (size_t i = 0; i < match.pages.size(); ++i) {
      ASSERT_EQ(match.pages[i], model.at(prefix(i + 1)));
    }
    ASSERT_TRUE(match.pages.size() == num_pages || !model.contains(prefix(match.pages.size() + 1)));
    if (random() % 3 > 0) {
      Pages pages = match.pages;
      while (pages.size() < num_pages) pages.push_back(next_page++);
      cache->Lock(match.node);
      cache->Insert(match.node, static_cast<int32_t>(match.pages.size()), key, pages);
      cache->Unlock(match.node);
      for (size_t i = 0; i < num_pages; ++i) model[prefix(i + 1)] = pages[i];
    } else if (cache->num_evictable() > 0) {
      Pages freed;
      cache->Evict(1 + static_cast<int32_t>(random() % 1000) % cache->num_evictable(), &freed);
      for (const PageId page : freed) {
        std::erase_if(model, [page](const auto& entry) { return entry.second == page; });
      }
    }
    ASSERT_EQ(replay.prefixes.size(), model.size());
    for (const auto& [held, page] : model) ASSERT_EQ(replay.prefixes.at(page), held);
    cache->CheckInvariants({});
  }
}

INSTANTIATE_TEST_SUITE_P(PageSizes, RadixMarksModelTest, ::testing::Values(1, 2, 4, 16));

}  // namespace
}  // namespace minisgl
