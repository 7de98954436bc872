// The product of tiles: the stand-in against the oracle and over numbers of rows on every machine,
// and against the processor's tiles, bit for bit, where it has them.
#include <algorithm>
#include <limits>

#include "cpu/kernels/kernels.h"
#include "op_check.h"

namespace minisgl::cpu {
namespace {

struct Product {
  PackedMatrix weight;
  std::vector<float> x, bias;
  int64_t num_rows;
};

Product MakeProduct(int64_t num_rows, int64_t num_out, int64_t num_in, double deviation = 1) {
  const auto w = RandomFloats(num_out * num_in, 1, deviation);
  const WeightTensor matrix = View(w, num_out, num_in);
  ThreadPool pool(1);
  auto packed = PackParts({&matrix, 1}, DType::kBF16, CodeOrder::kWords, &pool);
  MINISGL_CHECK(packed.ok(), "{}", packed.status().message());
  return {std::move(packed).value(), RandomFloats(num_rows * num_in, 2, deviation),
          RandomFloats(num_out, 3), num_rows};
}

std::vector<float> MultiplyAll(const LinearKernel& kernel, const Product& product,
                               int64_t first_row, int64_t num_rows) {
  const int64_t num_in = product.weight.num_in, num_out = product.weight.num_out;
  const int64_t stride = (kernel.row_bytes(num_in) + 63) / 64 * 64;
  std::vector<std::byte> rows(static_cast<size_t>(num_rows * stride));
  for (int64_t r = 0; r < num_rows; ++r) {
    kernel.prepare(product.x.data() + (first_row + r) * num_in, num_in, rows.data() + r * stride);
  }
  std::vector<float> scratch(kLinearScratchFloats);
  OpOutput out(num_rows * num_out);
  for (int64_t group = 0; group * kGroupWidth < num_out; ++group) {
    kernel.multiply({.x = rows.data(),
                     .x_stride = stride,
                     .weight = &product.weight,
                     .bias = product.bias.data(),
                     .out = out.data() + group * kGroupWidth,
                     .out_stride = num_out,
                     .num_rows = num_rows,
                     .group = group,
                     .scratch = scratch.data()});
  }
  EXPECT_TRUE(out.GuardsIntact());
  return out.values();
}

bool HasTiles() {
  const std::vector<CpuTarget> targets = AvailableCpuTargets();
  return std::find(targets.begin(), targets.end(), CpuTarget::kAmx) != targets.end();
}

// Rows of one tile, two, and more; panels missing in a group; inputs left after whole tiles.
constexpr int64_t kRowCounts[] = {1, 2, 15, 16, 17, 31, 32, 33, 48, 49, 70};
struct Outline {
  int64_t num_out, num_in;
};
constexpr Outline kOutlines[] = {{1, 1},   {16, 32},   {17, 31},  {33, 64}, {48, 65},
                                 {64, 96}, {100, 127}, {130, 33}, {70, 2},  {192, 160}};

TEST(LinearAmxTest, TheStandInAgreesWithTheOracle) {
  const auto oracle = MakeNaiveOps();
  for (const Outline& outline : kOutlines) {
    const Product product = MakeProduct(33, outline.num_out, outline.num_in);
    std::vector<float> x = product.x, w = RandomFloats(outline.num_out * outline.num_in, 1);
    RoundToBf16(&x);
    const auto exact = [&](const std::vector<float>& weights, const std::vector<float>& inputs,
                           const std::vector<float>& bias) {
      const TensorView view = View(weights, outline.num_out, outline.num_in);
      auto packed = oracle->PackMatrix({&view, 1}, DType::kBF16);
      MINISGL_CHECK(packed.ok(), "{}", packed.status().message());
      OpOutput out(product.num_rows * outline.num_out);
      oracle->Linear({inputs.data(), &*packed, bias.data(), out.data(), product.num_rows});
      return out.values();
    };
    const auto sizes = exact(Absolute(w), Absolute(x), Absolute(product.bias));
    const double roundings = 20 + static_cast<double>(outline.num_in) / 32;
    ExpectClose(
        MultiplyAll(AmxStandInLinearKernel(), product, 0, product.num_rows),
        exact(w, x, product.bias), [&](size_t i) { return roundings * kEpsilon * sizes[i]; },
        fmt::format("[{}, {}]", outline.num_out, outline.num_in));
  }
}

TEST(LinearAmxTest, RowAloneHasTheBitsItHasInABatch) {
  const LinearKernel kernel = AmxStandInLinearKernel();
  const int64_t num_out = 100, num_in = 90;
  const Product product = MakeProduct(75, num_out, num_in);
  const auto all = MultiplyAll(kernel, product, 0, product.num_rows);
  for (const int64_t count : kRowCounts) {
    const std::vector<float> expected(all.begin() + 5 * num_out,
                                      all.begin() + (5 + count) * num_out);
    ExpectSameBits(MultiplyAll(kernel, product, 5, count), expected, fmt::format("{} rows", count));
  }
}

TEST(LinearAmxTest, TheProcessorsTilesHaveTheBitsOfTheStandIn) {
  if (!HasTiles()) GTEST_SKIP() << "this processor has no AMX, or the system does not lend it";
  for (const Outline& outline : kOutlines) {
    for (const int64_t num_rows : kRowCounts) {
      const Product product = MakeProduct(num_rows, outline.num_out, outline.num_in);
      ExpectSameBits(MultiplyAll(AmxLinearKernel(), product, 0, num_rows),
                     MultiplyAll(AmxStandInLinearKernel(), product, 0, num_rows),
                     fmt::format("{} rows, [{}, {}]", num_rows, outline.num_out, outline.num_in));
    }
  }
}

// Products near the smallest normal number: factors, products and sums that are subnormal count as
// 0. Without that some element here would differ from the processor's.
TEST(LinearAmxTest, SubnormalNumbersCountAsZero) {
  Product tiny = MakeProduct(20, 64, 6, 1e-19);
  std::fill(tiny.bias.begin(), tiny.bias.end(), 0.0f);
  const auto sums = MultiplyAll(AmxStandInLinearKernel(), tiny, 0, 20);
  int64_t zeros = 0;
  for (const float sum : sums) {
    EXPECT_TRUE(sum == 0 || std::abs(sum) >= std::numeric_limits<float>::min()) << sum;
    zeros += sum == 0;
  }
  EXPECT_GT(zeros, 0);
  EXPECT_LT(zeros, std::ssize(sums));
  if (HasTiles()) ExpectSameBits(MultiplyAll(AmxLinearKernel(), tiny, 0, 20), sums, "tiny factors");

  Product subnormal = MakeProduct(3, 16, 32, 1e-39);
  std::fill(subnormal.bias.begin(), subnormal.bias.end(), 0.0f);
  subnormal.x = RandomFloats(3 * 32, 2);
  const std::vector<float> none(static_cast<size_t>(3 * 16), 0.0f);
  EXPECT_EQ(MultiplyAll(AmxStandInLinearKernel(), subnormal, 0, 3), none);
  if (HasTiles()) {
    EXPECT_EQ(MultiplyAll(AmxLinearKernel(), subnormal, 0, 3), none);
  }
}

TEST(LinearAmxTest, InfinityAndNaNReachTheirRowAlone) {
  Product product = MakeProduct(18, 40, 70);
  product.x[3 * 70 + 5] = std::numeric_limits<float>::infinity();
  product.x[17 * 70 + 69] = std::numeric_limits<float>::quiet_NaN();
  const auto out = MultiplyAll(AmxStandInLinearKernel(), product, 0, 18);
  for (int64_t row = 0; row < 18; ++row) {
    for (int64_t column = 0; column < 40; ++column) {
      const float value = out[row * 40 + column];
      EXPECT_EQ(std::isfinite(value), row != 3 && row != 17) << row << ' ' << column;
    }
  }
  if (!HasTiles()) return;
  const auto found = MultiplyAll(AmxLinearKernel(), product, 0, 18);
  for (size_t i = 0; i < out.size(); ++i) {
    EXPECT_TRUE(found[i] == out[i] || (std::isnan(found[i]) && std::isnan(out[i]))) << i;
  }
}

}  // namespace
}  // namespace minisgl::cpu
