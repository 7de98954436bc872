// Schemas as sets of values: a small algebra in which every keyword is an intersection.
//
// A Term is a set of JSON values, named by how it is made: a schema of the document, a boolean
// combination of terms, or a Normal. A Normal is such a set split by type: booleans and null by
// name, numbers and strings as expressions over their spelling, arrays and objects as unions of
// shapes. A shape is a conjunction of facets whose parts are Terms, so that recursive schemas are
// finite. All sets are closed under union, intersection and complement, with the exceptions that
// functions below name.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "minisgl/grammar/expression.h"

namespace minisgl::grammar {

enum class Term : uint32_t { kFalse = 0, kTrue = 1 };

inline constexpr uint64_t kNoLimit = std::numeric_limits<uint64_t>::max();

// Arrays whose elements from `from` on that are in `value` number from `min` to `max`.
struct Contains {
  Term value = Term::kTrue;
  uint64_t min = 0;
  uint64_t max = kNoLimit;
  uint64_t from = 0;
  bool operator==(const Contains&) const = default;
};

struct ArrayShape {
  std::vector<Term> prefix;  // of elements 0, 1, ...
  Term rest = Term::kTrue;   // of all later elements
  uint64_t min = 0;
  uint64_t max = kNoLimit;
  std::vector<Contains> contains;
  bool unique = false;
  bool operator==(const ArrayShape&) const = default;
};

struct Property {
  std::string name;
  Term value = Term::kTrue;  // kFalse: the property is not there
  bool required = false;
  bool placed = false;  // named by `properties`, which gives it its place in the order
  bool operator==(const Property&) const = default;
};

// The value of every member whose name is in `names`, but none of the shape's properties.
struct NameClass {
  ExpressionId names{};
  Term value = Term::kTrue;
  bool operator==(const NameClass&) const = default;
};

struct ObjectShape {
  std::vector<Property> properties;
  std::vector<NameClass> classes;  // disjoint; no other names occur
  // For each of these there is a member, property or not, whose name and value are in it.
  std::vector<NameClass> some;
  uint64_t min = 0;
  uint64_t max = kNoLimit;
  bool operator==(const ObjectShape&) const = default;
};

struct Normal {
  bool null = false;
  bool false_ = false;
  bool true_ = false;
  ExpressionId number{};  // Nothing()
  ExpressionId string{};
  std::vector<ArrayShape> arrays;
  std::vector<ObjectShape> objects;
  bool operator==(const Normal&) const = default;
};

}  // namespace minisgl::grammar
