// Matrices of codes on the device: their form holds every weight of the stored matrix, the kernel
// that expands them writes what loading would write, and products and embeddings have the bits of
// those with the expanded matrix.
#include "coded_matrix.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "code_batch.h"
#include "coded_product_fixture.h"
#include "kernels/kernel_data.h"
#include "ops/random_codes.h"
#include "slow.h"
#include "stacked_matrix.h"
#include "tensor/quantize.h"

namespace minisgl::cuda {
namespace {

constexpr DType kTypes[] = {DType::kBF16, DType::kF16};

// A matrix of the device's form in host memory.
struct HostCodes {
  CodedRun run;
  std::vector<std::byte> bytes;
};

HostCodes MakeCodes(std::span<const WeightTensor> parts, const CodedParts& form,
                    const CodeOrder& order) {
  HostCodes codes;
  std::vector<WeightRow> rows;
  for (const WeightTensor& part : parts.subspan(form.first, form.count)) {
    for (int64_t out = 0; out < part.num_out(); ++out) rows.push_back({&part, out});
  }
  const int64_t num_in = parts[0].num_in();
  codes.run = {.count = std::ssize(rows), .form = form.form};
  codes.run.layout = CodeLayout::Make(form.form, codes.run.count, num_in, 0);
  codes.bytes.resize(codes.run.layout.end);
  ThreadPool pool(2);
  CodeBatch(codes.run, num_in, order, /*quantizes=*/false)
      .ForAll(rows, &pool, [&](size_t offset, std::span<const std::byte> bytes) {
        std::memcpy(codes.bytes.data() + offset, bytes.data(), bytes.size());
        return true;
      });
  codes.run.rows = MakeCodedRows(codes.run, num_in, order, codes.bytes.data());
  return codes;
}

// The weights of a row, read back from the device's form.
std::vector<float> ReadBack(const HostCodes& codes, int64_t row, int64_t num_in) {
  const CodeForm& form = codes.run.form;
  const CodeLayout& layout = codes.run.layout;
  const auto array = [&](size_t offset, int64_t row_bytes) {
    const std::byte* const from = codes.bytes.data() + offset + row * row_bytes;
    return std::vector<std::byte>(from, from + row_bytes);
  };
  const int64_t scale_bytes = form.scale_bytes(num_in), base_bytes = form.base_bytes(num_in);
  RowScales scales;
  scales.scales = array(layout.scales, scale_bytes);
  scales.bases = array(layout.bases, base_bytes);
  for (const std::byte zero : array(layout.zeros, form.zero_bytes(num_in))) {
    scales.zeros.push_back(static_cast<int8_t>(zero));
  }
  scales.offsets = array(layout.offsets, form.has_offsets ? scale_bytes : 0);
  scales.offset_bases = array(layout.offset_bases, form.has_offsets ? base_bytes : 0);
  const auto lines = array(layout.codes, form.code_bytes(num_in));
  const auto upper = array(layout.upper, form.upper_bytes(num_in));
  std::vector<uint8_t> bytes(static_cast<size_t>(num_in));
  ReadLines(form, codes.run.rows.order, lines.data(), upper.data(), num_in, bytes.data());
  std::vector<float> weights(bytes.size());
  ReadFormRow(form, bytes.data(), scales, num_in, weights.data());
  return weights;
}

std::vector<CodeOrder> OrdersFor(const CodeForm& form, int64_t num_in) {
  std::vector<CodeOrder> orders = {{}};
  if (num_in % (form.line_inputs() * 8) == 0) {
    for (const int32_t run : {1, 2}) orders.push_back({.warps = 8, .run = run});
  }
  return orders;
}

TEST(CodedMatrixTest, ReadBackIsTheStoredMatrix) {
  ForAllCodes([](std::span<const WeightTensor> parts, const std::string& what) {
    SCOPED_TRACE(what);
    std::string why;
    const auto forms = FormsOf(parts, &why);
    ASSERT_TRUE(forms) << why;
    const int64_t num_in = parts[0].num_in();
    for (const CodedParts& form : *forms) {
      for (const CodeOrder& order : OrdersFor(form.form, num_in)) {
        const HostCodes codes = MakeCodes(parts, form, order);
        int64_t row = 0;
        for (const WeightTensor& part : parts.subspan(form.first, form.count)) {
          for (int64_t out = 0; out < part.num_out(); ++out, ++row) {
            std::vector<float> wanted(static_cast<size_t>(num_in));
            part.ReadRow(out, wanted.data());
            EXPECT_TRUE(SameBits(ReadBack(codes, row, num_in), wanted)) << row;
          }
        }
      }
    }
  });
}

// What a device keeps takes about the bytes of the file: bits of a weight, whole lines of one.
TEST(CodedMatrixTest, FormsTakeAboutTheBytesOfTheFile) {
  constexpr int64_t kIn = 1024;
  const auto bits_of = [](const WeightTensor& tensor) {
    std::string why;
    const auto forms = FormsOf({&tensor, 1}, &why);
    return static_cast<double>((*forms)[0].form.row_bytes(kIn)) * 8 / kIn;
  };
  const std::pair<const char*, double> blocks[] = {
      {"Q4_0", 4.5},      {"Q4_1", 5},        {"Q5_0", 6.5},    {"Q5_1", 7},
      {"Q8_0", 8.5},      {"Q2_K", 5.125},    {"Q3_K", 4.5625}, {"Q4_K", 4.625},
      {"Q5_K", 6.625},    {"Q6_K", 6.5625},   {"MXFP4", 4.25},  {"IQ4_NL", 4.5},
      {"IQ4_XS", 4.3125}, {"NVFP4", 4.53125}, {"IQ1_S", 4.375}, {"IQ1_M", 4.625},
      {"IQ2_XXS", 4.375}, {"IQ2_XS", 4.625},  {"IQ2_S", 4.625}, {"IQ3_XXS", 4.375},
      {"IQ3_S", 4.3125},  {"TQ1_0", 4.0625},  {"TQ2_0", 4.0625}};
  for (const auto& [name, bits] : blocks) {
    EXPECT_EQ(bits_of(RandomBlocks(name, 1, kIn, 1).Tensor()), bits) << name;
  }
  const std::pair<Coding, double> planes[] = {
      {cpu::kNvfp4, 4.53125}, {kCodings[0], 5}, {kCodings[1], 5.25}, {kCodings[8], 9}};
  for (const auto& [coding, bits] : planes) {
    const RandomCodes codes(coding, 1, kIn, coding.global == Coding::Global::kNone ? 32 : 16, 1);
    EXPECT_EQ(bits_of(codes.Tensor()), bits) << coding.name;
  }
}

TEST_P(CodedProductTest, HasTheBitsOfTheExpandedMatrix) {
  ForAllCodes([this](std::span<const WeightTensor> parts, const std::string& what) {
    SCOPED_TRACE(what);
    const Matrix coded = Pack(parts, Quantization::kStored);
    const Matrix expanded = Pack(parts, Quantization::kNone);
    ASSERT_EQ(coded.quantization, Quantization::kStored);
    for (const int64_t num_tokens : {1, 11, 20}) {
      const bool has_bias = num_tokens == 11;
      EXPECT_TRUE(
          SameBits(Multiply(coded, num_tokens, has_bias), Multiply(expanded, num_tokens, has_bias)))
          << num_tokens;
    }
  });
}

// Each division of K among warps, each length of a load of codes, tiles of 8 and 16 rows; the ring
// and its order of codes; outputs that are activated or added to the residual stream.
TEST_P(CodedProductTest, DivisionsAreThoseOfExpandedMatrices) {
  struct Case {
    const Coding& coding;
    int64_t num_out, num_in, group;
  };
  const Coding &int4 = kCodings[0], &e4m3 = kCodings[8];
  const Case cases[] = {{int4, 40, 4096, 128},  {e4m3, 24, 2048, 128},  {int4, 24, 2880, 32},
                        {e4m3, 9, 1000, 1000},  {int4, 2056, 256, 32},  {e4m3, 2050, 1024, 128},
                        {int4, 4104, 512, 32},  {e4m3, 4100, 520, 520}, {cpu::kNvfp4, 33, 1024, 16},
                        {int4, 4097, 1024, 64}, {e4m3, 36, 512, 128}};
  for (const bool ring : {false, true}) {
    debug_.ring = ring;
    ops_ = MakeReserved({.activation_dtype = GetParam()});
    for (const Case& c : cases) {
      SCOPED_TRACE(fmt::format("{} [{}, {}] {}", c.coding.name, c.num_out, c.num_in, ring));
      const RandomCodes codes(c.coding, c.num_out, c.num_in, c.group, 3);
      const WeightTensor tensor = codes.Tensor();
      const Matrix coded = Pack({&tensor, 1}, Quantization::kStored);
      const Matrix expanded = Pack({&tensor, 1}, Quantization::kNone);
      for (const int64_t num_tokens : {2, 12}) {
        EXPECT_TRUE(
            SameBits(Multiply(coded, num_tokens, false), Multiply(expanded, num_tokens, false)))
            << num_tokens;
      }
    }
  }
}

// Whole lines, in runs of one and of two, in the order of the ring and cut short by the last input,
// of each kind of codes and scales; tiles of 16 rows where rows are many.
TEST_P(CodedProductTest, LinesOfEveryKindHaveTheBitsOfTheExpandedMatrix) {
  MarkSlow("large matrices of every kind");
  const auto check = [this](const WeightTensor& tensor, const std::string& what) {
    SCOPED_TRACE(fmt::format("{} [{}, {}]", what, tensor.num_out(), tensor.num_in()));
    const Matrix coded = Pack({&tensor, 1}, Quantization::kStored);
    const Matrix expanded = Pack({&tensor, 1}, Quantization::kNone);
    for (const int64_t num_tokens : {2, 12}) {
      if (num_tokens > 8 && tensor.num_out() > 100) continue;
      EXPECT_TRUE(
          SameBits(Multiply(coded, num_tokens, false), Multiply(expanded, num_tokens, false)))
          << num_tokens;
    }
  };
  constexpr std::pair<int64_t, int64_t> kSizes[] = {
      {24, 2048}, {11, 4096}, {9, 1792}, {4104, 1024}};
  const auto codes_of = [&](const Coding& coding, DType scales, int64_t group) {
    for (const auto& [num_out, num_in] : kSizes) {
      if (num_out > 100 && (debug_.ring || group != 128)) continue;
      RandomCodes codes(coding, num_out, num_in, std::min(group, num_in), 9);
      if (coding.global == Coding::Global::kNone) codes.StoreScales(scales);
      check(codes.Tensor(), fmt::format("{} {} {}", coding.name, DTypeName(scales), group));
    }
  };
  for (const bool ring : {false, true}) {
    debug_.ring = ring;
    ops_ = MakeReserved({.activation_dtype = GetParam()});
    for (const Coding& coding : kCodings) {
      const bool has_steps = coding.global != Coding::Global::kNone;
      for (const DType scales : {DType::kF32, DType::kF16, DType::kBF16, DType::kE8M0}) {
        if (has_steps && scales != DType::kF32) continue;
        for (const int64_t group : {16, 32, 128, 4096}) codes_of(coding, scales, group);
      }
    }
    for (const char* const name : kBlockFormats) {
      for (const auto& [num_out, num_in] : kSizes) {
        if (num_out > 100 && ring) continue;
        check(RandomBlocks(name, num_out, num_in, 9).Tensor(), name);
      }
    }
  }
}

// Codes and scales that are no numbers or have no bounds, of matrices whose outputs show each
// weight (one input) and of longer ones: products, expanded pieces and embeddings.
TEST_P(CodedProductTest, WhatIsNoNumberIsThatOfTheExpandedMatrix) {
  const auto check = [this](const WeightTensor& tensor, const std::string& what) {
    SCOPED_TRACE(what);
    const Matrix coded = Pack({&tensor, 1}, Quantization::kStored);
    const Matrix expanded = Pack({&tensor, 1}, Quantization::kNone);
    ASSERT_EQ(coded.quantization, Quantization::kStored);
    for (const int64_t num_tokens : {1, 11, 20}) {
      const std::vector<float> found = Multiply(coded, num_tokens, false);
      EXPECT_TRUE(SameBits(found, Multiply(expanded, num_tokens, false))) << num_tokens;
      EXPECT_TRUE(std::any_of(found.begin(), found.end(), [](float v) { return std::isnan(v); }));
    }
    EXPECT_TRUE(SameBits(EmbedAll(coded), EmbedAll(expanded)));
  };
  struct Scales {
    DType dtype;
    const char* name;
  };
  constexpr Scales kScales[] = {
      {DType::kF32, "f32"}, {DType::kF16, "f16"}, {DType::kBF16, "bf16"}, {DType::kE8M0, "e8m0"}};
  for (const Coding& coding : kCodings) {
    for (const Scales& scales : kScales) {
      if (coding.global != Coding::Global::kNone && scales.dtype != DType::kF32) continue;
      for (const Shape& s : {Shape{96, 1, 1}, Shape{40, 8, 8}, Shape{24, 256, 32}}) {
        RandomCodes codes(coding, s.num_out, s.num_in, s.group_inputs, 7);
        codes.PutExtremes();
        if (scales.dtype != DType::kF32) codes.StoreScales(scales.dtype);
        check(codes.Tensor(),
              fmt::format("{} {} [{}, {}]", coding.name, scales.name, s.num_out, s.num_in));
      }
    }
  }
  for (const char* const name : kBlockFormats) {
    const BlockFormat& format = *FindBlockFormat(name);
    if (!format.has_f16_scales()) continue;
    RandomBlocks blocks(name, 10, 512, 7);
    blocks.PutExtremes();
    check(blocks.Tensor(), name);
  }
}

// A matrix that is expanded in two pieces, the second of them shorter.
TEST_P(CodedProductTest, LargeMatricesAreExpandedInPieces) {
  MarkSlow("a matrix of 72 MiB");
  debug_.no_gemv = true;
  ops_ = MakeReserved({.activation_dtype = GetParam()});
  constexpr int64_t kOut = 4608, kIn = 8192;
  static_assert(kOut * kIn * 2 > static_cast<int64_t>(kExpandBytesMax));
  const RandomCodes codes(kCodings[0], kOut, kIn, 128, 3);
  const WeightTensor tensor = codes.Tensor();
  const Matrix coded = Pack({&tensor, 1}, Quantization::kStored);
  const Matrix expanded = Pack({&tensor, 1}, Quantization::kNone);
  const int before = matmul_->num_products();
  const std::vector<float> found = Multiply(coded, 1, true);
  EXPECT_EQ(matmul_->num_products() - before, 2);
  EXPECT_TRUE(SameBits(found, Multiply(expanded, 1, true)));
}

// Weights that are quantized as they are loaded are those of the rule, which the CPU has as well.
TEST_P(CodedProductTest, QuantizedMatricesAreThoseOfTheRule) {
  constexpr int64_t kOut = 37;
  for (const int64_t num_in : {200, 1024}) {
    std::vector<float> weights = RandomFloats(kOut * num_in, 8);
    const auto matrix_of = [&](const std::vector<float>& values) {
      return WeightTensor(TensorView{.data = reinterpret_cast<const std::byte*>(values.data()),
                                     .dtype = DType::kF32,
                                     .shape = {kOut, num_in}});
    };
    for (const auto& [kind, quantize] :
         {std::pair(Quantization::kInt8, &tensor::QuantizeWeights),
          std::pair(Quantization::kInt4, &tensor::QuantizeWeightsInt4)}) {
      std::vector<float> rounded = weights;
      for (int64_t row = 0; row < kOut; ++row) {
        for (int64_t first = 0; first < num_in; first += kQuantBlock) {
          float* const block = rounded.data() + row * num_in + first;
          const int64_t count = std::min(kQuantBlock, num_in - first);
          int8_t q[kQuantBlock];
          const float scale = Bf16ToFloat(quantize(block, count, q));
          for (int64_t i = 0; i < count; ++i) block[i] = static_cast<float>(q[i]) * scale;
        }
      }
      const WeightTensor dense = matrix_of(weights), of_rule = matrix_of(rounded);
      const Matrix coded = Pack({&dense, 1}, kind);
      const Matrix expanded = Pack({&of_rule, 1}, Quantization::kNone);
      for (const int64_t num_tokens : {3, 20}) {
        EXPECT_TRUE(
            SameBits(Multiply(coded, num_tokens, true), Multiply(expanded, num_tokens, true)));
      }
    }
  }
}

// A tied head is the embedding's matrix of codes; other bytes at the same place are not.
TEST_P(CodedProductTest, OneMatrixIsPackedOnce) {
  RandomBlocks blocks("Q4_K", 20, 512, 1);
  const WeightTensor tensor = blocks.Tensor();
  const Matrix first = Pack({&tensor, 1}, Quantization::kStored);
  EXPECT_EQ(Pack({&tensor, 1}, Quantization::kStored).storage, first.storage);
  EXPECT_NE(Pack({&tensor, 1}, Quantization::kNone).storage, first.storage);
  blocks.Fill(0x11, 100);
  EXPECT_NE(Pack({&tensor, 1}, Quantization::kStored).storage, first.storage);
}

// What has no form is expanded, and the operations say why.
TEST_P(CodedProductTest, WhatHasNoFormIsExpandedWithTheReason) {
  EXPECT_EQ(ops_->ExpandedCodesText(), "");
  const RandomBlocks blocks("Q4_K", 20, 512, 1);
  std::vector<int64_t> order(512);
  for (int64_t i = 0; i < 512; ++i) order[static_cast<size_t>(i)] = 511 - i;
  const WeightTensor permuted = blocks.Tensor().OrderInputs(order);
  const WeightTensor cut = blocks.Tensor().TakeInputs(32, 256);
  EXPECT_EQ(Pack({&permuted, 1}, Quantization::kStored).quantization, Quantization::kNone);
  EXPECT_EQ(Pack({&cut, 1}, Quantization::kStored).quantization, Quantization::kNone);
  EXPECT_EQ(ops_->ExpandedCodesText(),
            "2 of the matrices of codes are expanded: ranks cut their groups (1), their inputs are "
            "permuted (1)");
}

// Tiles of 16 and of 64 rows, with and without a list of pairs; outputs and inputs that are not
// whole tiles, lines and steps.
TEST_P(CodedProductTest, ExpertsHaveTheBitsOfExpandedExperts) {
  const auto compare = [this](const std::vector<std::vector<WeightTensor>>& experts) {
    ExpertMatrices packed[2];
    for (const bool keeps : {false, true}) {
      const auto kind = keeps ? Quantization::kStored : Quantization::kNone;
      auto made = ops_->PackExperts(experts, WeightFormat(GetParam(), kind));
      ASSERT_TRUE(made.ok()) << made.status().message();
      ASSERT_EQ(made->quantization, kind);
      packed[keeps] = *std::move(made);
    }
    for (const int64_t num_tokens : {1, 9, 48}) {
      EXPECT_TRUE(SameBits(RunExperts(packed[0], num_tokens), RunExperts(packed[1], num_tokens)))
          << num_tokens;
    }
  };
  for (const Coding& coding : kCodings) {
    for (const auto& [num_out, num_in, group] :
         {Shape{70, 200, 32}, Shape{9, 264, 8}, Shape{66, 93, 93}}) {
      SCOPED_TRACE(fmt::format("{} [{}, {}]", coding.name, num_out, num_in));
      std::vector<std::unique_ptr<RandomCodes>> codes;
      std::vector<std::vector<WeightTensor>> experts;
      for (uint64_t expert = 0; expert < 4; ++expert) {
        for (const int64_t part_out : {num_out, int64_t{3}}) {
          codes.push_back(
              std::make_unique<RandomCodes>(coding, part_out, num_in, group, codes.size()));
        }
        experts.push_back({codes[2 * expert]->Tensor(), codes[2 * expert + 1]->Tensor()});
      }
      compare(experts);
    }
  }
  for (const char* const name : kBlockFormats) {
    SCOPED_TRACE(name);
    std::vector<std::unique_ptr<RandomBlocks>> blocks;
    std::vector<std::vector<WeightTensor>> experts;
    for (uint64_t expert = 0; expert < 4; ++expert) {
      blocks.push_back(std::make_unique<RandomBlocks>(name, 37, 512, expert));
      experts.push_back({blocks.back()->Tensor()});
    }
    compare(experts);
  }
}

// The expanded rows themselves, through the embedding of every row.
TEST_P(CodedProductTest, EmbeddingsAreThoseOfTheExpandedTable) {
  ForAllCodes([this](std::span<const WeightTensor> parts, const std::string& what) {
    SCOPED_TRACE(what);
    const WeightTensor& table = parts[0];
    std::vector<float> found[2];
    for (const bool keeps : {false, true}) {
      found[keeps] =
          EmbedAll(Pack({&table, 1}, keeps ? Quantization::kStored : Quantization::kNone));
    }
    EXPECT_TRUE(SameBits(found[0], found[1]));
  });
}

INSTANTIATE_TEST_SUITE_P(Types, CodedProductTest, testing::ValuesIn(kTypes),
                         [](const auto& type) { return DTypeName(type.param); });

}  // namespace
}  // namespace minisgl::cuda
