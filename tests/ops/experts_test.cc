// Route, PackExperts, ExpertLinear, CombineExperts: against the oracle, against values computed by
// hand, and bit for bit over batches and threads.
#include <algorithm>

#include "op_check.h"

namespace minisgl::cpu {
namespace {

struct Routed {
  std::vector<int32_t> experts;
  std::vector<float> shares;
};

Routed RunRoute(Ops& ops, const std::vector<float>& logits, int32_t num_experts, int32_t num_chosen,
                const Routing& routing, const std::vector<float>& bias = {}) {
  const int64_t num_tokens = std::ssize(logits) / num_experts;
  OpOutput shares(num_tokens * num_chosen);
  std::vector<int32_t> experts(num_tokens * num_chosen, -1);
  ops.Route({.logits = logits.data(),
             .bias = bias.empty() ? nullptr : bias.data(),
             .experts = experts.data(),
             .shares = shares.data(),
             .num_tokens = num_tokens,
             .num_experts = num_experts,
             .num_chosen = num_chosen,
             .routing = routing});
  EXPECT_TRUE(shares.GuardsIntact());
  return {experts, shares.values()};
}

Routed RunRoute(Ops& ops, const std::vector<float>& logits, int32_t num_experts, int32_t num_chosen,
                bool over_chosen) {
  return RunRoute(ops, logits, num_experts, num_chosen, Routing{.renormalize = over_chosen});
}

TEST(RouteTest, ByHand) {
  // exp of these: 1, 2, 4, 1
  const float ln2 = 0.693147181f;
  const std::vector<float> logits = {0, ln2, 2 * ln2, 0};
  for (const auto& ops : OracleAndAllCpuOps()) {
    const auto chosen = RunRoute(*ops, logits, 4, 3, /*over_chosen=*/true);
    EXPECT_EQ(chosen.experts, std::vector<int32_t>({2, 1, 0})) << ops->Name();
    const auto all = RunRoute(*ops, logits, 4, 3, /*over_chosen=*/false);
    EXPECT_EQ(all.experts, chosen.experts) << ops->Name();
    for (int k = 0; k < 3; ++k) {
      EXPECT_FLOAT_EQ(chosen.shares[k], std::vector<float>({4, 2, 1})[k] / 7) << ops->Name();
      EXPECT_FLOAT_EQ(all.shares[k], std::vector<float>({4, 2, 1})[k] / 8) << ops->Name();
    }
  }
}

TEST(RouteTest, OfEqualsTheLowerNumberComesFirst) {
  for (const auto& ops : OracleAndAllCpuOps()) {
    EXPECT_EQ(RunRoute(*ops, {1, 3, 2, 3, 3, 2}, 6, 5, true).experts,
              std::vector<int32_t>({1, 3, 4, 2, 5}));
    EXPECT_EQ(RunRoute(*ops, {0.0f, -0.0f, 0.0f}, 3, 3, true).experts,
              std::vector<int32_t>({0, 1, 2}));
    const float inf = std::numeric_limits<float>::infinity();
    EXPECT_EQ(RunRoute(*ops, {-inf, -inf, -1e30f}, 3, 2, true).experts,
              std::vector<int32_t>({2, 0}));
  }
}

TEST(RouteTest, AgreesWithOracle) {
  const auto oracle = MakeNaiveOps();
  for (const auto& ops : AllCpuOps()) {
    for (const int32_t num_experts : {1, 2, 20, 128, 513}) {
      for (const int32_t num_chosen : {1, 2, 8, 20}) {
        if (num_chosen > num_experts) continue;
        for (const int64_t num_tokens : {1, 5, 40}) {
          auto logits = RandomFloats(num_tokens * num_experts, 70, 3);
          // Half of them are one of a few values, so that many are equal.
          for (size_t i = 0; i < logits.size() / 2; ++i) logits[i] = std::round(logits[i]);
          for (const bool over_chosen : {false, true}) {
            const auto actual = RunRoute(*ops, logits, num_experts, num_chosen, over_chosen);
            const auto expected = RunRoute(*oracle, logits, num_experts, num_chosen, over_chosen);
            const auto name = fmt::format("{} {} of {}", ops->Name(), num_chosen, num_experts);
            ASSERT_EQ(actual.experts, expected.experts) << name;
            ExpectClose(
                actual.shares, expected.shares,
                [&](size_t i) { return 4 * kEpsilon * expected.shares[i]; }, name);
          }
        }
      }
    }
  }
}

// NaN is not hidden, and ids are distinct and in range.
TEST(RouteTest, NanMakesTheTokensSharesNan) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const auto& ops : OracleAndAllCpuOps()) {
    for (const float value : {nan, -nan}) {
      for (const bool over_chosen : {false, true}) {
        const auto out = RunRoute(*ops, {5, value, 7, value, value, 1, 2, 3}, 4, 2, over_chosen);
        EXPECT_EQ(out.experts, std::vector<int32_t>({1, 3, 0, 3})) << ops->Name();
        EXPECT_TRUE(std::isnan(out.shares[0]) && std::isnan(out.shares[1])) << ops->Name();
      }
    }
  }
}

// The logit whose sigmoid is `score`.
float Logit(double score) { return static_cast<float>(std::log(score / (1 - score))); }

void ExpectShares(const Routed& actual, const std::vector<int32_t>& experts,
                  const std::vector<float>& shares, const std::string& what) {
  EXPECT_EQ(actual.experts, experts) << what;
  ExpectClose(
      actual.shares, shares, [&](size_t i) { return 4 * kEpsilon * shares[i]; }, what);
}

TEST(RouteByValueTest, BiasChangesTheChoiceOnly) {
  const std::vector<float> logits = {Logit(0.5), Logit(0.75), Logit(0.25), Logit(0.125)};
  const std::vector<float> bias = {0, -1, 0.5f, 0};  // values 0.5, -0.25, 0.75, 0.125
  for (const auto& ops : OracleAndAllCpuOps()) {
    Routing routing = {.score = RouteScore::kSigmoid};
    ExpectShares(RunRoute(*ops, logits, 4, 2, routing), {1, 0}, {0.75f, 0.5f}, ops->Name());
    ExpectShares(RunRoute(*ops, logits, 4, 2, routing, bias), {2, 0}, {0.25f, 0.5f}, ops->Name());
    routing.renormalize = true;
    routing.factor = 3;
    ExpectShares(RunRoute(*ops, logits, 4, 2, routing, bias), {2, 0}, {1, 2}, ops->Name());
    routing.sum_eps = 0.25f;
    ExpectShares(RunRoute(*ops, logits, 4, 2, routing, bias), {2, 0}, {0.75f, 1.5f}, ops->Name());
  }
}

TEST(RouteByValueTest, SoftmaxTakesABiasAndAFactor) {
  const float ln2 = 0.693147181f;
  const std::vector<float> logits = {0, ln2, 2 * ln2, 0};   // shares 1, 2, 4, 1 of 8
  const std::vector<float> bias = {0.3f, 0, -0.25f, 0.5f};  // values 0.425, 0.25, 0.25, 0.625
  for (const auto& ops : OracleAndAllCpuOps()) {
    Routing routing = {.factor = 2};
    ExpectShares(RunRoute(*ops, logits, 4, 3, routing, bias), {3, 0, 1}, {0.25f, 0.25f, 0.5f},
                 ops->Name());
    routing.renormalize = true;
    ExpectShares(RunRoute(*ops, logits, 4, 3, routing, bias), {3, 0, 1}, {0.5f, 0.5f, 1},
                 ops->Name());
    routing.sum_min = 0.25f;  // less than the sum, 0.5
    ExpectShares(RunRoute(*ops, logits, 4, 3, routing, bias), {3, 0, 1}, {0.5f, 0.5f, 1},
                 ops->Name());
    routing.sum_min = 1;
    ExpectShares(RunRoute(*ops, logits, 4, 3, routing, bias), {3, 0, 1}, {0.25f, 0.25f, 0.5f},
                 ops->Name());
    // A choice whose scores are all 0.
    routing.sum_min = 1e-12f;
    ExpectShares(RunRoute(*ops, {0, 0, -1e30f, -1e30f}, 4, 2, routing, {0, 0, 2, 2}), {2, 3},
                 {0, 0}, ops->Name());
  }
}

// Groups {0, 1, 2} and {3, 4, 5}. The best expert is 0, and the sum of two is larger in the second.
TEST(RouteByValueTest, AGroupWithoutTheBestExpertMayBeChosen) {
  const std::vector<float> logits = {Logit(0.9), Logit(0.1), Logit(0.2),
                                     Logit(0.5), Logit(0.7), Logit(0.6)};
  for (const auto& ops : OracleAndAllCpuOps()) {
    Routing routing = {.score = RouteScore::kSigmoid, .num_groups = 2, .best_of_group = 2};
    ExpectShares(RunRoute(*ops, logits, 6, 2, routing), {4, 5}, {0.7f, 0.6f}, ops->Name());
    ExpectShares(RunRoute(*ops, logits, 6, 3, routing), {4, 5, 3}, {0.7f, 0.6f, 0.5f}, ops->Name());
    routing.best_of_group = 1;
    ExpectShares(RunRoute(*ops, logits, 6, 2, routing), {0, 2}, {0.9f, 0.2f}, ops->Name());
    routing.num_chosen_groups = 2;
    ExpectShares(RunRoute(*ops, logits, 6, 2, routing), {0, 4}, {0.9f, 0.7f}, ops->Name());
    // The bias decides about groups too.
    routing.num_chosen_groups = 1;
    ExpectShares(RunRoute(*ops, logits, 6, 2, routing, {0, 0, 0, 0, 0, 1}), {5, 4}, {0.6f, 0.7f},
                 ops->Name());
  }
}

TEST(RouteByValueTest, OfEqualsTheLowerNumberComesFirst) {
  const Routing routing = {.score = RouteScore::kSigmoid,
                           .renormalize = true,
                           .num_groups = 3,
                           .num_chosen_groups = 2,
                           .best_of_group = 2};
  for (const auto& ops : OracleAndAllCpuOps()) {
    // Equal groups, and values that are equal although logits differ: sigmoids round to 1.
    EXPECT_EQ(RunRoute(*ops, {1, 2, 1, 2, 1, 2}, 6, 4, routing).experts,
              std::vector<int32_t>({1, 3, 0, 2}));
    EXPECT_EQ(RunRoute(*ops, {30, 40, 50, 20, 60, 35}, 6, 3, routing).experts,
              std::vector<int32_t>({0, 1, 2}));
    EXPECT_EQ(RunRoute(*ops, {0, 0, 0, 0, 0, 0}, 6, 2, routing, {0, 0, 1, 1, 1, 1}).experts,
              std::vector<int32_t>({2, 3}));
  }
}

// Logits and biases of any size give finite shares, and distinct experts of chosen groups.
TEST(RouteByValueTest, ExtremesGiveNumbers) {
  const float inf = std::numeric_limits<float>::infinity();
  const Routing routing = {.score = RouteScore::kSigmoid,
                           .renormalize = true,
                           .num_groups = 2,
                           .best_of_group = 2,
                           .factor = 2.5f,
                           .sum_eps = 1e-20f};
  for (const auto& ops : OracleAndAllCpuOps()) {
    ExpectShares(RunRoute(*ops, {-1e30f, -1e30f, -inf, -inf}, 4, 2, routing), {0, 1}, {0, 0},
                 ops->Name());
    ExpectShares(RunRoute(*ops, {1e30f, -1e30f, inf, 0}, 4, 2, routing), {2, 3},
                 {2.5f / 1.5f, 2.5f / 3}, ops->Name());
    ExpectShares(RunRoute(*ops, {0, 0, 0, 0}, 4, 2, routing, {-3e38f, -inf, -1e30f, -1e30f}),
                 {2, 3}, {1.25f, 1.25f}, ops->Name());
  }
}

TEST(RouteByValueTest, NanIsNotHidden) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const auto& ops : OracleAndAllCpuOps()) {
    for (const RouteScore score : {RouteScore::kSoftmax, RouteScore::kSigmoid}) {
      for (const int32_t best : {1, 2}) {
        const Routing routing = {
            .score = score, .renormalize = true, .num_groups = 2, .best_of_group = best};
        const auto out = RunRoute(*ops, {5, 6, 7, 1, nan, 2}, 6, 2, routing);
        if (score == RouteScore::kSigmoid) {
          EXPECT_EQ(out.experts, std::vector<int32_t>({4, 5})) << ops->Name();
        }
        EXPECT_TRUE(std::isnan(out.shares[0]) && std::isnan(out.shares[1])) << ops->Name();
      }
    }
  }
}

TEST(RouteByValueTest, AgreesWithOracle) {
  struct Case {
    int32_t num_experts, num_chosen, num_groups, num_chosen_groups;
  };
  const auto oracle = MakeNaiveOps();
  for (const auto& ops : AllCpuOps()) {
    for (const Case& c : {Case{8, 2, 1, 1},
                          {8, 3, 4, 2},
                          {128, 8, 8, 4},
                          {160, 6, 8, 3},
                          {64, 16, 8, 8},
                          {512, 10, 32, 5}}) {
      for (int variant = 0; variant < 16; ++variant) {
        const Routing routing = {
            .score = variant % 2 == 0 ? RouteScore::kSigmoid : RouteScore::kSoftmax,
            .renormalize = variant / 2 % 2 == 0,
            .num_groups = c.num_groups,
            .num_chosen_groups = c.num_chosen_groups,
            .best_of_group = c.num_experts / c.num_groups > 1 ? 1 + variant / 4 % 2 : 1,
            .factor = 1.5f};
        auto logits = RandomFloats(int64_t{9} * c.num_experts, 71, 3);
        for (size_t i = 0; i < logits.size() / 2; ++i) logits[i] = std::round(logits[i]);
        auto bias = RandomFloats(c.num_experts, 72, 0.5);
        if (variant / 8 == 0) bias.clear();
        const auto actual = RunRoute(*ops, logits, c.num_experts, c.num_chosen, routing, bias);
        const auto expected = RunRoute(*oracle, logits, c.num_experts, c.num_chosen, routing, bias);
        ExpectShares(actual, expected.experts, expected.shares,
                     fmt::format("{} {} of {} variant {}", ops->Name(), c.num_chosen, c.num_experts,
                                 variant));
      }
    }
  }
}

// --- matrices ------------------------------------------------------------------------------------

struct ExpertShape {
  int64_t num_experts, num_out, num_in;
};
constexpr ExpertShape kExpertShapes[] = {
    {1, 1, 1}, {20, 5, 17}, {20, 40, 5}, {7, 130, 40}, {20, 100, 257}};

std::vector<TensorView> Views(const std::vector<float>& weights, const ExpertShape& s) {
  std::vector<TensorView> views;
  for (int64_t e = 0; e < s.num_experts; ++e) {
    views.push_back({reinterpret_cast<const std::byte*>(weights.data() + e * s.num_out * s.num_in),
                     DType::kF32,
                     {s.num_out, s.num_in}});
  }
  return views;
}

ExpertMatrices PackAll(Ops& ops, const std::vector<float>& weights, const ExpertShape& s,
                       const WeightFormat& format) {
  std::vector<std::vector<WeightTensor>> experts;
  for (const TensorView& view : Views(weights, s)) experts.push_back({view});
  auto packed = ops.PackExperts(experts, format);
  MINISGL_CHECK(packed.ok(), "{}", packed.status().message());
  EXPECT_EQ(packed->num_experts, s.num_experts);
  EXPECT_EQ(packed->num_out, s.num_out);
  EXPECT_EQ(packed->num_in, s.num_in);
  EXPECT_EQ(WeightFormat(packed->dtype, packed->quantization), format);
  return std::move(packed).value();
}

// Tokens and their choices; x has a row for each token, or for each choice.
struct Batch {
  std::vector<float> x;
  std::vector<int32_t> experts;
  int32_t num_chosen;
  bool x_per_choice;

  int64_t num_tokens() const { return std::ssize(experts) / num_chosen; }
  // Tokens [begin, begin + count) alone.
  Batch Part(int64_t begin, int64_t count) const {
    const int64_t row = std::ssize(x) / num_tokens();
    return {{x.begin() + begin * row, x.begin() + (begin + count) * row},
            {experts.begin() + begin * num_chosen, experts.begin() + (begin + count) * num_chosen},
            num_chosen,
            x_per_choice};
  }
};

// Each token's experts differ. `favourite`: one that every token chooses.
Batch MakeBatch(const ExpertShape& s, int64_t num_tokens, int32_t num_chosen, bool x_per_choice,
                bool has_favourite) {
  Batch batch = {RandomFloats(num_tokens * (x_per_choice ? num_chosen : 1) * s.num_in, 71),
                 {},
                 num_chosen,
                 x_per_choice};
  std::mt19937_64 random(72);
  for (int64_t t = 0; t < num_tokens; ++t) {
    std::vector<int32_t> order;
    for (int32_t e = 0; e < s.num_experts; ++e) order.push_back(e);
    std::shuffle(order.begin(), order.end(), random);
    if (has_favourite) std::swap(order[0], *std::find(order.begin(), order.end(), 0));
    batch.experts.insert(batch.experts.end(), order.begin(), order.begin() + num_chosen);
  }
  return batch;
}

std::vector<float> RunExpertLinear(Ops& ops, const ExpertMatrices& weights, const Batch& batch,
                                   const float* bias) {
  OpOutput out(std::ssize(batch.experts) * weights.num_out);
  ops.ExpertLinear({batch.x.data(), &weights, bias, batch.experts.data(), out.data(),
                    batch.num_tokens(), batch.num_chosen, batch.x_per_choice});
  EXPECT_TRUE(out.GuardsIntact());
  return out.values();
}

TEST(ExpertLinearTest, ByHand) {
  const ExpertShape s = {3, 2, 2};
  const std::vector<float> w = {1, 2, 3, 4, 10, 20, 30, 40, 100, 200, 300, 400};
  const std::vector<float> bias = {0.5f, 1.5f, 2.5f, 3.5f, 4.5f, 5.5f};
  for (const auto& ops : OracleAndAllCpuOps()) {
    const ExpertMatrices weights = PackAll(*ops, w, s, DType::kF32);
    // Two tokens of two choices: experts 2 and 0, then 0 and 1.
    const Batch shared_x = {{1, 1, 2, -1}, {2, 0, 0, 1}, 2, false};
    EXPECT_EQ(RunExpertLinear(*ops, weights, shared_x, nullptr),
              std::vector<float>({300, 700, 3, 7, 0, 2, 0, 20}))
        << ops->Name();
    EXPECT_EQ(RunExpertLinear(*ops, weights, shared_x, bias.data()),
              std::vector<float>({304.5f, 705.5f, 3.5f, 8.5f, 0.5f, 3.5f, 2.5f, 23.5f}))
        << ops->Name();
    const Batch own_x = {{1, 0, 0, 1, 1, 1, 1, 2}, {2, 0, 0, 1}, 2, true};
    EXPECT_EQ(RunExpertLinear(*ops, weights, own_x, nullptr),
              std::vector<float>({100, 300, 2, 4, 3, 7, 50, 110}))
        << ops->Name();
  }
}

TEST(ExpertLinearTest, AgreesWithOracle) {
  const auto oracle = MakeNaiveOps();
  for (const ExpertShape& s : kExpertShapes) {
    const auto w = RandomFloats(s.num_experts * s.num_out * s.num_in, 73);
    const auto bias = RandomFloats(s.num_experts * s.num_out, 74);
    for (const WeightFormat& format : kWeightFormats) {
      const ExpertMatrices exact = PackAll(*oracle, w, s, format);
      const ExpertMatrices magnitude = PackAll(*oracle, Absolute(w), s, format);
      for (const int64_t num_tokens : {1, 3, 40}) {
        const bool per_choice = num_tokens == 3;
        const auto num_chosen = static_cast<int32_t>(std::min<int64_t>(6, s.num_experts));
        Batch batch = MakeBatch(s, num_tokens, num_chosen, per_choice, num_tokens == 40);
        const float* b = num_tokens == 1 ? nullptr : bias.data();
        Batch sizes = batch;
        sizes.x = Absolute(batch.x);
        const auto bounds = RunExpertLinear(*oracle, magnitude, sizes,
                                            b == nullptr ? nullptr : Absolute(bias).data());
        for (const auto& ops : AllCpuOps()) {
          const double roundings = RoundingsOf(format, s.num_in);
          batch.x = AsRead(*ops, format, batch.x);
          const auto expected = RunExpertLinear(*oracle, exact, batch, b);
          ExpectClose(
              RunExpertLinear(*ops, PackAll(*ops, w, s, format), batch, b), expected,
              [&](size_t i) { return roundings * kEpsilon * bounds[i]; },
              fmt::format("{} {} [{}, {}, {}] tokens {}", ops->Name(), format.Name(), s.num_experts,
                          s.num_out, s.num_in, num_tokens));
        }
      }
    }
  }
}

// A pair's result equals Linear with its expert's matrix, for any other tokens that chose the
// expert and any number of threads.
TEST(ExpertLinearTest, APairHasTheBitsOfLinearAlone) {
  const ExpertShape s = {5, 150, 300};
  const auto w = RandomFloats(s.num_experts * s.num_out * s.num_in, 75);
  const auto bias = RandomFloats(s.num_experts * s.num_out, 76);
  // All 400 tokens choose the favourite: several chunks of rows.
  const Batch batch = MakeBatch(s, 400, 3, false, true);
  for (CpuTarget target : AvailableCpuTargets()) {
    const auto one = MakeOps(CpuTargetName(target), 1), two = MakeOps(CpuTargetName(target), 2);
    for (const WeightFormat& format : kWeightFormats) {
      const ExpertMatrices weights = PackAll(*one, w, s, format);
      const auto all = RunExpertLinear(*one, weights, batch, bias.data());
      ExpectSameBits(RunExpertLinear(*two, weights, batch, bias.data()), all, "two threads");
      for (const int64_t count : {1, 2, 7, 64}) {
        ExpectSameBits(RunExpertLinear(*two, weights, batch.Part(9, count), bias.data()),
                       {all.begin() + 9 * 3 * s.num_out, all.begin() + (9 + count) * 3 * s.num_out},
                       fmt::format("{} {}", one->Name(), count));
      }
      const auto views = Views(w, s);
      for (const int64_t pair : {0, 1, 500, 1199}) {
        const int64_t expert = batch.experts[pair];
        const auto matrix = one->PackMatrix({&views[expert], 1}, format);
        ASSERT_TRUE(matrix.ok());
        OpOutput out(s.num_out);
        one->Linear({batch.x.data() + pair / 3 * s.num_in, &*matrix,
                     bias.data() + expert * s.num_out, out.data(), 1});
        ExpectSameBits(out.values(),
                       {all.begin() + pair * s.num_out, all.begin() + (pair + 1) * s.num_out},
                       one->Name());
      }
    }
  }
}

TEST(ExpertLinearTest, PartsOfAnExpertAreStackedInOrder) {
  const auto a = RandomFloats(5 * 10, 77), b = RandomFloats(20 * 10, 78);
  const std::vector<std::vector<WeightTensor>> experts = {{View(a, 5, 10), View(b, 20, 10)},
                                                          {View(b, 20, 10), View(a, 5, 10)}};
  const Batch batch = {RandomFloats(10, 79), {0, 1}, 2, false};
  for (const auto& ops : OracleAndAllCpuOps()) {
    const auto packed = ops->PackExperts(experts, DType::kBF16);
    ASSERT_TRUE(packed.ok());
    EXPECT_EQ(packed->num_out, 25);
    const auto out = RunExpertLinear(*ops, *packed, batch, nullptr);
    ExpectSameBits({out.begin(), out.begin() + 5}, {out.begin() + 45, out.end()}, ops->Name());
    ExpectSameBits({out.begin() + 5, out.begin() + 25}, {out.begin() + 25, out.begin() + 45},
                   ops->Name());
  }
}

TEST(ExpertLinearTest, NoTokensAreNoWork) {
  const ExpertShape s = {20, 5, 17};
  const auto w = RandomFloats(20 * 5 * 17, 80);
  for (const auto& ops : OracleAndAllCpuOps()) {
    const ExpertMatrices weights = PackAll(*ops, w, s, DType::kF32);
    ops->ExpertLinear({nullptr, &weights, nullptr, nullptr, nullptr, 0, 4, false});
    ops->CombineExperts({nullptr, nullptr, nullptr, nullptr, nullptr, 0, 5, 4});
    ops->Route({nullptr, nullptr, nullptr, nullptr, 0, 20, 4, {}});
  }
}

// --- the sum -------------------------------------------------------------------------------------

struct Combined {
  std::vector<float> x, shares, shared, gate;
  int32_t num_chosen;
};

std::vector<float> RunCombine(Ops& ops, const Combined& c, bool in_place = false) {
  const int64_t num_tokens = std::ssize(c.shares) / c.num_chosen;
  const int64_t width = std::ssize(c.x) / std::ssize(c.shares);
  std::vector<float> out = in_place ? c.shared : std::vector<float>(num_tokens * width, -77.0f);
  const float* shared = c.shared.empty() ? nullptr : in_place ? out.data() : c.shared.data();
  ops.CombineExperts({c.x.data(), c.shares.data(), shared, c.gate.empty() ? nullptr : c.gate.data(),
                      out.data(), num_tokens, width, c.num_chosen});
  return out;
}

TEST(CombineExpertsTest, ByHand) {
  for (const auto& ops : OracleAndAllCpuOps()) {
    // Two tokens of two choices and three features.
    Combined c = {{1, 2, 3, 10, 20, 30, 4, 5, 6, 40, 50, 60}, {0.5f, 0.25f, 2, -1}, {}, {}, 2};
    EXPECT_EQ(RunCombine(*ops, c), std::vector<float>({3, 6, 9, -32, -40, -48})) << ops->Name();
    c.shared = {1, 1, 1, 2, 2, 4};
    EXPECT_EQ(RunCombine(*ops, c), std::vector<float>({4, 7, 10, -30, -38, -44})) << ops->Name();
    // sigmoid(0) = 1 / 2, sigmoid(200) = 1
    c.gate = {0, 200};
    for (const bool in_place : {false, true}) {
      EXPECT_EQ(RunCombine(*ops, c, in_place),
                std::vector<float>({3.5f, 6.5f, 9.5f, -30, -38, -44}))
          << ops->Name();
    }
    c.gate = {0, std::numeric_limits<float>::quiet_NaN()};
    const auto out = RunCombine(*ops, c);
    EXPECT_EQ(out[2], 9.5f) << ops->Name();
    for (int i = 3; i < 6; ++i) EXPECT_TRUE(std::isnan(out[i])) << ops->Name();
  }
}

TEST(CombineExpertsTest, AgreesWithOracleAndAlone) {
  const auto oracle = MakeNaiveOps();
  for (const auto& ops : AllCpuOps()) {
    for (const int64_t width : {1, 5, 17, 40, 1000}) {
      for (const int32_t num_chosen : {1, 4, 8}) {
        for (const int variant : {0, 1, 2}) {
          const int64_t num_tokens = 19;
          Combined c = {RandomFloats(num_tokens * num_chosen * width, 81),
                        RandomFloats(num_tokens * num_chosen, 82),
                        {},
                        {},
                        num_chosen};
          if (variant > 0) c.shared = RandomFloats(num_tokens * width, 83);
          if (variant > 1) c.gate = RandomFloats(num_tokens, 84, 2);
          const auto out = RunCombine(*ops, c);
          const auto name = fmt::format("{} {} {} {}", ops->Name(), width, num_chosen, variant);
          // Terms of a few units each.
          ExpectClose(
              out, RunCombine(*oracle, c),
              [&](size_t) { return (num_chosen + 4) * kEpsilon * 16 * (num_chosen + 1); }, name);
          if (variant > 0) ExpectSameBits(RunCombine(*ops, c, /*in_place=*/true), out, name);
          const int64_t t = 11, row = num_chosen * width;
          Combined alone = {
              {c.x.begin() + t * row, c.x.begin() + (t + 1) * row},
              {c.shares.begin() + t * num_chosen, c.shares.begin() + (t + 1) * num_chosen},
              {},
              {},
              num_chosen};
          if (variant > 0) {
            alone.shared.assign(c.shared.begin() + t * width, c.shared.begin() + (t + 1) * width);
          }
          if (variant > 1) alone.gate = {c.gate[t]};
          ExpectSameBits(RunCombine(*ops, alone),
                         {out.begin() + t * width, out.begin() + (t + 1) * width}, name);
        }
      }
    }
  }
}

}  // namespace
}  // namespace minisgl::cpu
