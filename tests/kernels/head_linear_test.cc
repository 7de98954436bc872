// The products of latent attention's heads against the oracle, on the emulator.
#include "kernel_check.h"

namespace minisgl::cuda {
namespace {

struct HeadCase {
  DType dtype = DType::kBF16;
  int64_t num_tokens = 3;
  int64_t num_heads = 2;
  int64_t num_copied = 0;
  int64_t num_in = 64, num_out = 64;
  int64_t padding = 0;  // elements between the outputs of two tokens

  int64_t out_stride() const { return num_heads * (num_copied + num_out) + padding; }
  std::string Name() const {
    return std::string(DTypeName(dtype)) + " T" + std::to_string(num_tokens) + " H" +
           std::to_string(num_heads) + " C" + std::to_string(num_copied) + " " +
           std::to_string(num_in) + " to " + std::to_string(num_out);
  }
};

class HeadLinearKernelTest : public testing::Test {
 protected:
  // The tokens are those of `first_token` on of one long input.
  std::vector<float> Run(const HeadCase& c, int64_t first_token = 0) {
    const DeviceInput x = X(c, first_token), weights = Weights(c);
    DeviceOutput out(c.dtype, c.num_tokens * c.out_stride());
    const HeadMatrices matrices = Matrices(c);
    EXPECT_EQ(LaunchHeadLinear(device_.context,
                               {.x = x.ptr(),
                                .weights = &matrices,
                                .out = out.ptr(),
                                .num_tokens = c.num_tokens,
                                .num_copied = c.num_copied,
                                .out_stride = c.padding == 0 ? 0 : c.out_stride()},
                               weights.data()),
              kCudaSuccess);
    EXPECT_TRUE(out.GuardsIntact()) << c.Name();
    return out.values();
  }

  // What lies between tokens stays NaN.
  void Check(const HeadCase& c) {
    const DeviceInput x = X(c, 0), weights = Weights(c);
    std::vector<float> expected(static_cast<size_t>(c.num_tokens * c.out_stride()), kNan);
    std::vector<double> bounds(expected.size());
    for (int64_t t = 0; t < c.num_tokens; ++t) {
      for (int64_t h = 0; h < c.num_heads; ++h) {
        const float* const in = &x.values()[(t * c.num_heads + h) * (c.num_copied + c.num_in)];
        const int64_t at = t * c.out_stride() + h * (c.num_copied + c.num_out);
        std::copy_n(in, c.num_copied, expected.begin() + at);
        for (int64_t o = 0; o < c.num_out; ++o) {
          double sum = 0, magnitude = 0;
          for (int64_t i = 0; i < c.num_in; ++i) {
            const double product = static_cast<double>(in[c.num_copied + i]) *
                                   weights.values()[(h * c.num_out + o) * c.num_in + i];
            sum += product;
            magnitude += std::abs(product);
          }
          const size_t place = static_cast<size_t>(at + c.num_copied + o);
          expected[place] = static_cast<float>(sum);
          // See gemv_test.cc.
          bounds[place] = 8 * std::sqrt(c.num_in + 1.0) * 0x1.0p-24 * magnitude +
                          RoundingError(c.dtype, sum) * 1.01;
        }
      }
    }
    ExpectWithin(
        Run(c), expected, [&](size_t i) { return bounds[i]; }, c.Name());
  }

  KernelDevice device_;

 private:
  static HeadMatrices Matrices(const HeadCase& c) {
    return {.num_experts = c.num_heads,
            .num_out = c.num_out,
            .num_in = c.num_in,
            .dtype = c.dtype,
            .storage = nullptr};
  }
  DeviceInput X(const HeadCase& c, int64_t first_token) const {
    const int64_t width = c.num_heads * (c.num_copied + c.num_in);
    const std::vector<float> all = RandomFloats((first_token + c.num_tokens) * width, 6);
    return {c.dtype, {all.begin() + first_token * width, all.end()}};
  }
  DeviceInput Weights(const HeadCase& c) const {
    return {c.dtype, RandomFloats(c.num_heads * c.num_out * c.num_in, 7)};
  }
};

TEST_F(HeadLinearKernelTest, MatchesTheSum) {
  for (const DType dtype : kHalfTypes) {
    for (const auto& [num_in, num_out] :
         {std::pair{64, 64}, {128, 512}, {512, 128}, {10, 18}, {18, 11}, {1, 1}, {200, 65}}) {
      for (const int64_t num_copied : {0, 6, 64}) {
        Check({.dtype = dtype, .num_copied = num_copied, .num_in = num_in, .num_out = num_out});
      }
    }
  }
}

TEST_F(HeadLinearKernelTest, EveryNumberOfTokensAndHeadsMatchesTheSum) {
  for (const int64_t num_tokens : {1, 15, 16, 17, 64, 65, 130}) {
    for (const int64_t num_heads : {1, 3}) {
      Check({.num_tokens = num_tokens, .num_heads = num_heads, .num_copied = 8, .padding = 24});
    }
  }
}

TEST_F(HeadLinearKernelTest, NoTokensAreNoWork) { Check({.num_tokens = 0}); }

TEST_F(HeadLinearKernelTest, ATokenDependsOnNoOther) {
  HeadCase c = {.num_tokens = 70, .num_copied = 6, .num_in = 100, .num_out = 40};
  const std::vector<float> all = Run(c);
  const int64_t width = c.out_stride();
  c.num_tokens = 1;
  for (const int64_t token : {0, 15, 16, 63, 64, 69}) {
    const std::vector<float> alone = Run(c, token);
    ExpectSameBytes(alone.data(), &all[static_cast<size_t>(token * width)],
                    static_cast<size_t>(width) * sizeof(float), std::to_string(token));
  }
}

TEST_F(HeadLinearKernelTest, EveryThreadOrderGivesTheSame) {
  const HeadCase c = {.num_tokens = 20, .num_copied = 8, .num_in = 136, .num_out = 72};
  const std::vector<float> first = Run(c);
  emulator::ForEachOrder(emulator::kNumOrders,
                         [&](int order) { EXPECT_EQ(Run(c), first) << "order " << order; });
}

}  // namespace
}  // namespace minisgl::cuda
