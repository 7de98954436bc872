// Products of 17 to 511 tokens that read codes (the word code-tiles).
#include "coded_matrix.h"
#include "coded_product_fixture.h"

namespace minisgl::cuda {
namespace {

class CodeTilesTest : public CodedProductTest {
 protected:
  void SetUp() override {
    debug_.code_tiles = true;
    ops_ = MakeReserved({.activation_dtype = GetParam()});
  }
  void Check(std::span<const WeightTensor> parts, const std::string& what) {
    SCOPED_TRACE(what);
    const Matrix coded = Pack(parts, Quantization::kStored);
    const std::vector<WeightTensor> expert(parts.begin(), parts.end());
    const auto experts = ops_->PackExperts({&expert, 1}, GetParam());
    ASSERT_TRUE(experts.ok());
    for (const int64_t num_tokens : {17, 64}) {
      std::vector<uint16_t> x(static_cast<size_t>(num_tokens * coded.num_in));
      StoreElements(x.data(), GetParam(), RandomFloats(std::ssize(x), 4));
      const auto in = Put(ops_.get(), x), bias = Put(ops_.get(), RandomFloats(coded.num_out, 5));
      const auto chosen = Put(ops_.get(), std::vector<int32_t>(static_cast<size_t>(num_tokens)));
      const auto count = static_cast<size_t>(num_tokens * coded.num_out);
      const auto wanted = Put(ops_.get(), std::vector<uint16_t>(count));
      ops_->ExpertLinear({.x = {in.get(), GetParam()},
                          .weights = &*experts,
                          .bias = static_cast<const float*>(bias.get()),
                          .experts = static_cast<const int32_t*>(chosen.get()),
                          .out = {wanted.get(), GetParam()},
                          .num_tokens = num_tokens,
                          .num_chosen = 1,
                          .x_per_choice = false});
      const auto bits = Get<uint16_t>(ops_.get(), wanted.get(), count);
      const auto expected = LoadElements(bits.data(), GetParam(), std::ssize(bits));
      const int before = matmul_->num_products();
      for (const DType out_dtype : {GetParam(), DType::kF32}) {
        const int64_t stride = coded.num_out + 3;
        const auto out =
            Put(ops_.get(), std::vector<float>(static_cast<size_t>(num_tokens * stride)));
        ops_->Linear({.x = {in.get(), GetParam()},
                      .weight = &coded,
                      .bias = static_cast<const float*>(bias.get()),
                      .out = {out.get(), out_dtype},
                      .num_tokens = num_tokens,
                      .out_stride = stride});
        const auto bytes =
            Get<float>(ops_.get(), out.get(), static_cast<size_t>(num_tokens * stride));
        const auto all = LoadElements(bytes.data(), out_dtype, std::ssize(bytes));
        std::vector<float> found;
        for (int64_t t = 0; t < num_tokens; ++t) {
          found.insert(found.end(), all.begin() + t * stride,
                       all.begin() + t * stride + coded.num_out);
          for (int64_t gap = coded.num_out; gap < stride; ++gap)
            EXPECT_EQ(all[t * stride + gap], 0);
        }
        EXPECT_TRUE(SameBits(RoundedTo(GetParam(), found), expected))
            << num_tokens << " " << DTypeName(out_dtype);
      }
      EXPECT_EQ(matmul_->num_products(), before);
    }
  }
};

// A matrix is an expert that all tokens have chosen: tiles of it have the bits of that product with
// expanded weights, of every kind of codes and with what is no number among them.
TEST_P(CodeTilesTest, HaveTheBitsOfAnExpert) {
  ForAllCodes(
      [this](std::span<const WeightTensor> parts, const std::string& what) { Check(parts, what); });
  for (const Coding& coding : kCodings) {
    RandomCodes codes(coding, 70, 136, 8, 7);
    codes.PutExtremes();
    if (coding.global == Coding::Global::kNone) codes.StoreScales(DType::kF32);
    const WeightTensor tensor = codes.Tensor();
    Check({&tensor, 1}, std::string(coding.name) + " extremes");
  }
}

// Rows whose lines have groups that are no neighbours: inputs of which one is 1 give a weight
// exactly, whatever the order of sums; other inputs give the same bits for any number of tokens.
TEST_P(CodeTilesTest, HaveEachWeightOfLinesInTheOrderOfTheRing) {
  debug_.ring = true;
  ops_ = MakeReserved({.activation_dtype = GetParam()});
  constexpr int64_t kTokens = 64;
  // `rounds`: with other places of the ones.
  const auto check = [&](const WeightTensor& tensor, const std::string& what, int64_t rounds) {
    SCOPED_TRACE(what);
    const Matrix matrix = Pack({&tensor, 1}, Quantization::kStored);
    EXPECT_GT(CodesOf(matrix).runs[0].rows.order.warps, 1);
    const int64_t num_in = matrix.num_in, step = num_in / kTokens;
    std::vector<float> row(static_cast<size_t>(num_in));
    const int before = matmul_->num_products();
    for (int64_t round = 0; round < rounds; ++round) {
      const auto one_of = [&](int64_t t) { return t * step + (round + t) % step; };
      std::vector<float> x(static_cast<size_t>(kTokens * num_in));
      for (int64_t t = 0; t < kTokens; ++t) x[static_cast<size_t>(t * num_in + one_of(t))] = 1;
      const auto sums = MultiplyBy(matrix, x);
      for (const int64_t out : {int64_t{0}, matrix.num_out - 1}) {
        tensor.ReadRow(out, row.data());
        const auto wanted = RoundedTo(GetParam(), row);
        for (int64_t t = 0; t < kTokens; ++t) {
          ASSERT_EQ(sums[static_cast<size_t>(t * matrix.num_out + out)],
                    wanted[static_cast<size_t>(one_of(t))])
              << "input " << one_of(t) << " of output " << out;
        }
      }
    }
    EXPECT_EQ(matmul_->num_products(), before);
  };
  // Two groups of each line are neighbours.
  for (const Coding& coding : kCodings) {
    if (coding.bits == 4) check(RandomCodes(coding, 5, 1024, 16, 3).Tensor(), coding.name, 2);
  }
  check(RandomBlocks("Q6_K", 5, 1024, 1).Tensor(), "Q6_K", 2);
  const RandomCodes codes(kCodings[0], 5, 1024, 128, 3);
  const WeightTensor tensor = codes.Tensor();
  check(tensor, "all inputs", 16);
  const Matrix matrix = Pack({&tensor, 1}, Quantization::kStored);
  const auto some = Multiply(matrix, 17, false), more = Multiply(matrix, 80, false);
  EXPECT_TRUE(SameBits(some, {more.begin(), more.begin() + std::ssize(some)}));
  EXPECT_FALSE(SameBits(some, std::vector<float>(some.size())));
  // None are.
  check(RandomCodes(kCodings[0], 4096, 1024, 128, 3).Tensor(), "nibbles, many outputs", 1);
  check(RandomCodes(kCodings[8], 4096, 512, 512, 3).Tensor(), "bytes, many outputs", 1);
}

TEST_P(CodeTilesTest, OtherProductsAreTheLibrarys) {
  // Deterministic runs.
  const RandomCodes codes(kCodings[8], 4096, 512, 512, 3);
  const WeightTensor tensor = codes.Tensor();
  const auto products = [&] {
    const Matrix matrix = Pack({&tensor, 1}, Quantization::kStored);
    const int before = matmul_->num_products();
    Multiply(matrix, 17, false);
    return matmul_->num_products() - before;
  };
  EXPECT_EQ(products(), 0);
  ops_ = MakeReserved({.activation_dtype = GetParam(), .deterministic = true});
  EXPECT_EQ(products(), 1);
}

INSTANTIATE_TEST_SUITE_P(Types, CodeTilesTest, testing::Values(DType::kBF16, DType::kF16),
                         [](const auto& dtype) { return std::string(DTypeName(dtype.param)); });

}  // namespace
}  // namespace minisgl::cuda
