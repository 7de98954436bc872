// Products of 8-bit integers whose format asks for inputs of int8 (linear_bytes_amx.cc): against an
// oracle that rounds x alike, bit for bit over numbers of rows, with tiles and with their stand-in.
#include <algorithm>
#include <cmath>
#include <limits>

#include "cpu/pack_codes.h"
#include "op_check.h"
#include "random_codes.h"
#include "tensor/quantize.h"

namespace minisgl::cpu {
namespace {

constexpr Coding kInt8Coding = {"int8", 8, nullptr, false, false};

std::vector<CpuTarget> TargetsOfTiles() {
  std::vector<CpuTarget> targets = AvailableCpuTargets();
  std::erase_if(targets, [](CpuTarget target) { return !HasTiles(target); });
  targets.push_back(CpuTarget::kAmxStandIn);
  return targets;
}

Coding Int8Coding() {
  Coding coding = kInt8Coding;
  coding.numbers = SignedNumbers();
  return coding;
}

// Outputs of one row.
std::vector<float> Oracle(const WeightTensor& weights, const float* x, const float* bias) {
  const int64_t num_in = weights.num_in();
  std::vector<int8_t> q(static_cast<size_t>(num_in));
  const float scale = tensor::QuantizeActivations(x, num_in, q.data());
  std::vector<uint8_t> codes(q.size());
  std::vector<float> out;
  for (int64_t o = 0; o < weights.num_out(); ++o) {
    weights.ReadCodes(o, codes.data());
    int64_t sum = 0;
    for (size_t i = 0; i < q.size(); ++i) sum += int64_t{q[i]} * static_cast<int8_t>(codes[i]);
    out.push_back(static_cast<float>(sum) * (scale * weights.ScaleOf(o, 0)));
    if (bias != nullptr) out.back() += bias[o];
  }
  return out;
}

struct ByteShape {
  int64_t num_out, num_in;
};
// Whole and ragged groups of outputs and tiles of inputs.
constexpr ByteShape kByteShapes[] = {{64, 64}, {70, 7}, {150, 300}, {33, 257}, {130, 128}};

TEST(ByteProductTest, MatchTheOracleWhateverTheNumberOfRows) {
  constexpr int64_t kRows = 70;
  for (const ByteShape& shape : kByteShapes) {
    const RandomCodes codes(Int8Coding(), shape.num_out, shape.num_in, shape.num_in, 1);
    const WeightTensor weights = codes.WithInt8Inputs();
    auto x = RandomFloats(kRows * shape.num_in, 2);
    std::fill_n(x.begin() + shape.num_in, shape.num_in, 0.0f);  // a row of zeros
    std::fill_n(x.begin() + 2 * shape.num_in, shape.num_in, 1e-31f);
    const auto bias = RandomFloats(shape.num_out, 3);
    std::vector<float> wanted;
    for (int64_t row = 0; row < kRows; ++row) {
      const auto one = Oracle(weights, x.data() + row * shape.num_in, bias.data());
      wanted.insert(wanted.end(), one.begin(), one.end());
    }
    for (const CpuTarget target : TargetsOfTiles()) {
      SCOPED_TRACE(CpuTargetName(target));
      const auto ops = MakeOps(CpuTargetName(target), 2);
      const auto packed = ops->PackMatrix({&weights, 1}, {DType::kBF16, Quantization::kStored});
      ASSERT_TRUE(packed.ok());
      ASSERT_EQ(PackedOf(*packed).coded->order, CodeOrder::kQuads);
      for (const int64_t rows : {1, 2, 16, 17, 32, 33, 70}) {
        OpOutput out(rows * shape.num_out);
        ops->Linear({x.data(), &*packed, bias.data(), out.data(), rows});
        EXPECT_TRUE(out.GuardsIntact());
        for (int64_t i = 0; i < rows * shape.num_out; ++i) {
          ASSERT_EQ(out.data()[i], wanted[static_cast<size_t>(i)])
              << rows << " " << shape.num_in << " " << i;
        }
      }
    }
  }
}

TEST(ByteProductTest, ARowThatIsNotFiniteHasNoNumbersAndHarmsNoOther) {
  constexpr int64_t kIn = 100, kOut = 20;
  const RandomCodes codes(Int8Coding(), kOut, kIn, kIn, 1);
  const WeightTensor weights = codes.WithInt8Inputs();
  for (const float bad : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
    auto x = RandomFloats(3 * kIn, 2);
    x[kIn + 99] = bad;
    for (const CpuTarget target : TargetsOfTiles()) {
      const auto ops = MakeOps(CpuTargetName(target), 1);
      const auto packed = ops->PackMatrix({&weights, 1}, {DType::kBF16, Quantization::kStored});
      ASSERT_TRUE(packed.ok());
      OpOutput out(3 * kOut);
      ops->Linear({x.data(), &*packed, nullptr, out.data(), 3});
      for (int64_t i = 0; i < 3 * kOut; ++i) {
        EXPECT_EQ(std::isnan(out.data()[i]), i / kOut == 1) << i;
      }
    }
  }
}

// The order of codes for bytes is taken only where the format asks for such products, and holds
// the same weights.
TEST(ByteProductTest, OnlyFormatsThatAskForThem) {
  const RandomCodes codes(Int8Coding(), 20, 100, 100, 1), grouped(Int8Coding(), 20, 96, 32, 1);
  const auto ops = MakeOps(CpuTargetName(CpuTarget::kAmxStandIn), 1);
  const auto in_quads = [&](const WeightTensor& tensor, DType dtype) {
    const auto packed = ops->PackMatrix({&tensor, 1}, {dtype, Quantization::kStored});
    return packed.ok() && PackedOf(*packed).coded->order == CodeOrder::kQuads;
  };
  EXPECT_TRUE(in_quads(codes.WithInt8Inputs(), DType::kBF16));
  EXPECT_TRUE(in_quads(codes.WithInt8Inputs(), DType::kF16));
  EXPECT_FALSE(in_quads(codes.WithInt8Inputs(), DType::kF32));
  EXPECT_FALSE(in_quads(codes.Tensor(), DType::kBF16));
  EXPECT_FALSE(in_quads(grouped.WithInt8Inputs(), DType::kBF16));

  const WeightTensor weights = codes.WithInt8Inputs().TakeInputs(30, 70);  // as a rank has it
  ThreadPool pool(1);
  const auto packed = PackCodes({&weights, 1}, CodeOrder::kQuads, &pool);
  ASSERT_TRUE(packed.ok());
  std::vector<float> found(70), wanted(70);
  for (int64_t out = 0; out < 20; ++out) {
    packed->ReadRow(out, found.data());
    weights.ReadRow(out, wanted.data());
    EXPECT_EQ(found, wanted) << out;
  }
}

// An expert's rows have the bits of a product with its matrix alone.
TEST(ByteProductTest, ExpertsToo) {
  constexpr int64_t kTokens = 40, kIn = 100, kOut = 70;
  const RandomCodes first(Int8Coding(), kOut, kIn, kIn, 1), second(Int8Coding(), kOut, kIn, kIn, 2);
  const std::vector<std::vector<WeightTensor>> experts = {{first.WithInt8Inputs()},
                                                          {second.WithInt8Inputs()}};
  std::vector<int32_t> chosen(kTokens, 1);
  for (const size_t token : {3, 20, 39}) chosen[token] = 0;
  const auto x = RandomFloats(kTokens * kIn, 3);
  for (const CpuTarget target : TargetsOfTiles()) {
    const auto ops = MakeOps(CpuTargetName(target), 2);
    const auto packed = ops->PackExperts(experts, {DType::kBF16, Quantization::kStored});
    ASSERT_TRUE(packed.ok()) << packed.status().message();
    const auto out = MultiplyChosen(ops.get(), *packed, x, chosen, 1);
    for (int64_t t = 0; t < kTokens; ++t) {
      const auto& weights = experts[static_cast<size_t>(chosen[static_cast<size_t>(t)])][0];
      const std::vector<float> wanted = Oracle(weights, x.data() + t * kIn, nullptr);
      const float* const found = out.data() + t * kOut;
      EXPECT_TRUE(std::equal(wanted.begin(), wanted.end(), found)) << t;
    }
  }
}

// Experts whose matrices are not all such are expanded: near the f32 product, as rounded to bf16.
TEST(ByteProductTest, ExpertsOfTwoKindsAreExpanded) {
  constexpr int64_t kTokens = 5, kIn = 64, kOut = 40;
  const RandomCodes bytes(Int8Coding(), kOut, kIn, kIn, 1), other(Int8Coding(), kOut, kIn, kIn, 2);
  const std::vector<std::vector<WeightTensor>> experts = {{bytes.WithInt8Inputs()},
                                                          {other.Tensor()}};
  const std::vector<int32_t> chosen = {0, 1, 1, 0, 1};
  const auto x = RandomFloats(kTokens * kIn, 3);
  for (const CpuTarget target : TargetsOfTiles()) {
    const auto ops = MakeOps(CpuTargetName(target), 1);
    const auto packed = ops->PackExperts(experts, {DType::kBF16, Quantization::kStored});
    ASSERT_TRUE(packed.ok()) << packed.status().message();
    const auto out = MultiplyChosen(ops.get(), *packed, x, chosen, 1);
    std::vector<float> row(kIn);
    for (int64_t t = 0; t < kTokens; ++t) {
      for (int64_t o = 0; o < kOut; ++o) {
        experts[static_cast<size_t>(chosen[t])][0].ReadRow(o, row.data());
        double sum = 0, size = 0;
        for (int64_t i = 0; i < kIn; ++i) {
          sum += double{x[t * kIn + i]} * row[i];
          size += std::abs(double{x[t * kIn + i]} * row[i]);
        }
        EXPECT_NEAR(out.data()[t * kOut + o], sum, 0.01 * size);
      }
    }
  }
}

}  // namespace
}  // namespace minisgl::cpu
