// Rotary tables against the formulas, evaluated here once more in long double.
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "minisgl/model/decoder.h"

namespace minisgl {
namespace {

struct Tables {
  Tables(const RopeConfig& rope, int32_t head_dim, int64_t max_seq_len) {
    MakeRotaryTables(rope, head_dim, max_seq_len, &cos, &sin);
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

}  // namespace
}  // namespace minisgl
