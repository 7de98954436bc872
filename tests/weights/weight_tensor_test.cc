// Weight tensors: the order of codes in words, scales and zero points of groups, and the views that
// share their memory.
#include "minisgl/tensor/weight_tensor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "test_files.h"

namespace minisgl {
namespace {

const std::byte* Bytes(const auto& values) {
  return reinterpret_cast<const std::byte*>(values.data());
}

std::vector<float> Row(const WeightTensor& matrix, int64_t out) {
  std::vector<float> row(static_cast<size_t>(matrix.num_in()));
  matrix.ReadRow(out, row.data());
  return row;
}

// --- types ---------------------------------------------------------------------------------------

TEST(E4M3Test, EveryCodeIsItsDefinition) {
  for (int code = 0; code < 256; ++code) {
    const int exponent = code >> 3 & 15, mantissa = code & 7;
    double value =
        exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 7 - 3);
    if (code & 0x80) value = -value;
    const float found = E4M3ToFloat(static_cast<uint8_t>(code));
    if ((code & 0x7F) == 0x7F) {
      EXPECT_TRUE(std::isnan(found)) << code;
    } else {
      EXPECT_EQ(found, static_cast<float>(value)) << code;
    }
  }
  EXPECT_TRUE(std::signbit(E4M3ToFloat(0x80)));
}

TEST(E8M0Test, IsAPowerOfTwo) {
  for (int code = 0; code < 255; ++code) {
    EXPECT_EQ(E8M0ToFloat(static_cast<uint8_t>(code)), std::ldexp(1.0f, code - 127)) << code;
  }
  EXPECT_TRUE(std::isnan(E8M0ToFloat(255)));
}

// --- codes ---------------------------------------------------------------------------------------

// Words whose nibbles, from the lowest, are 0, 1, 2, ...: word w, nibble i is (8 w + i) % 16.
std::vector<uint32_t> CountingWords(size_t count) {
  std::vector<uint32_t> words(count);
  for (size_t w = 0; w < count; ++w) {
    for (uint32_t i = 0; i < 8; ++i) words[w] |= ((8 * static_cast<uint32_t>(w) + i) % 16) << 4 * i;
  }
  return words;
}

std::vector<int> Codes(const CodePlane& plane, int64_t out, int64_t first, int64_t count) {
  std::vector<uint8_t> codes(static_cast<size_t>(count));
  plane.ReadRow(out, first, count, codes.data());
  return {codes.begin(), codes.end()};
}

TEST(CodePlaneTest, FourBitsAlongInputs) {
  const auto words = CountingWords(4);  // two rows of 16 inputs
  const CodePlane plane = {.data = Bytes(words), .bits = 4, .other_step = 8};
  EXPECT_EQ(Codes(plane, 0, 0, 16),
            (std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}));
  EXPECT_EQ(Codes(plane, 1, 3, 4), (std::vector<int>{3, 4, 5, 6}));  // from an odd one on
  EXPECT_EQ(plane.At(1, 15), 15);
}

TEST(CodePlaneTest, FourBitsAlongInputsWithWordsOfAllOutputsTogether) {
  const auto words = CountingWords(4);  // 16 inputs of two outputs, as GPTQ stores them
  const CodePlane plane = {.data = Bytes(words), .bits = 4, .word_step = 8, .other_step = 4};
  EXPECT_EQ(Codes(plane, 0, 6, 4), (std::vector<int>{6, 7, 0, 1}));  // words 0 and 2
  EXPECT_EQ(Codes(plane, 1, 6, 4), (std::vector<int>{14, 15, 8, 9}));
}

TEST(CodePlaneTest, FourBitsAlongOutputsInAnOrderOfTheirOwn) {
  const auto words = CountingWords(4);  // 2 inputs of 16 outputs, as AWQ stores them
  const CodePlane plane = {.data = Bytes(words),
                           .bits = 4,
                           .packed = CodePlane::Packed::kAlongOutputs,
                           .word_step = 4,
                           .other_step = 8,
                           .order = {0, 4, 1, 5, 2, 6, 3, 7}};
  std::vector<int> first;
  for (int64_t out = 0; out < 16; ++out) first.push_back(plane.At(out, 0));
  EXPECT_EQ(first, (std::vector<int>{0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15}));
  EXPECT_EQ(Codes(plane, 9, 0, 2), (std::vector<int>{12, 12}));
}

TEST(CodePlaneTest, EightBits) {
  std::vector<uint8_t> bytes(24);
  std::iota(bytes.begin(), bytes.end(), uint8_t{0});
  const CodePlane rows = {.data = Bytes(bytes), .other_step = 8};
  EXPECT_EQ(Codes(rows, 1, 2, 5), (std::vector<int>{10, 11, 12, 13, 14}));
  const CodePlane words = {.data = Bytes(bytes), .word_step = 12, .other_step = 4};
  EXPECT_EQ(Codes(words, 1, 2, 4), (std::vector<int>{6, 7, 16, 17}));
}

// --- dense ---------------------------------------------------------------------------------------

class DenseTest : public testing::TestWithParam<DType> {
 protected:
  // Elements 0, 1, 2, ... at an odd address, as in a file.
  WeightTensor Counting(int64_t num_out, int64_t num_in) {
    const size_t width = DTypeBytes(GetParam());
    bytes_.resize(static_cast<size_t>(num_out * num_in) * width + 1);
    for (int64_t i = 0; i < num_out * num_in; ++i) {
      const auto value = static_cast<float>(i);
      const uint16_t narrow = GetParam() == DType::kBF16 ? FloatToBf16(value) : FloatToF16(value);
      std::memcpy(bytes_.data() + 1 + static_cast<size_t>(i) * width,
                  width == 4 ? static_cast<const void*>(&value) : &narrow, width);
    }
    return TensorView{bytes_.data() + 1, GetParam(), {num_out, num_in}};
  }

 private:
  std::vector<std::byte> bytes_;
};

TEST_P(DenseTest, RowsAreReadTakenAndTurned) {
  const WeightTensor matrix = Counting(4, 3);
  EXPECT_EQ(Row(matrix, 2), (std::vector<float>{6, 7, 8}));
  EXPECT_NE(matrix.DenseRow(0), nullptr);
  const WeightTensor taken = matrix.TakeRows({3, 0}).TakeRows({1, 1, 0});
  EXPECT_EQ(taken.num_out(), 3);
  EXPECT_EQ(Row(taken, 1), (std::vector<float>{0, 1, 2}));
  EXPECT_EQ(Row(taken, 2), (std::vector<float>{9, 10, 11}));
  const WeightTensor turned = matrix.Transposed();
  EXPECT_EQ(turned.num_out(), 3);
  EXPECT_EQ(Row(turned, 1), (std::vector<float>{1, 4, 7, 10}));
  EXPECT_EQ(turned.DenseRow(0), nullptr);
  EXPECT_EQ(Row(turned.TakeRows({2}), 0), (std::vector<float>{2, 5, 8, 11}));
}

TEST_P(DenseTest, RanksTakeTheirPart) {
  const WeightTensor matrix = Counting(4, 6);
  EXPECT_EQ(Row(matrix.TakeOutputs(2, 2), 1), (std::vector<float>{18, 19, 20, 21, 22, 23}));
  EXPECT_EQ(Row(matrix.TakeInputs(3, 2), 1), (std::vector<float>{9, 10}));
  EXPECT_EQ(Row(matrix.TakeInputs(2, 4).TakeInputs(1, 2).TakeOutputs(1, 3).TakeOutputs(1, 1), 0),
            (std::vector<float>{15, 16}));
  EXPECT_EQ(Row(matrix.TakeRows({3, 1, 0}).TakeOutputs(1, 2).TakeInputs(0, 1), 0),
            (std::vector<float>{6}));
}

TEST_P(DenseTest, IsSameOnlyInTheSameOrder) {
  const WeightTensor matrix = Counting(2, 2);
  EXPECT_TRUE(matrix.IsSame(WeightTensor(matrix)));
  EXPECT_FALSE(matrix.IsSame(matrix.Transposed()));
  EXPECT_FALSE(matrix.IsSame(matrix.TakeRows({0, 1})));
  EXPECT_FALSE(matrix.IsSame(matrix.TakeOutputs(1, 1)));
}

INSTANTIATE_TEST_SUITE_P(All, DenseTest, testing::Values(DType::kF32, DType::kBF16, DType::kF16),
                         [](const auto& test) { return std::string(DTypeName(test.param)); });

// --- quantized -----------------------------------------------------------------------------------

// Three outputs of eight inputs, groups of three inputs: codes 0 to 15 and on, scales and zeros
// that tell every group apart.
class QuantizedTest : public testing::Test {
 protected:
  QuantizedTest() {
    std::iota(scales_.begin(), scales_.end(), 1.0f);
    weights_.codes = {.data = Bytes(words_), .bits = 4, .other_step = 4};
    weights_.numbers = UnsignedNumbers();
    weights_.scales = {Bytes(scales_), DType::kF32, 1, 12, 4};
    weights_.num_groups = 3;
    weights_.group_inputs = 3;
  }

  WeightTensor Matrix() const { return WeightTensor(3, 8, weights_); }

  std::vector<uint32_t> words_ = CountingWords(3);
  std::vector<float> scales_ = std::vector<float>(9);
  std::vector<uint8_t> zeros_ = {1, 2, 3, 4, 5, 6, 7, 8, 15};
  QuantizedWeights weights_;
};

TEST_F(QuantizedTest, GroupsHaveTheirScales) {
  EXPECT_EQ(Row(Matrix(), 0), (std::vector<float>{0, 1, 2, 6, 8, 10, 18, 21}));
  EXPECT_EQ(Row(Matrix(), 1), (std::vector<float>{32, 36, 40, 55, 60, 65, 84, 90}));
}

TEST_F(QuantizedTest, ZerosAreSubtractedBeforeTheScale) {
  weights_.zeros = {.data = Bytes(zeros_), .other_step = 3};
  EXPECT_EQ(Row(Matrix(), 0), (std::vector<float>{-1, 0, 1, 2, 4, 6, 9, 12}));
  weights_.zeros.bits = 4;  // two of them in a byte: modulo 16 with an offset
  weights_.zero_offset = 15;
  EXPECT_EQ(weights_.ZeroOf(0, 0), 0);
  EXPECT_EQ(weights_.ZeroOf(0, 1), 15);
}

TEST_F(QuantizedTest, BlocksShareScalesBetweenOutputs) {
  weights_.scales.group_outputs = 2;
  EXPECT_EQ(Row(Matrix(), 1), (std::vector<float>{8, 9, 10, 22, 24, 26, 42, 45}));
  EXPECT_EQ(Row(Matrix(), 2)[7], 7 * 6);
}

TEST_F(QuantizedTest, AGlobalScaleMultipliesOrDivides) {
  weights_.global_scale = 3;
  EXPECT_EQ(Row(Matrix(), 0)[4], 4 * (2.0f * 3.0f));
  weights_.divides_by_global = true;
  EXPECT_EQ(Row(Matrix(), 0)[4], 4 * (2.0f / 3.0f));
}

TEST_F(QuantizedTest, AnIndexGivesTheGroupOfEachInput) {
  const std::vector<int32_t> index = {2, 0, 0, 1, 2, 2, 1, 0};
  weights_.group_index = Bytes(index);
  EXPECT_EQ(Row(Matrix(), 0), (std::vector<float>{0, 1, 2, 6, 12, 15, 12, 7}));
  EXPECT_TRUE(Matrix().CheckNumbers().ok());
}

TEST_F(QuantizedTest, RowsAndCutsKeepTheirGroups) {
  EXPECT_EQ(Row(Matrix().TakeRows({2, 0}), 1), Row(Matrix(), 0));
  EXPECT_EQ(Row(Matrix().TakeOutputs(1, 2), 0), Row(Matrix(), 1));
  const std::vector<float> whole = Row(Matrix(), 2);
  for (int64_t first = 0; first < 8; ++first) {
    for (int64_t count = 0; first + count <= 8; ++count) {
      const std::vector<float> part(whole.begin() + first, whole.begin() + first + count);
      EXPECT_EQ(Row(Matrix().TakeInputs(first, count), 2), part) << first << ", " << count;
    }
  }
}

TEST_F(QuantizedTest, NumbersThatNoWeightCanHaveAreFound) {
  EXPECT_TRUE(Matrix().CheckNumbers().ok());
  scales_[5] = std::numeric_limits<float>::infinity();
  ExpectError(Matrix().CheckNumbers(), StatusCode::kBadInput,
              "the scale of output 1, group 2 is inf");
  scales_[5] = std::numeric_limits<float>::quiet_NaN();
  ExpectError(Matrix().CheckNumbers(), StatusCode::kBadInput, "group 2 is nan");
  scales_[5] = 0;  // weights of 0
  EXPECT_TRUE(Matrix().CheckNumbers().ok());
  // Kernels read scales of type e4m3 as numbers.
  for (const uint8_t code : {0x7F, 0xFF}) {
    std::vector<uint8_t> scales(9, 0x38);
    QuantizedWeights weights = weights_;
    weights.scales = {Bytes(scales), DType::kE4M3, 1, 3, 1};
    EXPECT_TRUE(WeightTensor(3, 8, weights).CheckNumbers().ok());
    scales[7] = code;
    ExpectError(WeightTensor(3, 8, weights).CheckNumbers(), StatusCode::kBadInput,
                "the scale of output 2, group 1 is ");
  }
  const std::vector<int32_t> index = {0, 1, 2, 3, 0, 0, 0, -1};
  weights_.group_index = Bytes(index);
  ExpectError(Matrix().CheckNumbers(), StatusCode::kBadInput,
              "input 3 is in group 3; it has 3 groups");
  ExpectError(Matrix().TakeInputs(4, 4).CheckNumbers(), StatusCode::kBadInput,
              "input 7 is in group -1");
}

TEST_F(QuantizedTest, CodesThatAreNoNumberAreFound) {
  std::vector<uint8_t> codes(24, 0x38);
  weights_.codes = {.data = Bytes(codes), .other_step = 8};
  weights_.numbers = E4M3Numbers();
  EXPECT_TRUE(Matrix().CheckNumbers().ok());
  for (const uint8_t nan : {0x7F, 0xFF}) {
    codes[13] = nan;
    ExpectError(Matrix().CheckNumbers(), StatusCode::kBadInput,
                "the weight of output 1, input 5 is NaN");
  }
  EXPECT_TRUE(Matrix().TakeInputs(0, 5).CheckNumbers().ok());
}

}  // namespace
}  // namespace minisgl
