#include "minisgl/base/histogram.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

namespace minisgl {
namespace {

TEST(HistogramTest, NothingInItIsZero) {
  const Histogram empty;
  EXPECT_EQ(empty.count(), 0);
  EXPECT_EQ(empty.Percentile(50), 0);
  EXPECT_EQ(empty.mean(), 0);
  EXPECT_EQ(empty.max(), 0);
}

// Against the same percentile of the sorted values, over ten orders of magnitude.
TEST(HistogramTest, PercentilesAreRightToABucket) {
  std::mt19937_64 random(5);
  std::uniform_real_distribution<double> exponent(-6, 4);
  std::vector<double> values;
  Histogram histogram;
  for (int i = 0; i < 5000; ++i) {
    values.push_back(std::pow(10, exponent(random)));
    histogram.Add(values.back());
  }
  std::sort(values.begin(), values.end());
  for (const double percent : {0.1, 1.0, 50.0, 90.0, 99.0, 99.9, 100.0}) {
    const auto rank = static_cast<size_t>(std::ceil(percent / 100 * 5000)) - 1;
    EXPECT_NEAR(histogram.Percentile(percent) / values[rank], 1, 0.012) << percent;
  }
  EXPECT_EQ(histogram.max(), values.back());
  EXPECT_EQ(histogram.count(), 5000);
}

TEST(HistogramTest, OneValueIsEveryPercentile) {
  Histogram histogram;
  histogram.Add(0.5);
  EXPECT_NEAR(histogram.Percentile(1), 0.5, 0.006);
  EXPECT_NEAR(histogram.Percentile(100), 0.5, 0.006);
  EXPECT_LE(histogram.Percentile(100), 0.5);
  EXPECT_EQ(histogram.mean(), 0.5);
}

TEST(HistogramTest, TwoAddUpToOneOfAllValues) {
  Histogram low, high, all;
  for (int i = 1; i <= 100; ++i) {
    (i % 2 == 0 ? low : high).Add(i * 1e-3);
    all.Add(i * 1e-3);
  }
  low.Add(high);
  EXPECT_EQ(low.count(), 100);
  EXPECT_EQ(low.Percentile(50), all.Percentile(50));
  EXPECT_EQ(low.max(), 0.1);
  EXPECT_NEAR(low.sum(), all.sum(), 1e-12);
}

TEST(HistogramTest, WhatCameSinceIsWithoutWhatWasBefore) {
  Histogram histogram;
  EXPECT_EQ(histogram.Since(Histogram()).count(), 0);
  for (int i = 0; i < 10; ++i) histogram.Add(5.0);  // a slow first run
  const Histogram before = histogram;
  EXPECT_EQ(histogram.Since(before).count(), 0);
  EXPECT_EQ(histogram.Since(before).max(), 0);
  for (int i = 1; i <= 9; ++i) histogram.Add(i * 1e-3);
  const Histogram since = histogram.Since(before);
  EXPECT_EQ(since.count(), 9);
  EXPECT_NEAR(since.Percentile(50) / 5e-3, 1, 0.012);
  EXPECT_NEAR(since.sum(), 45e-3, 1e-12);
  EXPECT_GE(since.max(), 9e-3);
  EXPECT_LE(since.max(), 9e-3 * 1.022);
  histogram.Add(7.0);
  EXPECT_EQ(histogram.Since(before).max(), 7.0);
}

// Neither zero, nor a negative value, nor one past the last bucket, nor a NaN does harm.
TEST(HistogramTest, StrangeValuesFallIntoTheEndBuckets) {
  Histogram histogram;
  histogram.Add(0);
  histogram.Add(-1);
  histogram.Add(std::nan(""));
  EXPECT_LE(histogram.Percentile(50), 1e-7);
  histogram.Add(1e300);
  histogram.Add(INFINITY);
  EXPECT_EQ(histogram.count(), 5);
  EXPECT_GT(histogram.Percentile(100), 1e4);
}

}  // namespace
}  // namespace minisgl
