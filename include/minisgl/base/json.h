// JSON values and text.
//
// A Json is a plain value, copied deeply. Objects keep the order in which keys were added.
// Parsing has limits (depth, number of values, memory), rejects duplicate keys and never throws.
// Writing never fails: ill-formed UTF-8 becomes U+FFFD; NaN and infinities become null.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "minisgl/base/status.h"

namespace minisgl {

class Json {
 public:
  using Array = std::vector<Json>;
  using Member = std::pair<std::string, Json>;
  using Object = std::vector<Member>;

  Json() : value_(nullptr) {}
  // Not inline: every file that uses a Json would have its own code for them.
  Json(const Json& other);
  Json(Json&& other) noexcept;
  Json& operator=(const Json& other);
  Json& operator=(Json&& other) noexcept;
  ~Json();
  Json(std::nullptr_t) : value_(nullptr) {}                     // NOLINT: literals read as JSON
  Json(bool value) : value_(value) {}                           // NOLINT
  Json(int value) : value_(int64_t{value}) {}                   // NOLINT
  Json(int64_t value) : value_(value) {}                        // NOLINT
  Json(uint64_t value);                                         // NOLINT  see is_uint()
  Json(double value) : value_(value) {}                         // NOLINT
  Json(const char* value) : value_(std::string(value)) {}       // NOLINT
  Json(std::string value) : value_(std::move(value)) {}         // NOLINT
  Json(std::string_view value) : value_(std::string(value)) {}  // NOLINT
  Json(Array value) : value_(std::move(value)) {}               // NOLINT
  Json(Object value) : value_(std::move(value)) {}              // NOLINT
  // An integer of any size. REQUIRES: `digits` is JSON's notation of one that neither int64_t nor
  // uint64_t holds.
  static Json LongInteger(std::string digits) {
    Json json;
    json.value_ = LongDigits{std::move(digits)};
    return json;
  }
  // A value that Dump() writes verbatim. Every is_*() is false. REQUIRES that `text` is JSON on one
  // line.
  static Json Raw(std::string text) {
    Json json;
    json.value_ = RawText{std::move(text)};
    return json;
  }

  bool is_null() const { return std::holds_alternative<std::nullptr_t>(value_); }
  bool is_bool() const { return std::holds_alternative<bool>(value_); }
  bool is_int() const { return std::holds_alternative<int64_t>(value_); }
  bool is_double() const {
    return std::holds_alternative<double>(value_) || is_past_int() || is_long();
  }
  bool is_number() const { return is_int() || is_double(); }
  // A number without a fraction and an exponent. One that no int64_t holds is a double to the
  // functions above, but Dump() has all its digits.
  bool is_integer() const { return is_int() || is_past_int() || is_long(); }
  // An integer from 0 to 2^64 - 1.
  bool is_uint() const { return (is_int() && as_int() >= 0) || is_past_int(); }
  bool is_string() const { return std::holds_alternative<std::string>(value_); }
  bool is_array() const { return std::holds_alternative<Array>(value_); }
  bool is_object() const { return std::holds_alternative<Object>(value_); }

  // REQUIRES the matching is_*().
  bool as_bool() const { return std::get<bool>(value_); }
  int64_t as_int() const { return std::get<int64_t>(value_); }
  double as_double() const {  // also of an integer
    if (is_int()) return static_cast<double>(as_int());
    if (is_long()) return LongAsDouble();
    return is_past_int() ? static_cast<double>(as_uint()) : std::get<double>(value_);
  }
  uint64_t as_uint() const {
    return is_int() ? static_cast<uint64_t>(as_int()) : std::get<uint64_t>(value_);
  }
  const std::string& as_string() const { return std::get<std::string>(value_); }
  std::string& as_string() { return std::get<std::string>(value_); }
  const Array& as_array() const { return std::get<Array>(value_); }
  Array& as_array() { return std::get<Array>(value_); }
  const Object& as_object() const { return std::get<Object>(value_); }
  Object& as_object() { return std::get<Object>(value_); }

  // The digits of a LongInteger() value; null for any other.
  const std::string* long_digits() const {
    const LongDigits* digits = std::get_if<LongDigits>(&value_);
    return digits == nullptr ? nullptr : &digits->digits;
  }
  // The text of a Raw() value; null for any other.
  const std::string* raw() const {
    const RawText* raw = std::get_if<RawText>(&value_);
    return raw == nullptr ? nullptr : &raw->text;
  }

  // The member `key` of an object; null if this is not an object or has no such member.
  const Json* Find(std::string_view key) const;
  Json* Find(std::string_view key);
  // Sets or replaces a member. REQUIRES is_object() or is_null() (which becomes an object).
  Json& Set(std::string key, Json value);
  // Sets every member of the object `members`, in time linear in both objects (Set searches all
  // existing members each time). REQUIRES the same as Set(), and distinct keys in `members`.
  Json& SetAll(Json members);
  // Appends to an array. REQUIRES is_array() or is_null() (which becomes an array).
  Json& Append(Json value);

  // For messages: "null", "true or false", "an integer", "a number", "a string", "an array",
  // "an object".
  const char* TypeName() const;

  // The JSON text: on one line, or over several with `indent` > 0 spaces a level.
  // REQUIRES depth <= kJsonDepthMax (true of parsed values).
  std::string Dump(int indent = 0) const;

  bool operator==(const Json& other) const;

 private:
  // An alternative that is never held. libstdc++ treats a variant of only numbers, strings and
  // vectors as never valueless, and destroys an unconstructed value after a copy that ran out of
  // memory. With an alternative of another kind it checks first.
  struct NeverHeld {
    NeverHeld() = delete;
    NeverHeld(const NeverHeld&) noexcept {}
    NeverHeld& operator=(const NeverHeld&) noexcept { return *this; }
    bool operator==(const NeverHeld&) const { return true; }
  };
  struct LongDigits {
    std::string digits;
    bool operator==(const LongDigits& other) const = default;
  };
  struct RawText {
    std::string text;
    bool operator==(const RawText& other) const = default;
  };
  bool is_past_int() const { return std::holds_alternative<uint64_t>(value_); }
  bool is_long() const { return std::holds_alternative<LongDigits>(value_); }
  double LongAsDouble() const;
  std::variant<std::nullptr_t, bool, int64_t, double, std::string, Array, Object, NeverHeld,
               uint64_t, RawText, LongDigits>
      value_;
};

inline constexpr int kJsonDepthMax = 64;

struct JsonLimits {
  int depth_max = kJsonDepthMax;
  // Upper bound on the number of values in the whole text (0: no limit).
  uint64_t values_max = 0;
  // Upper bound on the memory of the values, not counting the characters of strings and keys (0: no
  // limit). A value of two bytes of text takes sizeof(Json), a member several times that.
  uint64_t memory_max = 0;
  // If two members of an object have one key, the last counts, in the place of the first, as in
  // Python. Otherwise they are an error.
  bool keeps_last = false;
};

// Parses one JSON value, with only white space around it. kBadInput with the byte offset and what
// was found there, or the name of a duplicate key.
Result<Json> ParseJson(std::string_view text, const JsonLimits& limits = {});

// Appends `text` as a JSON string literal, with its quotes.
void AppendJsonString(std::string_view text, std::string* out);

}  // namespace minisgl
