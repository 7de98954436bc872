// Products with matrices that are kept as codes, except products of integers
// (integer_product_test.cc): they equal products with the expanded matrices bit for bit, on every
// instruction set, for every kind of codes, scales and zero points.
#include "cpu/coded_product.h"

#include <algorithm>
#include <iterator>

#include "cpu/pack_codes.h"
#include "cpu/read_grids.h"
#include "op_check.h"
#include "random_codes.h"
#include "tensor/quantize.h"

namespace minisgl::cpu {
namespace {

using std::literals::operator""sv;

struct CodedShape {
  int64_t num_out, other_out, num_in, group_inputs;
};
// Ragged panels and groups of outputs; the last group of inputs short; one group for all inputs;
// lines with one scale, a scale for each tile, two for each, and others.
constexpr CodedShape kCodedShapes[] = {{5, 12, 32, 8},      {70, 3, 72, 16},  {20, 49, 257, 257},
                                       {64, 64, 136, 128},  {3, 1, 7, 7},     {33, 0, 300, 32},
                                       {130, 16, 384, 128}, {40, 1, 200, 64}, {17, 0, 32, 32}};

TEST(CodedProductTest, HasTheBitsOfTheExpandedMatrix) {
  for (const CpuTarget target : Targets()) {
    const auto ops = MakeOps(CpuTargetName(target), 2);
    for (const Coding& coding : kCodings) {
      for (const CodedShape& s : kCodedShapes) {
        const RandomCodes first(coding, s.num_out, s.num_in, s.group_inputs, 1);
        const RandomCodes second(coding, s.other_out, s.num_in, s.group_inputs, 2);
        const WeightTensor parts[] = {first.Tensor(), second.Tensor()};
        const auto bias = RandomFloats(s.num_out + s.other_out, 3);
        for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
          SCOPED_TRACE(fmt::format("{} {} {} [{} + {}, {}]", CpuTargetName(target), coding.name,
                                   DTypeName(dtype), s.num_out, s.other_out, s.num_in));
          const auto coded = ops->PackMatrix(parts, {dtype, Quantization::kStored});
          const auto expanded = ops->PackMatrix(parts, ExpandedType(target, dtype));
          ASSERT_TRUE(coded.ok() && expanded.ok());
          EXPECT_TRUE(IsCoded(*coded));
          EXPECT_FALSE(IsCoded(*expanded));
          if (HasIntegerProducts(target, PackedOf(*coded))) continue;
          for (const int64_t num_tokens : {1, 2, 3, 4, 6, 8, 16, 17, 40}) {
            const auto x = RandomFloats(num_tokens * s.num_in, 4);
            const float* const b = num_tokens == 3 || num_tokens == 8 ? bias.data() : nullptr;
            ExpectSameBits(Multiply(ops.get(), *coded, x, b), Multiply(ops.get(), *expanded, x, b),
                           "coded");
          }
        }
      }
    }
  }
}

TEST(CodedProductTest, RowsOfBlocksHaveTheBitsOfTheExpandedMatrix) {
  for (const CpuTarget target : Targets()) {
    const auto ops = MakeOps(CpuTargetName(target), 2);
    for (const char* const name : kBlockFormats) {
      for (const auto& [num_out, num_in] : {std::pair<int64_t, int64_t>{70, 256}, {17, 768}}) {
        const RandomBlocks first(name, num_out, num_in, 1), second(name, 7, num_in, 2);
        const WeightTensor parts[] = {first.Tensor(), second.Tensor()};
        for (const DType dtype : {DType::kF32, DType::kBF16}) {
          SCOPED_TRACE(fmt::format("{} {} {} [{}, {}]", CpuTargetName(target), name,
                                   DTypeName(dtype), num_out, num_in));
          const auto coded = ops->PackMatrix(parts, {dtype, Quantization::kStored});
          const auto expanded = ops->PackMatrix(parts, ExpandedType(target, dtype));
          ASSERT_TRUE(coded.ok() && expanded.ok());
          EXPECT_TRUE(IsCoded(*coded));
          std::vector<float> of_coded(static_cast<size_t>(num_in)), wanted(of_coded);
          for (int64_t out = 0; out < num_out + 7; ++out) {
            PackedOf(*coded).ReadRow(out, of_coded.data());
            parts[out / num_out].ReadRow(out % num_out, wanted.data());
            EXPECT_EQ(of_coded, wanted);  // a code of MXFP4 for -0 is 0 in the file's format
          }
          if (HasIntegerProducts(target, PackedOf(*coded))) continue;
          for (const int64_t num_tokens : {1, 17}) {
            const auto x = RandomFloats(num_tokens * num_in, 4);
            ExpectSameBits(Multiply(ops.get(), *coded, x, nullptr),
                           Multiply(ops.get(), *expanded, x, nullptr), "product");
          }
        }
      }
    }
  }
}

// A file of 4.5 bits a weight takes little more in memory: two numbers of 16 bits for 256 weights,
// two steps of 8 bits for 32.
TEST(CodedProductTest, RowsOfBlocksTakeLittleMoreThanInTheFile) {
  const auto bits_of = [](const char* name) {
    const RandomBlocks blocks(name, 64, 512, 1);
    const WeightTensor tensor = blocks.Tensor();
    ThreadPool pool(1);
    const auto packed = PackCodes({&tensor, 1}, CodeOrder::kWords, &pool);
    MINISGL_CHECK(packed.ok(), "{}", packed.status().message());
    return static_cast<double>(packed->num_bytes()) * 8 / (64 * 512);
  };
  EXPECT_EQ(bits_of("Q4_K"), 4.625);
  EXPECT_EQ(bits_of("Q4_0"), 4.5);
  EXPECT_EQ(bits_of("Q4_1"), 5);
  EXPECT_EQ(bits_of("Q8_0"), 8.5);
  EXPECT_EQ(bits_of("MXFP4"), 4.5);
  EXPECT_EQ(bits_of("Q6_K"), 6.5625);
  EXPECT_EQ(bits_of("Q5_K"), 6.625);
  EXPECT_EQ(bits_of("Q5_0"), 6.5);
  EXPECT_EQ(bits_of("Q3_K"), 6.5625);
}

// Blocks of codebooks take what they take in the file, and the last panel is padded.
TEST(CodedProductTest, CompactBlocksAreKeptAsTheyAre) {
  for (const char* const name : kBlockFormats) {
    const BlockFormat& format = *FindBlockFormat(name);
    if (!format.is_compact) continue;
    const RandomBlocks first(name, 70, 512, 1), second(name, 3, 512, 2);
    const WeightTensor parts[] = {first.Tensor(), second.Tensor()};
    ThreadPool pool(1);
    const auto packed = PackCodes(parts, CodeOrdersOf(CpuTarget::kAvx2, DType::kBF16), &pool);
    ASSERT_TRUE(packed.ok()) << packed.status().message();
    EXPECT_EQ(packed->order, CodeOrder::kBlocks) << name;
    EXPECT_EQ(packed->num_bytes(), size_t(5 * 16 * 2 * format.block_bytes)) << name;
    // Half a block, and parts of two formats, are codes of 8 bits.
    const WeightTensor half = parts[0].TakeInputs(256, 128), tail = parts[0].TakeInputs(256, 256);
    const char* const other = format.codes.group_elements == 32 ? "IQ4_XS"
                              : name == "IQ1_M"sv               ? "IQ2_S"
                                                                : "IQ1_M";
    const RandomBlocks of_others(other, 5, 512, 3);
    const std::vector<WeightTensor> cuts[] = {{half}, {tail}, {parts[0], of_others.Tensor()}};
    for (const std::vector<WeightTensor>& cut : cuts) {
      if (!HaveCommonCodes(cut)) continue;
      const auto coded = PackCodes(cut, CodeOrdersOf(CpuTarget::kAvx2, DType::kBF16), &pool);
      ASSERT_TRUE(coded.ok()) << coded.status().message();
      EXPECT_EQ(coded->order == CodeOrder::kBlocks, &cut == &cuts[1]);
      std::vector<float> found(static_cast<size_t>(coded->num_in)), wanted(found);
      for (int64_t out = 0; out < coded->num_out; ++out) {
        coded->ReadRow(out, found.data());
        cut[size_t(out / 70)].ReadRow(out % 70, wanted.data());
        EXPECT_EQ(found, wanted) << name << " " << out;
      }
    }
  }
}

// What reads codes fastest here reads the bytes of the format's own function.
TEST(CodedProductTest, CodesOfGridsAreReadAlikeByAllFunctions) {
  const auto has_own = [](const char* name) {
    return FindReadCodes(*FindBlockFormat(name)) != FindBlockFormat(name)->codes.read;
  };
  if (std::none_of(std::begin(kBlockFormats), std::end(kBlockFormats), has_own)) {
    GTEST_SKIP() << "this processor has no other function that reads them";
  }
  for (const char* const name : kBlockFormats) {
    const BlockFormat& format = *FindBlockFormat(name);
    const RandomBlocks blocks(name, 64, 1024, 1);
    const WeightTensor tensor = blocks.Tensor();
    const ReadBlockCodes read = FindReadCodes(format);
    for (int64_t out = 0; out < 64; ++out) {
      for (int64_t in = 0; in < 1024; in += format.block_elements) {
        const std::byte* const block = tensor.BlockOf(out, in / format.codes.group_elements);
        uint8_t found[kBlockElementsMax] = {}, wanted[kBlockElementsMax] = {};
        read(block, found);
        format.codes.read(block, wanted);
        ASSERT_EQ(std::memcmp(found, wanted, sizeof(found)), 0) << name << " " << out << " " << in;
      }
    }
  }
}

// 4 bits, a byte for 16 weights, and a factor for each output.
TEST(CodedProductTest, E4M3ScalesUnderAGlobalOneTakeAByte) {
  ThreadPool pool(1);
  for (const Coding& coding : {kNvfp4, kNvfp4Multiplied}) {
    const RandomCodes codes(coding, 64, 512, 16, 1);
    const WeightTensor tensor = codes.Tensor();
    for (const CodeOrder order : {CodeOrder::kWords, CodeOrder::kLines}) {
      const auto packed = PackCodes({&tensor, 1}, order, &pool);
      ASSERT_TRUE(packed.ok());
      EXPECT_EQ(packed->num_bytes(), 64 * (256 + 32 + 4)) << coding.name;
    }
  }
}

// Parts whose scales have other forms are stacked with scales in f32.
TEST(CodedProductTest, E4M3ScalesOfOtherFormsAreStacked) {
  ThreadPool pool(1);
  const RandomCodes first(kNvfp4, 20, 64, 16, 1);
  for (const Coding& coding : {kNvfp4, kNvfp4Multiplied, kCodings[2]}) {
    const RandomCodes second(coding, 7, 64, 16, 2);
    const WeightTensor parts[] = {first.Tensor(), second.Tensor()};
    ASSERT_TRUE(HaveCommonCodes(parts));
    const auto packed = PackCodes(parts, CodeOrder::kWords, &pool);
    ASSERT_TRUE(packed.ok());
    EXPECT_EQ(packed->steps == ScaleSteps::kNone, coding.global != Coding::Global::kDivides);
    for (int64_t out = 0; out < 27; ++out) {
      std::vector<float> found(64), wanted(64);
      packed->ReadRow(out, found.data());
      parts[out / 20].ReadRow(out % 20, wanted.data());
      EXPECT_EQ(found, wanted) << coding.name << " " << out;
    }
  }
}

// The weights of `rows` rows of `num_in` that packing quantizes by the rule of `kind`.
std::vector<float> RoundedByRule(Quantization kind, std::vector<float> weights, int64_t num_in) {
  const auto quantize =
      kind == Quantization::kInt4 ? tensor::QuantizeWeightsInt4 : tensor::QuantizeWeights;
  for (int64_t row = 0; row < std::ssize(weights); row += num_in) {
    for (int64_t begin = 0; begin < num_in; begin += kQuantBlock) {
      float* const block = weights.data() + row + begin;
      const int64_t count = std::min(kQuantBlock, num_in - begin);
      int8_t q[kQuantBlock];
      const float scale = Bf16ToFloat(quantize(block, count, q));
      for (int64_t i = 0; i < count; ++i) block[i] = scale * static_cast<float>(q[i]);
    }
  }
  return weights;
}

// A matrix of type e4m3 whose outputs have the same scales for groups of 128 inputs, or one.
class E4M3UnderEqualScales {
 public:
  static constexpr int64_t kNumOut = 84, kNumIn = 403, kGroup = 128, kNumGroups = 4;

  // Every code but the two that are no numbers; if `few_subnormals`, one in 2,048 is subnormal.
  E4M3UnderEqualScales(bool few_subnormals, float scale, int64_t num_groups)
      : codes_(kNumOut * kRowBytes), scales_({scale, scale / 3, scale * 2, -scale}) {
    uint8_t next = 0;
    for (size_t i = 0; i < codes_.size(); ++i) {
      if (next % 128 == 127) ++next;
      if (few_subnormals && next % 128 < 8 && next % 128 > 0 && i % 2048 > 7) next += 8;
      codes_[i] = next++;
    }
    weights_.codes = {.data = reinterpret_cast<const std::byte*>(codes_.data()),
                      .bits = 8,
                      .other_step = kRowBytes};
    weights_.numbers = E4M3Numbers();
    weights_.group_inputs = num_groups == 1 ? kNumIn : kGroup;
    weights_.num_groups = num_groups;
    weights_.scales = {reinterpret_cast<const std::byte*>(scales_.data()), DType::kF32, 1, 0, 4};
  }
  E4M3UnderEqualScales(const E4M3UnderEqualScales&) = delete;

  WeightTensor Tensor() const { return WeightTensor(kNumOut, kNumIn, weights_); }

 private:
  static constexpr int64_t kRowBytes = 404;
  std::vector<uint8_t> codes_;
  std::vector<float> scales_;
  QuantizedWeights weights_;
};

void ExpectBitsOfExpanded(const WeightTensor& tensor, const std::string& what) {
  for (const CpuTarget target : Targets()) {
    const auto ops = MakeOps(CpuTargetName(target), 2);
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      const auto coded = ops->PackMatrix({&tensor, 1}, {dtype, Quantization::kStored});
      const auto expanded = ops->PackMatrix({&tensor, 1}, ExpandedType(target, dtype));
      ASSERT_TRUE(coded.ok() && expanded.ok());
      for (const int64_t num_tokens : {1, 2, 3, 4, 5, 8, 9, 40}) {
        const auto x = RandomFloats(num_tokens * tensor.num_in(), 4);
        ExpectSameBits(
            Multiply(ops.get(), *coded, x, nullptr), Multiply(ops.get(), *expanded, x, nullptr),
            fmt::format("{} {} {} {}", CpuTargetName(target), DTypeName(dtype), what, num_tokens));
      }
    }
  }
}

// Blocks of weights of type e4m3 share a scale, with which some kernels look weights up, and others
// move the bits of codes, unless many of them are subnormal or scales are large: scales whose
// products are rounded, subnormal or negative, and a last input without another.
TEST(CodedProductTest, E4M3UnderEqualScalesHasTheBitsOfTheExpandedMatrix) {
  for (const bool few_subnormals : {false, true}) {
    for (const float scale : {1.0f, -0.3712f, 0x1.5p-118f, 63.9f, 1.7e30f}) {
      for (const int64_t num_groups : {int64_t{1}, E4M3UnderEqualScales::kNumGroups}) {
        const E4M3UnderEqualScales matrix(few_subnormals, scale, num_groups);
        ExpectBitsOfExpanded(matrix.Tensor(),
                             fmt::format("{} {} {}", few_subnormals, scale, num_groups));
      }
    }
  }
}

// Bits of codes are moved if few are subnormal numbers, and no scale is too large.
TEST(CodedProductTest, E4M3MovesBitsUnlessItMayBeSlowOrTooLarge) {
  ThreadPool pool(2);
  const auto moves = [&](bool few_subnormals, float scale) {
    const E4M3UnderEqualScales matrix(few_subnormals, scale, E4M3UnderEqualScales::kNumGroups);
    const WeightTensor tensor = matrix.Tensor();
    const auto packed = PackCodes({&tensor, 1}, CodeOrder::kSplitQuads, &pool);
    MINISGL_CHECK(packed.ok(), "{}", packed.status().message());
    return packed->moves_bits;
  };
  EXPECT_TRUE(moves(true, 1));
  EXPECT_TRUE(moves(true, 63.9f));  // the largest is twice that
  EXPECT_FALSE(moves(true, 64));
  EXPECT_FALSE(moves(true, -64));
  EXPECT_FALSE(moves(false, 1));
}

// Dense weights that packing quantizes to codes: the product of the weights of the rule, rounded.
TEST(CodedProductTest, QuantizedHasTheBitsOfTheWeightsOfItsRule) {
  constexpr int64_t kNumOut = 70;
  for (const int64_t num_in : {7, 33, 64, 257}) {
    const auto first = RandomFloats(kNumOut * num_in, 1), second = RandomFloats(5 * num_in, 2);
    const WeightTensor parts[] = {View(first, kNumOut, num_in), View(second, 5, num_in)};
    for (const Quantization kind : {Quantization::kInt4, Quantization::kInt8}) {
      std::vector<float> rounded = RoundedByRule(kind, first, num_in);
      const std::vector<float> other = RoundedByRule(kind, second, num_in);
      rounded.insert(rounded.end(), other.begin(), other.end());
      const WeightTensor expanded_parts[] = {View(rounded, kNumOut + 5, num_in)};
      for (const CpuTarget target : Targets()) {
        const auto ops = MakeOps(CpuTargetName(target), 2);
        for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
          const WeightFormat format(dtype, kind);
          SCOPED_TRACE(fmt::format("{} {} {} {}", CpuTargetName(target), format.Name(),
                                   DTypeName(dtype), num_in));
          const auto coded = ops->PackMatrix(parts, format);
          const auto expanded = ops->PackMatrix(expanded_parts, ExpandedType(target, dtype));
          ASSERT_TRUE(coded.ok() && expanded.ok());
          EXPECT_TRUE(IsCoded(*coded));
          EXPECT_EQ(coded->quantization, kind);
          EXPECT_LE(PackedOf(*coded).num_bytes(), *WeightBytes(format, 80, num_in));
          std::vector<float> row(static_cast<size_t>(num_in));
          PackedOf(*coded).ReadRow(kNumOut + 2, row.data());
          ExpectSameBits(row, {other.begin() + 2 * num_in, other.begin() + 3 * num_in}, "row");
          if (HasIntegerProducts(target, PackedOf(*coded))) continue;
          for (const int64_t num_tokens : {1, 3, 40}) {
            const auto x = RandomFloats(num_tokens * num_in, 4);
            ExpectSameBits(Multiply(ops.get(), *coded, x, nullptr),
                           Multiply(ops.get(), *expanded, x, nullptr), "product");
          }
        }
      }
    }
  }
}

// One arithmetic for a format and a target: a row has the same bits beside any number of others.
TEST(CodedProductTest, Int8HasTheSameBitsForEveryNumberOfRows) {
  constexpr int64_t kNumOut = 150, kNumIn = 200, kRows = 70;
  const auto w = RandomFloats(kNumOut * kNumIn, 1), x = RandomFloats(kRows * kNumIn, 2);
  const WeightTensor tensor = View(w, kNumOut, kNumIn);
  for (const CpuTarget target : Targets()) {
    const auto one = MakeOps(CpuTargetName(target), 1), three = MakeOps(CpuTargetName(target), 3);
    const auto weight = one->PackMatrix({&tensor, 1}, {DType::kBF16, Quantization::kInt8});
    ASSERT_TRUE(weight.ok());
    const auto all = Multiply(three.get(), *weight, x, nullptr);
    for (int64_t rows = 1; rows <= kRows; ++rows) {
      const int64_t first = kRows - rows;
      ExpectSameBits(Multiply(one.get(), *weight, {x.begin() + first * kNumIn, x.end()}, nullptr),
                     {all.begin() + first * kNumOut, all.end()},
                     fmt::format("{} {} rows", one->Name(), rows));
    }
  }
}

// Products of integers round inputs to int8, so that a small input beside a large one is lost.
TEST(CodedProductTest, Int8RoundsInputsToInt8OnlyWithoutTiles) {
  constexpr int64_t kNumIn = 64;
  const std::vector<float> w(kNumIn, 1.0f);
  const WeightTensor tensor = View(w, 1, kNumIn);
  std::vector<float> large(kNumIn, 0.0f);
  large[0] = 1000;
  std::vector<float> both = large;
  both[1] = 1;
  for (const CpuTarget target : Targets()) {
    const auto ops = MakeOps(CpuTargetName(target), 1);
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      const WeightFormat format(dtype, Quantization::kInt8);
      const auto packed = ops->PackMatrix({&tensor, 1}, format);
      ASSERT_TRUE(packed.ok());
      const bool loses = Multiply(ops.get(), *packed, both, nullptr)[0] ==
                         Multiply(ops.get(), *packed, large, nullptr)[0];
      EXPECT_EQ(loses, !WidensInt8(target, dtype)) << ops->Name() << " " << DTypeName(dtype);
      EXPECT_EQ(loses, CpuRoundsInputsOfCodes(CpuTargetName(target), format)) << ops->Name();
    }
  }
}

// Codes of a checkpoint are expanded first, and the expanded weights quantized.
TEST(CodedProductTest, Int4OfCodesIsThatOfTheirWeights) {
  const auto ops = MakeOps("", 1);
  const RandomCodes codes(kCodings[8], 20, 64, 16, 1);  // e4m3
  std::vector<float> weights(20 * 64);
  const WeightTensor tensor = codes.Tensor();
  for (int64_t out = 0; out < 20; ++out) tensor.ReadRow(out, weights.data() + out * 64);
  const WeightTensor dense = View(weights, 20, 64);
  const WeightFormat format = {DType::kBF16, Quantization::kInt4};
  const auto of_codes = ops->PackMatrix({&tensor, 1}, format);
  const auto of_weights = ops->PackMatrix({&dense, 1}, format);
  ASSERT_TRUE(of_codes.ok() && of_weights.ok());
  const auto x = RandomFloats(3 * 64, 4);
  ExpectSameBits(Multiply(ops.get(), *of_codes, x, nullptr),
                 Multiply(ops.get(), *of_weights, x, nullptr), "int4 of codes");
}

TEST(CodedProductTest, QuantizedWeightThatIsNotFiniteShows) {
  std::vector<float> w = RandomFloats(20 * 70, 11);
  w[3 * 70 + 40] = std::numeric_limits<float>::infinity();
  const WeightTensor tensor = View(w, 20, 70);
  for (const CpuTarget target : Targets()) {
    const auto ops = MakeOps(CpuTargetName(target), 1);
    for (const WeightFormat& format : {WeightFormat(DType::kF32, Quantization::kInt4),
                                       {DType::kBF16, Quantization::kInt4},
                                       {DType::kBF16, Quantization::kInt8}}) {
      const auto packed = ops->PackMatrix({&tensor, 1}, format);
      ASSERT_TRUE(packed.ok());
      const auto out = Multiply(ops.get(), *packed, RandomFloats(13 * 70, 12), nullptr);
      for (size_t i = 0; i < out.size(); ++i) {
        EXPECT_EQ(std::isfinite(out[i]), i % 20 != 3) << CpuTargetName(target) << " " << i;
      }
    }
  }
}

TEST(CodedProductTest, ExpertsToo) {
  const auto ops = MakeOps("", 2);
  const Coding& coding = kCodings[0];
  std::vector<std::unique_ptr<RandomCodes>> codes;
  std::vector<std::vector<WeightTensor>> experts;
  for (uint64_t expert = 0; expert < 3; ++expert) {
    codes.push_back(std::make_unique<RandomCodes>(coding, 70, 64, 32, expert));
    experts.push_back({codes.back()->Tensor()});
  }
  const auto coded = ops->PackExperts(experts, {DType::kF32, Quantization::kStored});
  const auto expanded = ops->PackExperts(experts, DType::kF32);
  ASSERT_TRUE(coded.ok() && expanded.ok());
  constexpr int64_t kTokens = 9, kChosen = 2;
  const std::vector<int32_t> chosen = {0, 1, 1, 2, 2, 0, 0, 2, 1, 0, 1, 2, 0, 1, 2, 1, 2, 0};
  const auto x = RandomFloats(kTokens * 64, 7);
  const auto run = [&](const ExpertMatrices& weights) {
    return MultiplyChosen(ops.get(), weights, x, chosen, kChosen);
  };
  ExpectSameBits(run(*coded), run(*expanded), "experts");
}

TEST(CodedProductTest, ExpertsOfInt8Too) {
  constexpr int64_t kNumOut = 70, kNumIn = 136, kTokens = 40;
  std::vector<std::vector<float>> weights, rounded;
  std::vector<std::vector<WeightTensor>> experts, expanded_experts;
  for (uint64_t expert = 0; expert < 3; ++expert) {
    weights.push_back(RandomFloats(kNumOut * kNumIn, expert));
    rounded.push_back(RoundedByRule(Quantization::kInt8, weights.back(), kNumIn));
  }
  for (size_t expert = 0; expert < 3; ++expert) {
    experts.push_back({View(weights[expert], kNumOut, kNumIn)});
    expanded_experts.push_back({View(rounded[expert], kNumOut, kNumIn)});
  }
  std::vector<int32_t> chosen;  // one of them often
  for (int32_t i = 0; i < kTokens; ++i) chosen.insert(chosen.end(), {1, i % 2 * 2});
  const auto x = RandomFloats(kTokens * kNumIn, 7);
  for (const CpuTarget target : Targets()) {
    if (!WidensInt8(target, DType::kBF16)) continue;
    const auto ops = MakeOps(CpuTargetName(target), 2);
    const auto coded = ops->PackExperts(experts, {DType::kBF16, Quantization::kInt8});
    const auto expanded = ops->PackExperts(expanded_experts, DType::kBF16);
    ASSERT_TRUE(coded.ok() && expanded.ok());
    ExpectSameBits(MultiplyChosen(ops.get(), *coded, x, chosen, 2),
                   MultiplyChosen(ops.get(), *expanded, x, chosen, 2), ops->Name());
  }
}

// Other groups would make lines slow.
TEST(CodedProductTest, LinesHaveAtMostTwoGroupsInATile) {
  ThreadPool pool(1);
  const auto order = [&](int64_t group_inputs) {
    const RandomCodes codes(kCodings[0], 8, 240, group_inputs, 1);
    const WeightTensor tensor = codes.Tensor();
    const auto packed = PackCodes({&tensor, 1}, CodeOrder::kLines, &pool);
    MINISGL_CHECK(packed.ok(), "{}", packed.status().message());
    return packed->order;
  };
  for (const int64_t group : {16, 32, 48, 128, 240}) EXPECT_EQ(order(group), CodeOrder::kLines);
  for (const int64_t group : {8, 24, 40}) EXPECT_EQ(order(group), CodeOrder::kWords);
}

// Parts without common codes each keep their own form, and a product has the bits of their
// products.
TEST(CodedProductTest, StacksOfSeveralFormsKeepThem) {
  constexpr int64_t kIn = 256;
  const RandomBlocks a("Q4_K", 70, kIn, 1), b("Q4_K", 20, kIn, 2), c("Q6_K", 33, kIn, 3);
  const auto dense = RandomFloats(9 * kIn, 4);
  const std::vector<WeightTensor> parts = {a.Tensor(), b.Tensor(), c.Tensor(), View(dense, 9, kIn)};
  const auto bias = RandomFloats(132, 5), x = RandomFloats(7 * kIn, 6);
  for (const CpuTarget target : Targets()) {
    const auto ops = MakeOps(CpuTargetName(target), 2);
    const auto stack = ops->PackMatrix(parts, {DType::kBF16, Quantization::kStored});
    ASSERT_TRUE(stack.ok());
    EXPECT_EQ(stack->num_out, 132);
    const PackedMatrix& packed = PackedOf(*stack);
    ASSERT_EQ(packed.stacked.size(), 3u);  // the first two parts have common codes
    size_t bytes = 0;
    for (const PackedMatrix& part : packed.stacked) bytes += part.num_bytes();
    EXPECT_EQ(packed.num_bytes(), bytes);
    const auto out = Multiply(ops.get(), *stack, x, bias.data());
    int64_t first = 0;
    for (const WeightTensor& part : parts) {
      const auto alone = ops->PackMatrix({&part, 1}, {DType::kBF16, Quantization::kStored});
      ASSERT_TRUE(alone.ok());
      const auto wanted = Multiply(ops.get(), *alone, x, bias.data() + first);
      std::vector<float> found, row(kIn), wanted_row(kIn);
      for (int64_t token = 0; token < 7; ++token) {
        const auto begin = out.begin() + token * 132 + first;
        found.insert(found.end(), begin, begin + part.num_out());
      }
      ExpectSameBits(found, wanted, ops->Name());
      packed.ReadRow(first + 3, row.data());
      PackedOf(*alone).ReadRow(3, wanted_row.data());
      ExpectSameBits(row, wanted_row, "row");
      first += part.num_out();
    }
  }
}

TEST(CodedProductTest, MatricesWithoutCommonCodesAreNotCodedTogether) {
  const auto ops = MakeOps("", 1);
  const RandomCodes a(kCodings[0], 8, 64, 32, 1), b(kCodings[0], 8, 64, 16, 2),
      c(kCodings[2], 8, 64, 32, 3);
  const auto dense = RandomFloats(8 * 64, 4);
  const auto pack = [&](const std::vector<WeightTensor>& parts) {
    const auto packed = ops->PackMatrix(parts, {DType::kF32, Quantization::kStored});
    EXPECT_TRUE(packed.ok());
    return packed.ok() && IsCoded(*packed);
  };
  EXPECT_TRUE(pack({a.Tensor()}));
  EXPECT_FALSE(pack({a.Tensor(), b.Tensor()}));          // other groups
  EXPECT_FALSE(pack({a.Tensor(), c.Tensor()}));          // other numbers
  EXPECT_FALSE(pack({a.Tensor(), View(dense, 8, 64)}));  // no codes
  EXPECT_FALSE(pack({a.Tensor().TakeInputs(16, 48)}));   // groups that begin elsewhere
  EXPECT_TRUE(pack({a.Tensor().TakeRows({3, 1}), a.Tensor().TakeOutputs(2, 5)}));
}

// Whole blocks of 8 bits, also a rank's, are moved unchanged; others code by code.
TEST(CodedProductTest, ACutOfBlocksHasItsWeights) {
  ThreadPool pool(2);
  const RandomBlocks blocks("Q8_0", 40, 256, 1);
  for (const auto& [first, count] : {std::pair<int64_t, int64_t>{32, 192}, {0, 64}, {64, 16}}) {
    const WeightTensor tensor = blocks.Tensor().TakeInputs(first, count).TakeOutputs(3, 36);
    const auto packed = PackCodes({&tensor, 1}, CodeOrder::kQuads, &pool);
    ASSERT_TRUE(packed.ok());
    EXPECT_EQ(packed->order, CodeOrder::kQuads);
    std::vector<float> found(static_cast<size_t>(count)), wanted(found);
    for (int64_t out = 0; out < 36; ++out) {
      packed->ReadRow(out, found.data());
      tensor.ReadRow(out, wanted.data());
      EXPECT_EQ(found, wanted) << first << " " << out;
    }
  }
}

TEST(CodedProductTest, CodesOfFewBitsAndIntegersHaveOrdersOfTheirOwn) {
  ThreadPool pool(1);
  CodeOrders orders = CodeOrder::kLines;
  orders.small = CodeOrder::kWords;
  orders.integers = CodeOrder::kQuads;
  for (const auto& [name, wanted, bits_6] :
       {std::tuple("Q4_K", CodeOrder::kWords, false), std::tuple("Q6_K", CodeOrder::kWords, true),
        std::tuple("Q8_0", CodeOrder::kQuads, false)}) {
    const RandomBlocks blocks(name, 20, 256, 1);
    const WeightTensor tensor = blocks.Tensor();
    const auto packed = PackCodes({&tensor, 1}, orders, &pool);
    ASSERT_TRUE(packed.ok());
    EXPECT_EQ(packed->order, wanted) << name;
    EXPECT_EQ(packed->has_6_bits(), bits_6) << name;
    std::vector<float> found(256), of_file(256);
    packed->ReadRow(19, found.data());
    tensor.ReadRow(19, of_file.data());
    EXPECT_EQ(found, of_file) << name;
  }
}

// As a rank has it: whole groups, or a part of one.
TEST(CodedProductTest, ACutAlongInputsHasTheScalesOfItsGroups) {
  ThreadPool pool(1);
  for (const auto& coding : kCodings) {
    const RandomCodes codes(coding, 8, 64, 16, 1);
    for (const auto& [first, count] : {std::pair(32, 32), std::pair(16, 16), std::pair(40, 8)}) {
      const WeightTensor cut = codes.Tensor().TakeInputs(first, count);
      ASSERT_TRUE(HaveCommonCodes({&cut, 1}));
      for (const CodeOrder order : {CodeOrder::kWords, CodeOrder::kLines}) {
        const auto packed = PackCodes({&cut, 1}, order, &pool);
        ASSERT_TRUE(packed.ok());
        for (int64_t out = 0; out < 8; ++out) {
          std::vector<float> found(static_cast<size_t>(count)), wanted(found.size());
          packed->ReadRow(out, found.data());
          cut.ReadRow(out, wanted.data());
          EXPECT_EQ(found, wanted) << first << " " << out;
        }
      }
    }
  }
}

}  // namespace
}  // namespace minisgl::cpu
