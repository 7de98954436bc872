#include "grammar/json_schema/keyword_table.h"

#include <algorithm>
#include <cctype>
#include <string>

#include "minisgl/base/edit_distance.h"

namespace minisgl::grammar {
namespace {

using enum KeywordShape;
constexpr Draft kFirst = Draft::k4, kLast = Draft::k2020;

constexpr Keyword kKeywords[] = {
    {"$anchor", kPlain, Draft::k2019, kLast, false},
    {"$comment", kPlain, Draft::k7, kLast, false},
    {"$defs", kSchemaMap, Draft::k2019, kLast, false},
    {"$dynamicAnchor", kPlain, Draft::k2020, kLast, false},
    {"$dynamicRef", kPlain, Draft::k2020, kLast, true},
    {"$id", kPlain, Draft::k6, kLast, false},
    {"$recursiveAnchor", kPlain, Draft::k2019, Draft::k2019, false},
    {"$recursiveRef", kPlain, Draft::k2019, Draft::k2019, true},
    {"$ref", kPlain, kFirst, kLast, true},
    {"$schema", kPlain, kFirst, kLast, false},
    {"$vocabulary", kPlain, Draft::k2019, kLast, false},
    {"additionalItems", kSchema, kFirst, Draft::k2019, true},
    {"additionalProperties", kSchema, kFirst, kLast, true},
    {"allOf", kSchemaList, kFirst, kLast, true},
    {"anyOf", kSchemaList, kFirst, kLast, true},
    {"const", kPlain, Draft::k6, kLast, true},
    {"contains", kSchema, Draft::k6, kLast, true},
    {"contentEncoding", kPlain, Draft::k7, kLast, false},
    {"contentMediaType", kPlain, Draft::k7, kLast, false},
    {"contentSchema", kSchema, Draft::k2019, kLast, false},
    {"default", kPlain, kFirst, kLast, false},
    {"definitions", kSchemaMap, kFirst, kLast, false},
    {"dependencies", kSchemaOrStrings, kFirst, kLast, true},
    {"dependentRequired", kPlain, Draft::k2019, kLast, true},
    {"dependentSchemas", kSchemaMap, Draft::k2019, kLast, true},
    {"deprecated", kPlain, Draft::k2019, kLast, false},
    {"description", kPlain, kFirst, kLast, false},
    {"else", kSchema, Draft::k7, kLast, true},
    {"enum", kPlain, kFirst, kLast, true},
    {"examples", kPlain, Draft::k6, kLast, false},
    {"exclusiveMaximum", kPlain, kFirst, kLast, true},
    {"exclusiveMinimum", kPlain, kFirst, kLast, true},
    {"format", kPlain, kFirst, kLast, true},
    {"id", kPlain, kFirst, Draft::k4, false},
    {"if", kSchema, Draft::k7, kLast, true},
    {"items", kSchemaOrList, kFirst, kLast, true},
    {"maxContains", kPlain, Draft::k2019, kLast, true},
    {"maxItems", kPlain, kFirst, kLast, true},
    {"maxLength", kPlain, kFirst, kLast, true},
    {"maxProperties", kPlain, kFirst, kLast, true},
    {"maximum", kPlain, kFirst, kLast, true},
    {"minContains", kPlain, Draft::k2019, kLast, true},
    {"minItems", kPlain, kFirst, kLast, true},
    {"minLength", kPlain, kFirst, kLast, true},
    {"minProperties", kPlain, kFirst, kLast, true},
    {"minimum", kPlain, kFirst, kLast, true},
    {"multipleOf", kPlain, kFirst, kLast, true},
    {"not", kSchema, kFirst, kLast, true},
    {"oneOf", kSchemaList, kFirst, kLast, true},
    {"pattern", kPlain, kFirst, kLast, true},
    {"patternProperties", kSchemaMap, kFirst, kLast, true},
    {"prefixItems", kSchemaList, Draft::k2020, kLast, true},
    {"properties", kSchemaMap, kFirst, kLast, true},
    {"propertyNames", kSchema, Draft::k6, kLast, true},
    {"readOnly", kPlain, Draft::k7, kLast, false},
    {"required", kPlain, kFirst, kLast, true},
    {"then", kSchema, Draft::k7, kLast, true},
    {"title", kPlain, kFirst, kLast, false},
    {"type", kPlain, kFirst, kLast, true},
    {"unevaluatedItems", kSchema, Draft::k2019, kLast, true},
    {"unevaluatedProperties", kSchema, Draft::k2019, kLast, true},
    {"uniqueItems", kPlain, kFirst, kLast, true},
    {"writeOnly", kPlain, Draft::k7, kLast, false},
};

std::string LowerCase(std::string_view name) {
  std::string lower(name);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lower;
}

}  // namespace

std::span<const Keyword> Keywords() { return kKeywords; }

const Keyword* FindKeyword(std::string_view name) {
  const auto at = std::lower_bound(
      std::begin(kKeywords), std::end(kKeywords), name,
      [](const Keyword& keyword, std::string_view key) { return keyword.name < key; });
  return at != std::end(kKeywords) && at->name == name ? at : nullptr;
}

const Keyword* MisspeltKeyword(std::string_view name) {
  if (name.size() < 2 || name.size() > 30 || FindKeyword(name) != nullptr) return nullptr;
  const std::string lower = LowerCase(name);
  for (const Keyword& keyword : kKeywords) {
    if (!keyword.constrains) continue;
    if (LowerCase(keyword.name) == lower) return &keyword;
    if (keyword.name.size() >= 4 && keyword.name.size() + 1 >= name.size() &&
        name.size() + 1 >= keyword.name.size() && EditDistance(keyword.name, name) == 1) {
      return &keyword;
    }
  }
  return nullptr;
}

}  // namespace minisgl::grammar
