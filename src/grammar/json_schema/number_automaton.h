// Ranges of JSON numbers as automata over their spellings.
//
// A range stands for all spellings of its numbers out of these: plain ones of at most 64 digits
// before the point and behind it, and scientific ones with one digit that is not 0 before the
// point (`1.5e-3`, as programs write them), at most 20 behind it and an exponent from -307 to 307.
#pragma once

#include <memory>
#include <optional>

#include "grammar/json_schema/value.h"
#include "minisgl/grammar/expression.h"

namespace minisgl::grammar {

inline constexpr uint32_t kWholeDigitsMax = 64;     // of a plain spelling, before the point
inline constexpr uint32_t kFractionDigitsMax = 64;  // behind it
inline constexpr uint32_t kMantissaDigitsMax = 20;  // of a scientific spelling, behind the point
// One digit stands before it, so that every number is one of double precision: most readers of JSON
// make infinity of a larger one.
inline constexpr int64_t kExponentMax = 307;

struct NumberBound {
  Decimal value;
  bool is_open = false;  // the value itself is not in the range
  bool operator==(const NumberBound&) const = default;
};

struct NumberRange {
  std::optional<NumberBound> min, max;
  bool integers = false;        // numbers without a fraction alone, `1.0` included
  bool whole_spelling = false;  // no point, no exponent, no `-0`: integers as they are generated
  bool exponents = true;        // false: no scientific spellings
  bool operator==(const NumberRange&) const = default;
};

// The numbers that are in both.
NumberRange IntersectionOf(const NumberRange& a, const NumberRange& b);

// Those without bounds are made once for all. Thread-safe.
std::shared_ptr<const ByteAutomaton> AutomatonOf(const NumberRange& range);

// Every spelling that JSON has of any number, up to 400 digits before the point and behind it.
std::shared_ptr<const ByteAutomaton> AutomatonOfAnyNumber();

}  // namespace minisgl::grammar
