// A set of code points, as sorted ranges: the meaning of a class such as [^"\\] before it is
// spelled in bytes. Surrogates are never members.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <vector>

namespace minisgl {

struct CodePointRange {
  uint32_t first = 0;
  uint32_t last = 0;  // inclusive
  bool operator==(const CodePointRange&) const = default;
};

inline constexpr uint32_t kCodePointMax = 0x10FFFF;

// A value. Ranges are sorted, disjoint and not adjacent.
class CodePointSet {
 public:
  CodePointSet() = default;
  CodePointSet(std::initializer_list<CodePointRange> ranges);
  // Sorts and merges the ranges; drops surrogates and numbers above U+10FFFF.
  explicit CodePointSet(std::vector<CodePointRange> ranges);
  static CodePointSet All();

  const std::vector<CodePointRange>& ranges() const { return ranges_; }
  bool empty() const { return ranges_.empty(); }
  bool Contains(uint32_t code_point) const;

  CodePointSet Union(const CodePointSet& other) const;
  CodePointSet Intersection(const CodePointSet& other) const;
  CodePointSet Complement() const;

  bool operator==(const CodePointSet&) const = default;

 private:
  std::vector<CodePointRange> ranges_;
};

}  // namespace minisgl
