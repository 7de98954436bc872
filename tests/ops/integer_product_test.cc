// Products of integers with codes of 4 and 6 bits (linear_codes_int8.cc) and of 8 (linear_int8.cc):
// against an oracle that rounds x alike, bit for bit over numbers of rows, on every instruction set
// that has them.
#include <algorithm>
#include <bit>

#include "cpu/experts.h"
#include "op_check.h"
#include "random_codes.h"
#include "tensor/quantize.h"

namespace minisgl::cpu {
namespace {

const WeightFormat kStored = {DType::kBF16, Quantization::kStored};

std::vector<CpuTarget> TargetsOfIntegers() {
  std::vector<CpuTarget> targets = AvailableCpuTargets();
  std::erase_if(targets,
                [](CpuTarget one) { return !HasIntegerProductsOfType(one, DType::kBF16); });
  return targets;
}

// The targets of integers; if the codes have 8 bits, only the ones without tiles.
std::vector<CpuTarget> TargetsOf(const Coding& coding) {
  std::vector<CpuTarget> targets = TargetsOfIntegers();
  std::erase_if(targets, [&](CpuTarget one) { return coding.bits == 8 && UsesTiles(one); });
  return targets;
}

std::vector<Coding> IntegerCodings() {
  std::vector<Coding> codings;
  for (const Coding& coding : kCodings) {
    const bool is_unsigned = coding.numbers == UnsignedNumbers();
    const bool is_integer = coding.numbers != E4M3Numbers() && !coding.has_zeros && !is_unsigned;
    if (coding.bits == 4 || is_integer) codings.push_back(coding);
  }
  codings.push_back({"unsigned int4 without zeros", 4, UnsignedNumbers(), false, true});
  codings.push_back({"e2m1 in bf16", 4, E2M1Numbers(), false, true});
  return codings;
}

struct IntegerShape {
  int64_t num_out, num_in, group_inputs;
  bool HasProductsWith(const Coding& coding) const {
    if (coding.bits == 4 || group_inputs == num_in) return true;
    return group_inputs % kQuantBlock == 0 && std::has_single_bit<uint64_t>(group_inputs);
  }
};
// Whole and ragged groups of outputs; one group for all inputs, blocks, several blocks, halves of
// blocks; a last block, half or group that is short.
constexpr IntegerShape kIntegerShapes[] = {
    {64, 64, 32},   {70, 7, 7},   {20, 257, 257}, {150, 300, 32},  {64, 384, 128},  {65, 200, 64},
    {128, 272, 16}, {33, 40, 16}, {5, 120, 48},   {130, 288, 288}, {64, 1056, 1024}};

// Each block of x as the kernels round it.
std::vector<double> RoundedInputs(const std::vector<float>& x, int64_t num_in) {
  std::vector<double> rounded(x.size());
  for (int64_t row = 0; row < std::ssize(x); row += num_in) {
    for (int64_t first = 0; first < num_in; first += kQuantBlock) {
      const int64_t count = std::min(kQuantBlock, num_in - first);
      int8_t q[kQuantBlock];
      const double scale = tensor::QuantizeActivations(x.data() + row + first, count, q);
      for (int64_t i = 0; i < count; ++i) rounded[row + first + i] = scale * q[i];
    }
  }
  return rounded;
}

// x w^T of rounded inputs in double precision, and the same of magnitudes.
struct OracleProduct {
  std::vector<float> sums, sizes;
};
OracleProduct Oracle(std::span<const WeightTensor> parts, const std::vector<float>& x,
                     const float* bias) {
  const int64_t num_in = parts[0].num_in();
  const std::vector<double> rounded = RoundedInputs(x, num_in);
  OracleProduct product;
  std::vector<float> w;
  for (const WeightTensor& part : parts) {
    for (int64_t out = 0; out < part.num_out(); ++out) {
      w.resize(w.size() + static_cast<size_t>(num_in));
      part.ReadRow(out, w.data() + w.size() - num_in);
    }
  }
  const int64_t num_out = std::ssize(w) / num_in;
  for (int64_t row = 0; row < std::ssize(x) / num_in; ++row) {
    for (int64_t out = 0; out < num_out; ++out) {
      double sum = bias == nullptr ? 0 : bias[out], size = std::abs(sum);
      for (int64_t i = 0; i < num_in; ++i) {
        const double term = w[out * num_in + i] * rounded[row * num_in + i];
        sum += term;
        size += std::abs(term);
      }
      product.sums.push_back(static_cast<float>(sum));
      product.sizes.push_back(static_cast<float>(size));
    }
  }
  return product;
}

TEST(IntegerProductTest, AgreesWithAnOracleThatRoundsAlike) {
  for (const Coding& coding : IntegerCodings()) {
    for (const IntegerShape& s : kIntegerShapes) {
      if (!s.HasProductsWith(coding)) continue;
      // Two parts, which may have global scales of their own.
      const RandomCodes first(coding, s.num_out - s.num_out / 3, s.num_in, s.group_inputs, 1);
      const RandomCodes second(coding, s.num_out / 3, s.num_in, s.group_inputs, 2);
      const WeightTensor parts[] = {first.Tensor(), second.Tensor()};
      const auto bias = RandomFloats(s.num_out, 3);
      for (const int64_t num_tokens : {1, 2, 7, 40}) {
        const auto x = RandomFloats(num_tokens * s.num_in, 4);
        const float* const b = num_tokens == 2 ? bias.data() : nullptr;
        const OracleProduct wanted = Oracle(parts, x, b);
        for (const CpuTarget target : TargetsOf(coding)) {
          const auto ops = MakeOps(CpuTargetName(target), 2);
          for (const DType dtype : {DType::kBF16, DType::kF16}) {
            const auto packed = ops->PackMatrix(parts, {dtype, Quantization::kStored});
            ASSERT_TRUE(packed.ok());
            ASSERT_TRUE(HasIntegerProducts(target, PackedOf(*packed)));
            ExpectClose(
                Multiply(ops.get(), *packed, x, b), wanted.sums,
                [&](size_t i) { return 1e-6 * wanted.sizes[i]; },
                fmt::format("{} {} [{}, {}] tokens {}", ops->Name(), coding.name, s.num_out,
                            s.num_in, num_tokens));
          }
        }
      }
    }
  }
}

// Formats of rows of blocks: with offsets and without, in groups of whole blocks and of halves, and
// with scales that are steps of a factor.
TEST(IntegerProductTest, RowsOfBlocksAgreeWithTheOracle) {
  constexpr int64_t kOut = 70, kIn = 512;
  for (const char* const name : kBlockFormats) {
    const RandomBlocks blocks(name, kOut, kIn, 1);
    const WeightTensor tensor = blocks.Tensor();
    const auto x = RandomFloats(40 * kIn, 4), bias = RandomFloats(kOut, 3);
    const OracleProduct wanted = Oracle({&tensor, 1}, x, bias.data());
    std::vector<float> first;  // of the sets that have multiply-adds of one rounding
    for (const CpuTarget target : TargetsOfIntegers()) {
      const auto ops = MakeOps(CpuTargetName(target), 2);
      const auto packed = ops->PackMatrix({&tensor, 1}, kStored);
      ASSERT_TRUE(packed.ok());
      if (UsesTiles(target) && PackedOf(*packed).coded->kind == CodeKind::kInt8) continue;
      ASSERT_TRUE(HasIntegerProducts(target, PackedOf(*packed)));
      const auto all = Multiply(ops.get(), *packed, x, bias.data());
      ExpectClose(
          all, wanted.sums, [&](size_t i) { return 2e-6 * wanted.sizes[i]; },
          fmt::format("{} {}", ops->Name(), name));
      if (std::string_view(CpuTargetName(target)).starts_with("avx")) {
        if (first.empty()) first = all;
        ExpectSameBits(all, first, ops->Name() + name);
      }
      for (const int64_t count : {1, 2, 3, 5, 6, 13}) {
        const std::vector<float> part(x.begin() + 7 * kIn, x.begin() + (7 + count) * kIn);
        const std::vector<float> expected(all.begin() + 7 * kOut, all.begin() + (7 + count) * kOut);
        ExpectSameBits(Multiply(ops.get(), *packed, part, bias.data()), expected,
                       fmt::format("{} {} {} rows", ops->Name(), name, count));
      }
    }
  }
}

// The largest codes and inputs, of one sign, fit in sums of 16 bits; so does half a block, as a
// rank may have it.
TEST(IntegerProductTest, CodesOf6BitsFitTheirSums) {
  constexpr int64_t kOut = 70, kIn = 256;
  for (const uint8_t fill : {0x00, 0xFF}) {
    RandomBlocks blocks("Q6_K", kOut, kIn, 1);
    blocks.Fill(fill, 192);  // codes of -32, or of 31
    const WeightTensor whole = blocks.Tensor(), half = whole.TakeInputs(16, 16);
    for (const WeightTensor& tensor : {whole, half}) {
      const std::vector<float> x(static_cast<size_t>(tensor.num_in()), 1.0f);
      const OracleProduct wanted = Oracle({&tensor, 1}, x, nullptr);
      for (const CpuTarget target : TargetsOfIntegers()) {
        const auto ops = MakeOps(CpuTargetName(target), 1);
        const auto packed = ops->PackMatrix({&tensor, 1}, kStored);
        ASSERT_TRUE(packed.ok());
        ASSERT_TRUE(HasIntegerProducts(target, PackedOf(*packed)));
        ExpectClose(
            Multiply(ops.get(), *packed, x, nullptr), wanted.sums,
            [&](size_t i) { return 2e-6 * wanted.sizes[i]; }, ops->Name());
      }
    }
  }
}

// Weights that packing quantizes to int4 have such products, too.
TEST(IntegerProductTest, Int4AgreesWithTheOracle) {
  for (const int64_t num_in : {7, 33, 64, 257}) {
    const auto w = RandomFloats(70 * num_in, 1), x = RandomFloats(9 * num_in, 2);
    const WeightTensor dense = View(w, 70, num_in);
    for (const CpuTarget target : TargetsOfIntegers()) {
      const auto ops = MakeOps(CpuTargetName(target), 1);
      const auto packed = ops->PackMatrix({&dense, 1}, {DType::kBF16, Quantization::kInt4});
      ASSERT_TRUE(packed.ok());
      ASSERT_TRUE(HasIntegerProducts(target, PackedOf(*packed)));
      std::vector<float> weights(w.size());
      for (int64_t out = 0; out < 70; ++out) {
        PackedOf(*packed).ReadRow(out, weights.data() + out * num_in);
      }
      const WeightTensor rounded = View(weights, 70, num_in);
      const OracleProduct wanted = Oracle({&rounded, 1}, x, nullptr);
      ExpectClose(
          Multiply(ops.get(), *packed, x, nullptr), wanted.sums,
          [&](size_t i) { return 1e-6 * wanted.sizes[i]; }, ops->Name());
    }
  }
}

// A row's bits depend neither on the other rows of the product nor on its place among them.
TEST(IntegerProductTest, RowAloneHasTheBitsItHasInABatch) {
  constexpr int64_t kRows = 150;
  for (const Coding& coding : IntegerCodings()) {
    for (const IntegerShape& s :
         {IntegerShape{70, 300, 32}, {64, 272, 16}, {150, 640, 128}, {64, 77, 77}}) {
      if (!s.HasProductsWith(coding)) continue;
      const RandomCodes codes(coding, s.num_out, s.num_in, s.group_inputs, 1);
      const WeightTensor tensor = codes.Tensor();
      const auto x = RandomFloats(kRows * s.num_in, 5);
      for (const CpuTarget target : TargetsOf(coding)) {
        const auto ops = MakeOps(CpuTargetName(target), 2);
        const auto packed = ops->PackMatrix({&tensor, 1}, kStored);
        ASSERT_TRUE(packed.ok());
        const auto all = Multiply(ops.get(), *packed, x, nullptr);
        for (const int64_t count : {1, 2, 3, 4, 5, 6, 7, 8, 11, 13, 24, 25, 36, 37, 64, 127}) {
          const int64_t first = kRows - count - count % 7;
          const std::vector<float> part(x.begin() + first * s.num_in,
                                        x.begin() + (first + count) * s.num_in);
          const std::vector<float> expected(all.begin() + first * s.num_out,
                                            all.begin() + (first + count) * s.num_out);
          ExpectSameBits(
              Multiply(ops.get(), *packed, part, nullptr), expected,
              fmt::format("{} {} {} rows of {}", ops->Name(), coding.name, count, s.num_in));
        }
      }
    }
  }
}

// The instruction sets that have multiply-adds of one rounding.
TEST(IntegerProductTest, TargetsWithMultiplyAddsHaveTheSameBits) {
  for (const Coding& coding : IntegerCodings()) {
    for (const int64_t group : {16, 32, 128}) {
      if (!IntegerShape{130, 256, group}.HasProductsWith(coding)) continue;
      const RandomCodes codes(coding, 130, 256, group, 1);
      const WeightTensor tensor = codes.Tensor();
      const auto x = RandomFloats(9 * 256, 5);
      std::vector<float> first;
      for (const CpuTarget target : TargetsOf(coding)) {
        if (std::string_view(CpuTargetName(target)).find("avx") != 0) continue;
        const auto ops = MakeOps(CpuTargetName(target), 1);
        const auto packed = ops->PackMatrix({&tensor, 1}, kStored);
        ASSERT_TRUE(packed.ok());
        const auto out = Multiply(ops.get(), *packed, x, nullptr);
        if (first.empty()) first = out;
        ExpectSameBits(out, first, ops->Name() + coding.name);
      }
    }
  }
}

// A matrix whose codes, zero points and scales are all the same.
class ConstantCodes {
 public:
  ConstantCodes(const float* numbers, uint8_t code, int zero, int64_t num_out, int64_t num_in,
                int64_t group_inputs)
      : num_out_(num_out),
        num_in_(num_in),
        codes_(num_in, code * 0x11),
        zeros_(num_in, zero * 0x11) {
    weights_.codes = {.data = Bytes(codes_), .bits = 4, .other_step = 0};
    weights_.numbers = numbers;
    weights_.scales = {reinterpret_cast<const std::byte*>(&kOne), DType::kF32, 1, 0, 0};
    weights_.num_groups = CeilDiv(num_in, group_inputs);
    weights_.group_inputs = group_inputs;
    if (zero >= 0) weights_.zeros = {.data = Bytes(zeros_), .bits = 4, .other_step = 0};
  }
  ConstantCodes(const ConstantCodes&) = delete;
  WeightTensor Tensor() const { return WeightTensor(num_out_, num_in_, weights_); }

 private:
  static constexpr float kOne = 1;
  static const std::byte* Bytes(const std::vector<uint8_t>& bytes) {
    return reinterpret_cast<const std::byte*>(bytes.data());
  }
  int64_t num_out_, num_in_;
  std::vector<uint8_t> codes_, zeros_;
  QuantizedWeights weights_;
};

// The largest integers of both factors, of either sign, do not overflow: the sums are exact.
TEST(IntegerProductTest, SumsDoNotSaturate) {
  struct Extreme {
    const float* numbers;
    int code, zero;  // zero: -1 if there is none
    float weight;
  };
  const Extreme extremes[] = {{UnsignedNumbers(), 15, 0, 15},  {UnsignedNumbers(), 0, 15, -15},
                              {UnsignedNumbers(), 15, -1, 15}, {UnsignedNumbers(), 15, 15, 0},
                              {OffsetNumbers(4), 15, -1, 7},   {OffsetNumbers(4), 0, -1, -8},
                              {OffsetNumbers(4), 0, 15, -15},  {E2M1Numbers(), 7, -1, 6},
                              {E2M1Numbers(), 15, -1, -6},     {E2M1Numbers(), 9, -1, -0.5f}};
  for (const Extreme& extreme : extremes) {
    for (const int64_t group : {32, 16, 96}) {
      const ConstantCodes codes(extreme.numbers, static_cast<uint8_t>(extreme.code), extreme.zero,
                                70, 96, group);
      const WeightTensor tensor = codes.Tensor();
      for (const CpuTarget target : TargetsOfIntegers()) {
        const auto ops = MakeOps(CpuTargetName(target), 1);
        const auto packed = ops->PackMatrix({&tensor, 1}, kStored);
        ASSERT_TRUE(packed.ok());
        for (const float x : {127.0f, -127.0f}) {
          for (const int64_t rows : {1, 3, 60}) {
            const std::vector<float> all(static_cast<size_t>(rows * 96), x);
            for (const float value : Multiply(ops.get(), *packed, all, nullptr)) {
              ASSERT_EQ(value, extreme.weight * x * 96)
                  << ops->Name() << " code " << extreme.code << " zero " << extreme.zero;
            }
          }
        }
      }
    }
  }
}

TEST(IntegerProductTest, NanReachesOnlyItsOwnRow) {
  const RandomCodes codes(kCodings[1], 70, 100, 32, 1);
  const WeightTensor tensor = codes.Tensor();
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    for (const int64_t rows : {2, 5, 60}) {
      auto x = RandomFloats(rows * 100, 6);
      x[100 + 4] = bad;
      for (const CpuTarget target : TargetsOfIntegers()) {
        const auto ops = MakeOps(CpuTargetName(target), 1);
        const auto packed = ops->PackMatrix({&tensor, 1}, kStored);
        ASSERT_TRUE(packed.ok());
        const auto out = Multiply(ops.get(), *packed, x, nullptr);
        for (size_t i = 0; i < out.size(); ++i) ASSERT_EQ(std::isnan(out[i]), i / 70 == 1) << i;
      }
    }
  }
}

// Inputs that are not rounded: f32, tiles, other codes, groups that are no multiple of 16, groups
// of bytes that are no power of two of blocks.
TEST(IntegerProductTest, OthersAreExpanded) {
  const auto has = [](CpuTarget target, const Coding& coding, int64_t group, DType dtype) {
    const RandomCodes codes(coding, 8, 96, group, 1);
    const WeightTensor tensor = codes.Tensor();
    const auto ops = MakeOps(CpuTargetName(target), 1);
    const auto packed = ops->PackMatrix({&tensor, 1}, {dtype, Quantization::kStored});
    return packed.ok() && HasIntegerProducts(target, PackedOf(*packed));
  };
  const CpuTarget target = TargetsOfIntegers().front();
  EXPECT_TRUE(has(target, kCodings[0], 48, DType::kBF16));
  EXPECT_FALSE(has(target, kCodings[0], 48, DType::kF32));
  EXPECT_FALSE(has(target, kCodings[0], 24, DType::kBF16));
  EXPECT_FALSE(has(target, kCodings[4], 32, DType::kBF16));  // zeros
  EXPECT_FALSE(has(target, kCodings[7], 32, DType::kBF16));  // unsigned
  EXPECT_FALSE(has(target, kCodings[8], 32, DType::kBF16));  // e4m3
  const CpuTarget of_bytes = TargetsOf(kCodings[3]).front();
  EXPECT_TRUE(has(of_bytes, kCodings[3], 32, DType::kBF16));
  EXPECT_TRUE(has(of_bytes, kCodings[5], 64, DType::kF16));
  EXPECT_TRUE(has(of_bytes, kCodings[3], 96, DType::kBF16));
  EXPECT_FALSE(has(of_bytes, kCodings[3], 32, DType::kF32));
  EXPECT_FALSE(has(of_bytes, kCodings[3], 16, DType::kBF16));
  EXPECT_FALSE(has(of_bytes, kCodings[3], 48, DType::kBF16));
  EXPECT_FALSE(has(CpuTarget::kAmxStandIn, kCodings[3], 32, DType::kBF16));
  EXPECT_FALSE(has(CpuTarget::kAmxStandIn, kCodings[0], 32, DType::kBF16));
}

// An expert's rows have the bits of a product with its matrix alone if one kernel reads the
// matrices of all experts; otherwise all are expanded.
TEST(IntegerProductTest, ExpertsToo) {
  constexpr int64_t kTokens = 9, kChosen = 2, kIn = 64, kOut = 70;
  struct Case {
    int coding, last;  // in kCodings: of the first experts, and of the last one
  };
  constexpr Case kCases[] = {{2, 2}, {2, 8}, {3, 3}, {3, 4}, {2, 3}, {3, 0}};
  const std::vector<int32_t> chosen = {0, 1, 1, 2, 2, 0, 0, 2, 1, 0, 1, 2, 0, 1, 2, 1, 2, 0};
  const auto x = RandomFloats(kTokens * kIn, 7);
  for (const CpuTarget target : TargetsOfIntegers()) {
    const auto ops = MakeOps(CpuTargetName(target), 2);
    for (const auto& [coding_of_most, coding_of_last] : kCases) {
      if (UsesTiles(target) && kCodings[coding_of_most].bits == 8) continue;
      const bool all = coding_of_most == coding_of_last;
      std::vector<std::unique_ptr<RandomCodes>> codes;
      std::vector<std::vector<WeightTensor>> experts;
      for (uint64_t expert = 0; expert < 3; ++expert) {
        const Coding& coding = kCodings[expert == 2 ? coding_of_last : coding_of_most];
        codes.push_back(std::make_unique<RandomCodes>(coding, kOut, kIn, 32, expert));
        experts.push_back({codes.back()->Tensor()});
      }
      const auto packed = ops->PackExperts(experts, kStored);
      ASSERT_TRUE(packed.ok());
      const auto out = MultiplyChosen(ops.get(), *packed, x, chosen, kChosen);
      const WeightFormat format = all ? kStored : WeightFormat(ExpandedType(target, DType::kBF16));
      for (size_t pair = 0; pair < chosen.size(); ++pair) {
        const auto matrix = ops->PackMatrix(experts[chosen[pair]], format);
        ASSERT_TRUE(matrix.ok());
        const auto token = static_cast<int64_t>(pair) / kChosen;
        const std::vector<float> row(x.begin() + token * kIn, x.begin() + (token + 1) * kIn);
        const float* const found = out.data() + static_cast<int64_t>(pair) * kOut;
        ExpectSameBits({found, found + kOut}, Multiply(ops.get(), *matrix, row, nullptr),
                       fmt::format("{} pair {} of {} and {}", ops->Name(), pair, coding_of_most,
                                   coding_of_last));
      }
    }
  }
}

}  // namespace
}  // namespace minisgl::cpu
