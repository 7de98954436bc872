// Ranges and numbers in text: bounds, words, and texts that are no number.
#include "minisgl/base/number_range.h"

#include <gtest/gtest.h>

#include <cmath>
#include <optional>

#include "minisgl/base/parse_number.h"

namespace minisgl {
namespace {

TEST(NumberRangeTest, HoldsItsBoundsUnlessTheLowerOneIsExcluded) {
  constexpr IntRange kIntegers = {-1, 3};
  EXPECT_TRUE(kIntegers.Holds(-1) && kIntegers.Holds(3));
  EXPECT_FALSE(kIntegers.Holds(-2) || kIntegers.Holds(4));
  constexpr NumberRange kClosed = {0, 1}, kAboveMin = {0, 1, true};
  EXPECT_TRUE(kClosed.Holds(0) && kClosed.Holds(1) && kAboveMin.Holds(1));
  EXPECT_TRUE(kAboveMin.Holds(std::nextafter(0.0, 1.0)));
  EXPECT_FALSE(kAboveMin.Holds(0) || kClosed.Holds(std::nextafter(1.0, 2.0)));
  EXPECT_FALSE(kClosed.Holds(HUGE_VAL) || kClosed.Holds(NAN) || NumberRange().Holds(NAN));
  EXPECT_TRUE(NumberRange().Holds(-HUGE_VAL) && IntRange().Holds(INT64_MIN));
}

TEST(NumberRangeTest, IsDescribedInWords) {
  EXPECT_EQ(Describe(IntRange{-1, 20}), "an integer from -1 to 20");
  EXPECT_EQ(Describe(IntRange{.min = 2}), "an integer of at least 2");
  EXPECT_EQ(Describe(NumberRange{0, 0.5}), "a number from 0 to 0.5");
  EXPECT_EQ(Describe(NumberRange{0, 1, true}), "a number above 0 and at most 1");
}

TEST(ParseNumberTest, TakesTheWholeTextOrNothing) {
  EXPECT_EQ(ParseNumber<int64_t>("-12"), -12);
  EXPECT_EQ(ParseNumber<uint64_t>("18446744073709551615"), UINT64_MAX);
  EXPECT_EQ(ParseNumber<double>("1e-3"), 0.001);
  for (const char* text : {"", " 1", "1 ", "+1", "1x", "1.5", "9223372036854775808"}) {
    EXPECT_EQ(ParseNumber<int64_t>(text), std::nullopt) << text;
  }
  EXPECT_EQ(ParseNumber<uint64_t>("-1"), std::nullopt);
  EXPECT_EQ(ParseNumber<double>("1e999"), std::nullopt);
}

}  // namespace
}  // namespace minisgl
