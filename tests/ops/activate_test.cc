// Activate: every activation against the oracle, and both against values computed by hand.
#include "op_check.h"

namespace minisgl::cpu {
namespace {

TEST(ActivateTest, GatedAgreesWithOracle) {
  const auto oracle = MakeNaiveOps();
  for (const auto& ops : AllCpuOps()) {
    for (Activation activation : {Activation::kSilu, Activation::kGeluTanh}) {
      for (int64_t width : kWidths) {
        for (int64_t num_tokens : kTokenCounts) {
          const auto gate_up = RandomFloats(num_tokens * 2 * width, 10, 4.0);
          OpOutput out(num_tokens * width), expected(num_tokens * width);
          ops->Activate({gate_up.data(), out.data(), num_tokens, width, activation});
          oracle->Activate({gate_up.data(), expected.data(), num_tokens, width, activation});
          // The argument of the sigmoid is rounded a few times and reaches 100: relative error of
          // exp of it.
          ExpectClose(
              out.values(), expected.values(),
              [&](size_t i) {
                const double gate = std::abs(gate_up[i / width * 2 * width + i % width]);
                const double argument =
                    gate + (activation == Activation::kGeluTanh ? gate * gate * gate : 0);
                return (8 + 4 * argument) * kEpsilon * std::abs(expected.data()[i]) + 1e-30;
              },
              fmt::format("{} [{}, {}]", ops->Name(), num_tokens, width));
          EXPECT_TRUE(out.GuardsIntact());
        }
      }
    }
  }
}

// The exponential does not overflow into NaN at its limits, and NaN is not hidden.
TEST(ActivateTest, ExtremeGates) {
  const float inf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> gate_up = {0,      -0.0f,   88.0f,  89.0f, 1e30f,  inf,     -87.0f, -88.5f,
                                -89.0f, -104.0f, -1e30f, nan,   1e-30f, -1e-30f, 20.0f,  -20.0f};
  const int64_t width = static_cast<int64_t>(gate_up.size());
  gate_up.insert(gate_up.end(), width, 1.0f);
  for (const auto& ops : AllCpuOps()) {
    OpOutput out(width);
    ops->Activate({gate_up.data(), out.data(), 1, width, Activation::kSilu});
    for (int64_t i = 0; i < width; ++i) {
      const double x = gate_up[i];
      const double expected = x / (1 + std::exp(-x));
      const std::string what = fmt::format("{}: silu({}) = {}", ops->Name(), x, out.data()[i]);
      if (std::isnan(x) || std::isinf(x)) {
        EXPECT_EQ(std::isnan(out.data()[i]), std::isnan(x)) << what;
      } else {
        EXPECT_NEAR(out.data()[i], expected, 2e-7 * std::abs(expected) + 1e-35) << what;
      }
    }
  }
}

std::vector<float> RunActivate(Ops& ops, Activation activation, bool gated,
                               const std::vector<float>& in, int64_t num_tokens, float limit = 7) {
  const int64_t width = std::ssize(in) / num_tokens / (gated ? 2 : 1);
  OpOutput out(num_tokens * width);
  ops.Activate({in.data(), out.data(), num_tokens, width, activation, gated, limit});
  EXPECT_TRUE(out.GuardsIntact());
  return out.values();
}

TEST(ActivateTest, ByHand) {
  auto all = AllCpuOps();
  all.push_back(MakeNaiveOps());
  struct Case {
    Activation activation;
    bool gated;
    std::vector<float> in, out;
  };
  const Case kCases[] = {
      {Activation::kRelu2, false, {-3, 0, 0.5f, 4}, {0, 0, 0.25f, 16}},
      {Activation::kRelu2, true, {-3, 4, 5, 6}, {0, 96}},
      // Phi(1) = 0.8413447461, Phi(-5) = 2.866515719e-7, Phi(-10) = 7.619853024e-24
      {Activation::kGelu,
       false,
       {0, 1, -1, -5},
       {0, 0.8413447461f, -0.1586552539f, -1.4332578594e-6f}},
      {Activation::kGelu, true, {-10, 10, 2, 3}, {-1.5239706048e-22f, 30}},
      // sigmoid(1) = 0.7310585786
      {Activation::kSilu, false, {1, -1}, {0.7310585786f, -0.2689414214f}},
      // gate 10 -> 7 with sigmoid(11.9) = 0.999993210, up -9 -> -7, + 1; gate -10 stays, with
      // sigmoid(-17.02) = 4.057938e-8, up 9 -> 7, + 1; gate 0.5 has sigmoid(0.851) = 0.700783,
      // up 0.25
      {Activation::kClampedSwiglu,
       true,
       {10, -10, 0.5f, -9, 9, 0.25f},
       {-41.9997148f, -3.24636904e-06f, 0.437985546f}},
  };
  for (const auto& ops : all) {
    for (const Case& c : kCases) {
      const auto out = RunActivate(*ops, c.activation, c.gated, c.in, 1);
      ASSERT_EQ(out.size(), c.out.size());
      for (size_t i = 0; i < out.size(); ++i) {
        EXPECT_NEAR(out[i], c.out[i], 1e-6 * std::abs(c.out[i]))
            << ops->Name() << " " << static_cast<int>(c.activation) << " " << i;
      }
    }
  }
}

constexpr Activation kAll[] = {Activation::kSilu, Activation::kGelu, Activation::kGeluTanh,
                               Activation::kRelu2, Activation::kClampedSwiglu};

TEST(ActivateTest, EveryOptionAgreesWithOracleAndAlone) {
  const auto oracle = MakeNaiveOps();
  const int64_t num_tokens = 7;
  for (const auto& ops : AllCpuOps()) {
    for (const Activation activation : kAll) {
      for (const bool gated : {false, true}) {
        for (const int64_t width : {1, 5, 17, 40, 1000}) {
          const int64_t row = width * (gated ? 2 : 1);
          const auto in = RandomFloats(num_tokens * row, 50, 4.0);
          const auto out = RunActivate(*ops, activation, gated, in, num_tokens, 3);
          const auto expected = RunActivate(*oracle, activation, gated, in, num_tokens, 3);
          const auto name =
              fmt::format("{} {} {} {}", ops->Name(), static_cast<int>(activation), gated, width);
          ExpectClose(
              out, expected,
              [&](size_t i) {
                const double gate = std::abs(in[i / width * row + i % width]);
                const double argument = activation == Activation::kGelu ? 0
                                        : activation == Activation::kGeluTanh
                                            ? gate + gate * gate * gate
                                            : 2 * gate;
                return (8 + 4 * argument) * kEpsilon * std::abs(expected[i]) + 1e-30;
              },
              name);
          const std::vector<float> token(in.begin() + 3 * row, in.begin() + 4 * row);
          ExpectSameBits(RunActivate(*ops, activation, gated, token, 1, 3),
                         {out.begin() + 3 * width, out.begin() + 4 * width}, name);
        }
      }
    }
  }
}

// The largest error over the whole range, as simd-inl.h states it, and beyond it 0.
TEST(ActivateTest, GeluIsExactToTheTails) {
  std::vector<float> x;
  for (float value = -13; value <= 13; value += 0.00037f) x.push_back(value);
  for (float value = 1e-30f; value < 1; value *= 1.7f) x.insert(x.end(), {value, -value});
  for (const auto& ops : AllCpuOps()) {
    const auto out = RunActivate(*ops, Activation::kGelu, false, x, 1);
    double largest = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      const double expected = 0.5 * x[i] * std::erfc(-x[i] / std::sqrt(2.0));
      if (std::abs(expected) > std::numeric_limits<float>::min()) {
        largest = std::max(largest, std::abs(out[i] / expected - 1));
      }
    }
    EXPECT_LT(largest, 6e-7) << ops->Name();
    const auto far = RunActivate(*ops, Activation::kGelu, false, {-14, -100, -1e30f, 14, 1e30f}, 1);
    EXPECT_EQ(far, std::vector<float>({0, 0, 0, 14, 1e30f})) << ops->Name();
  }
}

// Both branches, with a bend at `min`, and NaN; the same bits at every place of a row.
TEST(ActivateTest, XieluAgreesWithOracle) {
  const XieluParams xielu = {0.8f, 1.3f, 0.5f, -0.25f};
  std::vector<float> x = {0, -0.0f, std::numeric_limits<float>::quiet_NaN(), -200, 1e10f};
  for (float value = -9; value <= 4; value += 0.0137f) x.push_back(value);
  for (float value = 1e-30f; value < 1; value *= 3.1f) x.insert(x.end(), {value, -value});
  const int64_t width = std::ssize(x);
  const auto run = [&](Ops& ops, const float* in, int64_t count) {
    OpOutput out(count);
    ops.Activate({.gate_up = in,
                  .out = out.data(),
                  .num_tokens = 1,
                  .width = count,
                  .activation = Activation::kXielu,
                  .gated = false,
                  .xielu = xielu});
    EXPECT_TRUE(out.GuardsIntact());
    return out.values();
  };
  const auto expected = run(*MakeNaiveOps(), x.data(), width);
  EXPECT_NEAR(expected[0], 1.3 * std::expm1(-0.25), 1e-7);
  for (const auto& ops : AllCpuOps()) {
    const auto out = run(*ops, x.data(), width);
    for (size_t i = 0; i < x.size(); ++i) {
      if (std::isnan(x[i])) {
        EXPECT_TRUE(std::isnan(out[i]) && std::isnan(expected[i])) << ops->Name();
        continue;
      }
      // Beside 0 the linear part and the bend's distance cancel.
      EXPECT_NEAR(out[i], expected[i],
                  4e-7 * (std::abs(expected[i]) + std::min(1.0f, std::abs(x[i]))))
          << ops->Name() << " " << x[i];
      if (i % 50 == 0) ExpectSameBits(run(*ops, &x[i], 1), {out[i]}, ops->Name());
    }
  }
}

TEST(ActivateTest, NanIsNotHidden) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const auto& ops : AllCpuOps()) {
    for (const Activation activation : kAll) {
      for (const int64_t width : {1, 40}) {  // in the last elements, and in a vector
        std::vector<float> in(2 * width, 1.0f);
        in[0] = nan;
        EXPECT_TRUE(std::isnan(RunActivate(*ops, activation, false, in, 1)[0]));
        EXPECT_TRUE(std::isnan(RunActivate(*ops, activation, true, in, 1)[0]));
        std::swap(in[0], in[width]);
        EXPECT_TRUE(std::isnan(RunActivate(*ops, activation, true, in, 1)[0]));
      }
    }
  }
}

}  // namespace
}  // namespace minisgl::cpu
