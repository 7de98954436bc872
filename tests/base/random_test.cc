// The random numbers against the published answers of Philox4x32-10 (Random123's known-answer
// file), and the values that the program derives from them.
#include "minisgl/base/random.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <set>
#include <vector>

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

TEST(RandomTest, TheFirstAnswerKeepsTheSeedAndNoOtherSharesOne) {
  std::set<uint64_t> seeds;
  size_t count = 0;
  for (const uint64_t first : {uint64_t{0}, uint64_t{317}, ~uint64_t{0} - 99}) {
    for (uint64_t seed = first; seed - first < 100; ++seed) {
      EXPECT_EQ(AnswerSeed(seed, 0), seed);
      for (uint64_t answer = 0; answer < 128; ++answer, ++count) {
        seeds.insert(AnswerSeed(seed, answer));
      }
      // Seeds of rows that have none of their own differ, too.
      for (uint64_t row = 0; row < 100; ++row, ++count) seeds.insert(DeriveSeed(seed, row));
    }
  }
  EXPECT_EQ(seeds.size(), count);
}

// P(X > chi2) of a chi-square variable, by Wilson and Hilferty's approximation: good to a few
// percent of the probabilities that decide here.
double ChiSquareP(double chi2, double freedom) {
  const double spread = 2 / (9 * freedom);
  const double z = (std::cbrt(chi2 / freedom) - (1 - spread)) / std::sqrt(spread);
  return 0.5 * std::erfc(z / std::sqrt(2.0));
}

// Counts in equally likely cells.
double ChiSquareP(const std::vector<int64_t>& counts) {
  int64_t total = 0;
  for (const int64_t count : counts) total += count;
  const double expected = static_cast<double>(total) / static_cast<double>(counts.size());
  double chi2 = 0;
  for (const int64_t count : counts) {
    chi2 += (static_cast<double>(count) - expected) * (static_cast<double>(count) - expected);
  }
  return ChiSquareP(chi2 / expected, static_cast<double>(counts.size()) - 1);
}

TEST(RandomTest, TheTestOfDistributionsKnowsGoodFromBad) {
  EXPECT_NEAR(ChiSquareP(18.307, 10), 0.05, 0.002);  // from tables
  EXPECT_NEAR(ChiSquareP(149.449, 100), 0.001, 0.0001);
  EXPECT_GT(ChiSquareP({100, 101, 99, 100}), 0.9);
  EXPECT_LT(ChiSquareP({100, 140, 60, 100}), 1e-4);
}

// The number that decides token `position` of answer `answer` to a row of `seed`.
double Draw(uint64_t seed, uint64_t answer, uint64_t position) {
  return UniformDouble(AnswerSeed(seed, answer), position);
}

// The cell of two draws in a grid of kBins times kBins.
constexpr uint64_t kBins = 10;
size_t Cell(double a, double b) {
  return static_cast<size_t>(a * kBins) * kBins + static_cast<size_t>(b * kBins);
}

// Seeds of one number and of neighbouring numbers: if answer k used seed + k, a seed and its
// neighbour would draw the same.
TEST(RandomTest, NeighbouringSeedsAnswersAndPositionsAreIndependent) {
  constexpr uint64_t kSeeds = 20, kAnswers = 100, kPositions = 16;
  for (const uint64_t first : {uint64_t{317}, uint64_t{0}, ~uint64_t{0} - kSeeds}) {
    std::vector<int64_t> alone(100), next_seed(kBins * kBins), next_answer(kBins * kBins),
        next_position(kBins * kBins), diagonal(kBins * kBins);
    for (uint64_t seed = first; seed - first < kSeeds; ++seed) {
      for (uint64_t answer = 0; answer < kAnswers; ++answer) {
        for (uint64_t position = 0; position < kPositions; ++position) {
          const double draw = Draw(seed, answer, position);
          ++alone[static_cast<size_t>(draw * 100)];
          ++next_seed[Cell(draw, Draw(seed + 1, answer, position))];
          ++next_answer[Cell(draw, Draw(seed, answer + 1, position))];
          ++next_position[Cell(draw, Draw(seed, answer, position + 1))];
          ++diagonal[Cell(draw, Draw(seed + 1, answer + kAnswers - 1, position))];
        }
      }
    }
    for (const auto* counts : {&alone, &next_seed, &next_answer, &next_position, &diagonal}) {
      EXPECT_GT(ChiSquareP(*counts), 1e-4) << first;
    }
  }
}

// Rows that have no seed, of one run and of runs with neighbouring seeds.
TEST(RandomTest, RowsOfNeighbouringPlacesAndRunsAreIndependent) {
  std::vector<int64_t> alone(100), next_row(kBins * kBins), next_run(kBins * kBins);
  for (uint64_t run = 0; run < 20; ++run) {
    for (uint64_t row = 0; row < 200; ++row) {
      for (uint64_t answer = 0; answer < 4; ++answer) {
        const double draw = Draw(DeriveSeed(run, row), answer, 0);
        ++alone[static_cast<size_t>(draw * 100)];
        ++next_row[Cell(draw, Draw(DeriveSeed(run, row + 1), answer, 0))];
        ++next_run[Cell(draw, Draw(DeriveSeed(run + 1, row), answer, 0))];
      }
    }
  }
  for (const auto* counts : {&alone, &next_row, &next_run}) EXPECT_GT(ChiSquareP(*counts), 1e-4);
}

// The first tokens of 20 rows with seeds 317 to 336 and 100 answers each, of 20 tokens of equal
// chance: the draws of a whole prompt file.
TEST(RandomTest, ManyAnswersOfNeighbouringSeedsAreSpreadAsTheirTokensAre) {
  std::vector<int64_t> counts(20);
  for (uint64_t seed = 317; seed < 337; ++seed) {
    for (uint64_t answer = 0; answer < 100; ++answer) {
      ++counts[static_cast<size_t>(Draw(seed, answer, 0) * 20)];
    }
  }
  EXPECT_GT(ChiSquareP(counts), 1e-4);
  // By the rule of seed + answer the same 120 draws come again and again.
  std::vector<int64_t> counted_up(20);
  for (uint64_t seed = 317; seed < 337; ++seed) {
    for (uint64_t answer = 0; answer < 100; ++answer) {
      ++counted_up[static_cast<size_t>(UniformDouble(seed + answer, 0) * 20)];
    }
  }
  EXPECT_LT(ChiSquareP(counted_up), 1e-4);
}

}  // namespace
}  // namespace minisgl
