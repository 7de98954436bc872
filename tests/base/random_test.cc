// The random numbers against the published answers of Philox4x32-10 (Random123's known-answer
// file), and what the program builds from them.
#include "minisgl/base/random.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <set>

namespace minisgl {
namespace {

std::array<uint32_t, 4> Words(uint64_t seed, uint64_t index, uint64_t stream) {
  const RandomBits bits = PhiloxBits(seed, index, stream);
  return {bits.word[0], bits.word[1], bits.word[2], bits.word[3]};
}

// The file gives counter words c0..c3 and key words k0, k1; ours are index = c1:c0, stream = c3:c2,
// seed = k1:k0.
TEST(RandomTest, MatchesThePublishedAnswers) {
  EXPECT_EQ(Words(0, 0, 0),
            (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Words(~0ull, ~0ull, ~0ull),
            (std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Words(0x299f31d0a4093822, 0x85a308d3243f6a88, 0x0370734413198a2e),
            (std::array<uint32_t, 4>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(RandomTest, UniformDoubleIsTheFirst53Bits) {
  EXPECT_EQ(UniformDouble(0, 0), static_cast<double>(0x6627e8d5e169c58dull >> 11) * 0x1.0p-53);
  EXPECT_EQ(UniformDouble(~0ull, ~0ull, ~0ull),
            static_cast<double>(0x408f276d41c83b0eull >> 11) * 0x1.0p-53);
}

TEST(RandomTest, UniformDoubleFillsTheUnitInterval) {
  constexpr int kDraws = 100'000, kBins = 10;
  std::array<int, kBins> counts{};
  double sum = 0;
  for (uint64_t i = 0; i < kDraws; ++i) {
    const double value = UniformDouble(2026, i);
    ASSERT_GE(value, 0.0);
    ASSERT_LT(value, 1.0);
    sum += value;
    ++counts[static_cast<size_t>(value * kBins)];
  }
  // Five standard deviations: sqrt(n / 12) of the sum, sqrt(n p (1 - p)) of a bin.
  EXPECT_NEAR(sum, kDraws / 2.0, 5 * std::sqrt(kDraws / 12.0));
  for (int count : counts) EXPECT_NEAR(count, kDraws / 10.0, 5 * std::sqrt(kDraws * 0.09));
}

TEST(RandomTest, SeedIndexAndStreamAllMatter) {
  std::set<std::array<uint32_t, 4>> seen;
  for (uint64_t high : {uint64_t{0}, uint64_t{1} << 32}) {
    for (uint64_t low = 0; low < 4; ++low) {
      seen.insert(Words(high + low, 7, 7));
      seen.insert(Words(7, high + low, 7));
      seen.insert(Words(7, 7, high + low));
    }
  }
  EXPECT_EQ(seen.size(), 24u);
}

TEST(RandomTest, DerivedSeedsDiffer) {
  std::set<uint64_t> seeds;
  for (uint64_t i = 0; i < 1000; ++i) seeds.insert(DeriveSeed(0, i));
  EXPECT_EQ(seeds.size(), 1000u);
  EXPECT_NE(DeriveSeed(0, 1), DeriveSeed(1, 0));
}

}  // namespace
}  // namespace minisgl
