// How values are spread: counts in buckets that grow by the same factor, so that memory stays the
// same however many values come, and a percentile is right to 1.1 %.
#pragma once

#include <cstdint>
#include <vector>

namespace minisgl {

class Histogram {
 public:
  void Add(double value);
  void Add(const Histogram& other);

  // What was added after this was `earlier`, which it REQUIRES to have been. Its max() is right to
  // 2.2 %.
  Histogram Since(const Histogram& earlier) const;

  int64_t count() const { return count_; }
  double sum() const { return sum_; }
  double max() const { return max_; }
  double mean() const { return count_ > 0 ? sum_ / static_cast<double>(count_) : 0; }
  // The value that `percent` of all are not above, in (0, 100]; 0 where there is none. At most
  // max().
  double Percentile(double percent) const;

 private:
  int64_t count_ = 0;
  double sum_ = 0, max_ = 0;
  std::vector<int64_t> buckets_;  // grown on use
};

}  // namespace minisgl
