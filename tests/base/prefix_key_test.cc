// Keys of prefixes: their parts, and how far two of them are the same.
#include "minisgl/base/prefix_key.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "minisgl/base/sha256.h"

namespace minisgl {
namespace {

using Marks = std::vector<KeyMark>;

constexpr ContentHash kCat = {1, 2}, kDog = {1, 3};
const std::vector<TokenId> kTokens = {5, 6, 7, 8, 9, 10};

std::vector<int64_t> PlacesOf(const PrefixKey& key) {
  std::vector<int64_t> places;
  for (const KeyMark& mark : key.marks()) places.push_back(mark.place);
  return places;
}

TEST(PrefixKeyTest, MarksStandInOrderWithinTheirTokens) {
  EXPECT_TRUE(AreMarksOf({}, 0));
  EXPECT_TRUE(AreMarksOf(Marks{{0, kCat}, {0, kDog}, {3, kCat}}, 4));
  EXPECT_FALSE(AreMarksOf(Marks{{3, kCat}}, 3));
  EXPECT_FALSE(AreMarksOf(Marks{{-1, kCat}}, 3));
  EXPECT_FALSE(AreMarksOf(Marks{{2, kCat}, {1, kDog}}, 3));
}

TEST(PrefixKeyTest, APartHasTheMarksInIt) {
  const Marks marks = {{0, kCat}, {2, kCat}, {2, kDog}, {5, kCat}};
  const PrefixKey key(kTokens, marks);
  EXPECT_EQ(PlacesOf(key.first(0)), std::vector<int64_t>{});
  EXPECT_EQ(PlacesOf(key.first(2)), std::vector<int64_t>{0});
  EXPECT_EQ(PlacesOf(key.first(3)), (std::vector<int64_t>{0, 2, 2}));
  EXPECT_EQ(PlacesOf(key.subspan(2)), (std::vector<int64_t>{2, 2, 5}));
  EXPECT_EQ(PlacesOf(key.subspan(3, 2)), std::vector<int64_t>{});
  const PrefixKey part = key.subspan(1, 4).subspan(1);
  EXPECT_EQ(part.begin(), 2);
  EXPECT_EQ(part.size(), 3u);
  EXPECT_EQ(part.tokens()[0], 7);
  EXPECT_EQ(PlacesOf(part), (std::vector<int64_t>{2, 2}));
  EXPECT_EQ(PlacesOf(part.first(1)), (std::vector<int64_t>{2, 2}));
}

TEST(PrefixKeyTest, KeysShareWhatIsBeforeTheFirstDifference) {
  std::vector<TokenId> others = kTokens;
  others[4] = 99;
  const auto common = [&](const Marks& a, const Marks& b) {
    EXPECT_EQ(CommonLength({kTokens, a}, {kTokens, b}), CommonLength({kTokens, b}, {kTokens, a}));
    // A difference of tokens behind that of marks changes nothing.
    EXPECT_EQ(CommonLength({kTokens, a}, {others, b}),
              std::min<size_t>(CommonLength({kTokens, a}, {kTokens, b}), 4));
    return CommonLength({kTokens, a}, {kTokens, b});
  };
  EXPECT_EQ(common({}, {}), 6u);
  EXPECT_EQ(common({{3, kCat}}, {{3, kCat}}), 6u);
  EXPECT_EQ(common({{3, kCat}}, {{3, kDog}}), 3u) << "another picture";
  EXPECT_EQ(common({{3, kCat}}, {}), 3u) << "ids without a picture";
  EXPECT_EQ(common({{3, kCat}}, {{2, kCat}}), 2u) << "the picture elsewhere";
  EXPECT_EQ(common({{0, kDog}}, {}), 0u) << "an adapter";
  EXPECT_EQ(common({{0, kDog}, {3, kCat}}, {{3, kCat}}), 0u);
  EXPECT_EQ(common({{1, kCat}, {5, kCat}}, {{1, kCat}, {5, kDog}}), 5u);
  EXPECT_EQ(common({{1, kCat}, {1, kDog}}, {{1, kCat}}), 1u);
}

TEST(PrefixKeyTest, AMarkPastTheEndOfTheOtherKeyIsNoDifference) {
  const Marks marks = {{3, kCat}};
  EXPECT_EQ(CommonLength({kTokens, marks}, PrefixKey(kTokens).first(3)), 3u);
  EXPECT_EQ(CommonLength(PrefixKey(kTokens).first(3), {kTokens, marks}), 3u);
  EXPECT_EQ(CommonLength(PrefixKey(kTokens, marks).first(3), kTokens), 3u);
}

TEST(PrefixKeyTest, PartsAreComparedFromWhereTheyBegin) {
  const Marks cat = {{3, kCat}}, dog = {{3, kDog}};
  EXPECT_EQ(CommonLength(PrefixKey(kTokens, cat).subspan(2), PrefixKey(kTokens, dog).subspan(2)),
            1u);
}

std::string HashOf(const PrefixKey& key) {
  Sha256 hash;
  AddMarks(key, &hash);
  return hash.FinishHex();
}

// What is on disk outlives the program.
TEST(PrefixKeyTest, MarksHashAsTheyDidInEarlierVersions) {
  EXPECT_EQ(HashOf(kTokens), Sha256().FinishHex()) << "nothing is added without marks";
  const Marks marks = {{3, kCat}, {4, {0x0123456789abcdef, ~uint64_t{0}}}};
  // 1, 1, 2, then 2, ... of 8 bytes each: places count from the part's first token.
  EXPECT_EQ(HashOf(PrefixKey(kTokens, marks).subspan(2)),
            "da7765a5e584894830510f93a39eb6930fb303ef756b55fee32e209a321888bc");
}

}  // namespace
}  // namespace minisgl
