// Made-up weights: the right names and shapes, the same values for the same seed, and one period of
// memory however large a tensor is.
#include "weights/random_checkpoint.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "test_files.h"

namespace minisgl {
namespace {

constexpr int64_t kPeriodFloats = 16 << 20;  // 64 MiB

const std::vector<weights::RandomTensor> kTensors = {
    {"norm", {40}, weights::RandomValues::kNearOne}, {"small", {3, 5}}, {"large", {300, 40}}};

TEST(RandomCheckpointTest, HoldsWhatIsAskedFor) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    const auto checkpoint = weights::MakeRandomCheckpoint(kTensors, dtype, 7);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
    EXPECT_EQ((*checkpoint)->Names(), (std::vector<std::string>{"large", "norm", "small"}));
    EXPECT_EQ((*checkpoint)->total_bytes(), (40 + 15 + 12000) * DTypeBytes(dtype));
    EXPECT_EQ((*checkpoint)->FileOf("norm"), "made-up weights");
    EXPECT_EQ((*checkpoint)->FileOf("none"), "");
    ExpectError((*checkpoint)->Get("none").status(), StatusCode::kBadInput, "\"none\"");
    const auto large = (*checkpoint)->Get("large");
    ASSERT_TRUE(large.ok());
    EXPECT_EQ(large->dtype, dtype);
    EXPECT_EQ(large->shape, (std::vector<int64_t>{300, 40}));
  }
}

TEST(RandomCheckpointTest, MatricesLieAroundZeroAndNormsAroundOne) {
  const auto checkpoint = weights::MakeRandomCheckpoint(kTensors, DType::kBF16, 7);
  ASSERT_TRUE(checkpoint.ok());
  const TensorView large = *(*checkpoint)->Get("large");
  double sum = 0, squares = 0;
  for (int64_t i = 0; i < large.num_elements(); ++i) {
    const double value = large.At(i);
    ASSERT_LT(std::abs(value), 0.04);
    sum += value;
    squares += value * value;
  }
  const auto count = static_cast<double>(large.num_elements());
  EXPECT_NEAR(sum / count, 0, 0.001);  // of 12,000 with deviation 0.02: 5.5 standard errors
  EXPECT_NEAR(std::sqrt(squares / count), 0.02, 0.001);
  const TensorView norm = *(*checkpoint)->Get("norm");
  for (int64_t i = 0; i < norm.num_elements(); ++i) ASSERT_NEAR(norm.At(i), 1, 0.11);
}

TEST(RandomCheckpointTest, ValuesThatAreNotRandom) {
  using weights::RandomValues;
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    const auto checkpoint =
        weights::MakeRandomCheckpoint({{"zeros", {3, 4}, RandomValues::kZeros},
                                       {"ones", {5}, RandomValues::kOnes},
                                       {"first", {3, 6}, RandomValues::kFirstInputs},
                                       {"matrix", {3, 4}}},
                                      dtype, 7);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
    const TensorView zeros = *(*checkpoint)->Get("zeros"), ones = *(*checkpoint)->Get("ones");
    for (int64_t i = 0; i < zeros.num_elements(); ++i) EXPECT_EQ(zeros.At(i), 0);
    for (int64_t i = 0; i < ones.num_elements(); ++i) EXPECT_EQ(ones.At(i), 1);
    const TensorView first = *(*checkpoint)->Get("first");
    for (int64_t i = 0; i < first.num_elements(); ++i) EXPECT_EQ(first.At(i), i % 6 == i / 6) << i;
  }
}

TEST(RandomCheckpointTest, TheSeedDecides) {
  const auto values = [](uint64_t seed) {
    const auto memory = weights::MakeRandomMemory(4096, DType::kF32, 0, 1, seed);
    EXPECT_TRUE(memory.ok());
    std::vector<float> floats(1024);
    std::memcpy(floats.data(), memory->get(), 4096);
    return floats;
  };
  EXPECT_EQ(values(1), values(1));
  EXPECT_NE(values(1), values(2));
}

TEST(RandomCheckpointTest, MemoryRepeatsAfterOnePeriod) {
  // 16 GiB of addresses, 64 MiB of memory.
  const uint64_t bytes = uint64_t{1} << 34;
  const auto memory = weights::MakeRandomMemory(bytes, DType::kF32, 0, 1, 3);
  ASSERT_TRUE(memory.ok()) << memory.status().message();
  const auto at = [&](uint64_t index) {
    float value = 0;
    std::memcpy(&value, memory->get() + index * sizeof(float), sizeof(float));
    return value;
  };
  EXPECT_EQ(at(5), at(5 + kPeriodFloats));
  EXPECT_NE(at(5), at(6 + kPeriodFloats));
  EXPECT_EQ(at(bytes / 4 - 1), at(kPeriodFloats - 1));
}

TEST(RandomCheckpointTest, AbsurdShapesAreRefused) {
  for (const std::vector<int64_t>& shape :
       std::vector<std::vector<int64_t>>{{int64_t{1} << 46}, {int64_t{1} << 40, 1 << 24}, {-1}}) {
    const auto checkpoint = weights::MakeRandomCheckpoint({{"absurd", shape}}, DType::kF32, 1);
    ExpectError(checkpoint.status(), StatusCode::kBadInput, "\"absurd\"");
  }
}

}  // namespace
}  // namespace minisgl
