// Permutations of outputs have the orders that tensor_arrangement.h documents.
#include "model/tensor_arrangement.h"

#include <gtest/gtest.h>

namespace minisgl {
namespace {

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
