// Distribution of values in constant memory: counts in buckets whose bounds grow by a constant
// factor. Percentiles are accurate to 1.1 %.
#pragma once

#include <cstdint>
#include <vector>

namespace minisgl {

class Histogram {
 public:
  void Add(double value);
  void Add(const Histogram& other);

  // The values added since `earlier`, a copy of this histogram's past state (REQUIRES). max() of
  // the result is accurate to 2.2 %.
  Histogram Since(const Histogram& earlier) const;

  int64_t count() const { return count_; }
  double sum() const { return sum_; }
  double max() const { return max_; }
  double mean() const { return count_ > 0 ? sum_ / static_cast<double>(count_) : 0; }
  // The value that `percent` percent of all values do not exceed; 0 for an empty histogram. At most
  // max(). REQUIRES percent in (0, 100].
  double Percentile(double percent) const;

 private:
  int64_t count_ = 0;
  double sum_ = 0, max_ = 0;
  std::vector<int64_t> buckets_;  // grown on use
};

}  // namespace minisgl
