// Matrix products on the device: the kernel for few tokens and the library's, against sums in
// double.
//
// A few thousand elements of a large product are checked, drawn at random for each case. All
// elements are checked to be written, and to be the same in a second run.
#include <fmt/core.h>

#include "gpu/gpu_fixture.h"

namespace minisgl::cuda {
namespace {

struct LinearCase {
  DType dtype = DType::kBF16;
  DType out_dtype = DType::kBF16;
  int64_t num_out = 8, num_in = 32;
  bool has_bias = false;
};

class GpuLinearTest : public GpuTest {
 protected:
  static std::string Name(const LinearCase& c, int64_t num_tokens) {
    return fmt::format("{} -> {} {}x{} T{}", DTypeName(c.dtype), DTypeName(c.out_dtype), c.num_out,
                       c.num_in, num_tokens);
  }
  static std::vector<int64_t> TokenCounts() {
    if (IsSlow()) return {1, 8, 9, 16, 17};
    return {1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 16, 17, 33, 128, 300};
  }

  void Check(const LinearCase& c) {
    const std::vector<int64_t> counts = TokenCounts();
    const int64_t most = counts.back();
    x_ = RoundedTo(c.dtype, RandomFloats(most * c.num_in, 1));
    weight_ = RoundedTo(c.dtype, RandomFloats(c.num_out * c.num_in, 2));
    bias_ = RandomFloats(c.num_out, 3, 10.0);
    const auto ops = MakeReserved({.max_rows = 1,
                                   .max_tokens = static_cast<int32_t>(most),
                                   .max_seq_len = 64,
                                   .num_heads = 1,
                                   .num_kv_heads = 1,
                                   .head_dim = 64},
                                  {.activation_dtype = c.dtype});
    const TensorView view = View(weight_, c.num_out, c.num_in);
    const auto packed = ops->PackMatrix({&view, 1}, c.dtype);
    ASSERT_TRUE(packed.ok()) << packed.status().message();
    const GpuArray x(ops.get(), c.dtype, x_), bias(ops.get(), bias_);
    for (const int64_t num_tokens : counts) {
      GpuArray out(ops.get(),
                   static_cast<size_t>(num_tokens * c.num_out) * DTypeBytes(c.out_dtype));
      const auto bytes = RunTwice(&out, Name(c, num_tokens), [&] {
        ops->Linear({.x = x.ptr(c.dtype),
                     .weight = &*packed,
                     .bias = c.has_bias ? bias.f32() : nullptr,
                     .out = out.ptr(c.out_dtype),
                     .num_tokens = num_tokens});
      });
      CheckElements(c, num_tokens, FloatsOf(c.out_dtype, bytes));
    }
  }

 private:
  void CheckElements(const LinearCase& c, int64_t num_tokens, const std::vector<float>& actual) {
    const auto count = static_cast<int64_t>(actual.size());
    for (int64_t i = 0; i < count; ++i) {
      ASSERT_FALSE(std::isnan(actual[i])) << Name(c, num_tokens) << " element " << i;
    }
    std::mt19937_64 random(static_cast<uint64_t>(num_tokens));
    const bool all = count * c.num_in < 2'000'000;
    for (int64_t n = 0; n < (all ? count : 3000); ++n) {
      const int64_t i = all ? n : static_cast<int64_t>(random() % static_cast<uint64_t>(count));
      const int64_t token = i / c.num_out, out = i % c.num_out;
      double sum = c.has_bias ? bias_[out] : 0, magnitude = std::abs(sum);
      for (int64_t k = 0; k < c.num_in; ++k) {
        const double product =
            static_cast<double>(x_[token * c.num_in + k]) * weight_[out * c.num_in + k];
        sum += product;
        magnitude += std::abs(product);
      }
      // Tensor cores add 16 products at a time, and truncate instead of rounding. The bias is added
      // after rounding to the output's type.
      const double f32_error = (static_cast<double>(c.num_in) / 16 + 16) * 0x1.0p-23 * magnitude /
                               std::sqrt(c.num_in) * 4;
      const double rounding = RoundingError(c.out_dtype, std::abs(sum) + f32_error);
      const double before_bias =
          c.has_bias ? RoundingError(c.out_dtype, std::abs(sum - bias_[out]) + f32_error) : 0;
      ASSERT_NEAR(actual[i], sum, f32_error + 1.01 * (rounding + before_bias))
          << Name(c, num_tokens) << " token " << token << " out " << out;
    }
  }

  std::vector<float> x_, weight_, bias_;
};

TEST_F(GpuLinearTest, MatchesTheSum) {
  for (const DType dtype : kHalfTypes) {
    Check({.dtype = dtype, .out_dtype = dtype, .num_out = 96, .num_in = 64});
    Check({.dtype = dtype, .out_dtype = DType::kF32, .num_out = 97, .num_in = 64});
    Check({.dtype = dtype, .out_dtype = dtype, .num_out = 40, .num_in = 104, .has_bias = true});
  }
}

// Qwen3-0.6B: q, k and v; gate and up; down; the output head. Qwen2's q, k and v have a bias.
TEST_F(GpuLinearTest, MatchesTheSumAtModelSizes) {
  if (IsSlow()) return Check({.num_out = 512, .num_in = 256});
  Check({.num_out = 4096, .num_in = 1024});
  Check({.num_out = 1024, .num_in = 2048});
  Check({.num_out = 6144, .num_in = 1024});
  Check({.num_out = 1024, .num_in = 3072});
  Check({.num_out = 1152, .num_in = 896, .has_bias = true});
  Check({.out_dtype = DType::kF32, .num_out = 151936, .num_in = 1024});
}

// --deterministic: a token's result depends on the token only.
TEST_F(GpuLinearTest, DeterministicProductsDoNotDependOnTheBatch) {
  const std::vector<int64_t> counts = TokenCounts();
  const int64_t num_out = IsSlow() ? 96 : 4096, num_in = IsSlow() ? 64 : 1024;
  const auto ops = MakeReserved({.max_rows = 1,
                                 .max_tokens = static_cast<int32_t>(counts.back()),
                                 .max_seq_len = 64,
                                 .num_heads = 1,
                                 .num_kv_heads = 1,
                                 .head_dim = 64},
                                {.deterministic = true});
  const std::vector<float> weight = RandomFloats(num_out * num_in, 2);
  const TensorView view = View(weight, num_out, num_in);
  const auto packed = ops->PackMatrix({&view, 1}, DType::kBF16);
  ASSERT_TRUE(packed.ok()) << packed.status().message();
  const GpuArray x(ops.get(), DType::kBF16, RandomFloats(counts.back() * num_in, 1));
  std::vector<unsigned char> one;
  for (const int64_t num_tokens : counts) {
    GpuArray out(ops.get(), static_cast<size_t>(num_tokens * num_out) * 2);
    const auto bytes = RunTwice(&out, fmt::format("{} tokens", num_tokens), [&] {
      ops->Linear({.x = x.ptr(DType::kBF16),
                   .weight = &*packed,
                   .bias = nullptr,
                   .out = out.ptr(DType::kBF16),
                   .num_tokens = num_tokens});
    });
    if (one.empty()) one = bytes;
    EXPECT_TRUE(std::equal(one.begin(), one.end(), bytes.begin())) << num_tokens << " tokens";
  }
}

}  // namespace
}  // namespace minisgl::cuda
