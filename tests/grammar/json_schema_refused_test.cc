// Schemas that are refused, with their messages, and schemas meant to take time or memory.
#include <gtest/gtest.h>

#include <ctime>

#include "json_schema_cases.h"
#include "long_form.h"
#include "minisgl/grammar/json_schema.h"
#include "minisgl/grammar/matcher.h"

namespace minisgl {
namespace {

TEST(JsonSchemaRefusals, NameTheKeywordAndItsPlace) {
  const std::pair<const char*, const char*> cases[] = {
      {"1", "neither"},
      {"[]", "neither"},
      {"{", "not valid JSON"},
      {R"({"type": "integer", "type": "string"})", "duplicate key \"type\""},
      {R"({"$schema": "http://json-schema.org/draft-03/schema#"})", "#/$schema: unknown draft"},
      {R"({"properties": {"a": {"type": "int"}}})", "#/properties/a/type: unknown type \"int\""},
      {R"({"properties": {"a/b": {"minLength": -1}}})", "#/properties/a~1b/minLength: must be"},
      {R"({"maxItems": "3"})", "#/maxItems: must be a whole number"},
      {R"({"required": true})", "#/required: must be an array"},
      {R"({"enum": 1})", "#/enum: must be an array"},
      {R"({"minimum": "1"})", "#/minimum: must be a number"},
      {R"({"minimum": 1e999})", "#/minimum: the number has too many digits"},
      {R"({"multipleOf": 0})", "#/multipleOf: must be more than 0"},
      {R"({"multipleOf": 123456789})", "#/multipleOf: \"multipleOf\" of so large"},
      {R"({"pattern": "(?>a)b"})", "#/pattern: the pattern is not supported: byte 1"},
      {R"({"patternProperties": {"(": true}})", "#/patternProperties/(: the pattern"},
      {R"({"anyOf": []})", "#/anyOf: must be an array with at least one schema"},
      {R"({"allOf": [1]})", "#/allOf/0: a schema is an object or a boolean"},
      {R"({"properties": {"a": 3}})", "#/properties/a: a schema is an object or a boolean"},
      {R"({"$ref": "#/$defs/a"})", "#/$ref: the reference \"#/$defs/a\" points to nothing"},
      {R"({"$ref": "#a"})", "#/$ref: there is no anchor"},
      {R"({"$ref": "http://example.com/a.json"})", "leaves the schema"},
      {R"({"$ref": "#"})", "#: the schema is defined by itself"},
      {R"({"allOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"not": {"$ref": "#"}}}})",
       "defined by itself"},
      {R"({"type": "array", "uniqueItems": true})", "\"uniqueItems\" is supported where"},
      {R"({"type": "array", "uniqueItems": true, "items": false,
           "prefixItems": [{"type": "string"}, {"type": "integer"}, {"type": "number"}]})",
       "\"uniqueItems\" is supported where"},
      {R"({"type": "array", "uniqueItems": true, "prefixItems": [{"type": "string"}],
           "items": {"type": "number"}})",
       "\"uniqueItems\" is supported where"},
      {R"({"properties": {"a": {"items": {"type": "array", "uniqueItems": true}}}})",
       "#/properties/a/items: \"uniqueItems\" is supported where"},
      {"false", "#: no text matches"},
      {R"({"type": "string", "minLength": 3, "maxLength": 2})", "#: no text matches"},
      {R"({"type": "object", "properties": {"a": {}, "b": {"minItems": 1, "type": "array",
           "items": {"allOf": [{}, {"$ref": "#/$defs/c"}]}}}, "required": ["a", "b"],
           "$defs": {"c": {"type": "string", "enum": [1]}}})",
       "#/$defs/c: no text matches"},
      {R"({"type": "array", "minItems": 1, "items": {"anyOf": [{"not": {}}]}})",
       "#/items/anyOf/0: no text matches"},
      {R"({"properties": {"a": false}, "required": ["a"], "type": "string", "enum": [2]})",
       "#: no text matches"},
      {R"({"type": "object", "minProperties": 2, "maxProperties": 1})", "no text matches"},
      {R"({"type": "array", "minItems": 2, "maxItems": 1})", "no text matches"},
      {R"({"type": "integer", "exclusiveMinimum": 1, "exclusiveMaximum": 2})", "no text matches"},
      {R"({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]})",
       "no text matches"},
  };
  for (const auto& [schema, message] : cases) {
    const std::string refusal = JsonSchemaRefusal(schema);
    EXPECT_NE(refusal.find(message), std::string::npos) << schema << ": " << refusal;
  }
}

// Found to be too complex after the schema is read, when its text is gone.
TEST(JsonSchemaRefusals, NameThePlaceOfConditionsThatAreTooComplex) {
  GrammarLimits limits;
  limits.emptiness_work_max = 1000;
  const auto grammar = CompileJsonSchema(
      R"({"properties": {"a": {"items": {"type": "string", "allOf": [
          {"pattern": "^(a|b)*a(a|b){18}$"}, {"pattern": "^(a|b)*b(a|b){18}$"}]}}}})",
      {}, limits);
  ASSERT_FALSE(grammar.ok());
  EXPECT_EQ(grammar.status().message(),
            "#/properties/a/items: the conditions of a text are too complex: more than 1000 states "
            "of their intersection");
}

// Each of them is found out soon; many would take as long as one that is refused.
TEST(JsonSchemaRefusals, ManyConditionsAreTooComplexTogether) {
  GrammarLimits limits;
  limits.emptiness_work_max = 8192;
  const auto compile = [&](int count) {
    std::string properties;
    for (int i = 0; i < count; ++i) {
      properties += fmt::format(
          R"({}"p{}": {{"type": "string", "minLength": {}, "allOf": [
              {{"pattern": "^(a|b)*a(a|b){{10}}$"}}, {{"pattern": "^(a|b)*b(a|b){{10}}$"}}]}})",
          i > 0 ? "," : "", i, i + 10);
    }
    return CompileJsonSchema(R"({"properties": {)" + properties + "}}", {}, limits);
  };
  EXPECT_TRUE(compile(1).ok());
  const auto many = compile(10);
  ASSERT_FALSE(many.ok());
  EXPECT_NE(many.status().message().find("more than 8192 states"), std::string::npos)
      << many.status().message();
}

TEST(JsonSchemaRefusals, MisspeltKeywordsGetAWarning) {
  const auto grammar = CompileJsonSchema(
      R"({"Type": "string", "properties": {"a": {"minimun": 1, "required_": []}},
          "enumerate": []})");
  ASSERT_TRUE(grammar.ok());
  const std::vector<std::string>& warnings = (*grammar)->warnings();
  ASSERT_EQ(warnings.size(), 3u);
  EXPECT_EQ(warnings[0], "#: \"Type\" does not constrain; did you mean \"type\"?");
  EXPECT_EQ(warnings[1],
            "#/properties/a: \"minimun\" does not constrain; did you mean \"minimum\"?");
  EXPECT_NE(warnings[2].find("required"), std::string::npos);
}

// Each within 2 s of processor time, compiled or refused: the bound here allows for sanitizers.
TEST(JsonSchemaRefusals, HostileSchemasFinish) {
  std::vector<std::pair<const char*, std::string>> schemas;
  std::string deep;
  for (int i = 0; i < 10'000; ++i) deep += R"({"items":)";
  schemas.emplace_back("levels", deep + "{}" + std::string(10'000, '}'));
  std::string doubling = R"({"$ref": "#/$defs/a0", "$defs": {)";
  std::string pairs = doubling;
  std::string chain = doubling;
  for (int i = 0; i < 2'000; ++i) {
    const std::string next = fmt::format(R"({{"$ref": "#/$defs/a{}"}})", i + 1);
    if (i < 40) {
      doubling +=
          fmt::format(R"("a{0}": {{"anyOf": [{{"required": ["x{0}"]}}, {{"required": ["y{0}"]}}],
                                  "allOf": [{1}]}},)",
                      i, next);
      pairs += fmt::format(
          R"("a{}": {{"oneOf": [{{"properties": {{"p": {}}}}}, {{"properties": {{"q": {}}}}}]}},)",
          i, next, next);
    }
    chain += fmt::format(R"("a{}": {},)", i, next);
  }
  schemas.emplace_back("doubling", doubling + R"("a40": true}})");
  schemas.emplace_back("pairs", pairs + R"("a40": {"type": "integer"}}})");
  schemas.emplace_back("chain", chain + R"("a2000": {"type": "integer"}}})");
  std::string names, values;
  for (int i = 0; i < ShortOrLong(8'000, 30'000); ++i) {
    names += fmt::format(R"({}"name{}": {{"type": "string"}})", i > 0 ? "," : "", i);
    values += fmt::format(R"({}"value {}")", i > 0 ? "," : "", i);
  }
  schemas.emplace_back("names", R"({"properties": {)" + names + "}}");
  schemas.emplace_back("values", R"({"enum": [)" + values + "]}");
  std::string patterns;
  for (int i = 0; i < ShortOrLong(60, 200); ++i)
    patterns += fmt::format(R"({}"a.{{{}}}b": {{"minimum": {}}})", i > 0 ? "," : "", i, i);
  schemas.emplace_back("patterns", R"({"patternProperties": {)" + patterns + "}}");
  schemas.emplace_back("counts",
                       R"({"minItems": 9007199254740992, "items": {"minLength": 4000000000}})");
  schemas.emplace_back("regex",
                       R"({"pattern": "(((a{1,1000}){1,1000}){1,1000})$", "maxLength": 100000})");
  for (const auto& [name, schema] : schemas) {
    const std::clock_t begin = std::clock();
    const std::string refusal = JsonSchemaRefusal(schema);
    EXPECT_LT(std::clock() - begin, 20 * CLOCKS_PER_SEC) << name << ": " << refusal;
    if (std::string_view(name) == "names" || std::string_view(name) == "values") {
      EXPECT_EQ(refusal, "") << name;
    }
  }
}

// Its members are a chain of rules, each of which ends where the next one does.
TEST(JsonSchemaRefusals, ManyPropertiesAreReadInTimeOfTheirNumber) {
  std::string names;
  for (int i = 0; i < 20'000; ++i) {
    names += fmt::format(R"({}"name{}": {{"type": "string"}})", i > 0 ? "," : "", i);
  }
  const auto grammar = CompileJsonSchema(R"({"properties": {)" + names + "}}");
  ASSERT_TRUE(grammar.ok());
  const std::clock_t begin = std::clock();
  for (const char* text : {"{}", R"({"name3": "a", "name19999": "b"})", R"({"other": 1})"}) {
    bool accepted = false;
    MatchText(**grammar, text, &accepted);
    EXPECT_TRUE(accepted) << text;
  }
  EXPECT_LT(std::clock() - begin, 10 * CLOCKS_PER_SEC);
}

}  // namespace
}  // namespace minisgl
