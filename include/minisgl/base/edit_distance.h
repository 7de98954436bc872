// How far a misspelt name is from one that was meant: what "did you mean" compares.
#pragma once

#include <cstddef>
#include <string_view>

namespace minisgl {

// Letters to put in, take out, change or exchange with their neighbour to make `a` of `b`. Time and
// memory grow with the product of both lengths: callers bound them.
size_t EditDistance(std::string_view a, std::string_view b);

}  // namespace minisgl
