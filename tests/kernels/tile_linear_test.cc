// Products of 17 to 128 rows against sums in double: each size of tiles, one split and several,
// remainders of tokens, rows and K; and what stands behind them has the bits of separate kernels.
#include "product_parts.h"

namespace minisgl::cuda {
namespace {

class TileLinearTest : public ProductPartsTest {
 protected:
  void ExpectSums(const PartsCase& c) {
    Scene scene(c);
    EXPECT_EQ(Launch({.linear = scene.linear}, &scene), kCudaSuccess);
    EXPECT_TRUE(scene.GuardsIntact()) << Name(c);
    std::vector<float> expected, bounds;
    for (int64_t t = 0; t < c.num_tokens; ++t) {
      for (int64_t o = 0; o < c.num_out; ++o) {
        double sum = c.has_bias ? scene.bias.values()[o] : 0, magnitude = std::abs(sum);
        for (int64_t i = 0; i < c.num_in; ++i) {
          const double product = static_cast<double>(scene.x.values()[t * c.num_in + i]) *
                                 scene.weight.values()[o * c.num_in + i];
          sum += product;
          magnitude += std::abs(product);
        }
        expected.push_back(static_cast<float>(sum));
        // As for products of few rows: random roundings cancel.
        const double f32_error = 8 * std::sqrt(c.num_in + 1.0) * 0x1.0p-24 * magnitude;
        bounds.push_back(static_cast<float>(f32_error + RoundingError(c.dtype, sum) * 1.01));
      }
    }
    ExpectWithin(
        scene.product.values(), expected, [&](size_t i) { return bounds[i]; }, Name(c));
  }
};

TEST_F(TileLinearTest, MatchesTheSum) {
  for (const DType dtype : kHalfTypes) {
    for (const int64_t num_tokens : {17, 32, 33, 64, 65, 128}) {
      ExpectSums({.dtype = dtype, .num_tokens = num_tokens, .num_out = 64, .num_in = 64});
      ExpectSums({.dtype = dtype,
                  .num_tokens = num_tokens,
                  .num_out = 70,
                  .num_in = 200,
                  .has_bias = true});
    }
    ExpectSums({.dtype = dtype, .num_tokens = 20, .num_out = 5, .num_in = 8});
  }
}

// 4 multiprocessors: one tile of long rows is split among several blocks, the last of which has
// fewer steps.
TEST_F(TileLinearTest, MatchesTheSumInSplits) {
  for (const DType dtype : kHalfTypes) {
    ExpectSums({.dtype = dtype, .num_tokens = 17, .num_out = 33, .num_in = 2120});
    ExpectSums({.dtype = dtype, .num_tokens = 50, .num_out = 64, .num_in = 1984});
    ExpectSums({.dtype = dtype, .num_tokens = 70, .num_out = 10, .num_in = 2048, .has_bias = true});
  }
}

TEST_F(TileLinearTest, ActivationBehind) {
  for (const DType dtype : kHalfTypes) {
    for (const Activation activation : {Activation::kSilu, Activation::kGeluTanh,
                                        Activation::kRelu2, Activation::kClampedSwiglu}) {
      Check({.dtype = dtype,
             .num_tokens = 19,
             .num_out = 2 * 37,
             .num_in = 72,
             .has_bias = true,
             .activates = true,
             .activation = activation});
      Check({.dtype = dtype,
             .num_tokens = 40,
             .num_out = 21,
             .num_in = 40,
             .activates = true,
             .is_gated = false,
             .activation = activation});
    }
    Check({.dtype = dtype, .num_tokens = 70, .num_out = 2 * 5, .num_in = 2048, .activates = true});
  }
}

TEST_F(TileLinearTest, AdditionBehind) {
  for (const DType dtype : kHalfTypes) {
    Check({.dtype = dtype, .num_tokens = 18, .num_out = 70, .num_in = 136, .adds = true});
    Check({.dtype = dtype,
           .num_tokens = 100,
           .num_out = 19,
           .num_in = 1600,
           .has_bias = true,
           .adds = true});
  }
}

TEST_F(TileLinearTest, EveryThreadOrderGivesTheSame) {
  const PartsCase cases[] = {
      {.num_tokens = 18, .num_out = 2 * 33, .num_in = 136, .activates = true},
      {.num_tokens = 34, .num_out = 9, .num_in = 1600, .adds = true}};
  for (const PartsCase& c : cases) {
    Scene first(c);
    RunAsOne(c, &first);
    emulator::ForEachOrder(emulator::kNumOrders, [&](int order) {
      Scene scene(c);
      RunAsOne(c, &scene);
      ExpectSameBytes(scene.Result(c).data(), first.Result(c).data(), first.Result(c).num_bytes(),
                      Name(c) + " order " + std::to_string(order));
    });
  }
}

// Infinity times the zeros of absent tokens and of K past its end must reach nothing else.
TEST_F(TileLinearTest, NonFiniteWeightsReachOnlyTheirOwnOutputs) {
  const PartsCase c = {.num_tokens = 18, .num_out = 20, .num_in = 40};
  std::vector<float> values(c.num_out * c.num_in, 0.5f);
  values[3 * c.num_in + 39] = kInf;
  Scene scene(c);
  const DeviceInput weight(c.dtype, values);
  const DeviceInput x(c.dtype, std::vector<float>(c.num_tokens * c.num_in, 1.0f));
  scene.linear.x = x.ptr();
  ASSERT_EQ(LaunchTileLinear(device_.context, {.linear = scene.linear}, weight.data(),
                             {.parts = tile_parts_.data(), .arrived = tile_arrived_.data()}),
            kCudaSuccess);
  for (int64_t i = 0; i < scene.product.size(); ++i) {
    EXPECT_EQ(scene.product.values()[i], i % c.num_out == 3 ? kInf : 20.0f) << i;
  }
}

TEST_F(TileLinearTest, WhatItDoesNotTake) {
  Scene scene({.num_tokens = 20, .num_out = 8, .num_in = 64});
  EXPECT_TRUE(TileLinearTakes(scene.linear));
  LinearParams more = scene.linear;
  more.num_tokens = kTileLinearTokensMax + 1;
  EXPECT_FALSE(TileLinearTakes(more));
  LinearParams shifted = scene.linear;
  shifted.x.data = static_cast<const char*>(shifted.x.data) + 2;
  EXPECT_FALSE(TileLinearTakes(shifted));
  scene.matrix.num_in = 60;
  EXPECT_FALSE(TileLinearTakes(scene.linear));
  scene.matrix = {.num_out = kTileLinearOutsMax + 1, .num_in = 64};
  EXPECT_FALSE(TileLinearTakes(scene.linear));
}

}  // namespace
}  // namespace minisgl::cuda
