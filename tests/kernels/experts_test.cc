// Routing, the products of experts and their sum against the oracle: choices among equals and among
// NaN, tiles of both sizes and their edges, inputs of whole chunks and with a remainder, experts
// that no token chose; and a row's result does not depend on the other rows.
#include <numeric>
#include <utility>

#include "kernel_check.h"

namespace minisgl::cuda {
namespace {

struct RouteResult {
  std::vector<int32_t> experts;
  std::vector<float> shares;
};

class RouteTest : public ::testing::Test {
 protected:
  RouteResult Run(const std::vector<float>& logits, int32_t num_experts, int32_t num_chosen,
                  bool over_chosen) {
    return Run(logits, num_experts, num_chosen, Routing{.renormalize = over_chosen}, {});
  }
  RouteResult Run(const std::vector<float>& logits, int32_t num_experts, int32_t num_chosen,
                  const Routing& routing, const std::vector<float>& bias) {
    const DeviceInput input(DType::kF32, logits), device_bias(DType::kF32, bias);
    const int64_t num_tokens = std::ssize(logits) / num_experts;
    GuardedArray<int32_t> experts(static_cast<size_t>(num_tokens * num_chosen));
    DeviceOutput shares(DType::kF32, num_tokens * num_chosen);
    EXPECT_EQ(LaunchRoute(device_.context, {.logits = input.f32(),
                                            .bias = bias.empty() ? nullptr : device_bias.f32(),
                                            .experts = experts.data(),
                                            .shares = shares.f32(),
                                            .num_tokens = num_tokens,
                                            .num_experts = num_experts,
                                            .num_chosen = num_chosen,
                                            .routing = routing}),
              kCudaSuccess);
    EXPECT_TRUE(experts.GuardsIntact());
    EXPECT_TRUE(shares.GuardsIntact());
    return {experts.values(), shares.values()};
  }

  RouteResult Check(const std::vector<float>& logits, int32_t num_experts, int32_t num_chosen,
                    bool over_chosen) {
    return Check(logits, num_experts, num_chosen, Routing{.renormalize = over_chosen}, {},
                 over_chosen ? "over the chosen" : "over all");
  }
  RouteResult Check(const std::vector<float>& logits, int32_t num_experts, int32_t num_chosen,
                    const Routing& routing, const std::vector<float>& bias,
                    const std::string& what) {
    RouteResult result = Run(logits, num_experts, num_chosen, routing, bias);
    RouteResult expected = {std::vector<int32_t>(result.experts.size()),
                            std::vector<float>(result.shares.size())};
    MakeNaiveOps()->Route({.logits = logits.data(),
                           .bias = bias.empty() ? nullptr : bias.data(),
                           .experts = expected.experts.data(),
                           .shares = expected.shares.data(),
                           .num_tokens = std::ssize(logits) / num_experts,
                           .num_experts = num_experts,
                           .num_chosen = num_chosen,
                           .routing = routing});
    const std::string name =
        "X" + std::to_string(num_experts) + " K" + std::to_string(num_chosen) + " " + what;
    EXPECT_EQ(result.experts, expected.experts) << name;
    // An exponential's argument has the rounding of a difference of numbers up to about 16.
    ExpectWithin(
        result.shares, expected.shares,
        [&](size_t i) { return std::abs(expected.shares[i]) * 64 * 0x1.0p-24; }, name);
    return result;
  }

  KernelDevice device_;
};

TEST_F(RouteTest, MatchesOracle) {
  for (const auto& [num_experts, num_chosen] :
       {std::pair{1, 1}, {4, 2}, {8, 8}, {31, 3}, {60, 4}, {64, 33}, {128, 8}, {512, 10}}) {
    for (const bool over_chosen : {false, true}) {
      Check(RandomFloats(5 * num_experts, 1, 3.0), num_experts, num_chosen, over_chosen);
    }
  }
}

TEST_F(RouteTest, AmongEqualsTheLowerNumberComesFirst) {
  std::vector<float> logits(70, 0.5f);
  logits[3] = -0.0f;
  logits[67] = 1.0f;
  const RouteResult result = Check(logits, 70, 5, false);
  EXPECT_EQ(result.experts, (std::vector<int32_t>{67, 0, 1, 2, 4}));
  std::vector<float> zeros(40);
  zeros[0] = -0.0f;
  EXPECT_EQ(Check(zeros, 40, 3, true).experts, (std::vector<int32_t>{0, 1, 2}));
}

// Whatever the logits are, the chosen experts are distinct and in range.
TEST_F(RouteTest, LogitsThatAreNoNumbersChooseExperts) {
  EXPECT_EQ(Run(std::vector<float>(40, kNan), 40, 3, true).experts,
            (std::vector<int32_t>{0, 1, 2}));
  EXPECT_EQ(Run(std::vector<float>(40, -kInf), 40, 3, false).experts,
            (std::vector<int32_t>{0, 1, 2}));
  std::vector<float> logits = RandomFloats(40, 2);
  logits[33] = -kNan;
  logits[7] = kInf;
  const RouteResult result = Run(logits, 40, 2, false);
  EXPECT_EQ(result.experts, (std::vector<int32_t>{33, 7}));
  for (const float share : result.shares) EXPECT_TRUE(std::isnan(share));
}

TEST_F(RouteTest, EveryThreadOrderGivesTheSame) {
  const std::vector<float> logits = RandomFloats(int64_t{6} * 100, 3);
  const RouteResult first = Run(logits, 100, 40, false);
  emulator::ForEachOrder(emulator::kNumOrders, [&](int order) {
    const RouteResult result = Run(logits, 100, 40, false);
    EXPECT_EQ(result.experts, first.experts) << order;
    EXPECT_EQ(result.shares, first.shares) << order;
  });
}

// The routing of each variant, of two scores, with and without renormalising, by one expert and by
// two of a group.
Routing RoutingOf(int variant, int32_t num_groups, int32_t num_chosen_groups) {
  return {.score = variant % 2 == 0 ? RouteScore::kSigmoid : RouteScore::kSoftmax,
          .renormalize = variant / 2 % 2 == 0,
          .num_groups = num_groups,
          .num_chosen_groups = num_chosen_groups,
          .best_of_group = 1 + variant / 4 % 2,
          .factor = 1.5f,
          .sum_eps = variant % 2 == 0 ? 1e-20f : 0};
}

TEST_F(RouteTest, ByValueMatchesOracle) {
  struct Case {
    int32_t num_experts, num_chosen, num_groups, num_chosen_groups;
  };
  for (const Case& c : {Case{8, 2, 1, 1},
                        {8, 3, 4, 2},
                        {31, 3, 1, 1},
                        {66, 6, 3, 2},
                        {128, 8, 8, 4},
                        {160, 6, 8, 3},
                        {512, 10, 32, 5},
                        {512, 8, 64, 64}}) {
    for (int variant = 0; variant < 16; ++variant) {
      auto logits = RandomFloats(int64_t{5} * c.num_experts, 11, 3.0);
      // Whole numbers for two tokens, so that many are equal.
      for (size_t i = 0; i < 2 * static_cast<size_t>(c.num_experts); ++i) {
        logits[i] = std::round(logits[i]);
      }
      std::vector<float> bias = RandomFloats(c.num_experts, 12, 0.5);
      if (variant / 8 == 0) bias.clear();
      Check(logits, c.num_experts, c.num_chosen,
            RoutingOf(variant, c.num_groups, c.num_chosen_groups), bias,
            std::to_string(c.num_groups) + " groups, variant " + std::to_string(variant));
    }
  }
}

// Sigmoids that round to 1 or 0, biases that are far from 0, and equal groups.
// Factors of the experts themselves, after softmax routing.
TEST_F(RouteTest, ScalesOfExpertsMatchOracle) {
  const std::vector<float> logits = RandomFloats(int64_t{5} * 60, 1, 3.0);
  const DeviceInput input(DType::kF32, logits), scale(DType::kF32, RandomFloats(60, 2));
  std::vector<int32_t> expected(20);
  std::vector<float> expected_shares(20);
  GuardedArray<int32_t> experts(20);
  DeviceOutput shares(DType::kF32, 20);
  RouteParams params = {.logits = logits.data(),
                        .bias = nullptr,
                        .experts = expected.data(),
                        .shares = expected_shares.data(),
                        .num_tokens = 5,
                        .num_experts = 60,
                        .num_chosen = 4,
                        .routing = {.renormalize = true},
                        .expert_scale = scale.values().data()};
  MakeNaiveOps()->Route(params);
  params.logits = input.f32();
  params.experts = experts.data();
  params.shares = shares.f32();
  params.expert_scale = scale.f32();
  ASSERT_EQ(LaunchRoute(device_.context, params), kCudaSuccess);
  EXPECT_EQ(experts.values(), expected);
  ExpectWithin(
      shares.values(), expected_shares,
      [&](size_t i) { return std::abs(expected_shares[i]) * 64 * 0x1.0p-24; }, "shares");
}

TEST_F(RouteTest, ByValueTakesExtremes) {
  const Routing routing = {.score = RouteScore::kSigmoid,
                           .renormalize = true,
                           .num_groups = 2,
                           .best_of_group = 2,
                           .factor = 2.5f,
                           .sum_eps = 1e-20f};
  EXPECT_EQ(Check({30, 40, 50, 20, 60, 35}, 6, 3, routing, {}, "ones").experts,
            (std::vector<int32_t>{0, 1, 2}));
  EXPECT_EQ(Check({-1e30f, -1e30f, -kInf, -kInf}, 4, 2, routing, {}, "zeros").shares,
            (std::vector<float>{0, 0}));
  EXPECT_EQ(Check({1e30f, -1e30f, kInf, 0}, 4, 2, routing, {}, "far apart").experts,
            (std::vector<int32_t>{2, 3}));
  EXPECT_EQ(Check({0, 0, 0, 0}, 4, 2, routing, {-3e38f, -kInf, -1e30f, -1e30f}, "biases").experts,
            (std::vector<int32_t>{2, 3}));
  const Routing clamped = {.renormalize = true, .sum_min = 1e-12f};
  EXPECT_EQ(Check({0, 0, -1e30f, -1e30f}, 4, 2, clamped, {0, 0, 2, 2}, "clamped").shares,
            (std::vector<float>{0, 0}));
  Check(RandomFloats(40, 3, 3.0), 20, 3, {.renormalize = true, .sum_min = 0.5f}, {}, "clamped");
  const Routing softmax = {.num_groups = 2, .factor = 2};
  EXPECT_EQ(Check({-500, -501, -499, -502}, 4, 2, softmax, {}, "far below 0").experts,
            (std::vector<int32_t>{2, 3}));
}

TEST_F(RouteTest, ByValueDoesNotHideNan) {
  std::vector<float> logits = RandomFloats(40, 2);
  logits[33] = -kNan;
  for (int variant = 0; variant < 8; ++variant) {
    const RouteResult result = Run(logits, 40, 2, RoutingOf(variant, 4, 1), {});
    EXPECT_TRUE(std::isnan(result.shares[0])) << variant;
    for (const int32_t expert : result.experts) {
      EXPECT_EQ(expert / 10, result.experts[0] / 10) << variant;
    }
    if (variant % 2 == 0) EXPECT_EQ(result.experts[0], 33) << variant;
  }
}

TEST_F(RouteTest, ByValueEveryThreadOrderGivesTheSame) {
  const std::vector<float> logits = RandomFloats(int64_t{6} * 100, 3), bias = RandomFloats(100, 4);
  const Routing routing = RoutingOf(0, 10, 5);
  const RouteResult first = Run(logits, 100, 40, routing, bias);
  emulator::ForEachOrder(emulator::kNumOrders, [&](int order) {
    const RouteResult result = Run(logits, 100, 40, routing, bias);
    EXPECT_EQ(result.experts, first.experts) << order;
    EXPECT_EQ(result.shares, first.shares) << order;
  });
}

struct ProductCase {
  DType dtype = DType::kBF16;
  int64_t num_tokens = 3;
  int32_t num_experts = 5, num_chosen = 2;
  int64_t num_out = 24, num_in = 40;
  bool has_bias = false;
  bool x_per_choice = false;
};

std::string Name(const ProductCase& c) {
  return std::string(DTypeName(c.dtype)) + " T" + std::to_string(c.num_tokens) + " K" +
         std::to_string(c.num_chosen) + "/" + std::to_string(c.num_experts) + " " +
         std::to_string(c.num_out) + "x" + std::to_string(c.num_in) + (c.has_bias ? " bias" : "") +
         (c.x_per_choice ? " x per choice" : "");
}

// K different experts for each token; no token chooses the last expert if there are enough others.
std::vector<int32_t> Choices(const ProductCase& c) {
  std::mt19937_64 random(5);
  std::vector<int32_t> all(static_cast<size_t>(std::max(c.num_experts - 1, c.num_chosen)));
  std::iota(all.begin(), all.end(), 0);
  std::vector<int32_t> choices;
  for (int64_t t = 0; t < c.num_tokens; ++t) {
    std::shuffle(all.begin(), all.end(), random);
    choices.insert(choices.end(), all.begin(), all.begin() + c.num_chosen);
  }
  return choices;
}

class ExpertLinearTest : public ::testing::Test {
 protected:
  // Tokens of a case are those of `first_token` on of one long input.
  std::vector<float> Run(const ProductCase& c, const std::vector<int32_t>& choices,
                         int64_t first_token = 0) {
    const DeviceInput x = X(c, first_token), weights = Weights(c), bias = Bias(c);
    const DeviceArray<int32_t> experts(choices);
    DeviceOutput out(c.dtype, c.num_tokens * c.num_chosen * c.num_out);
    const ExpertMatrices matrices = {.num_experts = c.num_experts,
                                     .num_out = c.num_out,
                                     .num_in = c.num_in,
                                     .dtype = c.dtype,
                                     .storage = nullptr};
    const DeviceLimits limits = {.max_tokens = static_cast<int32_t>(c.num_tokens) + spare_tokens_,
                                 .num_experts = c.num_experts,
                                 .num_chosen = c.num_chosen};
    GuardedArray<unsigned char> lists(ExpertWorkspaceBytes(limits));
    EXPECT_EQ(LaunchExpertLinear(device_.context,
                                 {.x = x.ptr(),
                                  .weights = &matrices,
                                  .bias = c.has_bias ? bias.f32() : nullptr,
                                  .experts = experts.data(),
                                  .out = out.ptr(),
                                  .num_tokens = c.num_tokens,
                                  .num_chosen = c.num_chosen,
                                  .x_per_choice = c.x_per_choice},
                                 weights.data(), {.memory = lists.data(), .limits = limits}),
              kCudaSuccess);
    EXPECT_TRUE(out.GuardsIntact()) << Name(c);
    EXPECT_TRUE(lists.GuardsIntact()) << Name(c);
    return out.values();
  }
  std::vector<float> Run(const ProductCase& c) { return Run(c, Choices(c)); }

  DeviceInput X(const ProductCase& c, int64_t first_token) const {
    const int64_t row = (c.x_per_choice ? c.num_chosen : 1) * c.num_in;
    const std::vector<float> all = RandomFloats((first_token + c.num_tokens) * row, 6);
    return {c.dtype, {all.begin() + first_token * row, all.end()}};
  }
  DeviceInput Weights(const ProductCase& c) const {
    return {c.dtype, RandomFloats(c.num_experts * c.num_out * c.num_in, 7)};
  }
  DeviceInput Bias(const ProductCase& c) const {
    return {DType::kF32, RandomFloats(c.num_experts * c.num_out, 8, 10.0)};
  }

  void Check(const ProductCase& c) { Check(c, Choices(c)); }
  void Check(const ProductCase& c, const std::vector<int32_t>& choices) {
    const DeviceInput x = X(c, 0), weights = Weights(c), bias = Bias(c);
    std::vector<float> expected;
    std::vector<double> bounds;
    for (int64_t pair = 0; pair < std::ssize(choices); ++pair) {
      const int64_t row = c.x_per_choice ? pair : pair / c.num_chosen;
      for (int64_t o = 0; o < c.num_out; ++o) {
        const int64_t w = choices[pair] * c.num_out + o;
        double sum = c.has_bias ? bias.values()[w] : 0, magnitude = std::abs(sum);
        for (int64_t i = 0; i < c.num_in; ++i) {
          const double product = static_cast<double>(x.values()[row * c.num_in + i]) *
                                 weights.values()[w * c.num_in + i];
          sum += product;
          magnitude += std::abs(product);
        }
        expected.push_back(static_cast<float>(sum));
        // See gemv_test.cc.
        const double f32_error = 8 * std::sqrt(c.num_in + 1.0) * 0x1.0p-24 * magnitude;
        bounds.push_back(f32_error + RoundingError(c.dtype, sum) * 1.01);
      }
    }
    ExpectWithin(
        Run(c, choices), expected, [&](size_t i) { return bounds[i]; }, Name(c));
  }

  KernelDevice device_;
  int32_t spare_tokens_ = 0;
};

TEST_F(ExpertLinearTest, MatchesTheSum) {
  for (const DType dtype : kHalfTypes) {
    for (const auto& [num_out, num_in] :
         {std::pair{1, 8}, {64, 64}, {65, 72}, {24, 1}, {17, 33}, {130, 100}, {16, 520}}) {
      for (const bool x_per_choice : {false, true}) {
        Check({.dtype = dtype,
               .num_out = num_out,
               .num_in = num_in,
               .has_bias = x_per_choice,
               .x_per_choice = x_per_choice});
      }
    }
  }
}

// Tiles of 16 rows up to 16 pairs for each expert, of 64 beyond: full ones, and ones cut short.
TEST_F(ExpertLinearTest, EveryNumberOfPairsMatchesTheSum) {
  for (const int64_t num_tokens : {1, 2, 15, 16, 17, 33, 64, 65, 150}) {
    for (const auto& [num_experts, num_chosen] : {std::pair{1, 1}, {2, 2}, {3, 1}, {9, 4}}) {
      Check({.num_tokens = num_tokens,
             .num_experts = num_experts,
             .num_chosen = num_chosen,
             .num_out = 20,
             .num_in = 72,
             .has_bias = true});
    }
  }
}

// With at most 128 pairs, and at most as many as experts, the work list is not used.
TEST_F(ExpertLinearTest, PairsThatLeadTilesMatchTheSum) {
  const auto check = [&](int64_t num_tokens, int32_t num_experts,
                         const std::function<int32_t(int32_t)>& choice) {
    const ProductCase c = {.num_tokens = num_tokens,
                           .num_experts = num_experts,
                           .num_chosen = 1,
                           .num_out = 18,
                           .num_in = 24,
                           .has_bias = true};
    std::vector<int32_t> choices;
    for (int32_t t = 0; t < num_tokens; ++t) choices.push_back(choice(t));
    Check(c, choices);
  };
  check(128, 128, [](int32_t t) { return t; });
  check(128, 128, [](int32_t) { return 5; });
  check(100, 300, [](int32_t t) { return t * t % 7; });
  check(129, 300, [](int32_t t) { return t * t % 7; });
  check(33, 33, [](int32_t t) { return t < 2 ? 3 : 4; });
  check(34, 33, [](int32_t t) { return t < 2 ? 3 : 4; });
  check(1, 1, [](int32_t) { return 0; });
}

TEST_F(ExpertLinearTest, AsManyExpertsAsThereMayBe) {
  Check(
      {.num_tokens = 70, .num_experts = kExpertsMax, .num_chosen = 10, .num_out = 8, .num_in = 8});
  spare_tokens_ = 1000;
  Check({.num_tokens = 2, .num_experts = kExpertsMax, .num_chosen = 3, .num_out = 8, .num_in = 8});
}

// A token alone, in a tile of 16 with others, and in a tile of 64.
TEST_F(ExpertLinearTest, TokenDoesNotDependOnItsBatchMates) {
  for (const int64_t num_in : {200, 203}) {
    ProductCase c = {.num_tokens = 60, .num_experts = 3, .num_out = 40, .num_in = num_in};
    const std::vector<int32_t> choices = Choices(c);
    const std::vector<float> all = Run(c, choices);
    const int64_t row = c.num_chosen * c.num_out;
    for (const auto& [first, count] : {std::pair{0, 1}, {59, 1}, {7, 20}}) {
      c.num_tokens = count;
      const std::vector<float> some = Run(c,
                                          {choices.begin() + first * c.num_chosen,
                                           choices.begin() + (first + count) * c.num_chosen},
                                          first);
      ExpectSameBytes(some.data(), all.data() + first * row, some.size() * sizeof(float),
                      Name(c) + " token " + std::to_string(first));
    }
  }
}

TEST_F(ExpertLinearTest, EveryThreadOrderGivesTheSame) {
  const ProductCase cases[] = {
      {.num_tokens = 5, .num_experts = 4, .num_chosen = 3, .num_out = 66, .num_in = 450},
      {.num_tokens = 40, .num_experts = 2, .num_out = 70, .num_in = 330},
      {.num_tokens = 9, .num_experts = 6, .num_out = 33, .num_in = 131},
      {.num_tokens = 36, .num_experts = 80, .num_out = 20, .num_in = 136}};
  for (const ProductCase& c : cases) {
    const std::vector<float> first = Run(c);
    emulator::ForEachOrder(emulator::kNumOrders, [&](int order) {
      const std::vector<float> result = Run(c);
      ExpectSameBytes(result.data(), first.data(), first.size() * sizeof(float),
                      Name(c) + " order " + std::to_string(order));
    });
  }
}

// Infinity times the zeros of absent rows is NaN; it must not reach rows that exist.
TEST_F(ExpertLinearTest, NonFiniteInputsReachOnlyTheirOwnRows) {
  const ProductCase c = {.num_tokens = 2, .num_experts = 2, .num_chosen = 1, .num_in = 40};
  std::vector<float> x_values(static_cast<size_t>(c.num_tokens * c.num_in), 1.0f);
  x_values[3] = kInf;
  const DeviceInput x(c.dtype, x_values);
  const DeviceInput weights(
      c.dtype, std::vector<float>(static_cast<size_t>(2 * c.num_out * c.num_in), 0.5f));
  const ExpertMatrices matrices = {
      .num_experts = 2, .num_out = c.num_out, .num_in = c.num_in, .dtype = c.dtype};
  const DeviceArray<int32_t> experts(std::vector<int32_t>{1, 1});
  DeviceOutput out(c.dtype, c.num_tokens * c.num_out);
  const DeviceLimits limits = {.max_tokens = 2, .num_experts = 2, .num_chosen = 1};
  GuardedArray<unsigned char> lists(ExpertWorkspaceBytes(limits));
  ASSERT_EQ(LaunchExpertLinear(device_.context,
                               {.x = x.ptr(),
                                .weights = &matrices,
                                .bias = nullptr,
                                .experts = experts.data(),
                                .out = out.ptr(),
                                .num_tokens = 2,
                                .num_chosen = 1,
                                .x_per_choice = false},
                               weights.data(), {.memory = lists.data(), .limits = limits}),
            kCudaSuccess);
  for (int64_t i = 0; i < out.size(); ++i) {
    EXPECT_EQ(out.values()[i], i < c.num_out ? kInf : 20.0f) << i;
  }
}

TEST(ExpertWorkspaceTest, EmptyForModelsWithoutExperts) {
  EXPECT_EQ(ExpertWorkspaceBytes({.max_tokens = 100}), 0u);
}

class CombineExpertsTest : public ::testing::Test {
 protected:
  struct Case {
    DType dtype = DType::kBF16;
    int64_t num_tokens = 3, width = 40;
    int32_t num_chosen = 4;
    bool has_shared = false, has_gate = false;
    bool in_place = false;  // out == shared
  };

  void Check(const Case& c) {
    const std::string name = std::string(DTypeName(c.dtype)) + " T" + std::to_string(c.num_tokens) +
                             " K" + std::to_string(c.num_chosen) + " D" + std::to_string(c.width) +
                             (c.has_shared ? " shared" : "") + (c.has_gate ? " gate" : "");
    const DeviceInput x(c.dtype, RandomFloats(c.num_tokens * c.num_chosen * c.width, 1));
    const DeviceInput shares(DType::kF32, RandomFloats(c.num_tokens * c.num_chosen, 2));
    const DeviceInput shared(c.dtype, RandomFloats(c.num_tokens * c.width, 3));
    const DeviceInput gate(DType::kF32, RandomFloats(c.num_tokens, 4, 2.0));
    DeviceOutput out(c.dtype, c.num_tokens * c.width);
    if (c.in_place) out.Set(shared.values());
    CombineExpertsParams p = {.x = x.ptr(),
                              .shares = shares.f32(),
                              .shared = nullptr,
                              .shared_gate = c.has_gate ? gate.f32() : nullptr,
                              .out = out.ptr(),
                              .num_tokens = c.num_tokens,
                              .width = c.width,
                              .num_chosen = c.num_chosen};
    if (c.has_shared) p.shared = c.in_place ? ConstActivationPtr(out.ptr()) : shared.ptr();
    ASSERT_EQ(LaunchCombineExperts(device_.context, p), kCudaSuccess);
    EXPECT_TRUE(out.GuardsIntact()) << name;

    std::vector<float> expected(static_cast<size_t>(c.num_tokens * c.width));
    p.x = x.values().data();
    p.shares = shares.values().data();
    if (c.has_shared) p.shared = shared.values().data();
    if (c.has_gate) p.shared_gate = gate.values().data();
    p.out = expected.data();
    MakeNaiveOps()->CombineExperts(p);
    // K + 1 terms of a few units.
    const auto bound = [&](size_t i) {
      const double f32_error = (c.num_chosen + 2) * 16 * 0x1.0p-24;
      return f32_error + RoundingError(c.dtype, std::abs(expected[i]) + f32_error);
    };
    ExpectWithin(out.values(), expected, bound, name);
  }

  KernelDevice device_;
};

TEST_F(CombineExpertsTest, MatchesOracle) {
  for (const DType dtype : kHalfTypes) {
    for (const int64_t width : {1, 7, 8, 250, 1024, 1032, 1041}) {
      Check({.dtype = dtype, .width = width});
      Check({.dtype = dtype, .width = width, .num_chosen = 9, .has_shared = true});
      Check(
          {.dtype = dtype, .width = width, .num_chosen = 1, .has_shared = true, .has_gate = true});
      Check({.dtype = dtype, .width = width, .has_shared = true, .in_place = true});
    }
  }
}

TEST_F(CombineExpertsTest, EveryThreadOrderMatches) {
  emulator::ForEachOrder(emulator::kNumOrders, [&](int) {
    Check({.width = 1032, .has_shared = true, .has_gate = true, .in_place = true});
  });
}

}  // namespace
}  // namespace minisgl::cuda
