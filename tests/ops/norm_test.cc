// Norm: every kind and option against the oracle, and both against values computed by hand.
#include "op_check.h"

namespace minisgl::cpu {
namespace {

struct Inputs {
  bool has_x, has_residual;
};

TEST(RmsNormTest, AgreesWithOracle) {
  const auto oracle = MakeNaiveOps();
  for (const auto& ops : AllCpuOps()) {
    for (int64_t width : kWidths) {
      for (int64_t num_tokens : kTokenCounts) {
        for (const Inputs& c : {Inputs{true, false}, {true, true}, {false, true}}) {
          const int64_t count = num_tokens * width;
          const auto x = RandomFloats(count, 5), weight = RandomFloats(width, 6);
          const auto before = RandomFloats(count, 7);
          auto residual = before, expected_residual = before;
          OpOutput out(count), expected(count);
          const float* input = c.has_x ? x.data() : nullptr;
          ops->Norm({input, c.has_residual ? residual.data() : nullptr, weight.data(), out.data(),
                     num_tokens, width, 1e-5f});
          oracle->Norm({input, c.has_residual ? expected_residual.data() : nullptr, weight.data(),
                        expected.data(), num_tokens, width, 1e-5f});
          const auto name = fmt::format("{} [{}, {}]", ops->Name(), num_tokens, width);
          ExpectSameBits(residual, expected_residual, name);
          // A vector sums at most 256 squares in f32, all of one sign; the root halves their error.
          ExpectClose(
              out.values(), expected.values(),
              [&](size_t i) {
                return (4 + std::min<double>(256, width) / 2) * kEpsilon *
                       std::abs(expected.data()[i]);
              },
              name);
          EXPECT_TRUE(out.GuardsIntact());
        }
      }
    }
  }
}

TEST(RmsNormTest, WorksInPlace) {
  const auto x = RandomFloats(3 * 40, 8), weight = RandomFloats(40, 9);
  for (const auto& ops : AllCpuOps()) {
    OpOutput out(3 * 40);
    ops->Norm({x.data(), nullptr, weight.data(), out.data(), 3, 40, 1e-6f});
    auto in_place = x;
    ops->Norm({in_place.data(), nullptr, weight.data(), in_place.data(), 3, 40, 1e-6f});
    ExpectSameBits(in_place, out.values(), ops->Name());
  }
}

// The results of Norm: `out` and the residual.
struct Normed {
  std::vector<float> out, residual;
};

// Sets the pointers of `params`; x and out are the same array if `in_place`.
Normed RunNorm(Ops& ops, NormParams params, const std::vector<float>& x,
               const std::vector<float>& residual, bool in_place = false) {
  Normed result = {in_place ? x : std::vector<float>(x.size(), -77.0f), residual};
  params.x = x.empty() ? nullptr : in_place ? result.out.data() : x.data();
  params.residual = residual.empty() ? nullptr : result.residual.data();
  if (x.empty()) result.out.resize(residual.size());
  params.out = result.out.data();
  ops.Norm(params);
  return result;
}

TEST(NormTest, LayerNormByHand) {
  // Mean 3, distances -2 -1 0 3, variance 14 / 4; with eps 0.5 the root is 2.
  const std::vector<float> x = {1, 2, 3, 6}, weight = {1, 2, 3, 4}, bias = {10, 20, 30, 40};
  for (const auto& ops : OracleAndAllCpuOps()) {
    NormParams p = {.weight = weight.data(), .num_tokens = 1, .width = 4, .eps = 0.5f};
    p.kind = NormKind::kLayer;
    EXPECT_EQ(RunNorm(*ops, p, x, {}).out, std::vector<float>({-1, -1, 0, 6})) << ops->Name();
    p.bias = bias.data();
    EXPECT_EQ(RunNorm(*ops, p, x, {}).out, std::vector<float>({9, 19, 30, 46})) << ops->Name();
    // Groups of two: 1 2 has mean 1.5 and variance 0.25, 3 6 has 4.5 and 2.25; eps 0.
    p.group_width = 2;
    p.eps = 0;
    EXPECT_EQ(RunNorm(*ops, p, x, {}).out, std::vector<float>({9, 22, 27, 44})) << ops->Name();
  }
}

TEST(NormTest, RmsNormWithGroupsAndBiasByHand) {
  const std::vector<float> x = {2, -2, 8, 8}, weight = {1, 2, 3, 4}, bias = {10, 20, 30, 40};
  for (const auto& ops : OracleAndAllCpuOps()) {
    NormParams p = {.weight = weight.data(), .num_tokens = 1, .width = 4, .eps = 0};
    p.group_width = 2;
    EXPECT_EQ(RunNorm(*ops, p, x, {}).out, std::vector<float>({1, -2, 3, 4})) << ops->Name();
    p.bias = bias.data();
    EXPECT_EQ(RunNorm(*ops, p, x, {}).out, std::vector<float>({11, 18, 33, 44})) << ops->Name();
  }
}

TEST(NormTest, ResidualAndScaleByHand) {
  const std::vector<float> x = {4, -8}, residual = {1, 6}, weight = {1, 1};
  for (const auto& ops : OracleAndAllCpuOps()) {
    NormParams p = {.weight = nullptr, .num_tokens = 1, .width = 2, .eps = 0, .x_scale = 0.25f};
    const Normed sums = RunNorm(*ops, p, x, residual);
    EXPECT_EQ(sums.residual, std::vector<float>({2, 4})) << ops->Name();
    EXPECT_EQ(sums.out, std::vector<float>({2, 4})) << ops->Name();  // no weight: not normalised
    EXPECT_EQ(RunNorm(*ops, p, {}, residual).out, residual) << ops->Name();
    EXPECT_EQ(RunNorm(*ops, p, x, {}).out, x) << ops->Name();
    std::vector<float> only = residual;
    ops->Norm({.x = x.data(),
               .residual = only.data(),
               .weight = weight.data(),
               .out = nullptr,
               .num_tokens = 1,
               .width = 2,
               .eps = 0,
               .x_scale = 0.25f});
    EXPECT_EQ(only, std::vector<float>({2, 4})) << ops->Name();
  }
}

TEST(NormTest, AStrideKeepsTheGapsBetweenRows) {
  const std::vector<float> x = {3, 3, 100, 5, -5, 200}, weight = {1, 2};
  for (const auto& ops : OracleAndAllCpuOps()) {
    NormParams p = {.weight = weight.data(), .num_tokens = 2, .width = 2, .eps = 0, .stride = 3};
    const std::vector<float> expected = {1, 2, 100, 1, -2, 200};
    EXPECT_EQ(RunNorm(*ops, p, x, {}, /*in_place=*/true).out, expected) << ops->Name();
    EXPECT_EQ(RunNorm(*ops, p, x, {}).out, std::vector<float>({1, 2, -77, 1, -2, -77}));
  }
}

struct NormCase {
  int64_t width, group_width, stride;
  double offset;  // of every feature from 0
};
constexpr NormCase kCases[] = {{1, 0, 0, 0},       {5, 0, 0, 100},    {5, 1, 7, 0},
                               {17, 0, 0, 0},      {40, 8, 0, 3},     {40, 20, 100, 0},
                               {1000, 0, 0, 1000}, {1000, 125, 0, 0}, {1000, 500, 1001, -20}};

// Every kind, with and without bias, residual and x_scale.
template <typename Body>
void ForEachNorm(const Body& body) {
  for (const NormCase& c : kCases) {
    for (const NormKind kind : {NormKind::kRms, NormKind::kLayer}) {
      for (const bool has_bias : {false, true}) {
        for (const bool has_residual : {false, true}) {
          if (has_residual && c.stride != 0) continue;
          body(c, kind, has_bias, has_residual);
        }
      }
    }
  }
}

TEST(NormTest, EveryOptionAgreesWithOracleAloneAndInPlace) {
  const auto oracle = MakeNaiveOps();
  for (const auto& ops : AllCpuOps()) {
    ForEachNorm([&](const NormCase& c, NormKind kind, bool has_bias, bool has_residual) {
      const int64_t num_tokens = 9, stride = c.stride == 0 ? c.width : c.stride;
      auto x = RandomFloats(num_tokens * stride, 40);
      for (float& value : x) value += static_cast<float>(c.offset);
      const auto residual = RandomFloats(has_residual ? num_tokens * c.width : 0, 41);
      const auto weight = RandomFloats(c.width, 42), bias = RandomFloats(c.width, 43);
      NormParams p = {.weight = weight.data(), .num_tokens = num_tokens, .width = c.width};
      p.eps = 1e-5f;
      p.kind = kind;
      p.bias = has_bias ? bias.data() : nullptr;
      p.x_scale = has_residual ? 0.22f : 1.0f;
      p.group_width = c.group_width;
      p.stride = c.stride;
      const Normed actual = RunNorm(*ops, p, x, residual);
      const auto name = fmt::format("{} {} [{} / {}] {} {}", ops->Name(), static_cast<int>(kind),
                                    c.width, c.group_width, has_bias, has_residual);
      const auto sums = RunNorm(*oracle, p, x, residual).residual;
      ExpectClose(
          actual.residual, sums, [&](size_t i) { return 2 * kEpsilon * (1 + std::abs(sums[i])); },
          name);
      // Normalises the sums that these operations computed: if a group's deviation is small against
      // its mean, a sum's last bit changes much more than a bit of the result.
      NormParams again = p;
      again.x_scale = 1;
      const Normed expected =
          has_residual ? RunNorm(*oracle, again, {}, actual.residual) : RunNorm(*oracle, p, x, {});
      const double roundings = 8 + std::min<double>(256, c.width) / 2;
      ExpectClose(
          actual.out, expected.out,
          [&](size_t i) {
            const size_t at = i % stride;
            if (at >= weight.size()) return 0.0;
            const double shift = has_bias ? bias[at] : 0;
            return roundings * kEpsilon *
                   (std::abs(expected.out[i] - shift) + std::abs(weight[at]) + std::abs(shift));
          },
          name);
      ExpectSameBits(RunNorm(*ops, p, x, residual, /*in_place=*/c.stride == 0).out, actual.out,
                     name);
      NormParams alone = p;
      alone.num_tokens = 1;
      const std::vector<float> token(x.begin() + 4 * stride, x.begin() + 5 * stride);
      std::vector<float> its_residual;
      if (has_residual) {
        its_residual.assign(residual.begin() + 4 * stride, residual.begin() + 5 * stride);
      }
      ExpectSameBits(RunNorm(*ops, alone, token, its_residual).out,
                     {actual.out.begin() + 4 * stride, actual.out.begin() + 5 * stride}, name);
    });
  }
}

// A mean that is 10^6 deviations from 0: a sum of squares minus the square of the mean would
// cancel.
TEST(NormTest, LayerNormOfFeaturesFarFromZero) {
  std::vector<float> x(1024), weight(1024, 1.0f);
  for (int i = 0; i < 1024; ++i) x[i] = 1e6f + static_cast<float>(i % 3 - 1);
  const auto oracle = MakeNaiveOps();
  for (const auto& ops : AllCpuOps()) {
    NormParams p = {.weight = weight.data(), .num_tokens = 1, .width = 1024, .eps = 1e-5f};
    p.kind = NormKind::kLayer;
    ExpectClose(
        RunNorm(*ops, p, x, {}).out, RunNorm(*oracle, p, x, {}).out, [](size_t) { return 2e-6; },
        ops->Name());
  }
}

}  // namespace
}  // namespace minisgl::cpu
