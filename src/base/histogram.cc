#include "minisgl/base/histogram.h"

#include <algorithm>
#include <cmath>

#include "minisgl/base/check.h"

namespace minisgl {
namespace {

// Bucket b holds values up to kSmallest * 2^(b / kPerDoubling): 100 ns to 100,000 s are 1,280 of
// them.
constexpr double kSmallest = 1e-7;
constexpr double kPerDoubling = 32;
constexpr int64_t kBucketsMax = 1280;

size_t BucketOf(double value) {
  if (!(value > kSmallest)) return 0;
  const double bucket = std::ceil(std::log2(value / kSmallest) * kPerDoubling);
  return static_cast<size_t>(std::min(bucket, static_cast<double>(kBucketsMax - 1)));
}

}  // namespace

void Histogram::Add(double value) {
  const size_t bucket = BucketOf(value);
  if (buckets_.size() <= bucket) buckets_.resize(bucket + 1, 0);
  ++buckets_[bucket];
  ++count_;
  sum_ += value;
  max_ = std::max(max_, value);
}

void Histogram::Add(const Histogram& other) {
  if (buckets_.size() < other.buckets_.size()) buckets_.resize(other.buckets_.size(), 0);
  for (size_t i = 0; i < other.buckets_.size(); ++i) buckets_[i] += other.buckets_[i];
  count_ += other.count_;
  sum_ += other.sum_;
  max_ = std::max(max_, other.max_);
}

Histogram Histogram::Since(const Histogram& earlier) const {
  MINISGL_CHECK(earlier.count_ <= count_ && earlier.buckets_.size() <= buckets_.size(),
                "{} values are to be the beginning of {}", earlier.count_, count_);
  Histogram since;
  since.buckets_ = buckets_;
  for (size_t i = 0; i < earlier.buckets_.size(); ++i) since.buckets_[i] -= earlier.buckets_[i];
  while (!since.buckets_.empty() && since.buckets_.back() == 0) since.buckets_.pop_back();
  since.count_ = count_ - earlier.count_;
  if (since.count_ == 0) return since;
  since.sum_ = sum_ - earlier.sum_;
  // The largest may be an earlier one; then what its bucket ends with is.
  const double end =
      kSmallest * std::exp2((static_cast<double>(since.buckets_.size()) - 1) / kPerDoubling);
  since.max_ = std::min(max_, end);
  return since;
}

double Histogram::Percentile(double percent) const {
  if (count_ == 0) return 0;
  const auto rank = static_cast<int64_t>(std::clamp(
      std::ceil(percent / 100 * static_cast<double>(count_)), 1.0, static_cast<double>(count_)));
  int64_t below = 0;
  for (size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
    below += buckets_[bucket];
    if (below < rank) continue;
    // The middle of the bucket: half a bucket is 1.1 %.
    const double middle = kSmallest * std::exp2((static_cast<double>(bucket) - 0.5) / kPerDoubling);
    return std::min(middle, max_);
  }
  return max_;
}

}  // namespace minisgl
