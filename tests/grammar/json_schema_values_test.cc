// The texts that a schema's numbers, strings, formats and constants accept.
#include <gtest/gtest.h>

#include "json_schema_cases.h"
#include "minisgl/base/json.h"
#include "minisgl/grammar/json_schema.h"
#include "minisgl/grammar/matcher.h"

namespace minisgl {
namespace {

TEST(JsonSchemaValues, AnyValueIsAnyJson) {
  const std::vector<std::string> any = {"null",
                                        "true",
                                        "-0.5e-7",
                                        "10e3",
                                        "\"\"",
                                        "[]",
                                        "{}",
                                        R"([1, {"a": [[]]}, "x"])",
                                        "{\"a\":\n\t1 ,\r\n \"b\" : 2}",
                                        R"("\"\\\b\f\n\r\t\u001F\u007f")",
                                        "\"é😀\x7F\""};
  const std::vector<std::string> none = {"",
                                         " 1",
                                         "1 ",
                                         "01",
                                         "1.",
                                         ".5",
                                         "+1",
                                         "nul",
                                         "[1,]",
                                         "{\"a\"}",
                                         "{a:1}",
                                         "\"\n\"",
                                         R"("\ud800")",
                                         R"("\u00e9")",
                                         R"("\x")",
                                         "[         1]",
                                         "\"\xC3\"",
                                         "\"\xED\xA0\x80\""};
  CheckJsonSchemaCases({{"true", any, none}, {"{}", any, none}});
}

TEST(JsonSchemaValues, JsonObjectIsAnyObject) {
  const auto grammar = CompileJsonObject();
  ASSERT_TRUE(grammar.ok());
  for (const auto& [text, wanted] : std::vector<std::pair<std::string, bool>>{
           {"{}", true}, {R"({"a": {"b": []}, "c": 1})", true}, {"[]", false}, {"1", false}}) {
    bool accepted = false;
    MatchText(**grammar, text, &accepted);
    EXPECT_EQ(accepted, wanted) << text;
  }
}

TEST(JsonSchemaValues, BlanksAreBoundedOrNone) {
  bool accepted = false;
  const char* schema = R"({"type": "array", "items": {"type": "integer"}})";
  const auto compact = CompileJsonSchema(schema, {.blanks_max = 0});
  ASSERT_TRUE(compact.ok());
  MatchText(**compact, "[1,2]", &accepted);
  EXPECT_TRUE(accepted);
  MatchText(**compact, "[1, 2]", &accepted);
  EXPECT_FALSE(accepted);
  CheckJsonSchemaCases({{schema,
                         {"[        1        ,        2        ]", "[ ]", "[\t1 ,\r\n\r\n\t2]",
                          "[\n" + std::string(24, ' ') + "1,\r\t2 \n]"},
                         {"[1,         2]", "[         ]", " [1]", "[1] ", "[\n\n\n1]", "[1  \n]",
                          "[\n" + std::string(25, ' ') + "1]"}}});
}

// As the member x-guidance asks for, which other engines know; CompactJsonSchema adds it.
TEST(JsonSchemaValues, CompactTextsHaveASpaceAtMost) {
  const std::string schema = R"({"type": "object", "properties": {"to": {"type": "array"}},
    "required": ["to"], "additionalProperties": false} )";
  const std::string compact = CompactJsonSchema(schema);
  EXPECT_EQ(compact.substr(0, 60), schema.substr(0, 60));
  const std::vector<std::string> compact_texts = {"{\"to\": [1, 2]}", "{\"to\":[]}",
                                                  "{ \"to\" : [ ] }"};
  const std::vector<std::string> loose_texts = {"{\"to\":  []}", "{\n\"to\": []}", "{\"to\":\t[]}"};
  CheckJsonSchemaCases({{compact.c_str(), compact_texts, loose_texts},
                        {schema.c_str(), loose_texts, {"{\"to\": []}\n"}}});
  EXPECT_EQ(CompactJsonSchema(compact), compact);
  EXPECT_EQ(CompactJsonSchema("{}"), R"({"x-guidance":{"whitespace_flexible":false}})");
  for (const char* other : {"true", "", "{", "[1]", R"({"a": 1, "a": 2})"}) {
    EXPECT_EQ(CompactJsonSchema(other), other);
  }
  CheckJsonSchemaCases({{R"({"x-guidance": {"whitespace_flexible": true}})", {"[  1]"}, {}},
                        {R"({"x-guidance": {}})", {"[  1]"}, {}},
                        {R"({"x-guidance": 1})", {"[  1]"}, {}}});
}

TEST(JsonSchemaValues, IntegersAreSpelledWithoutPointAndExponent) {
  CheckJsonSchemaCases({
      {R"({"type": "integer"})",
       {"0", "12", "-7", "9223372036854775808", "-120"},
       {"-0", "1.0", "-7.000", "1e3", "1.5e1", "1E+20", "1e308", "1.0e400", "1.5", "1e-1", "1.25e1",
        "\"1\"", "true", "012", "-"}},
      {R"({"$schema": "http://json-schema.org/draft-04/schema#", "type": "integer"})",
       {"0", "-12"},
       {"-0", "1.0", "1e3"}},
      {R"({"type": "integer", "minimum": 0, "maximum": 9})",
       {"0", "5"},
       {"5.0", "5e0", "-0e-131", "9.000000", "-0", "-"}},
      {R"({"type": ["integer", "null"], "multipleOf": 7, "minimum": -14})",
       {"null", "-14", "0", "21"},
       {"21.0", "-0", "7e0", "-21"}},
      {R"({"enum": [1, 20, null, -3]})", {"1", "20", "-3", "null"}, {"1.0", "2e1", "-3.0", "2"}},
      {R"({"const": 100})", {"100"}, {"100.0", "1e2", "10"}},
      {R"({"type": "integer", "allOf": [{"minimum": 2}, {"not": {"const": 4}}]})",
       {"2", "5"},
       {"1", "4", "5.0"}},
      {R"({"oneOf": [{"type": "integer", "minimum": 4}, {"type": "integer", "maximum": 5}]})",
       {"6", "3"},
       {"4", "5", "6.0", "30e0"}},
      // A number that is whole may have a point, an integer beside numbers not.
      {R"({"type": "number", "maximum": 9})", {"5", "5.0", "5e0", "-0", "4.5"}, {"10"}},
      {R"({"anyOf": [{"type": "integer", "maximum": 5}, {"type": "number", "minimum": 100}]})",
       {"3", "100", "100.0", "1e2", "-7"},
       {"3.0", "3e0", "50", "-0"}},
      {R"({"enum": [1, 2.5]})", {"1", "2.5", "2.50"}, {"1.0", "1e0"}},
      // More digits than plain spellings have: an exponent is all there is.
      {R"({"type": "integer", "minimum": 1e90})", {"1e90", "2.5e91"}, {"1", "1e89"}},
  });
}

// The schema of a field with an alternative for each type.
TEST(JsonSchemaValues, IntegersBesideOtherTypes) {
  CheckJsonSchemaCases({
      {R"({"anyOf": [{"type": "integer"}, {"type": "string"}, {"type": "null"}]})",
       {"7", "\"7\"", "null"},
       {"7.0", "7e0", "-0"}},
      {R"({"type": "object", "properties": {"n": {"anyOf": [{"type": "integer"},
           {"type": "null"}]}}, "required": ["n"], "additionalProperties": false})",
       {R"({"n": 7})", R"({"n": null})"},
       {R"({"n": 7.0})", R"({"n": -0})"}},
      {R"({"anyOf": [{"type": "integer"}, {"type": "number"}]})", {"7", "7.0", "7.5", "7e0"}, {}},
  });
}

TEST(JsonSchemaValues, BoundsAreExact) {
  CheckJsonSchemaCases({
      {R"({"type": "number", "minimum": 0.5, "maximum": 12})",
       {"0.5", "0.50", "0.51", "1", "9.99", "12", "12.000", "5e-1", "1.2e1", "1.2E+01", "7e0"},
       {"0.49", "0", "-1", "12.001", "13", "120", "4.9e-1", "1.21e1", "1e2", "-5e-1"}},
      {R"({"type": "number", "exclusiveMinimum": -1, "exclusiveMaximum": 0})",
       {"-0.5", "-0.999", "-1e-9", "-9.99e-1"},
       {"-1", "-1.0", "0", "-0", "0.1", "-1e0", "0e5", "-0.0"}},
      {R"({"type": "integer", "minimum": -12, "maximum": 105})",
       {"-12", "-9", "0", "99", "100", "105"},
       {"-0", "105.0", "-13", "-20", "106", "110", "200", "1000"}},
      {R"({"exclusiveMinimum": true, "minimum": 3})", {"3.1", "4", "\"x\""}, {"3", "3.0", "2"}},
      {R"({"minimum": 1e3})", {"1000", "1e3", "1001"}, {"999", "999.9", "9.99e2"}},
      {R"({"minimum": 9007199254740993})", {"9007199254740993"}, {"9007199254740992"}},
  });
}

TEST(JsonSchemaValues, EveryNumberIsOnOneSideOfABound) {
  const auto at_least = CompileJsonSchema(R"({"type": "number", "minimum": -2.5})");
  const auto below = CompileJsonSchema(R"({"type": "number", "exclusiveMaximum": -2.5})");
  ASSERT_TRUE(at_least.ok() && below.ok());
  for (int i = -400; i <= 400; ++i) {
    const double number = i / 100.0;
    for (const std::string& text : {fmt::format("{:.2f}", number), fmt::format("{}", number),
                                    fmt::format("{:.3e}", number)}) {
      bool high = false, low = false;
      MatchText(**at_least, text, &high);
      MatchText(**below, text, &low);
      // `0.000e+00` is a spelling, `-0.00` too.
      EXPECT_EQ(high, number >= -2.5) << text;
      EXPECT_EQ(low, number < -2.5) << text;
    }
  }
}

TEST(JsonSchemaValues, MultiplesAreExact) {
  CheckJsonSchemaCases({
      {R"({"type": "number", "multipleOf": 0.01})",
       {"0", "0.07", "-1.1", "19.99", "3", "1e1", "1.5e-1", "0.070"},
       {"0.001", "19.999", "1e-3", "1.55e-1"}},
      {R"({"multipleOf": 10})", {"0", "20", "-130.0", "1e1", "\"7\""}, {"5", "21", "10.5", "1e0"}},
      {R"({"multipleOf": 7, "maximum": 100})", {"0", "-7", "98", "98.0"}, {"97", "105", "0.7"}},
      {R"({"multipleOf": 2.5})", {"2.5", "5", "-7.50"}, {"2", "2.55", "0.5"}},
      {R"({"type": "integer", "multipleOf": 1.5})", {"3", "0", "6"}, {"1.5", "4", "6.0"}},
  });
}

TEST(JsonSchemaValues, ConstantsAreComparedByValue) {
  CheckJsonSchemaCases({
      {R"({"const": 1.5})", {"1.5", "1.50", "1.5e0", "1.5E+00"}, {"1.51", "15e-1x", "\"1.5\""}},
      {R"({"const": 100.0})", {"100", "100.0", "1e2", "1.00e2"}, {"10", "1e3", "100.01"}},
      {R"({"const": 0.0})", {"0", "-0", "0.0", "0e7"}, {"1", "false", "1e-9"}},
      {R"({"const": {"a": [1, null]}})", {R"({"a": [1, null]})"}, {R"({"a": [1]})", "{}"}},
      {R"({"enum": ["a", 1, null, [], "line\nbreak", "q\"\\"]})",
       {"\"a\"", "1", "null", "[ ]", R"("line\nbreak")", R"("line\u000abreak")", R"("q\"\\")"},
       {"\"b\"", "2", "false", "[1]", R"("line\\nbreak")"}},
      {R"({"const": 12345678901234567890123})",
       {"12345678901234567890123"},
       {"12345678901234567890124", "1.2345678901234568e22"}},
  });
}

TEST(JsonSchemaValues, LengthsCountCodePoints) {
  CheckJsonSchemaCases({
      {R"({"type": "string", "minLength": 2, "maxLength": 3})",
       {"\"ab\"", "\"é😀\"", R"("\n\"")", R"("\u0001ab")"},
       {"\"a\"", "\"abcd\"", R"("\n")", "\"😀\""}},
      {R"({"minLength": 2.0})", {"\"ab\"", "1"}, {"\"a\""}},
      {R"({"type": "string", "minLength": 2, "pattern": "^a*$"})", {"\"aa\""}, {"\"a\"", "\"ab\""}},
  });
}

TEST(JsonSchemaValues, PatternsSearchTheDecodedText) {
  CheckJsonSchemaCases({
      {R"({"type": "string", "pattern": "b+c"})", {"\"abbcd\"", "\"bc\""}, {"\"b\"", "\"cb\""}},
      {R"({"type": "string", "pattern": "^\\d{2}$"})", {"\"42\""}, {"\"4\"", "\"423\"", "\"٤٢\""}},
      {R"({"type": "string", "pattern": "^.$"})",
       {"\"é\"", R"("\\")", R"("\t")"},
       {R"("\n")", R"("\u000A")", "\"ab\""}},
      {R"({"type": "string", "pattern": "^\\s$"})", {R"("\n")", "\" \""}, {"\"x\""}},
      {R"({"type": "string", "pattern": "^(a|b)$|^c"})", {"\"a\"", "\"cx\""}, {"\"ax\"", "\"xc\""}},
      {R"({"allOf": [{"pattern": "a"}, {"pattern": "b"}], "not": {"pattern": "c"}})",
       {"\"ab\"", "\"ba\""},
       {"\"a\"", "\"abc\"", "\"b\"", "1"}},
  });
}

TEST(JsonSchemaValues, PatternsMayLookAheadOutsideOfGroups) {
  CheckJsonSchemaCases({
      {R"({"type": "string", "pattern": "^(?!ab|c$)[a-d]+$"})",
       {"\"a\"", "\"ba\"", "\"cd\""},
       {"\"ab\"", "\"abc\"", "\"c\"", "\"\"", "\"e\""}},
      {R"({"type": "string", "pattern": "^(?=.*\\d)(?=.*[a-z]).{3}"})",
       {"\"a1x\"", "\"1xyz\"", R"("\"1a")"},
       {"\"abc\"", "\"123\"", "\"a1\""}},
      {R"j({"type": "string", "pattern": "x(?!y)"})j", {"\"x\"", "\"xyx\""}, {"\"xy\"", "\"y\""}},
      {R"j({"type": "string", "pattern": "^(?!a)^b|c(?=d)"})j",
       {"\"b\"", "\"acd\""},
       {"\"ac\"", "\"ab\""}},
  });
  EXPECT_NE(JsonSchemaRefusal(R"j({"pattern": "^(a(?=b)b?)*c"})j").find("a repeated group with"),
            std::string::npos);
}

TEST(JsonSchemaValues, FormatsAreAsserted) {
  CheckJsonSchemaCases({
      {R"({"type": "string", "format": "date-time"})",
       {"\"2024-02-29T23:59:60Z\"", "\"1990-12-31t15:59:59.123-08:00\""},
       {"\"2023-02-29T00:00:00Z\"", "\"2024-01-01 00:00:00Z\"", "\"2024-01-01T24:00:00Z\"",
        "\"2024-01-01T00:00:00\"", "\"2024-04-31T00:00:00Z\"", "\"2024-01-01T10:59:60Z\""}},
      {R"({"type": "string", "format": "date"})",
       {"\"2000-02-29\"", "\"1999-12-31\""},
       {"\"1900-02-29\"", "\"2024-13-01\"", "\"2024-1-01\"", "\"2024-06-31\""}},
      {R"({"type": "string", "format": "time"})",
       {"\"08:30:06Z\"", "\"08:30:06.5+01:00\""},
       {"\"08:30:06\"", "\"8:30:06Z\"", "\"08:30:06+24:00\""}},
      {R"({"type": "string", "format": "duration"})",
       {"\"P4DT12H30M5S\"", "\"P2W\"", "\"PT36H\""},
       {"\"P\"", "\"PT\"", "\"4D\"", "\"P1D2H\"", "\"P2S\"", "\"P1YT\"", "\"P1Y2W\""}},
      {R"({"type": "string", "format": "email"})",
       {"\"joe.bloggs@example.com\"", "\"a+b@[127.0.0.1]\"", R"("\"joe bloggs\"@example.com")"},
       {"\"2962\"", "\".a@b.c\"", "\"a..b@c.d\"", "\"a@-b.c\"", "\"a@b@c\""}},
      {R"({"type": "string", "format": "hostname"})",
       {"\"www.example.com\"", "\"a-b\""},
       {"\"-a\"", "\"a-\"", "\"a_b\"", "\"\"", "\"a..b\"", "\"ab--cd\""}},
      {R"({"type": "string", "format": "ipv4"})",
       {"\"192.168.0.1\""},
       {"\"256.1.1.1\"", "\"1.1.1\"", "\"01.1.1.1\"", "\"1.1.1.1.1\""}},
      {R"({"type": "string", "format": "ipv6"})",
       {"\"::1\"", "\"::\"", "\"1:2:3:4:5:6:7:8\"", "\"::ffff:1.2.3.4\"", "\"1::8\""},
       {"\"12345::\"", "\"1:2:3:4:5:6:7\"", "\"1::2::3\"", "\"1:2:3:4:5:6:7:8:9\"",
        "\"::1%eth0\""}},
      {R"({"type": "string", "format": "uuid"})",
       {"\"2EB8AA08-aa98-11ea-b4aa-73b441d16380\""},
       {"\"2eb8aa08-aa98-11ea-b4aa-73b441d1638\"", "\"2eb8aa08aa9811eab4aa73b441d16380\""}},
      {R"({"type": "string", "format": "uri"})",
       {"\"http://a.b:80/c?d=e#f\"", "\"urn:a:b\"", "\"mailto:a@b.c\"", "\"http://[::1]/\""},
       {"\"//a.b\"", "\"a b:c\"", "\"http://a/%zz\"", "\"abc\"", "\"http://a/\\\\\""}},
      {R"({"type": "string", "format": "uri-reference"})",
       {"\"/a?b\"", "\"a/b:c\"", "\"\""},
       {"\"\\\\\\\\a\"", "\"a b\"", "\"1:2\""}},
      {R"({"type": "string", "format": "iri"})", {"\"http://ƒøø/é?é\""}, {"\"é\"", "\"http:// \""}},
      {R"({"type": "string", "format": "json-pointer"})",
       {"\"/a~1b/~0\"", "\"\""},
       {"\"a\"", "\"/~2\""}},
      {R"({"type": "string", "format": "relative-json-pointer"})",
       {"\"1\"", "\"0/a\"", "\"2#\""},
       {"\"-1\"", "\"/a\"", "\"01\"", "\"0##\""}},
      {R"({"type": "string", "format": "uri-template"})",
       {"\"/a/{b}{?c,d*}\"", "\"{x:3}\""},
       {"\"{\"", "\"}\"", "\"{a,}\"", "\"<\""}},
      {R"({"type": "string", "format": "regex"})",
       {R"j("^(a|b)*[x-z\\d-]{2,3}?$")j", R"j("(?:(\\w+)\\.)?(?=y)")j", "\"\"",
        R"j("\\u00e9\\/")j"},
       {"\"a(\"", "\"[z-a]\"", "\"*\"", "\"a{3,1}\"", R"j("\\a")j", R"j("a\\")j", "\"[\"",
        "\"a**\"", "\"{\"", R"j("(?P<n>a)")j", "\"[]\""}},
      {R"({"format": "made-up"})", {"\"anything\"", "1"}, {}},
      {R"({"format": "date"})", {"1", "null", "[]"}, {"\"x\""}},
  });
}

}  // namespace
}  // namespace minisgl
