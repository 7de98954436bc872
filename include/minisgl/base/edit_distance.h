// Edit distance between names, for "did you mean" suggestions.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <vector>

namespace minisgl {

// The number of insertions, deletions, substitutions and swaps of neighbouring bytes that turn `a`
// into `b` (optimal string alignment). Time and memory are proportional to the product of both
// lengths; callers bound them.
size_t EditDistance(std::string_view a, std::string_view b);

// Returns the name nearest to `word`, the first if several are; "" if none is within `distance_max`
// edits, or if `word` has more than 40 bytes, which is longer than names are.
std::string_view NearestName(std::string_view word, const std::vector<std::string_view>& names,
                             size_t distance_max);
// A typo in a name differs by at most two letters and keeps most of the name.
inline size_t TypoDistanceMax(std::string_view word) {
  return std::min<size_t>(2, word.size() / 3);
}

}  // namespace minisgl
