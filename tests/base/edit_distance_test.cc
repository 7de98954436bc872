#include "minisgl/base/edit_distance.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

namespace minisgl {
namespace {

TEST(EditDistanceTest, CountsEachKindOfEdit) {
  EXPECT_EQ(EditDistance("", ""), 0u);
  EXPECT_EQ(EditDistance("seed", "seed"), 0u);
  EXPECT_EQ(EditDistance("", "seed"), 4u);
  EXPECT_EQ(EditDistance("sed", "seed"), 1u);
  EXPECT_EQ(EditDistance("seeed", "seed"), 1u);
  EXPECT_EQ(EditDistance("seek", "seed"), 1u);
  EXPECT_EQ(EditDistance("esed", "seed"), 1u);
  EXPECT_EQ(EditDistance("ab", "cd"), 2u);
}

TEST(EditDistanceTest, TheNearestNameIsWithinTheBound) {
  const std::vector<std::string_view> names = {"run", "report", "rerun", "chat"};
  EXPECT_EQ(NearestName("run", names, 2), "run");
  EXPECT_EQ(NearestName("rpeort", names, 2), "report");
  EXPECT_EQ(NearestName("rpeort", names, 0), "");
  EXPECT_EQ(NearestName("bench", names, 2), "");
  EXPECT_EQ(NearestName("", {}, 2), "");
}

TEST(EditDistanceTest, OfNamesThatAreEquallyNearTheFirstIsGiven) {
  EXPECT_EQ(NearestName("cat", {"bat", "rat"}, 1), "bat");
  EXPECT_EQ(NearestName("cat", {"bit", "rat", "bat"}, 2), "rat");
}

TEST(EditDistanceTest, AWordLongerThanNamesIsNearNone) {
  const std::string longest(40, 'a'), longer(41, 'a');
  EXPECT_EQ(NearestName(longest, {longest}, 2), longest);
  EXPECT_EQ(NearestName(longer, {longest}, 2), "");
}

TEST(EditDistanceTest, ATypoKeepsMostOfTheName) {
  EXPECT_EQ(TypoDistanceMax("ab"), 0u);
  EXPECT_EQ(TypoDistanceMax("abc"), 1u);
  EXPECT_EQ(TypoDistanceMax("abcdef"), 2u);
  EXPECT_EQ(TypoDistanceMax("abcdefghijkl"), 2u);
}

}  // namespace
}  // namespace minisgl
