#include "minisgl/base/kernel_profile.h"

#include <gtest/gtest.h>

#include <string>

namespace minisgl {
namespace {

using std::chrono::microseconds;

const KernelProfile::Time kStart = KernelProfile::Time() + std::chrono::hours(1);

TEST(KernelProfileTest, RowsAreSumsByNameTheLargestFirst) {
  KernelProfile profile;
  EXPECT_TRUE(profile.Rows().empty());
  profile.Add("norm", kStart, kStart + microseconds(3));
  profile.Add("product", kStart + microseconds(3), kStart + microseconds(13));
  profile.Add("norm", kStart + microseconds(20), kStart + microseconds(24));
  auto rows = profile.Rows();
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].name, "product");
  EXPECT_EQ(rows[1].name, "norm");
  EXPECT_EQ(rows[1].count, 2);
  EXPECT_NEAR(rows[1].total_ms, 0.007, 1e-9);
  profile.Clear();
  EXPECT_TRUE(profile.Rows().empty());
  profile.Add("norm", kStart, kStart + microseconds(5));
  rows = profile.Rows();
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].count, 1);
  EXPECT_NEAR(rows[0].total_ms, 0.005, 1e-9);
}

TEST(KernelProfileTest, SpansAreKeptOnRequestAndTakenOnce) {
  KernelProfile profile;
  profile.Add("norm", kStart, kStart + microseconds(3));
  EXPECT_TRUE(profile.TakeSpans().empty());
  profile.KeepSpans();
  profile.Add("product", kStart, kStart + microseconds(3));
  profile.Add("norm", kStart + microseconds(4), kStart + microseconds(5));
  const auto spans = profile.TakeSpans();
  ASSERT_EQ(spans.size(), 2u);
  EXPECT_EQ(spans[0].name, "product");
  EXPECT_EQ(spans[1].begin, kStart + microseconds(4));
  EXPECT_EQ(spans[1].end, kStart + microseconds(5));
  EXPECT_TRUE(profile.TakeSpans().empty());
  profile.Add("norm", kStart, kStart);
  profile.Clear();
  EXPECT_TRUE(profile.TakeSpans().empty());
}

TEST(KernelProfileTest, TheTableHasCountsTotalsMeansAndShares) {
  KernelProfile profile;
  profile.SetEmptyMs(0.0015);
  for (int i = 0; i < 3; ++i) profile.Add("norm", kStart, kStart + microseconds(1000));
  profile.Add("Linear [8, 40]", kStart, kStart + microseconds(1000));
  EXPECT_EQ(FormatKernelProfile(profile),
            "kernel             count    total ms   mean us    share\n"
            "norm                   3       3.000   1000.00   75.0 %\n"
            "Linear [8, 40]         1       1.000   1000.00   25.0 %\n"
            "all                    4       4.000   1000.00  100.0 %\n"
            "Kernels ran one by one, without graphs. One that does nothing measures 1.50 us.");
  profile.Clear();
  EXPECT_NE(FormatKernelProfile(profile).find("all            0       0.000      0.00    0.0 %"),
            std::string::npos)
      << FormatKernelProfile(profile);
}

TEST(KernelProfileTest, RanksHaveTablesAndSpansOfTheirOwn) {
  KernelProfile profile(2);
  profile.KeepSpans();
  profile.Add("norm", kStart, kStart + microseconds(1000));
  profile.Add("norm", kStart, kStart + microseconds(3000), 1);
  EXPECT_EQ(profile.Rows(1)[0].total_ms, 3);
  EXPECT_EQ(FormatKernelProfile(profile),
            "rank 0\n"
            "kernel     count    total ms   mean us    share\n"
            "norm           1       1.000   1000.00  100.0 %\n"
            "all            1       1.000   1000.00  100.0 %\n"
            "rank 1\n"
            "kernel     count    total ms   mean us    share\n"
            "norm           1       3.000   3000.00  100.0 %\n"
            "all            1       3.000   3000.00  100.0 %\n"
            "Kernels ran one by one, without graphs. One that does nothing measures 0.00 us.");
  const auto spans = profile.TakeSpans();
  ASSERT_EQ(spans.size(), 2u);
  EXPECT_EQ(spans[0].rank, 0);
  EXPECT_EQ(spans[1].rank, 1);
}

}  // namespace
}  // namespace minisgl
