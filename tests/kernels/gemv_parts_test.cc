// What stands before and behind a product of few rows: the same bits as with kernels of their own,
// which are tested against the oracle.
#include "product_parts.h"

namespace minisgl::cuda {
namespace {

using GemvPartsTest = ProductPartsTest;

// Products of large matrices alone begin with a norm.
class GemvNormTest : public ProductPartsTest {};

// Fewer and more elements than one warp's chunks, several warps, all of them and more.
TEST_P(GemvNormTest, NormBefore) {
  for (const DType dtype : kHalfTypes) {
    for (const int64_t num_in : {8, 264, 1024, 2056, 4096}) {
      for (const int64_t num_tokens : {1, 2, 8}) {
        if (num_tokens * num_in > 4096) continue;
        Check({.dtype = dtype,
               .num_tokens = num_tokens,
               .num_out = num_in > 1000 ? 9 : 40,
               .num_in = num_in,
               .has_bias = num_tokens == 2,
               .has_norm = true});
      }
    }
    Check({.dtype = dtype, .num_out = 4, .num_in = 8192, .has_norm = true});
  }
}

TEST_P(GemvPartsTest, ActivationBehind) {
  for (const DType dtype : kHalfTypes) {
    for (const Activation activation : {Activation::kSilu, Activation::kGeluTanh,
                                        Activation::kRelu2, Activation::kClampedSwiglu}) {
      for (const int64_t num_tokens : {1, 3, 13}) {
        Check({.dtype = dtype,
               .num_tokens = num_tokens,
               .num_out = 2 * 37,  // a last tile cut short in both halves
               .num_in = 72,
               .has_bias = num_tokens == 3,
               .activates = true,
               .activation = activation});
        Check({.dtype = dtype,
               .num_tokens = num_tokens,
               .num_out = 21,
               .num_in = 40,
               .activates = true,
               .is_gated = false,
               .activation = activation});
      }
    }
    // Tiles of 16 rows, half of them gates; and rows that are not aligned.
    Check({.dtype = dtype, .num_tokens = 2, .num_out = 2 * 2051, .num_in = 24, .activates = true});
    Check({.dtype = dtype, .num_tokens = 10, .num_out = 2 * 2051, .num_in = 24, .activates = true});
    Check({.dtype = dtype, .num_tokens = 2, .num_out = 2 * 11, .num_in = 33, .activates = true});
    Check({.dtype = dtype, .num_tokens = 12, .num_out = 2 * 11, .num_in = 33, .activates = true});
  }
}

TEST_P(GemvPartsTest, AdditionBehind) {
  for (const DType dtype : kHalfTypes) {
    for (const int64_t num_tokens : {1, 5, 16}) {
      Check({.dtype = dtype, .num_tokens = num_tokens, .num_out = 45, .num_in = 520, .adds = true});
      Check({.dtype = dtype,
             .num_tokens = num_tokens,
             .num_out = 19,
             .num_in = 35,
             .has_bias = true,
             .adds = true});
    }
    Check({.dtype = dtype, .num_tokens = 3, .num_out = 4103, .num_in = 40, .adds = true});
  }
}

TEST_P(GemvNormTest, NormBeforeAndMoreBehind) {
  for (const DType dtype : kHalfTypes) {
    Check({.dtype = dtype,
           .num_tokens = 3,
           .num_out = 50,
           .num_in = 264,
           .has_norm = true,
           .activates = true});
    Check({.dtype = dtype,
           .num_tokens = 2,
           .num_out = 50,
           .num_in = 264,
           .has_bias = true,
           .has_norm = true,
           .adds = true});
  }
}

TEST_P(GemvPartsTest, EveryThreadOrderGivesTheSame) {
  const PartsCase cases[] = {{.num_tokens = 2,
                              .num_out = 2 * 37,
                              .num_in = 520,
                              .has_norm = GetParam(),
                              .activates = true},
                             {.num_tokens = 3, .num_out = 45, .num_in = 520, .adds = true}};
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

// Many tokens, other norms and activations of more registers are left to kernels of their own.
TEST_P(GemvPartsTest, WhatItDoesNotTake) {
  Scene scene({.num_tokens = 1, .num_out = 8, .num_in = 64, .has_norm = true, .activates = true});
  const auto takes = [&](const NormParams& norm) {
    return GemvTakesNorm(device_.context, scene.matrix, norm);
  };
  EXPECT_EQ(takes(scene.norm), GetParam()) << "large matrices alone";
  const auto refuses = [&](auto change) {
    NormParams norm = scene.norm;
    change(&norm);
    EXPECT_FALSE(takes(norm));
  };
  refuses([](NormParams* p) { p->num_tokens = 9; });
  refuses([](NormParams* p) { p->kind = NormKind::kLayer; });
  refuses([&](NormParams* p) { p->bias = p->weight; });
  refuses([&](NormParams* p) { p->x = scene.x.ptr(); });
  refuses([](NormParams* p) { p->residual = nullptr; });
  refuses([](NormParams* p) { p->weight = nullptr; });
  refuses([](NormParams* p) { p->group_width = 8; });
  refuses([](NormParams* p) { p->width = 60; });
  refuses([](NormParams* p) { p->width = 8200; });
  refuses([](NormParams* p) { p->num_tokens = 3, p->width = 2048; });
  refuses([](NormParams* p) { p->residual_factor = 0.5f; });
  refuses([](NormParams* p) { p->residual += 1; });
  EXPECT_TRUE(ProductTakesActivation(scene.activation));
  for (const Activation activation : {Activation::kGelu, Activation::kXielu}) {
    scene.activation.activation = activation;
    EXPECT_FALSE(ProductTakesActivation(scene.activation));
  }
}

INSTANTIATE_TEST_SUITE_P(Ring, GemvPartsTest, testing::Bool());
INSTANTIATE_TEST_SUITE_P(Ring, GemvNormTest, testing::Values(true));

}  // namespace
}  // namespace minisgl::cuda
