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
    {"$anchor", kPlain, Draft::k2019, false},
    {"$comment", kPlain, Draft::k7, false},
    {"$defs", kSchemaMap, Draft::k2019, false},
    {"$dynamicAnchor", kPlain, Draft::k2020, false},
    {"$dynamicRef", kPlain, Draft::k2020, true},
    {"$id", kPlain, Draft::k6, false},
    {"$recursiveAnchor", kPlain, Draft::k2019, false},
    {"$recursiveRef", kPlain, Draft::k2019, true},
    {"$ref", kPlain, kFirst, true},
    {"$schema", kPlain, kFirst, false},
    {"$vocabulary", kPlain, Draft::k2019, false},
    {"additionalItems", kSchema, kFirst, true},
    {"additionalProperties", kSchema, kFirst, true},
    {"allOf", kSchemaList, kFirst, true},
    {"anyOf", kSchemaList, kFirst, true},
    {"const", kPlain, Draft::k6, true},
    {"contains", kSchema, Draft::k6, true},
    {"contentEncoding", kPlain, Draft::k7, false},
    {"contentMediaType", kPlain, Draft::k7, false},
    {"contentSchema", kSchema, Draft::k2019, false},
    {"default", kPlain, kFirst, false},
    {"definitions", kSchemaMap, kFirst, false},
    {"dependencies", kSchemaOrStrings, kFirst, true},
    {"dependentRequired", kPlain, Draft::k2019, true},
    {"dependentSchemas", kSchemaMap, Draft::k2019, true},
    {"deprecated", kPlain, Draft::k2019, false},
    {"description", kPlain, kFirst, false},
    {"else", kSchema, Draft::k7, true},
    {"enum", kPlain, kFirst, true},
    {"examples", kPlain, Draft::k6, false},
    {"exclusiveMaximum", kPlain, kFirst, true},
    {"exclusiveMinimum", kPlain, kFirst, true},
    {"format", kPlain, kFirst, true},
    {"id", kPlain, kFirst, false},
    {"if", kSchema, Draft::k7, true},
    {"items", kSchemaOrList, kFirst, true},
    {"maxContains", kPlain, Draft::k2019, true},
    {"maxItems", kPlain, kFirst, true},
    {"maxLength", kPlain, kFirst, true},
    {"maxProperties", kPlain, kFirst, true},
    {"maximum", kPlain, kFirst, true},
    {"minContains", kPlain, Draft::k2019, true},
    {"minItems", kPlain, kFirst, true},
    {"minLength", kPlain, kFirst, true},
    {"minProperties", kPlain, kFirst, true},
    {"minimum", kPlain, kFirst, true},
    {"multipleOf", kPlain, kFirst, true},
    {"not", kSchema, kFirst, true},
    {"oneOf", kSchemaList, kFirst, true},
    {"pattern", kPlain, kFirst, true},
    {"patternProperties", kSchemaMap, kFirst, true},
    {"prefixItems", kSchemaList, Draft::k2020, true},
    {"properties", kSchemaMap, kFirst, true},
    {"propertyNames", kSchema, Draft::k6, true},
    {"readOnly", kPlain, Draft::k7, false},
    {"required", kPlain, kFirst, true},
    {"then", kSchema, Draft::k7, true},
    {"title", kPlain, kFirst, false},
    {"type", kPlain, kFirst, true},
    {"unevaluatedItems", kSchema, Draft::k2019, true},
    {"unevaluatedProperties", kSchema, Draft::k2019, true},
    {"uniqueItems", kPlain, kFirst, true},
    {"writeOnly", kPlain, Draft::k7, false},
};

std::string LowerCase(std::string_view name) {
  std::string lower(name);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lower;
}

}  // namespace

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
