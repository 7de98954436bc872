// Rotary tables against the formulas, evaluated here once more in long double.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "minisgl/model/decoder.h"

namespace minisgl {
namespace {

struct Tables {
  Tables(RopeConfig rope, int32_t dim, int64_t max_seq_len) {
    rope.dim = dim;
    MakeRotaryTables(rope, max_seq_len, &cos, &sin);
  }
  std::vector<float> cos, sin;
};

long double PlainFrequency(double theta, int32_t head_dim, int pair) {
  return std::pow(static_cast<long double>(theta), -2.0L * pair / head_dim);
}

TEST(RotaryTest, PositionZeroTurnsNothing) {
  const Tables tables(RopeConfig{}, 8, 3);
  ASSERT_EQ(tables.cos.size(), 12u);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(tables.cos[i], 1.0f);
    EXPECT_EQ(tables.sin[i], 0.0f);
  }
}

// The frequencies of a rotation of all pairs; those after the share do not turn.
TEST(RotaryTest, ProportionalTurnsTheFirstPairsOnly) {
  RopeConfig rope;
  rope.theta = 1e6;
  rope.scaling = RopeScaling::kProportional;
  rope.rotated_share = 0.25;
  const Tables tables(rope, 24, 50);
  for (int position = 0; position < 50; ++position) {
    for (int pair = 0; pair < 12; ++pair) {
      const long double angle = pair < 3 ? position * PlainFrequency(1e6, 24, pair) : 0;
      const auto at = static_cast<size_t>(position * 12 + pair);
      EXPECT_NEAR(tables.cos[at], std::cos(angle), 1e-7);
      EXPECT_NEAR(tables.sin[at], std::sin(angle), 1e-7);
    }
  }
}

TEST(RotaryTest, AnglesStayExactAtLatePositions) {
  RopeConfig rope;
  rope.theta = 500000;
  const int64_t length = 8192;
  const Tables tables(rope, 128, length);
  for (const int64_t position : {int64_t{1}, int64_t{4097}, length - 1}) {
    for (int pair = 0; pair < 64; ++pair) {
      const long double angle = position * PlainFrequency(rope.theta, 128, pair);
      EXPECT_NEAR(tables.cos[position * 64 + pair], std::cos(angle), 1e-7)
          << position << " " << pair;
      EXPECT_NEAR(tables.sin[position * 64 + pair], std::sin(angle), 1e-7)
          << position << " " << pair;
    }
  }
}

TEST(RotaryTest, LinearScalingSlowsEveryPosition) {
  RopeConfig scaled;
  scaled.scaling = RopeScaling::kLinear;
  scaled.factor = 4;
  const Tables slow(scaled, 16, 401), plain(RopeConfig{}, 16, 101);
  for (int64_t position = 0; position <= 100; ++position) {
    for (int pair = 0; pair < 8; ++pair) {
      EXPECT_NEAR(slow.cos[4 * position * 8 + pair], plain.cos[position * 8 + pair], 1e-6);
      EXPECT_NEAR(slow.sin[4 * position * 8 + pair], plain.sin[position * 8 + pair], 1e-6);
    }
  }
}

TEST(RotaryTest, Llama3KeepsShortWavesSlowsLongOnesAndBlendsBetween) {
  RopeConfig rope;
  rope.theta = 500000;
  rope.scaling = RopeScaling::kLlama3;
  rope.factor = 8;
  rope.low_freq_factor = 1;
  rope.high_freq_factor = 4;
  rope.original_max_seq_len = 8192;
  const Tables tables(rope, 128, 2);
  int kept = 0, slowed = 0, blended = 0;
  for (int pair = 0; pair < 64; ++pair) {
    const long double plain = PlainFrequency(rope.theta, 128, pair);
    const long double turns =
        8192 * plain / (2 * std::numbers::pi_v<long double>);  // in the original
    long double wanted = plain;
    if (turns < 1) {
      wanted = plain / 8;
      ++slowed;
    } else if (turns > 4) {
      ++kept;
    } else {
      const long double share = (turns - 1) / 3;
      wanted = share * plain + (1 - share) * plain / 8;
      ++blended;
    }
    EXPECT_NEAR(tables.sin[64 + pair], std::sin(wanted), 1e-7 * std::sin(wanted) + 1e-12) << pair;
  }
  EXPECT_GT(kept, 0);
  EXPECT_GT(slowed, 0);
  EXPECT_GT(blended, 0);
}

TEST(RotaryTest, Llama3WithoutABandBetweenIsFinite) {
  RopeConfig rope;
  rope.scaling = RopeScaling::kLlama3;
  rope.factor = 8;
  rope.low_freq_factor = rope.high_freq_factor = 2;
  rope.original_max_seq_len = 64;
  const Tables tables(rope, 16, 64);
  for (const float value : tables.cos) EXPECT_TRUE(std::isfinite(value));
}

TEST(RotaryTest, YarnKeepsWhatTurnsOftenSlowsWhatTurnsSeldomAndScalesBoth) {
  RopeConfig rope;
  rope.theta = 10000;
  rope.scaling = RopeScaling::kYarn;
  rope.factor = 16;
  rope.original_max_seq_len = 4096;
  rope.attention_factor = 1.25;
  for (const bool truncate : {true, false}) {
    rope.truncate = truncate;
    const Tables tables(rope, 64, 2);
    // The pair that turns n times over the original length: original * theta^(-2 i / dim) = 2 pi n.
    const auto pair_of = [](long double turns) {
      return 64 * std::log(4096 / (2 * std::numbers::pi_v<long double> * turns)) /
             (2 * std::log(10000.0L));
    };
    long double first = pair_of(32), last = pair_of(1);
    if (truncate) first = std::floor(first), last = std::ceil(last);
    int blended = 0;
    for (int pair = 0; pair < 32; ++pair) {
      const long double plain = PlainFrequency(rope.theta, 64, pair);
      const long double share = std::clamp((pair - first) / (last - first), 0.0L, 1.0L);
      blended += share > 0 && share < 1 ? 1 : 0;
      const long double wanted = plain * (1 - share) + plain / 16 * share;
      EXPECT_NEAR(tables.sin[32 + pair], 1.25L * std::sin(wanted), 2e-7) << pair;
      EXPECT_NEAR(tables.cos[32 + pair], 1.25L * std::cos(wanted), 2e-7) << pair;
    }
    EXPECT_GT(blended, 5);
  }
}

TEST(RotaryTest, LongRopeChoosesItsDivisorsByTheLongestSequence) {
  RopeConfig rope;
  rope.scaling = RopeScaling::kLongRope;
  rope.original_max_seq_len = 16;
  rope.short_factors = {1.0, 1.5, 2.0, 2.5};
  rope.long_factors = {3.0, 5.0, 7.0, 9.0};
  rope.attention_factor = 1.5;
  for (const int64_t length : {16, 17}) {
    const Tables tables(rope, 8, length);
    const auto& divisors = length == 16 ? rope.short_factors : rope.long_factors;
    for (int pair = 0; pair < 4; ++pair) {
      const long double angle = 15 * PlainFrequency(rope.theta, 8, pair) / divisors[pair];
      EXPECT_NEAR(tables.sin[15 * 4 + pair], 1.5L * std::sin(angle), 2e-7) << length << " " << pair;
    }
  }
}

TEST(RotaryTest, DynamicScalingChangesNothingUpToTheOriginalLength) {
  RopeConfig rope;
  rope.scaling = RopeScaling::kDynamic;
  rope.factor = 4;
  rope.original_max_seq_len = 32;
  const Tables plain(RopeConfig{}, 8, 32), same(rope, 8, 32), longer(rope, 8, 64);
  EXPECT_EQ(plain.sin, same.sin);
  // Twice the length: the slowest pair is slowed by 4 * 2 - 3 = 5, the fastest not at all.
  EXPECT_NEAR(longer.sin[31 * 4], plain.sin[31 * 4], 1e-6);
  const long double slowest = PlainFrequency(rope.theta, 8, 3) / 5;
  EXPECT_NEAR(longer.sin[31 * 4 + 3], std::sin(31 * slowest), 1e-7);
}

TEST(RotaryTest, QueryScalesStepUpAtMultiplesOfTheLength) {
  const std::vector<float> scales = MakeQueryScales(0.1, 4, 13);
  ASSERT_EQ(scales.size(), 13u);
  for (int p = 0; p < 13; ++p) {
    const double steps = p / 4;
    EXPECT_FLOAT_EQ(scales[p], static_cast<float>(1 + 0.1 * std::log(1 + steps))) << p;
  }
}

}  // namespace
}  // namespace minisgl
