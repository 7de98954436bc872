// Words every configuration error: how values and ranges are shown. A value is converted only after
// its type and range are checked.
#include "weights/field_reader.h"

#include <algorithm>
#include <utility>

#include "minisgl/base/utf8.h"

namespace minisgl::weights {
namespace {

constexpr size_t kFileBytesMax = 400;
// Enough for an index of as many tensors as a file may have. A value takes some 40 bytes while its
// text may take 2.
constexpr uint64_t kValuesMax = 1'100'000;

// `text` with what Python writes for numbers that JSON has not: Infinity becomes the largest
// number, NaN the string "NaN", which no key of a number takes.
std::string WithoutBareNumbers(std::string_view text) {
  constexpr std::pair<std::string_view, std::string_view> kWords[] = {
      {"Infinity", "1.7976931348623157e308"}, {"NaN", "\"NaN\""}};
  std::string out;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"') in_string = !in_string;
    if (in_string && text[i] == '\\' && i + 1 < text.size()) out += text[i++];
    size_t length = 0;
    for (const auto& [word, number] : kWords) {
      if (in_string || !text.substr(i).starts_with(word)) continue;
      out += number;
      length = word.size();
    }
    if (length == 0) {
      out += text[i];
    } else {
      i += length - 1;
    }
  }
  return out;
}

std::string Found(const Json* value) {
  return value == nullptr ? "nothing" : Visible(value->Dump(), kQuotedBytesMax);
}

bool Holds(IntRange range, const Json& value) {
  return value.is_int() && range.Holds(value.as_int());
}

bool Holds(NumberRange range, const Json& value) {
  return value.is_number() && range.Holds(value.as_double());
}

}  // namespace

void FieldReader::SetOuter(const Json* outer, std::vector<std::string_view> shared) {
  outer_ = outer;
  shared_ = std::move(shared);
}

const Json* FieldReader::FindOwn(std::string_view key) const {
  const Json* value = object_.Find(key);
  return value == nullptr || value->is_null() ? nullptr : value;
}

const Json* FieldReader::Find(std::string_view key) const {
  const Json* own = FindOwn(key);
  if (own != nullptr || outer_ == nullptr) return own;
  if (std::find(shared_.begin(), shared_.end(), key) == shared_.end()) return nullptr;
  const Json* value = outer_->Find(key);
  return value == nullptr || value->is_null() ? nullptr : value;
}

std::optional<int64_t> FieldReader::OptionalInt(std::string_view key, IntRange range) {
  const Json* value = Find(key);
  if (value == nullptr) return std::nullopt;
  if (Holds(range, *value)) return value->as_int();
  Fail(key, Describe(range) + " is supported");
  return std::nullopt;
}

int64_t FieldReader::Int(std::string_view key, IntRange range, std::optional<int64_t> fallback) {
  const std::optional<int64_t> value = OptionalInt(key, range);
  if (!value && !fallback) Fail(key, Describe(range) + " is needed");
  return value.value_or(fallback.value_or(range.min));
}

std::optional<double> FieldReader::OptionalNumber(std::string_view key, NumberRange range) {
  const Json* value = Find(key);
  if (value == nullptr) return std::nullopt;
  if (Holds(range, *value)) return value->as_double();
  Fail(key, Describe(range) + " is supported");
  return std::nullopt;
}

double FieldReader::Number(std::string_view key, NumberRange range,
                           std::optional<double> fallback) {
  const std::optional<double> value = OptionalNumber(key, range);
  if (!value && !fallback) Fail(key, Describe(range) + " is needed");
  return value.value_or(fallback.value_or(range.min));
}

std::optional<bool> FieldReader::OptionalBool(std::string_view key) {
  const Json* value = Find(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_bool()) return value->as_bool();
  Fail(key, "true or false is supported");
  return std::nullopt;
}

bool FieldReader::Bool(std::string_view key, bool fallback) {
  return OptionalBool(key).value_or(fallback);
}

std::optional<std::string> FieldReader::OptionalString(std::string_view key,
                                                       std::string_view supported) {
  const Json* value = Find(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_string()) return value->as_string();
  Fail(key, supported);
  return std::nullopt;
}

std::vector<TokenId> FieldReader::TokenIds(std::string_view key, int64_t vocab_size) {
  const Json* value = Find(key);
  if (value == nullptr) return {};
  const IntRange range = {0, vocab_size - 1};
  std::vector<TokenId> ids;
  const Json::Array list = value->is_array() ? value->as_array() : Json::Array{*value};
  for (const Json& id : list) {
    if (id.is_null() || (id.is_int() && id.as_int() == -1)) continue;  // none
    if (!Holds(range, id)) {
      FailWith(key, Found(&id),
               fmt::format("token ids below the vocabulary size ({}) are supported", vocab_size));
      return {};
    }
    ids.push_back(static_cast<TokenId>(id.as_int()));
  }
  return ids;
}

std::optional<FieldReader> FieldReader::Object(std::string_view key) {
  const Json* value = Find(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_object()) {
    return FieldReader(*value, file_,
                       fmt::format("{}{}.", FindOwn(key) == value ? path_ : "", key));
  }
  Fail(key, "an object or null is supported");
  return std::nullopt;
}

void FieldReader::Fail(std::string_view key, std::string_view supported) {
  FailWith(key, Found(Find(key)), supported);
}

void FieldReader::FailWith(std::string_view key, std::string_view found,
                           std::string_view supported) {
  if (!status_.ok()) return;
  const bool is_outer = FindOwn(key) == nullptr && Find(key) != nullptr;
  status_ = BadInput("{}: key \"{}{}\": found {}; {}", Visible(file_, kFileBytesMax),
                     is_outer ? "" : path_, Visible(key), found, supported);
}

void FieldReader::Absorb(const FieldReader& inner) {
  if (status_.ok()) status_ = inner.status_;
}

Result<Json> ParseJsonObject(std::string_view text, const std::string& file, int depth_max) {
  const JsonLimits limits = {.depth_max = depth_max, .values_max = kValuesMax};
  Result<Json> json = ParseJson(text, limits);
  if (!json.ok()) {
    Result<Json> again = ParseJson(WithoutBareNumbers(text), limits);
    if (again.ok()) json = std::move(again);
  }
  if (!json.ok()) return json.status().WithPrefix(Visible(file, kFileBytesMax));
  if (!json->is_object()) {
    return BadInput("{}: is not a JSON object (found {})", Visible(file, kFileBytesMax),
                    json->TypeName());
  }
  return json;
}

}  // namespace minisgl::weights
