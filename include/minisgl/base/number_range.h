// Ranges of numbers that come from outside, and the words for them in messages.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

namespace minisgl {

// The integers from `min` to `max`; all of 64 bits by default.
struct IntRange {
  int64_t min = std::numeric_limits<int64_t>::min();
  int64_t max = std::numeric_limits<int64_t>::max();

  constexpr bool Holds(int64_t value) const { return value >= min && value <= max; }
};

// The numbers from `min` to `max`; unbounded by default.
struct NumberRange {
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  bool above_min = false;  // true: `min` itself is excluded

  // False for NaN.
  constexpr bool Holds(double value) const {
    return (above_min ? value > min : value >= min) && value <= max;
  }
};

// Returns "an integer from 0 to 20", or "an integer of at least 0" if `max` is the largest int64_t.
std::string Describe(IntRange range);
// Returns "a number from 0 to 1", or "a number above 0 and at most 1".
std::string Describe(NumberRange range);

}  // namespace minisgl
