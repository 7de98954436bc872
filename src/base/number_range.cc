#include "minisgl/base/number_range.h"

#include <fmt/core.h>

namespace minisgl {

std::string Describe(IntRange range) {
  if (range.max == std::numeric_limits<int64_t>::max()) {
    return fmt::format("an integer of at least {}", range.min);
  }
  return fmt::format("an integer from {} to {}", range.min, range.max);
}

std::string Describe(NumberRange range) {
  return range.above_min ? fmt::format("a number above {} and at most {}", range.min, range.max)
                         : fmt::format("a number from {} to {}", range.min, range.max);
}

}  // namespace minisgl
