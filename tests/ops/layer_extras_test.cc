// Extras of operations for Gemma 4's layers: the factor of the residual stream, an activation times
// other values, the scales of experts, and a table that stays in its file.
#include "minisgl/tensor/weight_tensor.h"
#include "op_check.h"

namespace minisgl::cpu {
namespace {

constexpr int64_t kTokens = 5;

TEST(LayerExtrasTest, TheStreamIsMultipliedAfterTheSumAndBeforeTheNorm) {
  // (1 + 0.5 * 2) * 3 = 6 and (-2 + 0.5 * 2) * 3 = -3.
  for (const auto& ops : OracleAndAllCpuOps()) {
    std::vector<float> residual = {1, -2}, out(2);
    const std::vector<float> x = {2, 2}, weight = {1, 2};
    NormParams p = {.x = x.data(), .residual = residual.data(), .weight = nullptr};
    p.out = out.data();
    p.num_tokens = 1;
    p.width = 2;
    p.x_scale = 0.5f;
    p.residual_factor = 3;
    ops->Norm(p);
    EXPECT_EQ(residual, (std::vector<float>{6, -3})) << ops->Name();
    EXPECT_EQ(out, residual) << ops->Name();
    p.x = nullptr;
    p.residual_factor = 0.5f;
    p.weight = weight.data();
    p.eps = 0;
    ops->Norm(p);
    EXPECT_EQ(residual, (std::vector<float>{3, -1.5f})) << ops->Name();
    const double root = std::sqrt((9 + 2.25) / 2);
    EXPECT_NEAR(out[0], 3 / root, 1e-6) << ops->Name();
    EXPECT_NEAR(out[1], -3 / root, 1e-6) << ops->Name();
  }
}

TEST(LayerExtrasTest, AnActivationTimesOtherValuesAgreesWithOracle) {
  const auto oracle = MakeNaiveOps();
  for (const int64_t width : {1, 6, 16, 67}) {
    const int64_t stride = 3 * width + 2;
    const auto gate = RandomFloats(kTokens * width, 1), up = RandomFloats(kTokens * stride, 2);
    ActivateParams p = {.gate_up = gate.data(),
                        .out = nullptr,
                        .num_tokens = kTokens,
                        .width = width,
                        .activation = Activation::kGeluTanh,
                        .gated = false};
    OpOutput expected(kTokens * width), without(kTokens * width);
    p.out = without.data();
    oracle->Activate(p);
    p.up = up.data() + width;
    p.up_stride = stride;
    p.out = expected.data();
    oracle->Activate(p);
    for (int64_t i = 0; i < kTokens * width; ++i) {
      const double factor = up[static_cast<size_t>(i / width * stride + width + i % width)];
      EXPECT_NEAR(expected.data()[i], without.data()[i] * factor, 1e-6);
    }
    for (const auto& ops : AllCpuOps()) {
      OpOutput out(kTokens * width);
      p.out = out.data();
      ops->Activate(p);
      ExpectClose(
          out.values(), expected.values(),
          [&](size_t i) { return 1e-6 + 2e-6 * std::abs(expected.data()[i]); }, ops->Name());
      EXPECT_TRUE(out.GuardsIntact());
    }
  }
}

TEST(LayerExtrasTest, ASigmoidGateMayOverwriteWhatItIsOf) {
  const std::vector<float> gate = {0, 2, -100}, values = {3, 1, 5};
  for (const auto& ops : OracleAndAllCpuOps()) {
    std::vector<float> out = values;
    ops->Activate({.gate_up = gate.data(),
                   .out = out.data(),
                   .num_tokens = 1,
                   .width = 3,
                   .activation = Activation::kSigmoid,
                   .gated = false,
                   .up = out.data(),
                   .up_stride = 3});
    EXPECT_NEAR(out[0], 1.5, 1e-6) << ops->Name();
    EXPECT_NEAR(out[1], 1 / (1 + std::exp(-2.0)), 1e-6) << ops->Name();
    EXPECT_NEAR(out[2], 0, 1e-6) << ops->Name();
  }
}

TEST(LayerExtrasTest, AnActivationMayBeOfAScaledGate) {
  const std::vector<float> x = {0.5f, -2, /*up*/ 3, 7};
  for (const auto& ops : OracleAndAllCpuOps()) {
    std::vector<float> out(2);
    ops->Activate({.gate_up = x.data(),
                   .out = out.data(),
                   .num_tokens = 1,
                   .width = 2,
                   .activation = Activation::kSilu,
                   .gate_scale = 2});
    EXPECT_NEAR(out[0], 3 / (1 + std::exp(-1.0)), 1e-5) << ops->Name();
    EXPECT_NEAR(out[1], -28 / (1 + std::exp(4.0)), 1e-5) << ops->Name();
  }
}

TEST(LayerExtrasTest, SharesAreMultipliedByTheScaleOfTheirExpert) {
  const std::vector<float> logits = {0, 2, 1, 2.5f, -1, 0.5f};
  const std::vector<float> scale = {5, 7, 11, 0.25f, 2, 3};
  for (const auto& ops : OracleAndAllCpuOps()) {
    int32_t experts[2];
    float plain[2], scaled[2];
    RouteParams p = {.logits = logits.data(),
                     .bias = nullptr,
                     .experts = experts,
                     .shares = plain,
                     .num_tokens = 1,
                     .num_experts = 6,
                     .num_chosen = 2,
                     .routing = {.renormalize = true}};
    ops->Route(p);
    p.shares = scaled;
    p.expert_scale = scale.data();
    ops->Route(p);
    EXPECT_EQ(experts[0], 3);
    EXPECT_EQ(experts[1], 1);
    EXPECT_NEAR(plain[0] + plain[1], 1, 1e-6);
    EXPECT_NEAR(scaled[0], plain[0] * 0.25, 1e-6) << ops->Name();
    EXPECT_NEAR(scaled[1], plain[1] * 7, 1e-6) << ops->Name();
  }
}

TEST(LayerExtrasTest, RowsOfAStoredTableAreThoseOfAPackedOne) {
  constexpr int64_t kRows = 9, kWidth = 70;
  const auto values = RandomFloats(kRows * kWidth, 3);
  const WeightTensor stored(View(values, kRows, kWidth));
  const std::vector<int32_t> ids = {8, 0, 3, 3, 7};
  for (const auto& ops : OracleAndAllCpuOps()) {
    const auto packed = ops->PackEmbedding(stored, DType::kF32);
    ASSERT_TRUE(packed.ok());
    OpOutput expected(kTokens * kWidth), out(kTokens * kWidth);
    ops->Embedding({ids.data(), &*packed, 2.5f, expected.data(), kTokens});
    ops->Embedding({ids.data(), nullptr, 2.5f, out.data(), kTokens, &stored});
    EXPECT_EQ(out.values(), expected.values()) << ops->Name();
    EXPECT_EQ(out.data()[0], values[8 * kWidth] * 2.5f);
    EXPECT_TRUE(out.GuardsIntact());
  }
}

}  // namespace
}  // namespace minisgl::cpu
