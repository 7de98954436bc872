// Access to JSON values with checks of their types, and the paths in error messages.
#include "text/tokenizer_json/json_place.h"

#include "minisgl/base/utf8.h"

namespace minisgl::text {
namespace {

const Json kNull;

constexpr size_t kShownPathBytes = 200;

}  // namespace

std::string JsonPlace::shown_path() const {
  return path_.empty() ? "it" : Visible(path_, kShownPathBytes);
}

JsonPlace JsonPlace::operator[](std::string_view key) const {
  const Json* member = value_->Find(key);
  std::string path = path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key);
  return JsonPlace(member == nullptr ? &kNull : member, std::move(path));
}

Result<std::vector<JsonPlace>> JsonPlace::Elements() const {
  if (!value_->is_array()) return MustBe("an array");
  std::vector<JsonPlace> elements;
  const Json::Array& array = value_->as_array();
  for (size_t i = 0; i < array.size(); ++i) {
    elements.emplace_back(&array[i], fmt::format("{}[{}]", path_, i));
  }
  return elements;
}

Result<std::vector<JsonPlace>> JsonPlace::Steps(std::string_view key, int depth) const {
  if (depth >= kSequenceDepthMax) return Error("is nested more than {} deep", kSequenceDepthMax);
  MINISGL_ASSIGN_OR_RETURN(std::vector<JsonPlace> steps, (*this)[key].Elements());
  if (steps.size() <= kStepsMax) return steps;
  return Error("has {} steps; at most {} are supported", steps.size(), kStepsMax);
}

Status JsonPlace::MustBe(const char* wanted) const {
  if (value_->is_null()) return Error("is missing or null; it must be {}", wanted);
  return Error("is {}; it must be {}", value_->TypeName(), wanted);
}

Result<std::string> JsonPlace::String() const {
  if (!value_->is_string()) return MustBe("a string");
  return value_->as_string();
}

Result<std::string> JsonPlace::String(std::string_view otherwise) const {
  if (is_null()) return std::string(otherwise);
  return String();
}

Result<bool> JsonPlace::Bool(bool otherwise) const {
  if (is_null()) return otherwise;
  if (!value_->is_bool()) return MustBe("true or false");
  return value_->as_bool();
}

Result<int64_t> JsonPlace::Int(int64_t least, int64_t most) const {
  if (!value_->is_int()) return MustBe("an integer");
  if (value_->as_int() < least || value_->as_int() > most) {
    return Error("is {}; it must be {} to {}", value_->as_int(), least, most);
  }
  return value_->as_int();
}

Result<int64_t> JsonPlace::Int(int64_t least, int64_t most, int64_t otherwise) const {
  if (is_null()) return otherwise;
  return Int(least, most);
}

}  // namespace minisgl::text
