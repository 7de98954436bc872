// Half-precision conversions over every value, views at odd addresses, and shapes bound by symbol.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "minisgl/tensor/tensor_view.h"
#include "test_files.h"

namespace minisgl {
namespace {

// The value of the 16 bits, by the definition of the format.
double HalfByDefinition(uint16_t bits) {
  const int exponent = bits >> 10 & 0x1F;
  const double mantissa = bits & 0x3FF;
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == 0) return sign * std::ldexp(mantissa, -24);
  return sign * std::ldexp(1024 + mantissa, exponent - 25);
}

bool IsHalfNan(uint16_t bits) { return (bits & 0x7C00) == 0x7C00 && (bits & 0x3FF) != 0; }

TEST(DTypeTest, EveryHalfWidensExactlyAndComesBack) {
  for (uint32_t i = 0; i <= 0xFFFF; ++i) {
    const auto bits = static_cast<uint16_t>(i);
    const float value = F16ToFloat(bits);
    if (IsHalfNan(bits)) {
      EXPECT_TRUE(std::isnan(value)) << i;
      EXPECT_TRUE(IsHalfNan(FloatToF16(value))) << i;
      EXPECT_EQ(FloatToF16(value) & 0x8000, bits & 0x8000) << i;
      continue;
    }
    if ((bits & 0x7C00) == 0x7C00) {
      EXPECT_TRUE(std::isinf(value)) << i;
    } else {
      EXPECT_EQ(static_cast<double>(value), HalfByDefinition(bits)) << i;
    }
    EXPECT_EQ(std::signbit(value), (bits & 0x8000) != 0) << i;
    EXPECT_EQ(FloatToF16(value), bits);
  }
}

TEST(DTypeTest, FloatRoundsToTheNearestHalfAndTiesToEven) {
  // Between each pair of neighbours: just below, at and just above the middle.
  for (uint16_t low = 0; low < 0x7BFF; ++low) {
    const auto high = static_cast<uint16_t>(low + 1);
    const auto middle = static_cast<float>((HalfByDefinition(low) + HalfByDefinition(high)) / 2);
    EXPECT_EQ(FloatToF16(std::nextafter(middle, 0.0f)), low) << low;
    EXPECT_EQ(FloatToF16(middle), low % 2 == 0 ? low : high) << low;
    EXPECT_EQ(FloatToF16(std::nextafter(middle, 1e9f)), high) << low;
    EXPECT_EQ(FloatToF16(-middle), (low % 2 == 0 ? low : high) | 0x8000) << low;
  }
}

TEST(DTypeTest, PastTheRangeOfHalfIsInfinity) {
  EXPECT_EQ(FloatToF16(65504.0f), 0x7BFF);
  EXPECT_EQ(FloatToF16(65519.996f), 0x7BFF);
  EXPECT_EQ(FloatToF16(65520.0f), 0x7C00);
  EXPECT_EQ(FloatToF16(1e30f), 0x7C00);
  EXPECT_EQ(FloatToF16(-std::numeric_limits<float>::infinity()), 0xFC00);
  EXPECT_EQ(FloatToF16(std::numeric_limits<float>::denorm_min()), 0x0000);
  EXPECT_EQ(FloatToF16(-0.0f), 0x8000);
}

TEST(DTypeTest, Bf16RoundsToTheNearestAndKeepsNan) {
  for (uint32_t i = 0; i <= 0xFFFF; ++i) {
    const auto bits = static_cast<uint16_t>(i);
    const float value = Bf16ToFloat(bits);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(Bf16ToFloat(FloatToBf16(value)))) << i;
    } else {
      EXPECT_EQ(FloatToBf16(value), bits);
    }
  }
  EXPECT_EQ(FloatToBf16(std::bit_cast<float>(0x3F808000u)), 0x3F80);  // tie: to even
  EXPECT_EQ(FloatToBf16(std::bit_cast<float>(0x3F818000u)), 0x3F82);
  EXPECT_EQ(FloatToBf16(std::bit_cast<float>(0x3F808001u)), 0x3F81);
  EXPECT_EQ(FloatToBf16(std::numeric_limits<float>::max()), 0x7F80);
  EXPECT_TRUE(std::isnan(Bf16ToFloat(FloatToBf16(std::bit_cast<float>(0x7F800001u)))));
}

TEST(TensorViewTest, ReadsElementsAtAnyAlignment) {
  std::byte buffer[32] = {};
  const float values[3] = {1.5f, -2.0f, 1e-30f};
  std::memcpy(buffer + 1, values, sizeof values);
  const TensorView f32 = {buffer + 1, DType::kF32, {3}};
  EXPECT_EQ(f32.At(0), 1.5f);
  EXPECT_EQ(f32.At(2), 1e-30f);

  const uint16_t halves[2] = {FloatToF16(0.25f), FloatToF16(-7.0f)};
  std::memcpy(buffer + 3, halves, sizeof halves);
  EXPECT_EQ((TensorView{buffer + 3, DType::kF16, {2}}.At(1)), -7.0f);
  const uint16_t brains[2] = {FloatToBf16(0.25f), FloatToBf16(-7.0f)};
  std::memcpy(buffer + 5, brains, sizeof brains);
  EXPECT_EQ((TensorView{buffer + 5, DType::kBF16, {1, 2}}.At(1)), -7.0f);
}

TEST(TensorViewTest, CountsElementsAndBytes) {
  EXPECT_EQ((TensorView{nullptr, DType::kF32, {}}.num_elements()), 1);
  EXPECT_EQ((TensorView{nullptr, DType::kF32, {2, 3}}.num_bytes()), 24u);
  EXPECT_EQ((TensorView{nullptr, DType::kBF16, {2, 0, 3}}.num_bytes()), 0u);
  EXPECT_EQ(ShapeToString({}), "[]");
  EXPECT_EQ(ShapeToString({2, 3}), "[2, 3]");
}

TEST(ShapeCheckerTest, ASymbolIsBoundOnFirstSightAndHeldTo) {
  ShapeChecker shapes;
  EXPECT_TRUE(shapes.Check("q", {8, 4}, {"HD", "D"}).ok());
  EXPECT_TRUE(shapes.Check("norm", {4}, {"D"}).ok());
  const Status status = shapes.Check("o", {4, 9}, {"D", "HD"});
  ExpectError(status, StatusCode::kBadInput, "tensor \"o\"");
  ExpectError(status, StatusCode::kBadInput, "[4, 9]");
  ExpectError(status, StatusCode::kBadInput, "[D = 4, HD = 8]");
}

TEST(ShapeCheckerTest, BindFixesASymbolBeforeAnyTensor) {
  ShapeChecker shapes;
  shapes.Bind("D", 256);
  ExpectError(shapes.Check("norm", {255}, {"D"}), StatusCode::kBadInput, "[D = 256]");
  EXPECT_TRUE(shapes.Check("norm", {256}, {"D"}).ok());
}

TEST(ShapeCheckerTest, RefusesTheWrongRankAndTheWrongNumber) {
  ShapeChecker shapes;
  ExpectError(shapes.Check("t", {2, 3}, {"A"}), StatusCode::kBadInput, "wanted [A]");
  ExpectError(shapes.Check("t", {}, {"A"}), StatusCode::kBadInput, "found []");
  ExpectError(shapes.Check("t", {2, 3}, {2, 4}), StatusCode::kBadInput, "wanted [2, 4]");
  EXPECT_TRUE(shapes.Check("t", {2, 3}, {2, 3}).ok());
  EXPECT_TRUE(shapes.Check("scalar", {}, {}).ok());
}

TEST(ShapeCheckerTest, ASymbolTwiceInOneTensorMustAgree) {
  ShapeChecker shapes;
  EXPECT_FALSE(shapes.Check("square", {2, 3}, {"A", "A"}).ok());
  EXPECT_TRUE(shapes.Check("square", {3, 3}, {"A", "A"}).ok());
}

TEST(ShapeCheckerTest, AZeroSizeBindsLikeAnyOther) {
  ShapeChecker shapes;
  EXPECT_TRUE(shapes.Check("a", {0}, {"N"}).ok());
  EXPECT_FALSE(shapes.Check("b", {4}, {"N"}).ok());
}

TEST(ShapeCheckerTest, ATensorThatFailsBindsNothing) {
  ShapeChecker shapes;
  EXPECT_FALSE(shapes.Check("bad", {7, 3}, {"A", 4}).ok());
  EXPECT_TRUE(shapes.Check("good", {8, 4}, {"A", 4}).ok());
}

TEST(ShapeCheckerTest, AHostileTensorNameIsMadeVisible) {
  ShapeChecker shapes;
  ExpectError(shapes.Check("a\x1b[2J\n", {1}, {2}), StatusCode::kBadInput, "a\\x1b[2J\\n");
}

}  // namespace
}  // namespace minisgl
