#include "text/tool_calls/tool_types.h"

#include <string_view>

#include "text/tool_calls/json_span.h"

namespace minisgl::text {
namespace {

enum TypeBit : uint8_t { kStringType = 1, kBooleanType = 2, kNullType = 4, kOtherType = 8 };

uint8_t BitOf(std::string_view type) {
  if (type == "string" || type == "str" || type == "text") return kStringType;
  if (type == "boolean" || type == "bool") return kBooleanType;
  return type == "null" ? kNullType : kOtherType;
}

uint8_t BitOfValue(const Json& value) {
  if (value.is_string()) return kStringType;
  if (value.is_bool()) return kBooleanType;
  return value.is_null() ? kNullType : kOtherType;
}

// The object that "$ref" refers to by a path of keys, as in "#/$defs/place"; null if there is none.
const Json* Referred(const Json& root, std::string_view path) {
  if (!path.starts_with("#/")) return nullptr;
  path.remove_prefix(2);
  const Json* place = &root;
  while (place != nullptr && !path.empty()) {
    const size_t end = std::min(path.find('/'), path.size());
    place = place->Find(path.substr(0, end));
    path.remove_prefix(std::min(end + 1, path.size()));
  }
  return place;
}

constexpr int kSchemaDepthMax = 16;
constexpr int kSchemasMax = 1000;  // read for one parameter

// The types that a schema allows.
class TypeReader {
 public:
  explicit TypeReader(const Json& root) : root_(root) {}

  uint8_t Read(const Json& schema, int depth = 0) {
    if (!schema.is_object() || depth > kSchemaDepthMax || ++num_read_ > kSchemasMax) return 0;
    uint8_t bits = 0;
    if (const Json* type = schema.Find("type")) {
      if (type->is_string()) return BitOf(type->as_string());
      if (!type->is_array()) return 0;
      for (const Json& one : type->as_array()) {
        if (one.is_string()) bits |= BitOf(one.as_string());
      }
      return bits;
    }
    if (const Json* reference = schema.Find("$ref"); reference != nullptr && reference->is_string())
      if (const Json* place = Referred(root_, reference->as_string()))
        return Read(*place, depth + 1);
    if (const Json* value = schema.Find("const")) return BitOfValue(*value);
    if (const Json* values = schema.Find("enum"); values != nullptr && values->is_array()) {
      for (const Json& value : values->as_array()) bits |= BitOfValue(value);
      return bits;
    }
    for (const char* key : {"anyOf", "oneOf", "allOf"}) {
      const Json* parts = schema.Find(key);
      if (parts == nullptr || !parts->is_array()) continue;
      for (const Json& part : parts->as_array()) bits |= Read(part, depth + 1);
    }
    if (bits == 0 && (schema.Find("properties") != nullptr || schema.Find("items") != nullptr)) {
      bits = kOtherType;
    }
    return bits;
  }

 private:
  const Json& root_;
  int num_read_ = 0;
};

std::string_view BooleanOf(std::string_view text) {
  if (text == "True" || text == "TRUE") return "true";
  if (text == "False" || text == "FALSE") return "false";
  return "";
}

std::string Quoted(std::string_view text) {
  std::string json;
  AppendJsonString(text, &json);
  return json;
}

}  // namespace

ToolTypes::ToolTypes(const Json& tools) {
  if (!tools.is_array()) return;
  for (const Json& tool : tools.as_array()) {
    const Json* function = tool.Find("function");
    if (function == nullptr || !function->is_object()) function = &tool;
    const Json* name = function->Find("name");
    const Json* parameters = function->Find("parameters");
    if (name == nullptr || !name->is_string() || parameters == nullptr) continue;
    const Json* properties = parameters->Find("properties");
    if (properties == nullptr || !properties->is_object()) continue;
    auto& types = tools_[name->as_string()];
    for (const auto& [key, schema] : properties->as_object()) {
      types[key] = TypeReader(*parameters).Read(schema);
    }
  }
}

std::string ToolTypes::ValueOf(const std::string& tool, const std::string& parameter,
                               std::string_view text, Unknown unknown) const {
  Types types = 0;
  if (const auto known = tools_.find(tool); known != tools_.end()) {
    if (const auto own = known->second.find(parameter); own != known->second.end()) {
      types = own->second;
    }
  }
  const std::string_view value = WithoutSpace(text);
  if (types == 0 && unknown == Unknown::kString) return Quoted(text);
  if (types == kStringType) return Quoted(text);
  if ((types & kStringType) != 0) {
    // What the other types cannot be stays the text.
    const char first = value.empty() ? '"' : value[0];
    const bool is_null = value == "null", is_bool = value == "true" || value == "false";
    const bool fits = is_null   ? (types & kNullType) != 0
                      : is_bool ? (types & kBooleanType) != 0
                                : first != '"' && (types & kOtherType) != 0;
    return fits && IsJson(value) ? std::string(value) : Quoted(text);
  }
  if (IsJson(value)) return std::string(value);
  if ((types & kBooleanType) != 0 && !BooleanOf(value).empty()) {
    return std::string(BooleanOf(value));
  }
  return Quoted(text);
}

}  // namespace minisgl::text
