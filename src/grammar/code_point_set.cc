#include "minisgl/grammar/code_point_set.h"

#include <algorithm>

namespace minisgl {

namespace {

constexpr uint32_t kSurrogateFirst = 0xD800;
constexpr uint32_t kSurrogateLast = 0xDFFF;

}  // namespace

CodePointSet::CodePointSet(std::initializer_list<CodePointRange> ranges)
    : CodePointSet(std::vector<CodePointRange>(ranges)) {}

CodePointSet::CodePointSet(std::vector<CodePointRange> ranges) {
  std::vector<CodePointRange> valid;
  for (CodePointRange range : ranges) {
    range.last = std::min(range.last, kCodePointMax);
    if (range.first > range.last) continue;
    if (range.last < kSurrogateFirst || range.first > kSurrogateLast) {
      valid.push_back(range);
      continue;
    }
    if (range.first < kSurrogateFirst) valid.push_back({range.first, kSurrogateFirst - 1});
    if (range.last > kSurrogateLast) valid.push_back({kSurrogateLast + 1, range.last});
  }
  std::sort(valid.begin(), valid.end(),
            [](const CodePointRange& a, const CodePointRange& b) { return a.first < b.first; });
  for (const CodePointRange& range : valid) {
    if (!ranges_.empty() && range.first <= ranges_.back().last + 1) {
      ranges_.back().last = std::max(ranges_.back().last, range.last);
    } else {
      ranges_.push_back(range);
    }
  }
}

CodePointSet CodePointSet::All() { return CodePointSet({{0, kCodePointMax}}); }

bool CodePointSet::Contains(uint32_t code_point) const {
  const auto after = std::upper_bound(
      ranges_.begin(), ranges_.end(), code_point,
      [](uint32_t value, const CodePointRange& range) { return value < range.first; });
  return after != ranges_.begin() && code_point <= std::prev(after)->last;
}

CodePointSet CodePointSet::Union(const CodePointSet& other) const {
  std::vector<CodePointRange> ranges = ranges_;
  ranges.insert(ranges.end(), other.ranges_.begin(), other.ranges_.end());
  return CodePointSet(std::move(ranges));
}

CodePointSet CodePointSet::Intersection(const CodePointSet& other) const {
  return Complement().Union(other.Complement()).Complement();
}

CodePointSet CodePointSet::Complement() const {
  std::vector<CodePointRange> ranges;
  uint32_t next = 0;
  for (const CodePointRange& range : ranges_) {
    if (range.first > next) ranges.push_back({next, range.first - 1});
    next = range.last + 1;
  }
  if (next <= kCodePointMax) ranges.push_back({next, kCodePointMax});
  return CodePointSet(std::move(ranges));
}

}  // namespace minisgl
