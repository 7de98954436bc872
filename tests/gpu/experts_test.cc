// Mixture of experts on the device: routing, the products of experts and their sum, against the
// oracle or sums in double.
//
// A few thousand elements of a large product are checked, drawn at random for each case. All
// elements are checked to be written, and to be the same in a second run.
#include <fmt/core.h>

#include <numeric>

#include "gpu/gpu_fixture.h"
#include "slow.h"

namespace minisgl::cuda {
namespace {

using GpuExpertsTest = GpuTest;

TEST_F(GpuExpertsTest, RoutingMatchesTheOracle) {
  const auto ops = Make();
  const Routing routings[] = {{},
                              {.renormalize = true},
                              {.score = RouteScore::kSigmoid,
                               .renormalize = true,
                               .num_groups = 4,
                               .num_chosen_groups = 2,
                               .best_of_group = 2,
                               .factor = 2.5f,
                               .sum_eps = 1e-20f},
                              {.num_groups = 4, .num_chosen_groups = 3, .factor = 16}};
  for (const auto& [num_experts, num_chosen] :
       {std::pair{8, 2}, {60, 4}, {64, 8}, {128, 8}, {512, 10}}) {
    const std::vector<float> bias = RandomFloats(num_experts, 2, 0.2);
    const GpuArray device_bias(ops.get(), bias);
    for (const int64_t num_tokens : {1, 5, 70}) {
      for (const Routing& routing : routings) {
        const bool has_bias = routing.score == RouteScore::kSigmoid;
        const std::string name = fmt::format("T{} K{}/{} routing {}", num_tokens, num_chosen,
                                             num_experts, &routing - routings);
        const std::vector<float> logits = RandomFloats(num_tokens * num_experts, 1, 3.0);
        const auto num_pairs = static_cast<size_t>(num_tokens * num_chosen);
        std::vector<int32_t> expected(num_pairs);
        std::vector<float> expected_shares(num_pairs);
        RouteParams params = {.logits = logits.data(),
                              .bias = has_bias ? bias.data() : nullptr,
                              .experts = expected.data(),
                              .shares = expected_shares.data(),
                              .num_tokens = num_tokens,
                              .num_experts = num_experts,
                              .num_chosen = num_chosen,
                              .routing = routing};
        MakeNaiveOps()->Route(params);
        const GpuArray device_logits(ops.get(), logits);
        GpuArray experts(ops.get(), num_pairs * sizeof(int32_t));
        GpuArray shares(ops.get(), num_pairs * sizeof(float));
        params.logits = device_logits.f32();
        if (has_bias) params.bias = device_bias.f32();
        params.experts = experts.i32();
        params.shares = shares.f32();
        const auto bytes = RunTwice(&shares, name, [&] {
          experts.Poison();
          ops->Route(params);
        });
        EXPECT_EQ(experts.Read<int32_t>(), expected) << name;
        // An exponential's argument has the rounding of a difference of numbers up to about 16.
        ExpectWithin(
            FloatsOf(DType::kF32, bytes), expected_shares,
            [&](size_t i) { return std::abs(expected_shares[i]) * 64 * 0x1.0p-24; }, name);
      }
    }
  }
}

struct ProductCase {
  DType dtype = DType::kBF16;
  int32_t num_experts = 8, num_chosen = 2;
  int64_t num_out = 64, num_in = 64;
  bool has_bias = false;
  bool x_per_choice = false;
};

class GpuExpertLinearTest : public GpuTest {
 protected:
  static std::string Name(const ProductCase& c, int64_t num_tokens) {
    return fmt::format("{} T{} K{}/{} {}x{}{}{}", DTypeName(c.dtype), num_tokens, c.num_chosen,
                       c.num_experts, c.num_out, c.num_in, c.has_bias ? " bias" : "",
                       c.x_per_choice ? " x per choice" : "");
  }
  // Some experts are chosen often, some by no token.
  static std::vector<int32_t> Choices(const ProductCase& c, int64_t num_tokens) {
    std::mt19937_64 random(5);
    std::vector<int32_t> choices;
    for (int64_t i = 0; i < num_tokens * c.num_chosen; ++i) {
      const auto limit = static_cast<int32_t>(random() % static_cast<uint64_t>(c.num_experts)) + 1;
      choices.push_back(static_cast<int32_t>(random() % static_cast<uint64_t>(limit)));
    }
    return choices;
  }

  void Check(const ProductCase& c, const std::vector<int64_t>& token_counts) {
    const int64_t most = token_counts.back();
    x_ = RoundedTo(c.dtype, RandomFloats(most * (c.x_per_choice ? c.num_chosen : 1) * c.num_in, 1));
    weights_ = RoundedTo(c.dtype, RandomFloats(c.num_experts * c.num_out * c.num_in, 2));
    bias_ = RandomFloats(c.num_experts * c.num_out, 3, 10.0);
    const std::vector<int32_t> choices = Choices(c, most);
    const auto ops = MakeReserved({.max_rows = 1,
                                   .max_tokens = static_cast<int32_t>(most),
                                   .max_seq_len = 64,
                                   .num_heads = 1,
                                   .num_kv_heads = 1,
                                   .head_dim = 64,
                                   .num_experts = c.num_experts,
                                   .num_chosen = c.num_chosen},
                                  {.activation_dtype = c.dtype});
    std::vector<std::vector<WeightTensor>> views;
    for (int64_t e = 0; e < c.num_experts; ++e) {
      const WeightTensor all = View(weights_, c.num_experts * c.num_out, c.num_in);
      views.push_back({all.TakeOutputs(e * c.num_out, c.num_out)});
    }
    const auto packed = ops->PackExperts(views, c.dtype);
    ASSERT_TRUE(packed.ok()) << packed.status().message();
    const GpuArray x(ops.get(), c.dtype, x_), bias(ops.get(), bias_);
    const GpuArray experts(ops.get(), choices);
    std::vector<unsigned char> largest;
    for (auto count = token_counts.rbegin(); count != token_counts.rend(); ++count) {
      const std::string name = Name(c, *count);
      GpuArray out(ops.get(),
                   static_cast<size_t>(*count * c.num_chosen * c.num_out) * DTypeBytes(c.dtype));
      const auto bytes = RunTwice(&out, name, [&] {
        ops->ExpertLinear({.x = x.ptr(c.dtype),
                           .weights = &*packed,
                           .bias = c.has_bias ? bias.f32() : nullptr,
                           .experts = experts.i32(),
                           .out = out.ptr(c.dtype),
                           .num_tokens = *count,
                           .num_chosen = c.num_chosen,
                           .x_per_choice = c.x_per_choice});
      });
      // A row is the same bit for bit, whatever other rows there are.
      if (largest.empty()) largest = bytes;
      EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), largest.begin())) << name;
      CheckElements(c, name, choices, FloatsOf(c.dtype, bytes));
    }
  }

 private:
  void CheckElements(const ProductCase& c, const std::string& name,
                     const std::vector<int32_t>& choices, const std::vector<float>& actual) {
    const auto count = static_cast<int64_t>(actual.size());
    for (int64_t i = 0; i < count; ++i) {
      ASSERT_FALSE(std::isnan(actual[i])) << name << " element " << i;
    }
    std::mt19937_64 random(static_cast<uint64_t>(count));
    const bool all = count * c.num_in < 2'000'000;
    for (int64_t n = 0; n < (all ? count : 3000); ++n) {
      const int64_t i = all ? n : static_cast<int64_t>(random() % static_cast<uint64_t>(count));
      const int64_t pair = i / c.num_out, row = c.x_per_choice ? pair : pair / c.num_chosen;
      const int64_t w = choices[pair] * c.num_out + i % c.num_out;
      double sum = c.has_bias ? bias_[w] : 0, magnitude = std::abs(sum);
      for (int64_t k = 0; k < c.num_in; ++k) {
        const double product =
            static_cast<double>(x_[row * c.num_in + k]) * weights_[w * c.num_in + k];
        sum += product;
        magnitude += std::abs(product);
      }
      // Tensor cores add 16 products at a time, and truncate instead of rounding.
      const double f32_error = 32 * std::sqrt(c.num_in + 1.0) * 0x1.0p-24 * magnitude;
      ASSERT_LE(std::abs(actual[i] - sum), f32_error + RoundingError(c.dtype, sum) * 1.01)
          << name << " element " << i << ": " << actual[i] << " instead of " << sum;
    }
  }

  std::vector<float> x_, weights_, bias_;
};

TEST_F(GpuExpertLinearTest, MatchesTheSum) {
  MarkSlow("large products on the emulator");
  for (const DType dtype : kHalfTypes) {
    for (const auto& [num_out, num_in] : {std::pair{65, 72}, {24, 33}, {130, 200}}) {
      for (const bool x_per_choice : {false, true}) {
        Check({.dtype = dtype,
               .num_out = num_out,
               .num_in = num_in,
               .has_bias = x_per_choice,
               .x_per_choice = x_per_choice},
              {1, 3, 17, 80});
      }
    }
  }
}

TEST_F(GpuExpertLinearTest, MatchesTheSumWithShapesOfModels) {
  if (IsSlow()) GTEST_SKIP() << "too large for the emulator";
  Check({.num_experts = 32, .num_chosen = 8, .num_out = 1536, .num_in = 2048}, {1, 16, 64, 700});
  Check({.num_experts = 32, .num_chosen = 8, .num_out = 2048, .num_in = 768, .x_per_choice = true},
        {1, 16, 64, 700});
  Check({.num_experts = 8, .num_chosen = 4, .num_out = 5760, .num_in = 2880, .has_bias = true},
        {1, 9, 300});
  Check({.num_experts = 2, .num_chosen = 2, .num_out = 4096, .num_in = 14336, .x_per_choice = true},
        {1, 200});
}

TEST_F(GpuExpertsTest, CombiningMatchesTheOracle) {
  for (const DType dtype : kHalfTypes) {
    const auto ops = Make({.activation_dtype = dtype});
    for (const int64_t width : {7, 256, 2048}) {
      for (const bool has_shared : {false, true}) {
        const std::string name =
            fmt::format("{} D{} shared {}", DTypeName(dtype), width, has_shared);
        constexpr int64_t kTokens = 6;
        constexpr int32_t kChosen = 5;
        const auto x = RoundedTo(dtype, RandomFloats(kTokens * kChosen * width, 1));
        const auto shares = RandomFloats(kTokens * kChosen, 2);
        const auto shared = RoundedTo(dtype, RandomFloats(kTokens * width, 3));
        const auto gate = RandomFloats(kTokens, 4);
        std::vector<float> expected(static_cast<size_t>(kTokens * width));
        CombineExpertsParams params = {.x = x.data(),
                                       .shares = shares.data(),
                                       .shared = nullptr,
                                       .shared_gate = has_shared ? gate.data() : nullptr,
                                       .out = expected.data(),
                                       .num_tokens = kTokens,
                                       .width = width,
                                       .num_chosen = kChosen};
        if (has_shared) params.shared = shared.data();
        MakeNaiveOps()->CombineExperts(params);
        const GpuArray device_x(ops.get(), dtype, x), device_shares(ops.get(), shares);
        const GpuArray device_gate(ops.get(), gate);
        GpuArray out(ops.get(), dtype, shared);
        params.x = device_x.ptr(dtype);
        params.shares = device_shares.f32();
        if (has_shared) params.shared = out.ptr(dtype);
        if (has_shared) params.shared_gate = device_gate.f32();
        params.out = out.ptr(dtype);
        const auto bytes = RunTwice(&out, name, [&] {
          out.Set(dtype, shared);
          ops->CombineExperts(params);
        });
        // 6 terms of a few units.
        ExpectWithin(
            FloatsOf(dtype, bytes), expected,
            [&](size_t i) {
              const double f32_error = 8 * 16 * 0x1.0p-24;
              return f32_error + RoundingError(dtype, std::abs(expected[i]) + f32_error);
            },
            name);
      }
    }
  }
}

}  // namespace
}  // namespace minisgl::cuda
