// Linear: against the oracle over ragged shapes, dtypes and instruction sets, and bit for bit over
// batch sizes.
#include "op_check.h"
#include "slow.h"

namespace minisgl::cpu {
namespace {

struct MatrixShape {
  int64_t num_out, num_in;
};
// One short and one ragged panel, whole groups, several blocks of inputs, odd numbers of inputs.
constexpr MatrixShape kMatrixShapes[] = {{1, 1},   {7, 3},     {16, 16},  {17, 129}, {64, 128},
                                         {80, 96}, {100, 257}, {192, 64}, {70, 390}, {66, 1031}};

std::vector<float> RunLinear(Ops& ops, const Matrix& weight, const std::vector<float>& x,
                             const float* bias) {
  const int64_t num_tokens = static_cast<int64_t>(x.size()) / weight.num_in;
  OpOutput out(num_tokens * weight.num_out);
  ops.Linear({x.data(), &weight, bias, out.data(), num_tokens});
  EXPECT_TRUE(out.GuardsIntact());
  return out.values();
}

Matrix Pack(Ops& ops, const std::vector<float>& weight, MatrixShape shape,
            const WeightFormat& format) {
  const TensorView view = View(weight, shape.num_out, shape.num_in);
  auto packed = ops.PackMatrix({&view, 1}, format);
  MINISGL_CHECK(packed.ok(), "{}", packed.status().message());
  return std::move(packed).value();
}

TEST(LinearTest, AgreesWithOracle) {
  MarkSlow("many shapes on every instruction set");
  const auto oracle = MakeNaiveOps();
  for (const auto& ops : AllCpuOps()) {
    for (const MatrixShape& shape : kMatrixShapes) {
      const auto w = RandomFloats(shape.num_out * shape.num_in, 1);
      const auto bias = RandomFloats(shape.num_out, 2);
      for (const WeightFormat& format : kWeightFormats) {
        const Matrix packed = Pack(*ops, w, shape, format);
        const Matrix exact = Pack(*oracle, w, shape, format);
        const Matrix magnitude = Pack(*oracle, Absolute(w), shape, format);
        for (int64_t num_tokens : kTokenCounts) {
          const auto x = AsRead(*ops, format, RandomFloats(num_tokens * shape.num_in, 3));
          const float* b = num_tokens % 2 == 0 ? bias.data() : nullptr;
          const auto sizes =
              RunLinear(*oracle, magnitude, Absolute(x), b == nullptr ? b : Absolute(bias).data());
          // Standard bound of a sum: the number of roundings times the sum of magnitudes.
          const double roundings = RoundingsOf(format, shape.num_in);
          ExpectClose(
              RunLinear(*ops, packed, x, b), RunLinear(*oracle, exact, x, b),
              [&](size_t i) { return roundings * kEpsilon * sizes[i]; },
              fmt::format("{} {} [{}, {}] tokens {}", ops->Name(), format.Name(), shape.num_out,
                          shape.num_in, num_tokens));
        }
      }
    }
  }
}

// A token's result does not depend on its batch or on the number of threads.
TEST(LinearTest, RowAloneHasTheBitsItHasInABatch) {
  const MatrixShape shape = {150, 600};
  const auto w = RandomFloats(shape.num_out * shape.num_in, 4);
  const auto x = RandomFloats(300 * shape.num_in, 5);
  for (CpuTarget target : AvailableCpuTargets()) {
    const auto one = MakeOps(CpuTargetName(target), 1);
    const auto two = MakeOps(CpuTargetName(target), 2);
    for (const WeightFormat& format : kWeightFormats) {
      const Matrix weight = Pack(*one, w, shape, format);
      const auto all = RunLinear(*one, weight, x, nullptr);
      ExpectSameBits(RunLinear(*two, weight, x, nullptr), all, "two threads");
      for (int64_t count :
           {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 15, 18, 19, 21, 32, 64, 126}) {
        const std::vector<float> part(x.begin() + 9 * shape.num_in,
                                      x.begin() + (9 + count) * shape.num_in);
        const std::vector<float> expected(all.begin() + 9 * shape.num_out,
                                          all.begin() + (9 + count) * shape.num_out);
        ExpectSameBits(RunLinear(*one, weight, part, nullptr), expected,
                       fmt::format("{} {} rows {}", one->Name(), format.Name(), count));
      }
    }
  }
}

// The same if products underflow, some to -0: the sign of a zero is compared too. One whole vector
// of outputs and a part of one, and both few and many rows.
TEST(LinearTest, SignsOfZerosDoNotDependOnTheBatch) {
  const MatrixShape shape = {25, 3};
  const auto w = RandomFloats(shape.num_out * shape.num_in, 14, 1e-25);
  const auto x = RandomFloats(40 * shape.num_in, 15, 1e-25);
  for (CpuTarget target : AvailableCpuTargets()) {
    const auto ops = MakeOps(CpuTargetName(target), 1);
    for (const WeightFormat& format : kWeightFormats) {
      const Matrix weight = Pack(*ops, w, shape, format);
      const auto all = RunLinear(*ops, weight, x, nullptr);
      for (int64_t row = 0; row < 40; ++row) {
        const std::vector<float> alone(x.begin() + row * shape.num_in,
                                       x.begin() + (row + 1) * shape.num_in);
        const std::vector<float> expected(all.begin() + row * shape.num_out,
                                          all.begin() + (row + 1) * shape.num_out);
        ExpectSameBits(RunLinear(*ops, weight, alone, nullptr), expected,
                       fmt::format("{} {} row {}", ops->Name(), format.Name(), row));
      }
    }
  }
}

TEST(LinearTest, PartsAreStackedInOrder) {
  const auto oracle = MakeNaiveOps();
  const auto a = RandomFloats(5 * 10, 6), b = RandomFloats(20 * 10, 7), x = RandomFloats(10, 8);
  const TensorView parts[] = {View(a, 5, 10), View(b, 20, 10)};
  for (const auto& ops : AllCpuOps()) {
    const auto both = ops->PackMatrix(parts, DType::kF32);
    ASSERT_TRUE(both.ok());
    const auto out = RunLinear(*ops, *both, x, nullptr);
    auto expected = RunLinear(*oracle, Pack(*oracle, a, {5, 10}, DType::kF32), x, nullptr);
    const auto second = RunLinear(*oracle, Pack(*oracle, b, {20, 10}, DType::kF32), x, nullptr);
    expected.insert(expected.end(), second.begin(), second.end());
    ExpectClose(
        out, expected, [](size_t) { return 1e-5; }, ops->Name());
  }
}

// bf16 and f16 sources are stored bit for bit; the view may have an odd address.
TEST(LinearTest, NarrowSourcesAreNotRoundedAgain) {
  const int64_t num_in = 20;
  for (DType dtype : {DType::kBF16, DType::kF16}) {
    std::vector<std::byte> file(1 + num_in * 2);
    for (int64_t i = 0; i < num_in; ++i) {
      const float value = 1.0f + static_cast<float>(i) / 128;  // exact in both
      const uint16_t bits = dtype == DType::kBF16 ? FloatToBf16(value) : FloatToF16(value);
      std::memcpy(file.data() + 1 + 2 * i, &bits, 2);
    }
    const TensorView view = {file.data() + 1, dtype, {1, num_in}};
    for (const auto& ops : AllCpuOps()) {
      const auto packed = ops->PackMatrix({&view, 1}, dtype);
      ASSERT_TRUE(packed.ok());
      for (int64_t i = 0; i < num_in; ++i) {
        std::vector<float> x(num_in, 0.0f);
        x[i] = 1.0f;
        EXPECT_EQ(RunLinear(*ops, *packed, x, nullptr)[0], 1.0f + static_cast<float>(i) / 128);
      }
    }
  }
}

// Subnormal and the largest f16 widen exactly on every instruction set, with and without F16C.
TEST(LinearTest, F16RangeIsWidenedExactly) {
  const std::vector<float> w = {0x1.0p-24f, 0x1.ff8p-15f, 65504.0f, -0x1.0p-14f, 1.0f, -0.0f};
  for (const auto& ops : AllCpuOps()) {
    const Matrix packed = Pack(*ops, w, {6, 1}, DType::kF16);
    ExpectSameBits(RunLinear(*ops, packed, {1.0f}, nullptr),
                   {0x1.0p-24f, 0x1.ff8p-15f, 65504.0f, -0x1.0p-14f, 1.0f, 0.0f}, ops->Name());
  }
}

// Few rows, and enough rows for the other path.
constexpr int64_t kFewAndManyRows[] = {1, 13};

// The largest integers of both operands do not overflow, whatever instruction adds their products.
TEST(LinearTest, Int8SumsDoNotSaturate) {
  const WeightFormat format = {DType::kF32, Quantization::kInt8};
  const MatrixShape shape = {70, 288};
  for (const float w_sign : {1.0f, -1.0f}) {
    for (const float x_sign : {1.0f, -1.0f}) {
      const std::vector<float> w(shape.num_out * shape.num_in, w_sign * 127);
      for (const int64_t num_rows : kFewAndManyRows) {
        const std::vector<float> x(num_rows * shape.num_in, x_sign * 127);
        for (const auto& ops : AllCpuOps()) {
          const auto out = RunLinear(*ops, Pack(*ops, w, shape, format), x, nullptr);
          ASSERT_EQ(std::ssize(out), num_rows * shape.num_out);
          for (const float value : out) {
            EXPECT_EQ(value, w_sign * x_sign * 127 * 127 * 288) << ops->Name();
          }
        }
      }
    }
  }
}

// Blocks of zeros, of numbers too small for a scale, and of very different magnitudes in one row:
// each block has its own scale, so that small values are kept next to large ones.
TEST(LinearTest, Int8BlocksKeepTheirOwnScale) {
  const WeightFormat format = {DType::kF32, Quantization::kInt8};
  const MatrixShape shape = {17, 160};
  constexpr float kSizes[] = {0.0f, 1e-35f, 1e-10f, 1.0f, 1e10f};
  constexpr int64_t kRows = 13;
  std::vector<float> w(shape.num_out * shape.num_in), x(kRows * shape.num_in);
  for (int64_t o = 0; o < shape.num_out; ++o) {
    for (int64_t i = 0; i < shape.num_in; ++i) {
      w[o * shape.num_in + i] = kSizes[i / 32] * static_cast<float>((o + i) % 5 - 2);
    }
  }
  for (const int64_t block : {0, 1, 2, 3, 4}) {
    std::fill(x.begin(), x.end(), 0.0f);
    for (int64_t r = 0; r < kRows; ++r) x[r * shape.num_in + block * 32 + 3] = 1.0f;
    for (const auto& ops : AllCpuOps()) {
      const auto out = RunLinear(*ops, Pack(*ops, w, shape, format), x, nullptr);
      for (int64_t i = 0; i < kRows * shape.num_out; ++i) {
        const int64_t o = i % shape.num_out;
        const double exact = block <= 1 ? 0 : w[o * shape.num_in + block * 32 + 3];
        // Half a step: the largest of a block is twice its size, its scale rounded up by at most
        // 2^-7.
        const double half_step = kSizes[block] * 2 / 127 / 2 * (1 + 0x1p-7);
        EXPECT_NEAR(out[i], exact, 1.001 * half_step) << ops->Name() << " block " << block;
      }
    }
  }
}

// A weight that is not finite shows in its output, and in no other.
TEST(LinearTest, Int8WeightThatIsNotFiniteShows) {
  const WeightFormat format = {DType::kF32, Quantization::kInt8};
  const MatrixShape shape = {20, 70};
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    auto w = RandomFloats(shape.num_out * shape.num_in, 11);
    w[3 * shape.num_in + 40] = bad;
    for (const int64_t num_rows : kFewAndManyRows) {
      const auto x = RandomFloats(num_rows * shape.num_in, 12);
      for (const auto& ops : AllCpuOps()) {
        const auto out = RunLinear(*ops, Pack(*ops, w, shape, format), x, nullptr);
        for (int64_t i = 0; i < num_rows * shape.num_out; ++i) {
          EXPECT_EQ(std::isfinite(out[i]), i % shape.num_out != 3) << ops->Name() << " " << i;
        }
      }
    }
  }
}

TEST(LinearTest, NanReachesOnlyItsOwnRow) {
  const MatrixShape shape = {20, 130};
  const auto w = RandomFloats(shape.num_out * shape.num_in, 9);
  constexpr int64_t kRows = 13;
  auto x = RandomFloats(kRows * shape.num_in, 10);
  x[shape.num_in + 4] = std::numeric_limits<float>::quiet_NaN();
  for (const auto& ops : AllCpuOps()) {
    for (const WeightFormat& format : kWeightFormats) {
      const auto out = RunLinear(*ops, Pack(*ops, w, shape, format), x, nullptr);
      for (int64_t i = 0; i < kRows * shape.num_out; ++i) {
        EXPECT_EQ(std::isnan(out[i]), i / shape.num_out == 1)
            << ops->Name() << " " << format.Name() << " " << i;
      }
    }
  }
}

}  // namespace
}  // namespace minisgl::cpu
