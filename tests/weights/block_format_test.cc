// Rows of blocks against the values that the package gguf unpacks (golden/make_gguf.py,
// golden/gguf_types.py).
#include "minisgl/tensor/block_format.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "minisgl/base/mapped_file.h"
#include "minisgl/tensor/weight_tensor.h"
#include "minisgl/weights/checkpoint.h"

namespace minisgl {
namespace {

constexpr const char* kNames[] = {"Q4_0",   "Q4_1", "Q5_0", "Q5_1", "Q8_0", "MXFP4", "IQ4_NL",
                                  "IQ4_XS", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"};
constexpr const char* kNamesOfGrids[] = {"IQ1_S",   "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S",
                                         "IQ3_XXS", "IQ3_S", "TQ1_0",   "TQ2_0",  "NVFP4"};
constexpr int64_t kBlocks = 4;

// The blocks and the values of each format.
struct Golden {
  std::string bytes;
  std::map<std::string, SafetensorsFile::Entry, std::less<>> entries;
  uint64_t data_begin = 0;

  explicit Golden(const std::string& name) {
    const bool is_of_grids =
        std::count(std::begin(kNamesOfGrids), std::end(kNamesOfGrids), name) > 0;
    auto read = ReadFile(std::string(MINISGL_SOURCE_DIR "/tests/golden/gguf/") +
                             (is_of_grids ? "blocks_of_grids.safetensors" : "blocks.safetensors"),
                         1 << 20);
    EXPECT_TRUE(read.ok()) << read.status().message();
    bytes = read.ok() ? *std::move(read) : "";
    auto parsed =
        SafetensorsFile::ParseHeader(std::as_bytes(std::span(bytes)), "blocks", &data_begin);
    EXPECT_TRUE(parsed.ok()) << parsed.status().message();
    if (parsed.ok()) entries = *std::move(parsed);
  }
  const std::byte* At(const std::string& name) const {
    const auto found = entries.find(name);
    EXPECT_TRUE(found != entries.end()) << name;
    return std::as_bytes(std::span(bytes)).data() + data_begin + found->second.begin;
  }
};

class BlockFormatTest : public testing::TestWithParam<const char*> {
 protected:
  const std::string name_ = GetParam();
  const BlockFormat* format_ = FindBlockFormat(name_);
};

TEST_P(BlockFormatTest, ValuesAreThoseOfTheReferenceBitForBit) {
  const Golden golden(name_);
  ASSERT_NE(format_, nullptr);
  const int64_t width = format_->block_elements * kBlocks;
  const WeightTensor row(1, width, format_, golden.At(name_ + ".blocks"));
  std::vector<float> values(static_cast<size_t>(width));
  row.ReadRow(0, values.data());
  EXPECT_EQ(std::memcmp(values.data(), golden.At(name_ + ".values"), values.size() * sizeof(float)),
            0);
  EXPECT_TRUE(row.CheckNumbers().ok()) << row.CheckNumbers().message();
  EXPECT_EQ(row.DenseRow(0), nullptr);
  EXPECT_FALSE(row.is_dense());
}

TEST_P(BlockFormatTest, CutsAndOrdersOfRowsReadTheSameValues) {
  const Golden golden(name_);
  ASSERT_NE(format_, nullptr);
  // Two rows of two blocks.
  const int64_t width = format_->block_elements * 2;
  const WeightTensor matrix(2, width, format_, golden.At(name_ + ".blocks"));
  std::vector<float> all(static_cast<size_t>(2 * width));
  for (int64_t row = 0; row < 2; ++row) matrix.ReadRow(row, all.data() + row * width);
  const WeightTensor turned = matrix.TakeRows({1, 0});
  for (const auto& [first, count] : {std::pair<int64_t, int64_t>{0, width},
                                     {5, 3},
                                     {7, width - 9},
                                     {format_->block_elements, format_->block_elements}}) {
    const WeightTensor cut = turned.TakeInputs(first, count);
    std::vector<float> values(static_cast<size_t>(count));
    for (int64_t row = 0; row < 2; ++row) {
      cut.ReadRow(row, values.data());
      const float* const wanted = all.data() + (1 - row) * width + first;
      EXPECT_EQ(std::vector<float>(wanted, wanted + count), values) << first << " " << count;
    }
  }
}

TEST_P(BlockFormatTest, InputsAreReadInAnotherOrder) {
  const Golden golden(name_);
  ASSERT_NE(format_, nullptr);
  const int64_t width = format_->block_elements * 2;
  const WeightTensor matrix(2, width, format_, golden.At(name_ + ".blocks"));
  std::vector<int64_t> order;
  for (int64_t in = 0; in < width; ++in) order.push_back((in * 7 + 3) % width);
  const WeightTensor ordered = matrix.OrderInputs(order).TakeRows({1, 0});
  const WeightTensor cut = ordered.TakeInputs(3, 5);
  std::vector<float> stored(static_cast<size_t>(width)), found(stored.size());
  for (int64_t row = 0; row < 2; ++row) {
    matrix.ReadRow(1 - row, stored.data());
    ordered.ReadRow(row, found.data());
    for (size_t in = 0; in < order.size(); ++in) {
      ASSERT_EQ(found[in], stored[static_cast<size_t>(order[in])]);
    }
    float of_cut[5];
    cut.ReadRow(row, of_cut);
    EXPECT_TRUE(std::equal(of_cut, of_cut + 5, found.begin() + 3));
  }
  EXPECT_EQ(ordered.quantized(), nullptr);
  EXPECT_FALSE(matrix.IsSame(matrix.OrderInputs(order)));
}

TEST_P(BlockFormatTest, CodesAndScalesAreTheSameWeights) {
  const Golden golden(name_);
  ASSERT_NE(format_, nullptr);
  const int64_t width = format_->block_elements * 2;
  const WeightTensor matrix =
      WeightTensor(2, width, format_, golden.At(name_ + ".blocks")).TakeRows({1, 0, 1});
  const WeightTensor coded = matrix.WithCodes();
  ASSERT_NE(coded.quantized(), nullptr);
  EXPECT_TRUE(coded.CheckNumbers().ok()) << coded.CheckNumbers().message();
  const QuantizedWeights& its = *coded.quantized();
  EXPECT_EQ(its.num_groups * its.group_inputs, width);
  EXPECT_EQ(coded.has_offsets(), format_->scale_at[1] >= 0);
  std::vector<float> wanted(static_cast<size_t>(width));
  std::vector<uint8_t> codes(wanted.size());
  for (int64_t row = 0; row < 3; ++row) {
    matrix.ReadRow(row, wanted.data());
    coded.ReadCodes(row, codes.data());
    for (int64_t in = 0; in < width; ++in) {
      const auto at = static_cast<size_t>(in);
      const int64_t group = its.GroupOf(in);
      const float number = its.numbers[codes[at]] - coded.ZeroOf(row, group);
      const float weight = number * coded.ScaleOf(row, group) + coded.OffsetOf(row, group);
      ASSERT_EQ(weight, wanted[at]) << row << " " << in;
    }
  }
}

TEST_P(BlockFormatTest, ScalesThatAreNotFiniteAreRefused) {
  const Golden golden(name_);
  ASSERT_NE(format_, nullptr);
  const auto bytes = static_cast<size_t>(format_->block_bytes * kBlocks);
  const std::byte* const blocks = golden.At(name_ + ".blocks");
  const std::vector<std::byte> sound(blocks, blocks + bytes);
  const auto status_of = [&](const std::vector<std::byte>& changed) {
    return WeightTensor(1, format_->block_elements * kBlocks, format_, changed.data())
        .CheckNumbers();
  };
  EXPECT_TRUE(status_of(sound).ok());
  for (const int32_t at : format_->scale_at) {
    if (at < 0) continue;
    std::vector<std::byte> changed = sound;
    const auto place = static_cast<size_t>(2 * format_->block_bytes + at);
    changed[place] = std::byte{0};
    changed[place + 1] = std::byte{0x7C};  // infinity
    EXPECT_NE(status_of(changed).message().find("output 0, block 2"), std::string::npos)
        << status_of(changed).message();
  }
  if (format_->first_byte_max < 255) {
    std::vector<std::byte> changed = sound;
    changed[0] = static_cast<std::byte>(format_->first_byte_max + 1);
    EXPECT_FALSE(status_of(changed).ok());
  }
}

INSTANTIATE_TEST_SUITE_P(All, BlockFormatTest, testing::ValuesIn(kNames),
                         [](const auto& one) { return std::string(one.param); });

INSTANTIATE_TEST_SUITE_P(OfGrids, BlockFormatTest, testing::ValuesIn(kNamesOfGrids),
                         [](const auto& one) { return std::string(one.param); });

// IQ1_M has four bits of its scale in each of four words; scales of NVFP4 have no sign.
TEST(BlockFormatTest, ScalesInOtherPlacesAreCheckedToo) {
  std::vector<std::byte> of_iq1(56), of_nvfp4(36);
  const auto is_sound = [](const char* name, const std::vector<std::byte>& block) {
    const BlockFormat* const format = FindBlockFormat(name);
    return WeightTensor(1, format->block_elements, format, block.data()).CheckNumbers().ok();
  };
  EXPECT_TRUE(is_sound("IQ1_M", of_iq1));
  of_iq1[53] = std::byte{0xC0};
  EXPECT_TRUE(is_sound("IQ1_M", of_iq1));
  of_iq1[55] = std::byte{0x7F};
  EXPECT_FALSE(is_sound("IQ1_M", of_iq1));
  of_nvfp4[3] = std::byte{0x7F};
  EXPECT_TRUE(is_sound("NVFP4", of_nvfp4));
  of_nvfp4[3] = std::byte{0x80};
  EXPECT_FALSE(is_sound("NVFP4", of_nvfp4));
}

TEST(BlockFormatTest, AFactorMultipliesAllWeights) {
  std::vector<std::byte> block(36, std::byte{0x35});
  const WeightTensor plain(1, 64, FindBlockFormat("NVFP4"), block.data());
  const WeightTensor twice = plain.WithCodes(2);
  std::vector<float> wanted(64), found(64);
  plain.ReadRow(0, wanted.data());
  twice.ReadRow(0, found.data());
  for (size_t i = 0; i < wanted.size(); ++i) EXPECT_EQ(found[i], 2 * wanted[i]);
  EXPECT_EQ(twice.ScaleOf(0, 1), 2 * plain.WithCodes().ScaleOf(0, 1));
  EXPECT_FALSE(twice.IsSame(plain.WithCodes()));
  twice.OrderInputs(std::vector<int64_t>(64, 3)).ReadRow(0, found.data());
  EXPECT_EQ(found[9], 2 * wanted[3]);
}

TEST(BlockFormatTest, OtherNamesHaveNoFormat) {
  EXPECT_EQ(FindBlockFormat("Q8_K"), nullptr);
  EXPECT_EQ(FindBlockFormat("F32"), nullptr);
}

}  // namespace
}  // namespace minisgl
