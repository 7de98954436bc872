#include "grammar/argument_schema.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "grammar/add_calls.h"
#include "grammar/schema_entrance.h"
#include "minisgl/base/utf8.h"
#include "minisgl/grammar/code_point_set.h"

namespace minisgl::grammar {
namespace {

constexpr int kReferencesMax = 16;
constexpr int64_t kCountMax = 1'000'000;
constexpr size_t kSchemaPartsMax = 20'000;
constexpr size_t kJsonBytesMax = size_t{4} << 20;

// Keywords that do not constrain.
constexpr std::array<std::string_view, 13> kNotes = {
    "title",     "description", "default", "examples", "$comment",    "deprecated", "readOnly",
    "writeOnly", "$schema",     "$id",     "$defs",    "definitions", "strict"};

}  // namespace

Status ArgumentSchema::CheckKeywords(const Json& schema,
                                     std::initializer_list<std::string_view> known,
                                     std::string_view of) {
  if (!schema.is_object()) return BadInput("its schema must be an object");
  for (const auto& [key, value] : schema.as_object()) {
    const bool is_note = std::find(kNotes.begin(), kNotes.end(), key) != kNotes.end();
    if (is_note || std::find(known.begin(), known.end(), key) != known.end()) continue;
    return BadInput("{} is not enforced of {}", Visible(key, 100), of);
  }
  return Status();
}

Status ArgumentSchema::CountPart() {
  if (++num_parts_ <= kSchemaPartsMax) return builder_.status();
  return BadInput("the schema has more than {} parts", kSchemaPartsMax);
}

Result<uint32_t> ArgumentSchema::Count(const Json& schema, const char* name, uint32_t absent) {
  const Json* const value = schema.Find(name);
  if (value == nullptr) return absent;
  if (!value->is_int() || value->as_int() < 0 || value->as_int() > kCountMax) {
    return BadInput("{} must be an integer from 0 to {}", name, kCountMax);
  }
  return static_cast<uint32_t>(value->as_int());
}

Result<std::vector<ArgumentSchema::Member>> ArgumentSchema::MembersOf(const Json& schema) const {
  MINISGL_RETURN_IF_ERROR(CheckKeywords(schema,
                                        {"type", "properties", "required", "additionalProperties"},
                                        "arguments that are written one by one"));
  const Json* const properties = schema.Find("properties");
  const Json* const required = schema.Find("required");
  if (properties != nullptr && !properties->is_object()) {
    return BadInput("properties must be an object");
  }
  if (required != nullptr && !required->is_array()) return BadInput("required must be an array");
  std::set<std::string> needed;
  for (const Json& name : required == nullptr ? Json::Array() : required->as_array()) {
    if (!name.is_string()) return BadInput("required must be an array of strings");
    needed.insert(name.as_string());
  }
  std::vector<Member> members;
  if (properties != nullptr) {
    for (const auto& [key, value] : properties->as_object()) {
      members.push_back({key, &value, needed.erase(key) > 0});
    }
  }
  if (needed.empty()) return members;
  return BadInput("the parameter {} is required and has no schema", Visible(*needed.begin(), 100));
}

// For each member two rules, from the last one on: what follows if a member stands before it, and
// if none does.
Symbol ArgumentSchema::Join(const std::vector<Written>& members, const std::string& separator) {
  if (separator.empty()) {
    std::vector<Symbol> symbols;
    for (const Written& member : members) {
      symbols.push_back(member.is_needed ? member.symbol : builder_.Optional(member.symbol));
    }
    return symbols.empty() ? builder_.Empty() : builder_.Sequence(symbols);
  }
  Symbol behind = builder_.Empty(), first = behind;
  for (auto member = members.rbegin(); member != members.rend(); ++member) {
    const Symbol with_first = builder_.Sequence({member->symbol, behind});
    const Symbol with_other = builder_.Sequence({builder_.Literal(separator), with_first});
    first = member->is_needed ? with_first : builder_.Choice({with_first, first});
    behind = member->is_needed ? with_other : builder_.Choice({with_other, behind});
  }
  return first;
}

Result<const Json*> ArgumentSchema::Resolve(const Json& schema) const {
  const Json* place = &schema;
  for (int i = 0; i < kReferencesMax && place != nullptr; ++i) {
    const Json* const reference = place->Find("$ref");
    if (reference == nullptr) return place;
    place = nullptr;
    if (!reference->is_string()) break;
    const std::string& path = reference->as_string();
    for (const std::string_view prefix : {"#/$defs/", "#/definitions/"}) {
      if (!path.starts_with(prefix)) continue;
      const Json* const all = root_.Find(prefix.substr(2, prefix.size() - 3));
      place = all == nullptr ? nullptr : all->Find(path.substr(prefix.size()));
    }
  }
  return BadInput("its $ref is not one to a definition of the schema");
}

Result<Symbol> ArgumentSchema::JsonValue(const Json& schema) {
  MINISGL_RETURN_IF_ERROR(CountPart());
  if (num_bytes_ > kJsonBytesMax) {
    return BadInput("the schema has more than {} MiB, its definitions counted for each parameter",
                    kJsonBytesMax >> 20);
  }
  Json whole = schema;
  for (const char* name : {"$schema", "$defs", "definitions"}) {
    const Json* const definitions = root_.Find(name);
    const bool is_missing = whole.is_object() && whole.Find(name) == nullptr;
    if (definitions != nullptr && is_missing) whole.Set(name, *definitions);
  }
  const std::string text = whole.Dump();
  num_bytes_ += text.size();
  std::vector<std::string> noticed;
  MINISGL_ASSIGN_OR_RETURN(
      const Symbol symbol,
      AddJsonSchema(text, {kCallBlanksMax, false, excluded_}, &builder_, &noticed));
  warnings_.insert(warnings_.end(), noticed.begin(), noticed.end());
  return symbol;
}

ExpressionId ArgumentSchema::AnyText(const std::string& end, uint32_t least, uint32_t most) {
  ExpressionSet& e = builder_.expressions();
  return e.And({e.Repeat(e.CodePoints(CodePointSet::All()), least, most),
                e.Not(e.Concat({e.Anything(), e.Literal(end), e.Anything()}))});
}

Result<ExpressionId> ArgumentSchema::StringText(const Json& schema, const std::string& end) {
  MINISGL_RETURN_IF_ERROR(CheckKeywords(schema, {"type", "enum", "const", "minLength", "maxLength"},
                                        "a string that is written without quotes"));
  const Json* const values = schema.Find("enum");
  const Json* const constant = schema.Find("const");
  MINISGL_ASSIGN_OR_RETURN(const uint32_t least, Count(schema, "minLength", 0));
  MINISGL_ASSIGN_OR_RETURN(const uint32_t most,
                           Count(schema, "maxLength", ExpressionSet::kUnbounded));
  if (least > most) return BadInput("minLength is more than maxLength");
  const ExpressionId any = AnyText(end, least, most);
  if (values == nullptr && constant == nullptr) return any;
  if (values != nullptr && !values->is_array()) return BadInput("enum must be an array");
  std::vector<std::string> texts;
  for (const Json& value : values == nullptr ? Json::Array{*constant} : values->as_array()) {
    const bool is_allowed = value.is_string() && (constant == nullptr || *constant == value);
    if (is_allowed) texts.push_back(value.as_string());
  }
  if (texts.empty()) return BadInput("none of its values is a string that is allowed");
  ExpressionSet& e = builder_.expressions();
  return e.And({e.Strings(std::move(texts)), any});
}

}  // namespace minisgl::grammar
