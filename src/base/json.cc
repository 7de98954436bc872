#include "minisgl/base/json.h"

#include <cmath>
#include <cstdlib>
#include <iterator>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "minisgl/base/utf8.h"

namespace minisgl {
namespace {

constexpr int kNumberOutOfRange = 406;  // the reader's id of a number that no double holds
// Memory of a member besides its value: the key, and its node in the map of an open object's keys.
constexpr uint64_t kKeyMemory = sizeof(std::string) + 64;
// Memory of a string, array or object besides its values: overhead of malloc, and of a chat
// template's copy.
constexpr uint64_t kHeapMemory = 40;

// Builds a Json from the reader's events without recursion. Stops the reader at the first exceeded
// limit.
class Builder : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit Builder(const JsonLimits& limits) : limits_(limits) {}

  bool null() override { return Add(Json(nullptr)); }
  bool boolean(bool value) override { return Add(Json(value)); }
  bool number_integer(number_integer_t value) override { return Add(Json(int64_t{value})); }
  bool number_unsigned(number_unsigned_t value) override { return Add(Json(uint64_t{value})); }
  // The reader makes a float of an integer that does not fit into 64 bits.
  bool number_float(number_float_t value, const string_t& text) override {
    if (text.find_first_of(".eE") != std::string::npos) return Add(Json(value));
    return Charge(kHeapMemory + text.size()) && Add(Json::LongInteger(text));
  }
  bool string(string_t& value) override {
    return Charge(kHeapMemory) && Add(Json(std::move(value)));
  }
  bool binary(binary_t&) override { return Fail("binary value"); }

  bool start_object(std::size_t) override { return Open(Json(Json::Object{})); }
  bool key(string_t& value) override {
    Container& object = open_.back();
    object.place = object.keys.emplace(value, object.value.as_object().size()).first->second;
    if (!limits_.keeps_last && object.place < object.value.as_object().size()) {
      return Fail(fmt::format("duplicate key \"{}\"", Visible(value)));
    }
    object.key = std::move(value);
    return Charge(kKeyMemory);
  }
  bool end_object() override { return Close(); }
  bool start_array(std::size_t) override { return Open(Json(Json::Array{})); }
  bool end_array() override { return Close(); }

  bool parse_error(std::size_t position, const std::string& last_token,
                   const nlohmann::detail::exception& error) override {
    if (error.id == kNumberOutOfRange) {
      return Fail(fmt::format("the number {} is out of range", Visible(last_token)));
    }
    return Fail(last_token.empty() ? fmt::format("not valid JSON at byte {}", position)
                                   : fmt::format("not valid JSON at byte {} (found {})", position,
                                                 Visible(last_token)));
  }

  bool failed() const { return !error_.empty(); }
  const std::string& error() const { return error_; }
  Json TakeRoot() { return std::move(root_); }

 private:
  struct Container {
    Json value;
    std::string key;   // of the member being read
    size_t place = 0;  // of that member
    // The places of members. Ordered, because hostile text can make all keys have one hash.
    std::map<std::string, size_t> keys;
  };

  bool Fail(std::string message) {
    if (error_.empty()) error_ = std::move(message);
    return false;
  }
  bool Count() {
    ++num_values_;
    if (limits_.values_max != 0 && num_values_ > limits_.values_max) {
      return Fail(fmt::format("more than {} values", limits_.values_max));
    }
    return Charge(sizeof(Json));
  }
  bool Charge(uint64_t bytes) {
    memory_ += bytes;
    if (limits_.memory_max != 0 && memory_ > limits_.memory_max) {
      return Fail(fmt::format("more values than fit into {} MiB", limits_.memory_max >> 20));
    }
    return true;
  }
  bool Add(Json value) {
    if (!Count()) return false;
    Place(std::move(value));
    return true;
  }
  void Place(Json value) {
    if (open_.empty()) {
      root_ = std::move(value);
    } else if (open_.back().value.is_array()) {
      open_.back().value.as_array().push_back(std::move(value));
    } else {
      Container& object = open_.back();
      Json::Object& members = object.value.as_object();
      if (object.place < members.size()) {
        members[object.place].second = std::move(value);
      } else {
        members.emplace_back(std::move(object.key), std::move(value));
      }
    }
  }
  bool Open(Json empty) {
    if (!Count() || !Charge(kHeapMemory)) return false;
    if (static_cast<int>(open_.size()) >= limits_.depth_max) {
      return Fail(fmt::format("nested more than {} deep", limits_.depth_max));
    }
    open_.push_back({std::move(empty), {}, 0, {}});
    return true;
  }
  bool Close() {
    Json value = std::move(open_.back().value);
    open_.pop_back();
    Place(std::move(value));
    return true;
  }

  JsonLimits limits_;
  uint64_t num_values_ = 0;
  uint64_t memory_ = 0;
  std::vector<Container> open_;
  Json root_;
  std::string error_;
};

void AppendNumber(double value, std::string* out) {
  if (!std::isfinite(value)) {
    *out += "null";
    return;
  }
  const size_t begin = out->size();
  fmt::format_to(std::back_inserter(*out), "{}", value);
  // A whole double stays a double when read again.
  if (out->find_first_of(".e", begin) == std::string::npos) *out += ".0";
}

void Dump(const Json& json, int indent, int depth, std::string* out) {
  const auto new_line = [&](int at) {
    if (indent > 0) {
      *out += '\n';
      out->append(static_cast<size_t>(indent) * static_cast<size_t>(at), ' ');
    }
  };
  if (const std::string* raw = json.raw()) {
    *out += *raw;
  } else if (json.is_null()) {
    *out += "null";
  } else if (json.is_bool()) {
    *out += json.as_bool() ? "true" : "false";
  } else if (json.is_int()) {
    fmt::format_to(std::back_inserter(*out), "{}", json.as_int());
  } else if (json.is_uint()) {
    fmt::format_to(std::back_inserter(*out), "{}", json.as_uint());
  } else if (const std::string* digits = json.long_digits()) {
    *out += *digits;
  } else if (json.is_double()) {
    AppendNumber(json.as_double(), out);
  } else if (json.is_string()) {
    AppendJsonString(json.as_string(), out);
  } else if (json.is_array()) {
    *out += '[';
    bool first = true;
    for (const Json& element : json.as_array()) {
      if (!first) *out += indent > 0 ? "," : ", ";
      first = false;
      new_line(depth + 1);
      Dump(element, indent, depth + 1, out);
    }
    if (!first) new_line(depth);
    *out += ']';
  } else {
    *out += '{';
    bool first = true;
    for (const auto& [key, value] : json.as_object()) {
      if (!first) *out += indent > 0 ? "," : ", ";
      first = false;
      new_line(depth + 1);
      AppendJsonString(key, out);
      *out += ": ";
      Dump(value, indent, depth + 1, out);
    }
    if (!first) new_line(depth);
    *out += '}';
  }
}

}  // namespace

Json::Json(const Json& other) = default;
Json::Json(Json&& other) noexcept = default;
Json& Json::operator=(const Json& other) = default;
Json& Json::operator=(Json&& other) noexcept = default;
Json::~Json() = default;
bool Json::operator==(const Json& other) const = default;

Json::Json(uint64_t value) {
  if (value <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    value_ = static_cast<int64_t>(value);
  } else {
    value_ = value;
  }
}

double Json::LongAsDouble() const { return std::strtod(long_digits()->c_str(), nullptr); }

Json* Json::Find(std::string_view key) { return const_cast<Json*>(std::as_const(*this).Find(key)); }

const Json* Json::Find(std::string_view key) const {
  if (!is_object()) return nullptr;
  for (const Member& member : as_object()) {
    if (member.first == key) return &member.second;
  }
  return nullptr;
}

Json& Json::Set(std::string key, Json value) {
  if (is_null()) value_ = Object{};
  for (Member& member : as_object()) {
    if (member.first == key) {
      member.second = std::move(value);
      return *this;
    }
  }
  as_object().emplace_back(std::move(key), std::move(value));
  return *this;
}

Json& Json::SetAll(Json members) {
  if (is_null()) value_ = Object{};
  Object& own = as_object();
  // Ordered, because hostile keys can all have one hash.
  std::map<std::string_view, Json*> values;
  for (auto& [key, value] : own) values.emplace(key, &value);
  Object added;
  for (Member& member : members.as_object()) {
    const auto value = values.find(member.first);
    if (value == values.end()) {
      added.push_back(std::move(member));
    } else {
      *value->second = std::move(member.second);
    }
  }
  own.insert(own.end(), std::make_move_iterator(added.begin()),
             std::make_move_iterator(added.end()));
  return *this;
}

Json& Json::Append(Json value) {
  if (is_null()) value_ = Array{};
  as_array().push_back(std::move(value));
  return *this;
}

const char* Json::TypeName() const {
  if (is_null()) return "null";
  if (is_bool()) return "true or false";
  if (is_integer()) return "an integer";
  if (is_double()) return "a number";
  if (is_string()) return "a string";
  return is_array() ? "an array" : "an object";
}

std::string Json::Dump(int indent) const {
  std::string out;
  minisgl::Dump(*this, indent, 0, &out);
  return out;
}

Result<Json> ParseJson(std::string_view text, const JsonLimits& limits) {
  // The reader treats a NUL as the end of the text and would ignore the rest.
  const size_t nul = text.find('\0');
  if (nul != std::string_view::npos)
    return BadInput("not valid JSON at byte {} (found \\x00)", nul);
  Builder builder(limits);
  const bool done = nlohmann::json::sax_parse(text.begin(), text.end(), &builder);
  if (builder.failed()) return BadInput("{}", builder.error());
  if (!done) return BadInput("not valid JSON");
  return builder.TakeRoot();
}

void AppendJsonString(std::string_view text, std::string* out) {
  *out += '"';
  while (!text.empty()) {
    const auto byte = static_cast<uint8_t>(text[0]);
    if (byte < 0x80) {
      switch (byte) {
        case '"':
          *out += "\\\"";
          break;
        case '\\':
          *out += "\\\\";
          break;
        case '\n':
          *out += "\\n";
          break;
        case '\r':
          *out += "\\r";
          break;
        case '\t':
          *out += "\\t";
          break;
        case '\b':
          *out += "\\b";
          break;
        case '\f':
          *out += "\\f";
          break;
        default:
          if (byte < 0x20 || byte == 0x7F) {
            fmt::format_to(std::back_inserter(*out), "\\u{:04x}", byte);
          } else {
            *out += static_cast<char>(byte);
          }
      }
      text.remove_prefix(1);
      continue;
    }
    const size_t length = Utf8CharLength(text);
    if (length > 0) {
      out->append(text.substr(0, length));
      text.remove_prefix(length);
      continue;
    }
    // The ill-formed run up to the next well-formed character.
    size_t run = 1;
    while (run < text.size() && static_cast<uint8_t>(text[run]) >= 0x80 &&
           Utf8CharLength(text.substr(run)) == 0) {
      ++run;
    }
    *out += ReplaceInvalidUtf8(text.substr(0, run));
    text.remove_prefix(run);
  }
  *out += '"';
}

}  // namespace minisgl
