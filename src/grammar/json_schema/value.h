// JSON values of a schema. Unlike a Json (base/json.h) they keep the digits of numbers, and the
// place of each value.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "minisgl/base/status.h"

namespace minisgl::grammar {

struct SchemaValue {
  enum class Kind { kNull, kFalse, kTrue, kNumber, kString, kArray, kObject };
  using Member = std::pair<std::string, SchemaValue>;

  bool is_bool() const { return kind == Kind::kFalse || kind == Kind::kTrue; }
  bool is_true() const { return kind == Kind::kTrue; }
  bool is_number() const { return kind == Kind::kNumber; }
  bool is_string() const { return kind == Kind::kString; }
  bool is_array() const { return kind == Kind::kArray; }
  bool is_object() const { return kind == Kind::kObject; }
  // The member `key` of an object; null if this is not an object or has no such member.
  const SchemaValue* Find(std::string_view key) const;
  // The place of this value as a JSON pointer in a URI fragment: "#", "#/properties/a".
  std::string Pointer() const;

  Kind kind = Kind::kNull;
  std::string text;                // the characters of a string, the spelling of a number
  std::vector<SchemaValue> items;  // of an array
  std::vector<Member> members;     // of an object, in the order of the text; keys are distinct
  const SchemaValue* parent = nullptr;
  size_t index = 0;  // among the parent's items or members
};

// Parses one JSON value. kBadInput for text that is not JSON, not Unicode, has duplicate keys, or
// is nested deeper than kJsonDepthMax. The value's address is stable, as `parent` needs.
Result<std::unique_ptr<const SchemaValue>> ParseSchemaValue(std::string_view text);

// A decimal number: digits * 10^exponent, exactly. `digits` has no leading or trailing zeros and is
// empty for zero (whose exponent is 0 and which is not negative).
struct Decimal {
  bool negative = false;
  std::string digits;
  int64_t exponent = 0;

  bool is_zero() const { return digits.empty(); }
  bool is_integer() const { return exponent >= 0; }
  bool operator==(const Decimal& other) const = default;
};
// False if the exponent or the number of digits is beyond `kDecimalLimit`.
inline constexpr int64_t kDecimalLimit = 400;
bool ParseDecimal(std::string_view text, Decimal* out);
// -1, 0 or 1.
int CompareDecimals(const Decimal& a, const Decimal& b);
// A number as a count; false if it is not an integer from 0 to 2^53.
bool DecimalToCount(const Decimal& number, uint64_t* count);

// True if both are the same JSON value: numbers by value, objects whatever their order.
bool SameValue(const SchemaValue& a, const SchemaValue& b);

}  // namespace minisgl::grammar
