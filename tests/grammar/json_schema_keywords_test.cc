// The texts that a schema's keywords on objects, arrays and combinations accept.
#include <gtest/gtest.h>

#include "json_schema_cases.h"
#include "minisgl/grammar/json_schema.h"
#include "minisgl/grammar/matcher.h"

namespace minisgl {
namespace {

TEST(JsonSchemaObjects, PropertiesStandInTheirOrder) {
  CheckJsonSchemaCases({
      {R"({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}},
           "required": ["b"]})",
       {R"({"a": 1, "b": "x"})", R"({"b":"x"})", R"({"b": "x", "c": [1]})"},
       {R"({"b": "x", "a": 1})", "{}", R"({"a": 1})", R"({"a": "1", "b": "x"})",
        R"({"c": 1, "b": "x"})", R"({"b": "x", "b": "y"})"}},
      {R"({"properties": {"a": true, "b": true}, "required": ["c", "b"]})",
       {R"({"b": 1, "c": 2})", R"({"a": 0, "b": 1, "c": 2, "d": 3})", "1"},
       {R"({"c": 2, "b": 1})", R"({"b": 1})"}},
      {R"({"allOf": [{"properties": {"a": true}}], "properties": {"b": true,
           "a": {"type": "null"}}})",
       {R"({"a": null, "b": 1})"},
       {R"({"b": 1, "a": null})", R"({"a": 1})"}},
  });
}

TEST(JsonSchemaObjects, MembersMayHaveAnyOrderOnRequest) {
  const auto grammar = CompileJsonSchema(
      R"({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"},
          "c": true}, "required": ["b"], "additionalProperties": {"type": "null"},
          "maxProperties": 4, "not": {"required": ["a", "c"]}})",
      {.any_order = true});
  ASSERT_TRUE(grammar.ok()) << grammar.status().message();
  for (const auto& [text, wanted] : std::vector<std::pair<std::string, bool>>{
           {R"({"a": 1, "b": "x"})", true},
           {R"({"b": "x", "a": 1})", true},
           {R"({"x": null, "c": 0, "y": null, "b": "x"})", true},
           {R"({"a": 1})", false},
           {R"({"b": "x", "a": 1, "b": "y"})", false},
           {R"({"b": 1, "a": 1})", false},
           {R"({"c": 1, "b": "", "a": 1})", false},
           {R"({"x": null, "b": "", "y": null, "a": 1, "z": null})", false},
           {R"({"x": 1, "b": ""})", false}}) {
    bool accepted = false;
    MatchText(**grammar, text, &accepted);
    EXPECT_EQ(accepted, wanted) << text;
  }
  std::string many;
  for (int i = 0; i < 13; ++i) many += fmt::format(R"({}"p{}": true)", i > 0 ? "," : "", i);
  const auto refused = CompileJsonSchema(R"({"properties": {)" + many + "}}", {.any_order = true});
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.status().message().find("any order"), std::string::npos);
}

TEST(JsonSchemaObjects, OtherNamesFollowTheirSchemas) {
  CheckJsonSchemaCases({
      {R"({"properties": {"a": true}, "additionalProperties": false})",
       {"{}", R"({"a": 1})"},
       {R"({"b": 1})", R"({"a": 1, "a": 2})"}},
      {R"({"properties": {"ab": true}, "additionalProperties": {"type": "integer"}})",
       {R"({"ab": "x", "a": 1, "abc": 2})", R"({"": 0})"},
       {R"({"a": "x"})", R"({"abc": "x"})"}},
      {R"({"patternProperties": {"^s": {"type": "string"}, "n$": {"type": "number"}},
           "additionalProperties": {"type": "null"}})",
       {R"({"s": "x", "n": 1, "z": null})"},
       {R"({"s": 1})", R"({"n": "x"})", R"({"z": 1})", R"({"sn": "x"})", R"({"sn": 1})"}},
      {R"({"properties": {"sa": {"minLength": 2}}, "patternProperties":
           {"^s": {"type": "string"}}})",
       {R"({"sa": "xx"})"},
       {R"({"sa": "x"})", R"({"sa": 11})"}},
      {R"({"propertyNames": {"maxLength": 2}})", {R"({"ab": 1})", "{}"}, {R"({"abc": 1})"}},
      {R"({"propertyNames": {"enum": ["a", "b"]}, "required": ["a"]})",
       {R"({"a": 1, "b": 2})"},
       {R"({"b": 2})", R"({"a": 1, "c": 2})"}},
      {R"({"propertyNames": false})", {"{}", "1"}, {R"({"a": 1})"}},
      {R"({"properties": {"q\"\n": {"const": 1}}})",
       {R"({"q\"\n": 1})", R"({"q\"\u000A": 1})"},
       {R"({"q\"\n": 2})", R"({"q\"\u000a": 2})"}},
  });
}

TEST(JsonSchemaObjects, MembersAreCounted) {
  CheckJsonSchemaCases({
      {R"({"minProperties": 1, "maxProperties": 2})",
       {R"({"a": 1})", R"({"a": 1, "b": 2})", "[]"},
       {"{}", R"({"a": 1, "b": 2, "c": 3})"}},
      {R"({"properties": {"a": true, "b": true, "c": true}, "minProperties": 2,
           "additionalProperties": false})",
       {R"({"a": 1, "c": 2})", R"({"a": 1, "b": 2, "c": 3})"},
       {R"({"b": 1})", "{}"}},
      {R"({"properties": {"a": true, "b": true}, "required": ["a"], "maxProperties": 1})",
       {R"({"a": 1})"},
       {R"({"a": 1, "b": 2})", R"({"a": 1, "x": 2})"}},
  });
}

TEST(JsonSchemaObjects, MembersDependOnOthers) {
  CheckJsonSchemaCases({
      {R"({"properties": {"a": true, "b": true}, "dependentRequired": {"a": ["b"]}})",
       {"{}", R"({"b": 1})", R"({"a": 1, "b": 2})", "3"},
       {R"({"a": 1})"}},
      {R"({"dependencies": {"a": ["b"], "c": {"properties": {"a": {"type": "integer"}}}},
           "properties": {"a": true, "b": true, "c": true}})",
       {R"({"a": 1, "b": 2, "c": 3})", R"({"a": "x", "b": 2})"},
       {R"({"a": "x", "b": 2, "c": 3})", R"({"a": 1})"}},
      {R"({"dependentSchemas": {"a": {"maxProperties": 1}}})",
       {R"({"a": 1})", R"({"b": 1, "c": 2})"},
       {R"({"a": 1, "b": 1})", R"({"b": 1, "a": 1})"}},
      {R"({"properties": {"kind": {"enum": ["x", "y"]}, "v": true}, "required": ["kind"],
           "if": {"properties": {"kind": {"const": "x"}}},
           "then": {"required": ["v"]}, "else": {"properties": {"v": {"type": "null"}}}})",
       {R"({"kind": "x", "v": 1})", R"({"kind": "y"})", R"({"kind": "y", "v": null})"},
       {R"({"kind": "x"})", R"({"kind": "y", "v": 1})"}},
  });
}

TEST(JsonSchemaArrays, ElementsAreCheckedByPlace) {
  CheckJsonSchemaCases({
      {R"({"items": {"type": "integer"}, "minItems": 1, "maxItems": 2})",
       {"[1]", "[1, 2]", "{}"},
       {"[]", "[1, 2, 3]", "[\"a\"]"}},
      {R"({"prefixItems": [{"type": "integer"}, {"type": "string"}], "items": false})",
       {"[]", "[1]", "[1, \"a\"]"},
       {"[\"a\"]", "[1, 2]", "[1, \"a\", 3]"}},
      {R"({"items": [{"type": "integer"}], "additionalItems": {"type": "string"}, "minItems": 2})",
       {"[1, \"a\"]", "[1, \"a\", \"b\"]"},
       {"[1]", "[1, 2]"}},
      {R"({"minItems": 3, "maxItems": 3, "prefixItems": [true], "items": {"const": 1}})",
       {"[null, 1, 1]"},
       {"[null, 1]", "[null, 1, 1, 1]", "[null, 1, 2]"}},
      {R"({"maxItems": 0})", {"[]", "[ ]"}, {"[1]"}},
  });
}

TEST(JsonSchemaArrays, ElementsAreCounted) {
  CheckJsonSchemaCases({
      {R"({"contains": {"type": "integer"}})", {"[\"a\", 1]", "[1, 2]", "1"}, {"[]", "[\"a\"]"}},
      {R"({"contains": {"type": "integer"}, "minContains": 2, "maxContains": 3})",
       {"[1, \"a\", 2]", "[1, 2, 3]"},
       {"[1]", "[1, 2, 3, 4]", "[1, 2, \"a\", 3, 4]"}},
      {R"({"contains": {"const": 1}, "minContains": 0})", {"[]", "[1]"}, {}},
      {R"({"contains": {"const": 1}, "maxItems": 2, "prefixItems": [{"type": "string"}]})",
       {"[\"a\", 1]"},
       {"[1]", "[\"a\"]", "[\"a\", 2, 1]", "[]"}},
      {R"({"allOf": [{"contains": {"minimum": 5}}, {"contains": {"maximum": 3}}]})",
       {"[5, 3]", "[1, 9, 4]"},
       {"[5]", "[4, 9]"}},
  });
}

TEST(JsonSchemaArrays, FewValuesCanBeUnique) {
  CheckJsonSchemaCases({
      {R"({"uniqueItems": true, "items": {"enum": ["a", "b", 1, null]}, "minItems": 1})",
       {"[\"a\"]", "[1, \"a\", null, \"b\"]", "[null, 1]"},
       {"[]", "[\"a\", \"a\"]", "[1, 1.0]", "[1, \"b\", 1e0]", "[\"c\"]", "[null, \"a\", null]"}},
      {R"({"uniqueItems": true, "items": {"type": "boolean"}, "maxItems": 5})",
       {"[]", "[true, false]", "[false]"},
       {"[true, true]", "[true, false, true]"}},
      {R"({"uniqueItems": true, "maxItems": 1})", {"[]", "[{}]"}, {"[1, 2]"}},
      {R"({"uniqueItems": false})", {"[1, 1]"}, {}},
      {R"({"$schema": "http://json-schema.org/draft-04/schema#", "type": "array",
           "uniqueItems": true, "items": {"type": "integer", "minimum": 1, "maximum": 2}})",
       {"[1]", "[2, 1]"},
       {"[1.0]", "[1e0]", "[1, 1]"}},
  });
}

TEST(JsonSchemaArrays, PlacesWithNothingInCommonAreUnique) {
  CheckJsonSchemaCases({
      {R"({"uniqueItems": true, "items": false,
           "prefixItems": [{"type": "string"}, {"type": "integer"}, {"type": "object"}]})",
       {"[]", "[\"1\"]", "[\"1\", 1]", "[\"1\", 1, {}]"},
       {"[1]", "[\"a\", \"a\"]", "[\"1\", 1, {}, null]"}},
      {R"({"uniqueItems": true, "maxItems": 2, "prefixItems": [{"maximum": 3, "type": "number"}],
           "items": {"type": "number", "minimum": 3.5}})",
       {"[3]", "[3, 4]", "[3, 3.5]"},
       {"[3, 3]", "[4]", "[1, 4, 5]"}},
  });
}

TEST(JsonSchemaCombinations, AlternativesUniteAndConditionsIntersect) {
  CheckJsonSchemaCases({
      {R"({"anyOf": [{"type": "integer"}, {"minimum": 2}]})", {"1", "2.5", "3", "\"a\""}, {"1.5"}},
      {R"({"oneOf": [{"type": "integer"}, {"minimum": 2}]})", {"1", "2.5", "\"a\""}, {"1.5", "3"}},
      {R"({"allOf": [{"type": ["integer", "string"]}, {"type": ["number", "null"]}]})",
       {"1"},
       {"\"a\"", "null", "1.5"}},
      {R"({"not": {"type": ["string", "object"]}})", {"1", "[]", "null"}, {"\"a\"", "{}"}},
      {R"({"not": {"not": {"enum": [1, "a"]}}})", {"1", "\"a\""}, {"2", "\"b\"", "null"}},
      {R"({"type": "string", "not": {"enum": ["a", "b"]}})", {"\"c\"", "\"aa\""}, {"\"a\"", "1"}},
      {R"({"type": "object", "not": {"required": ["a", "b"]}})",
       {"{}", R"({"a": 1})", R"({"b": 1, "c": 1})"},
       {R"({"a": 1, "b": 2})", R"({"b": 1, "a": 2})"}},
      {R"({"type": "object", "not": {"properties": {"a": {"type": "integer"}}}})",
       {R"({"a": "x"})"},
       {"{}", R"({"a": 1})", R"({"b": 1})"}},
      {R"({"type": "object", "not": {"additionalProperties": {"type": "integer"}}})",
       {R"({"x": "y"})", R"({"w": 1, "x": "y"})"},
       {"{}", R"({"a": 1})"}},
      {R"({"type": "array", "not": {"items": {"type": "integer"}}})",
       {"[\"a\"]", "[1, \"a\", 2]"},
       {"[]", "[1, 2]"}},
      {R"({"type": "array", "not": {"contains": {"const": 1}}})", {"[]", "[2]"}, {"[1]", "[2, 1]"}},
  });
}

TEST(JsonSchemaCombinations, ExactlyOneOfObjects) {
  CheckJsonSchemaCases({
      {R"({"oneOf": [{"properties": {"kind": {"const": "a"}, "x": {"type": "integer"}},
                      "required": ["kind", "x"]},
                     {"properties": {"kind": {"const": "b"}, "y": {"type": "string"}},
                      "required": ["kind", "y"]}], "type": "object"})",
       {R"({"kind": "a", "x": 1})", R"({"kind": "b", "y": "z"})"},
       {R"({"kind": "a", "y": "z"})", R"({"kind": "c"})"}},
      {R"({"properties": {"a": true, "b": true}, "oneOf": [{"required": ["a"]},
           {"required": ["b"]}], "type": "object"})",
       {R"({"a": 1})", R"({"b": 1, "c": 2})"},
       {R"({"a": 1, "b": 2})", "{}", R"({"c": 1})"}},
      {R"({"type": "object", "oneOf": [{"properties": {"a": {"type": "integer"}}},
                                        {"properties": {"a": {"minimum": 5}}}]})",
       {R"({"a": 1})", R"({"a": 5.5})", R"({"a": 4, "b": 0})", R"({"a": "x"})"},
       {R"({"a": 7})", "{}", R"({"b": 1})", R"({"a": 1.5})"}},
  });
}

TEST(JsonSchemaCombinations, ReferencesMayBeRecursive) {
  CheckJsonSchemaCases({
      {R"({"$ref": "#/$defs/list", "$defs": {"list": {"anyOf": [{"type": "null"},
           {"type": "object", "properties": {"value": {"type": "integer"},
            "next": {"$ref": "#/$defs/list"}}, "required": ["value", "next"],
            "additionalProperties": false}]}}})",
       {"null", R"({"value": 1, "next": null})",
        R"({"value": 1, "next": {"value": 2, "next": null}})"},
       {R"({"value": 1})", R"({"value": 1, "next": 2})"}},
      {R"({"type": "array", "items": {"$ref": "#"}})", {"[]", "[[], [[]]]"}, {"[1]", "[[], [1]]"}},
      {R"({"$id": "http://e.x/root.json", "$ref": "item.json#/$defs/a%25b~1c",
           "$defs": {"x": {"$id": "item.json", "$defs": {"a%b/c": {"type": "integer"}}}}})",
       {"1"},
       {"\"a\""}},
      {R"({"$ref": "#name", "$defs": {"x": {"$anchor": "name", "const": 1}}})", {"1"}, {"2"}},
      {R"({"$ref": "#/$defs/a", "maximum": 3, "$defs": {"a": {"minimum": 1}}})",
       {"1", "3"},
       {"0", "4"}},
      {R"({"$schema": "http://json-schema.org/draft-07/schema#", "$ref": "#/definitions/a",
           "maximum": 3, "definitions": {"a": {"minimum": 1}}})",
       {"1", "4"},
       {"0"}},
  });
}

TEST(JsonSchemaCombinations, UnevaluatedIsWhatNoOtherKeywordCovers) {
  CheckJsonSchemaCases({
      {R"({"properties": {"a": true}, "anyOf": [{"properties": {"b": {"const": 1}},
           "required": ["b"]}, {"properties": {"c": {"const": 2}}, "required": ["c"]}],
           "unevaluatedProperties": false})",
       {R"({"a": 0, "b": 1})", R"({"c": 2})", R"({"b": 1, "c": 2})"},
       {R"({"a": 0})", R"({"b": 1, "c": 3})", R"({"b": 1, "d": 1})"}},
      {R"({"allOf": [{"prefixItems": [{"type": "integer"}]}], "unevaluatedItems": {"const": "x"}})",
       {"[1]", "[1, \"x\", \"x\"]"},
       {"[\"x\"]", "[1, 2]"}},
      {R"({"contains": {"type": "integer"}, "unevaluatedItems": {"type": "string"}})",
       {"[1, \"a\"]", "[1, 2]"},
       {"[\"a\"]", "[1, null]"}},
  });
}

TEST(JsonSchemaDrafts, KeywordsOfLaterDraftsDoNotConstrain) {
  CheckJsonSchemaCases({
      {R"({"$schema": "http://json-schema.org/draft-04/schema#", "const": 1})", {"2"}, {}},
      {R"({"$schema": "http://json-schema.org/draft-06/schema#", "if": true, "then": false})",
       {"2"},
       {}},
      {R"({"$schema": "http://json-schema.org/draft-07/schema#", "prefixItems": [false]})",
       {"[1]"},
       {}},
      {R"({"$schema": "https://json-schema.org/draft/2019-09/schema", "minContains": 2,
           "contains": {"const": 1}})",
       {"[1, 1]"},
       {"[1]"}},
      {R"({"title": "t", "description": "d", "default": 1, "examples": [2], "$comment": "c",
           "readOnly": true, "deprecated": true, "contentEncoding": "base64", "x-own": 1})",
       {"\"anything\""},
       {}},
  });
}

}  // namespace
}  // namespace minisgl
