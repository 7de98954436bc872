// The rule by which int4 quantizes a block (weight_format.h).
#include <numeric>

#include "op_check.h"
#include "tensor/quantize.h"

namespace minisgl::cpu {
namespace {

struct Int4Result {
  float scale;
  std::vector<int8_t> q;
};

Int4Result Quantized(const std::vector<float>& weights) {
  Int4Result result{0, std::vector<int8_t>(weights.size(), 99)};
  result.scale = Bf16ToFloat(
      tensor::QuantizeWeightsInt4(weights.data(), std::ssize(weights), result.q.data()));
  return result;
}

// Sum of squared errors of `weights` rounded to the nearest of 16 multiples of `scale`.
double NearestError(const std::vector<float>& weights, float scale) {
  double sum = 0;
  for (const float weight : weights) {
    const double number = std::clamp(std::nearbyint(double{weight} / scale), -8.0, 7.0);
    sum += std::pow(weight - scale * number, 2);
  }
  return sum;
}

double ErrorOf(const Int4Result& result, const std::vector<float>& weights) {
  double sum = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    sum += std::pow(weights[i] - double{result.scale} * result.q[i], 2);
  }
  return sum;
}

float Largest(const std::vector<float>& weights) {
  return *std::max_element(weights.begin(), weights.end(),
                           [](float a, float b) { return std::abs(a) < std::abs(b); });
}

float Bf16(float value) { return Bf16ToFloat(FloatToBf16(value)); }

// Flat blocks, blocks of a bell curve and blocks with one large weight; of every length.
std::vector<std::vector<float>> Int4Blocks() {
  std::vector<std::vector<float>> blocks;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    std::vector<float> block = RandomFloats(1 + static_cast<int64_t>(seed % kQuantBlock), seed);
    if (seed % 3 != 0) {
      for (float& weight : block) weight = weight * weight * weight;
    }
    if (seed % 3 == 2) block[block.size() / 2] *= 5;
    blocks.push_back(std::move(block));
  }
  return blocks;
}

TEST(QuantizeInt4Test, ErrorIsAtMostThatOfEveryScaleOfTheRule) {
  for (const std::vector<float>& block : Int4Blocks()) {
    const Int4Result result = Quantized(block);
    const float largest = Largest(block);
    const double error = ErrorOf(result, block) * (1 - 1e-5);  // sums are f32
    EXPECT_LE(error, NearestError(block, Bf16(largest / 7))) << "rounding to nearest";
    for (float divisor = 7; divisor <= 9; divisor += 0.25f) {
      EXPECT_LE(error, NearestError(block, Bf16(largest / -divisor))) << divisor;
    }
  }
}

TEST(QuantizeInt4Test, TheSearchTakesOffMoreThanATenthOfTheError) {
  double found = 0, nearest = 0;
  for (const std::vector<float>& block : Int4Blocks()) {
    if (std::ssize(block) < kQuantBlock / 2) continue;
    found += ErrorOf(Quantized(block), block);
    nearest += NearestError(block, Bf16(Largest(block) / 7));
  }
  EXPECT_LT(found, 0.9 * nearest);
}

TEST(QuantizeInt4Test, EveryCodeIsTheNearestOfItsScale) {
  for (const std::vector<float>& block : Int4Blocks()) {
    const Int4Result result = Quantized(block);
    for (const int8_t q : result.q) EXPECT_TRUE(q >= -8 && q <= 7) << int{q};
    EXPECT_NEAR(ErrorOf(result, block), NearestError(block, result.scale),
                1e-6 * NearestError(block, result.scale));
  }
}

// Multiples of a scale come back unchanged, with the sixteenth number on either side.
TEST(QuantizeInt4Test, MultiplesOfAScaleAreExact) {
  for (const float scale : {0.25f, -0.25f}) {
    std::vector<float> block;
    for (int q = -8; q <= 7; ++q) block.push_back(scale * static_cast<float>(q));
    const Int4Result result = Quantized(block);
    EXPECT_EQ(result.scale, scale);
    for (int i = 0; i < 16; ++i) EXPECT_EQ(result.q[static_cast<size_t>(i)], i - 8);
  }
  EXPECT_EQ(Quantized({3.5f}).scale * static_cast<float>(Quantized({3.5f}).q[0]), 3.5f);
  EXPECT_EQ(Quantized({-3.5f}).scale * static_cast<float>(Quantized({-3.5f}).q[0]), -3.5f);
}

// Beside so many whole numbers that no other scale is better.
TEST(QuantizeInt4Test, TiesRoundToEven) {
  const std::vector<float> block = {0.5, -0.5, 1.5, -2.5, -8, -7, -6, -5, -4, -3, -2,
                                    -1,  1,    2,   3,    4,  5,  6,  7,  -8, -7, -6,
                                    -5,  -4,   -3,  -2,   2,  3,  4,  5,  6,  7};
  const Int4Result result = Quantized(block);
  ASSERT_EQ(result.scale, 1.0f);
  EXPECT_EQ(std::vector<int8_t>(result.q.begin(), result.q.begin() + 6),
            (std::vector<int8_t>{0, 0, 2, -2, -8, -7}));
}

TEST(QuantizeInt4Test, BlocksOfZerosAndOfTooSmallNumbersAreZeros) {
  for (const float size : {0.0f, -0.0f, 1e-31f, -1e-38f, 1e-42f}) {
    const Int4Result result = Quantized(std::vector<float>(9, size));
    EXPECT_EQ(result.scale, 0);
    EXPECT_EQ(result.q, std::vector<int8_t>(9, 0));
  }
}

TEST(QuantizeInt4Test, AWeightThatIsNotFiniteMakesTheBlockNan) {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
        -std::numeric_limits<float>::infinity()}) {
    const Int4Result result = Quantized({1, 2, bad, 4});
    EXPECT_TRUE(std::isnan(result.scale));
    EXPECT_EQ(result.q, std::vector<int8_t>(4, 0));
  }
}

// Squares of neither the largest nor the smallest numbers leave the range of f32.
TEST(QuantizeInt4Test, ThePowerOfTwoDoesNotMatter) {
  const std::vector<float> block = RandomFloats(kQuantBlock, 5);
  const Int4Result expected = Quantized(block);
  for (const int exponent : {-98, -60, -1, 1, 90, 125}) {
    std::vector<float> moved = block;
    for (float& weight : moved) weight = std::ldexp(weight, exponent);
    ASSERT_TRUE(std::isfinite(Largest(moved)));
    const Int4Result result = Quantized(moved);
    EXPECT_EQ(result.q, expected.q) << exponent;
    EXPECT_EQ(result.scale, std::ldexp(expected.scale, exponent));
  }
}

}  // namespace
}  // namespace minisgl::cpu
