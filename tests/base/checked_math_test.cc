// Sums, products and alignments at the edge of 64 bits.
#include "minisgl/base/checked_math.h"

#include <gtest/gtest.h>

#include <array>
#include <limits>

namespace minisgl {
namespace {

constexpr uint64_t kMax = ~uint64_t{0};

TEST(CheckedMathTest, ASumThatDoesNotFitIsNone) {
  EXPECT_EQ(CheckedAdd(2, 3), 5u);
  EXPECT_EQ(CheckedAdd(kMax, 0), kMax);
  EXPECT_EQ(CheckedAdd(kMax - 1, 1), kMax);
  EXPECT_FALSE(CheckedAdd(kMax, 1));
  EXPECT_FALSE(CheckedAdd(uint64_t{1} << 63, uint64_t{1} << 63));
}

TEST(CheckedMathTest, AProductThatDoesNotFitIsNone) {
  EXPECT_EQ(CheckedMul(6, 7), 42u);
  EXPECT_EQ(CheckedMul(kMax, 1), kMax);
  EXPECT_EQ(CheckedMul(kMax, 0), 0u);
  EXPECT_FALSE(CheckedMul(uint64_t{1} << 32, uint64_t{1} << 32));
  EXPECT_FALSE(CheckedMul((uint64_t{1} << 62) + 1, 4));
  EXPECT_EQ(CheckedMul(uint64_t{1} << 32, (uint64_t{1} << 32) - 1), kMax - (uint64_t{1} << 32) + 1);
}

TEST(CheckedMathTest, AProductOfManyStopsAtTheFirstOverflow) {
  EXPECT_EQ(CheckedProduct({}), 1u);
  EXPECT_EQ(CheckedProduct(std::array<uint64_t, 3>{2, 3, 4}), 24u);
  EXPECT_FALSE(CheckedProduct(std::array<uint64_t, 2>{uint64_t{1} << 63, 2}));
  // Overflows on the way, though a later factor is 0: still refused.
  EXPECT_FALSE(CheckedProduct(std::array<uint64_t, 3>{kMax, 2, 0}));
  EXPECT_EQ(CheckedProduct(std::array<uint64_t, 3>{0, kMax, kMax}), 0u);
}

TEST(CheckedMathTest, AlignRoundsUpOrIsNone) {
  EXPECT_EQ(CheckedAlign(0, 8), 0u);
  EXPECT_EQ(CheckedAlign(1, 8), 8u);
  EXPECT_EQ(CheckedAlign(8, 8), 8u);
  EXPECT_EQ(CheckedAlign(9, 5), 10u);
  EXPECT_FALSE(CheckedAlign(kMax, 8));
  EXPECT_EQ(CheckedAlign(kMax - 7, 8), kMax - 7);
}

TEST(CheckedMathTest, CeilDivNeverOverflows) {
  static_assert(CeilDiv(0, 4) == 0 && CeilDiv(1, 4) == 1 && CeilDiv(4, 4) == 1 &&
                CeilDiv(5, 4) == 2);
  constexpr auto kLargest = std::numeric_limits<int32_t>::max();
  static_assert(CeilDiv(kLargest, 2) == kLargest / 2 + 1);
  static_assert(CeilDiv(kLargest, 1) == kLargest);
}

}  // namespace
}  // namespace minisgl
