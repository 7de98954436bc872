// JSON values and text. Parsing is bounded (depth, bytes, duplicate keys refused) and never throws;
// writing never fails: ill-formed UTF-8 becomes U+FFFD, NaN and infinities become null.
//
// A Json is a plain value, copied deeply. Objects keep the order in which keys were added.
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
  // What Dump() writes as it stands. REQUIRES that `text` is JSON on one line. It has no type:
  // every is_*() is false.
  static Json Raw(std::string text) {
    Json json;
    json.value_ = RawText{std::move(text)};
    return json;
  }

  bool is_null() const { return std::holds_alternative<std::nullptr_t>(value_); }
  bool is_bool() const { return std::holds_alternative<bool>(value_); }
  bool is_int() const { return std::holds_alternative<int64_t>(value_); }
  bool is_double() const { return std::holds_alternative<double>(value_) || is_past_int(); }
  bool is_number() const { return is_int() || is_double(); }
  // An integer from 0 to 2^64 - 1. One past INT64_MAX is a double to the functions above, but keeps
  // its digits.
  bool is_uint() const { return (is_int() && as_int() >= 0) || is_past_int(); }
  bool is_string() const { return std::holds_alternative<std::string>(value_); }
  bool is_array() const { return std::holds_alternative<Array>(value_); }
  bool is_object() const { return std::holds_alternative<Object>(value_); }

  // REQUIRES the matching is_*().
  bool as_bool() const { return std::get<bool>(value_); }
  int64_t as_int() const { return std::get<int64_t>(value_); }
  double as_double() const {  // also of an integer
    if (is_int()) return static_cast<double>(as_int());
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

  // The text of a Raw() value, else null.
  const std::string* raw() const {
    const RawText* raw = std::get_if<RawText>(&value_);
    return raw == nullptr ? nullptr : &raw->text;
  }

  // The member `key` of an object; null if this is no object or has no such member.
  const Json* Find(std::string_view key) const;
  Json* Find(std::string_view key);
  // Sets or replaces a member. REQUIRES is_object() or is_null() (which becomes an object).
  Json& Set(std::string key, Json value);
  // Sets every member of `members`, whose keys are all different, in time in step with both (Set
  // looks at every member that is there). REQUIRES as Set(); `members` is an object.
  Json& SetAll(Json members);
  // Appends to an array. REQUIRES is_array() or is_null() (which becomes an array).
  Json& Append(Json value);

  // "null", "true or false", "an integer", "a number", "a string", "an array", "an object": for
  // messages.
  const char* TypeName() const;

  // Text on one line; `indent` > 0 spreads it over lines, so many spaces a level.
  // REQUIRES depth <= kJsonDepthMax (parsed values are).
  std::string Dump(int indent = 0) const;

  bool operator==(const Json& other) const = default;

 private:
  // Never held. libstdc++ takes a variant of numbers, strings and vectors alone for one that always
  // holds a value, and after a copy that ran out of memory destroys what was never made; with a
  // type it knows nothing about beside them it looks first.
  struct NeverHeld {
    NeverHeld() = delete;
    NeverHeld(const NeverHeld&) noexcept {}
    NeverHeld& operator=(const NeverHeld&) noexcept { return *this; }
    bool operator==(const NeverHeld&) const { return true; }
  };
  struct RawText {
    std::string text;
    bool operator==(const RawText& other) const = default;
  };
  bool is_past_int() const { return std::holds_alternative<uint64_t>(value_); }
  std::variant<std::nullptr_t, bool, int64_t, double, std::string, Array, Object, NeverHeld,
               uint64_t, RawText>
      value_;
};

inline constexpr int kJsonDepthMax = 64;

struct JsonLimits {
  int depth_max = kJsonDepthMax;
  // Most values in the whole text (0: as many as its bytes allow).
  uint64_t values_max = 0;
  // Upper bound on the memory of the values, without the characters of strings and keys (0: no
  // limit). A value of two bytes of text takes sizeof(Json), a member several times that.
  uint64_t memory_max = 0;
};

// One JSON value with nothing but white space around it. The error says the byte, what was found,
// and for a duplicate key its name.
Result<Json> ParseJson(std::string_view text, const JsonLimits& limits = {});

// `text` as a JSON string literal, quotes included.
void AppendJsonString(std::string_view text, std::string* out);

}  // namespace minisgl
