// The products of heads with matrices of their own, and products whose outputs lie apart: against
// the oracle and bit for bit over the number of tokens and threads.
#include <tuple>

#include "op_check.h"

namespace minisgl::cpu {
namespace {

struct HeadShape {
  int64_t num_heads, num_in, num_out, num_copied;
  int64_t gap = 0;  // elements between the outputs of two tokens

  int64_t x_width() const { return num_heads * (num_copied + num_in); }
  int64_t out_width() const { return num_heads * (num_copied + num_out); }
  int64_t out_stride() const { return out_width() + gap; }
};

const HeadShape kHeadShapes[] = {
    {4, 16, 64, 8, 24}, {3, 7, 5, 2, 1}, {1, 33, 130, 0}, {20, 192, 96, 64, 576}, {5, 300, 17, 0}};

HeadMatrices PackHeads(Ops& ops, const HeadShape& c, DType dtype) {
  const auto w = RandomFloats(c.num_heads * c.num_out * c.num_in, 1, 0.1);
  std::vector<std::vector<WeightTensor>> heads;
  for (int64_t h = 0; h < c.num_heads; ++h) {
    const TensorView view = {
        reinterpret_cast<const std::byte*>(w.data() + h * c.num_out * c.num_in),
        DType::kF32,
        {c.num_out, c.num_in}};
    heads.push_back({view});
  }
  return ops.PackExperts(heads, dtype).value();
}

// Outputs [T, out_stride]; gaps stay NaN.
std::vector<float> MultiplyHeadsOf(Ops& ops, const HeadShape& c, DType dtype,
                                   const std::vector<float>& x) {
  const HeadMatrices weights = PackHeads(ops, c, dtype);
  const int64_t num_tokens = std::ssize(x) / c.x_width();
  OpOutput out(num_tokens * c.out_stride());
  ops.HeadLinear({.x = x.data(),
                  .weights = &weights,
                  .out = out.data(),
                  .num_tokens = num_tokens,
                  .num_copied = c.num_copied,
                  .out_stride = c.gap == 0 ? 0 : c.out_stride()});
  EXPECT_TRUE(out.GuardsIntact()) << ops.Name();
  return out.values();
}

std::vector<float> HeadInputs(const HeadShape& c, int64_t num_tokens) {
  return RandomFloats(num_tokens * c.x_width(), 2);
}

// With elements of heads multiplied by 1: a matrix of ones in place of the weights.
TEST(HeadLinearTest, CopiesTheFirstElementsAndMultipliesTheRest) {
  for (const auto& ops : OracleAndAllCpuOps()) {
    const std::vector<float> w = {1, 2, 3, 4, 5, 6};  // two heads of [1, 3]
    std::vector<std::vector<WeightTensor>> heads;
    for (int64_t h = 0; h < 2; ++h) {
      heads.push_back(
          {TensorView{reinterpret_cast<const std::byte*>(w.data() + 3 * h), DType::kF32, {1, 3}}});
    }
    const HeadMatrices weights = ops->PackExperts(heads, DType::kF32).value();
    const std::vector<float> x = {7, 1, 0, 1, 8, 1, 1, 1, 9, 0, 2, 0, 10, 0, 0, -1};
    std::vector<float> out(2 * 5, -1);
    ops->HeadLinear({.x = x.data(),
                     .weights = &weights,
                     .out = out.data(),
                     .num_tokens = 2,
                     .num_copied = 1,
                     .out_stride = 5});
    EXPECT_EQ(out, (std::vector<float>{7, 4, 8, 15, -1, 9, 4, 10, -6, -1})) << ops->Name();
  }
}

TEST(HeadLinearTest, AgreesWithOracleOverShapes) {
  const auto oracle = MakeNaiveOps();
  for (const HeadShape& c : kHeadShapes) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      for (const int64_t num_tokens : {1, 5, 70}) {
        const auto x = HeadInputs(c, num_tokens);
        for (const auto& ops : AllCpuOps()) {
          std::vector<float> read = AsRead(*ops, dtype, x);
          const auto actual = MultiplyHeadsOf(*ops, c, dtype, x);
          auto expected = MultiplyHeadsOf(*oracle, c, dtype, read);
          // Copied elements are not rounded.
          for (int64_t t = 0; t < num_tokens; ++t) {
            for (int64_t h = 0; h < c.num_heads; ++h) {
              std::copy_n(x.begin() + t * c.x_width() + h * (c.num_copied + c.num_in), c.num_copied,
                          expected.begin() + t * c.out_stride() + h * (c.num_copied + c.num_out));
            }
          }
          const double bound =
              RoundingsOf(dtype, c.num_in) * kEpsilon * static_cast<double>(c.num_in) * 5 * 0.5;
          ExpectClose(
              actual, expected, [&](size_t) { return bound; },
              fmt::format("{} {} x {} x {}", ops->Name(), c.num_heads, c.num_out, c.num_in));
        }
      }
    }
  }
}

TEST(HeadLinearTest, ATokenDependsOnNoOther) {
  for (const HeadShape& c : kHeadShapes) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      const auto x = HeadInputs(c, 150);
      for (const CpuTarget target : AvailableCpuTargets()) {
        const auto one = MakeOps(CpuTargetName(target), 1), two = MakeOps(CpuTargetName(target), 2);
        const auto all = MultiplyHeadsOf(*two, c, dtype, x);
        for (const auto& [first, count] : {std::pair{0, 1}, {3, 4}, {100, 50}}) {
          const std::vector<float> part(x.begin() + first * c.x_width(),
                                        x.begin() + (first + count) * c.x_width());
          const std::vector<float> wanted(all.begin() + first * c.out_stride(),
                                          all.begin() + (first + count) * c.out_stride());
          ExpectSameBits(MultiplyHeadsOf(*one, c, dtype, part), wanted, CpuTargetName(target));
        }
      }
    }
  }
}

TEST(HeadLinearTest, AProductWhoseOutputsLieApartIsTheSame) {
  constexpr int64_t kIn = 40, kOut = 70, kTokens = 9, kStride = 101;
  const auto w = RandomFloats(kOut * kIn, 3), x = RandomFloats(kTokens * kIn, 4);
  const TensorView view = View(w, kOut, kIn);
  for (const auto& ops : OracleAndAllCpuOps()) {
    const Matrix weight = ops->PackMatrix({&view, 1}, DType::kF32).value();
    OpOutput dense(kTokens * kOut), apart(kTokens * kStride);
    LinearParams p = {.x = x.data(),
                      .weight = &weight,
                      .bias = nullptr,
                      .out = dense.data(),
                      .num_tokens = kTokens};
    ops->Linear(p);
    p.out = apart.data();
    p.out_stride = kStride;
    ops->Linear(p);
    EXPECT_TRUE(apart.GuardsIntact());
    for (int64_t t = 0; t < kTokens; ++t) {
      for (int64_t o = 0; o < kStride; ++o) {
        const float found = apart.data()[t * kStride + o];
        if (o >= kOut) {
          EXPECT_TRUE(std::isnan(found)) << ops->Name();
        } else {
          EXPECT_EQ(found, dense.data()[t * kOut + o]) << ops->Name();
        }
      }
    }
  }
}

}  // namespace
}  // namespace minisgl::cpu
