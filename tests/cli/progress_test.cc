// The bar that loading shows.
#include "cli/progress.h"

#include <gtest/gtest.h>

namespace minisgl {
namespace {

TEST(ProgressBarTest, GrowsFromEmptyToFull) {
  EXPECT_EQ(ProgressBar("loading weights", 0, 28, 10), "loading weights [          ] 0/28");
  EXPECT_EQ(ProgressBar("loading weights", 14, 28, 10), "loading weights [=====     ] 14/28");
  EXPECT_EQ(ProgressBar("loading weights", 27, 28, 10), "loading weights [========= ] 27/28");
  EXPECT_EQ(ProgressBar("loading weights", 28, 28, 10), "loading weights [==========] 28/28");
}

TEST(ProgressBarTest, NothingToDoIsFull) {
  EXPECT_EQ(ProgressBar("loading", 0, 0, 4), "loading [====] 0/0");
}

}  // namespace
}  // namespace minisgl
