// Reordered tensors have the orders that tensor_arrangement.h documents.
#include "model/tensor_arrangement.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

namespace minisgl {
namespace {

class TensorArrangementTest : public testing::TestWithParam<DType> {
 protected:
  // Elements 0, 1, 2, ... of GetParam() at an odd address, as in a file.
  TensorView Counting(std::vector<int64_t> shape) {
    TensorView view = {nullptr, GetParam(), std::move(shape)};
    bytes_.resize(view.num_bytes() + 1);
    for (int64_t i = 0; i < view.num_elements(); ++i) {
      const auto value = static_cast<float>(i);
      const size_t width = DTypeBytes(GetParam());
      const uint16_t narrow = GetParam() == DType::kBF16 ? FloatToBf16(value) : FloatToF16(value);
      std::memcpy(bytes_.data() + 1 + static_cast<size_t>(i) * width,
                  width == 4 ? static_cast<const void*>(&value) : &narrow, width);
    }
    view.data = bytes_.data() + 1;
    return view;
  }

  static std::vector<int> Elements(const TensorView& view) {
    std::vector<int> elements;
    for (int64_t i = 0; i < view.num_elements(); ++i) {
      elements.push_back(static_cast<int>(view.At(i)));
    }
    return elements;
  }

 private:
  std::vector<std::byte> bytes_;
};

TEST_P(TensorArrangementTest, ASliceIsOneEntryOfTheFirstAxis) {
  const TensorView slice = model::Slice(Counting({3, 2, 4}), 2);
  EXPECT_EQ(slice.shape, (std::vector<int64_t>{2, 4}));
  EXPECT_EQ(Elements(slice), (std::vector<int>{16, 17, 18, 19, 20, 21, 22, 23}));
}

TEST_P(TensorArrangementTest, RowsAndElementsAreTakenInOrder) {
  const std::vector<int64_t> order = {2, 0, 3};
  const auto rows = model::TakeRows(Counting({4, 2}), order);
  ASSERT_TRUE(rows.ok());
  EXPECT_EQ(rows->view.shape, (std::vector<int64_t>{3, 2}));
  EXPECT_EQ(Elements(rows->view), (std::vector<int>{4, 5, 0, 1, 6, 7}));
  const auto elements = model::TakeRows(Counting({4}), order);
  ASSERT_TRUE(elements.ok());
  EXPECT_EQ(Elements(elements->view), (std::vector<int>{2, 0, 3}));
}

TEST_P(TensorArrangementTest, TransposedSwapsTheAxes) {
  const auto turned = model::Transposed(Counting({2, 3}));
  ASSERT_TRUE(turned.ok());
  EXPECT_EQ(turned->view.shape, (std::vector<int64_t>{3, 2}));
  EXPECT_EQ(Elements(turned->view), (std::vector<int>{0, 3, 1, 4, 2, 5}));
}

INSTANTIATE_TEST_SUITE_P(All, TensorArrangementTest,
                         testing::Values(DType::kF32, DType::kBF16, DType::kF16),
                         [](const auto& test) { return std::string(DTypeName(test.param)); });

TEST(RowOrderTest, PairsOfTheRotatedPartBecomeHalvesAndTheRestStays) {
  EXPECT_EQ(model::HalvesOfPairs(2, 6, 4),
            (std::vector<int64_t>{0, 2, 1, 3, 4, 5, 6, 8, 7, 9, 10, 11}));
  EXPECT_EQ(model::HalvesOfPairs(1, 4, 0), (std::vector<int64_t>{0, 1, 2, 3}));
}

TEST(RowOrderTest, EvensComeBeforeOdds) {
  EXPECT_EQ(model::EvensThenOdds(6), (std::vector<int64_t>{0, 2, 4, 1, 3, 5}));
}

}  // namespace
}  // namespace minisgl
