// Edit distance between names, for "did you mean" suggestions.
#pragma once

#include <cstddef>
#include <string_view>

namespace minisgl {

// The number of insertions, deletions, substitutions and swaps of neighbouring bytes that turn `a`
// into `b` (optimal string alignment). Time and memory are proportional to the product of both
// lengths; callers bound them.
size_t EditDistance(std::string_view a, std::string_view b);

}  // namespace minisgl
