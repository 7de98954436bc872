#include "minisgl/grammar/code_point_set.h"

#include <gtest/gtest.h>

namespace minisgl {
namespace {

TEST(CodePointSet, MergesRangesAndDropsSurrogates) {
  const CodePointSet set({{'c', 'f'}, {'a', 'b'}, {'e', 'z'}, {0xD000, 0xE000}, {5, 4}});
  EXPECT_EQ(set.ranges(),
            (std::vector<CodePointRange>{{'a', 'z'}, {0xD000, 0xD7FF}, {0xE000, 0xE000}}));
  EXPECT_TRUE(set.Contains('a'));
  EXPECT_TRUE(set.Contains('z'));
  EXPECT_FALSE(set.Contains('`'));
  EXPECT_FALSE(set.Contains(0xD800));
}

TEST(CodePointSet, OperationsAreThoseOfSets) {
  const CodePointSet letters({{'a', 'z'}});
  const CodePointSet low({{0, 'm'}});
  EXPECT_EQ(letters.Intersection(low), CodePointSet({{'a', 'm'}}));
  EXPECT_EQ(letters.Union(low), CodePointSet({{0, 'z'}}));
  EXPECT_EQ(letters.Complement().Complement(), letters);
  EXPECT_TRUE(CodePointSet::All().Complement().empty());
  EXPECT_TRUE(letters.Intersection(letters.Complement()).empty());
  EXPECT_EQ(CodePointSet::All().ranges().size(), 2u);
}

}  // namespace
}  // namespace minisgl
