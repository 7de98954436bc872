// Kinds of distances, as the reference has them.
#include "weights/distance_kinds.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace minisgl::weights {
namespace {

// Where the kind changes, by MPNetEncoder.relative_position_bucket of transformers 5.24.
TEST(DistanceKindsTest, KindsChangeWhereTheReferencesDo) {
  const std::vector<std::pair<int64_t, int64_t>> changes = {
      {-600, 15}, {-90, 14}, {-63, 13}, {-45, 12}, {-31, 11}, {-22, 10}, {-15, 9}, {-11, 8},
      {-7, 7},    {-6, 6},   {-5, 5},   {-4, 4},   {-3, 3},   {-2, 2},   {-1, 1},  {0, 0},
      {1, 17},    {2, 18},   {3, 19},   {4, 20},   {5, 21},   {6, 22},   {7, 23},  {8, 24},
      {12, 25},   {16, 26},  {23, 27},  {32, 28},  {46, 29},  {64, 30},  {91, 31}};
  std::vector<std::pair<int64_t, int64_t>> found;
  for (int64_t distance = -600; distance <= 600; ++distance) {
    const int64_t kind = DistanceKind(distance);
    if (found.empty() || found.back().second != kind) found.emplace_back(distance, kind);
  }
  EXPECT_EQ(found, changes);
}

}  // namespace
}  // namespace minisgl::weights
