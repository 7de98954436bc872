// What answers may be that call tools: marks, names, arguments by schema, and text beside calls.
#include "minisgl/grammar/call_grammar.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "minisgl/grammar/grammar.h"
#include "minisgl/grammar/grammar_digest.h"
#include "minisgl/grammar/matcher.h"

namespace minisgl {
namespace {

using Compiled = std::shared_ptr<const CompiledGrammar>;

const std::string kControl = "\xFF";

CallNotation JsonCalls(const std::string& open, const std::string& close) {
  CallNotation notation;
  notation.call_begin = open + "{\"name\": \"";
  notation.name_end = "\", \"arguments\": ";
  notation.call_end = "}" + close;
  notation.separator = "\n";
  notation.quotes_name = true;
  notation.marks = {open};
  return notation;
}

CallNotation Elements() {
  CallNotation notation;
  notation.call_begin = "<c>\n<f=";
  notation.name_end = ">\n";
  notation.call_end = "</f>\n</c>";
  notation.arguments = ArgumentNotation::kElements;
  notation.key_begin = "<p=";
  notation.key_end = ">\n";
  notation.value_end = "\n</p>\n";
  notation.text_end = "</p>";
  notation.marks = {"<c>"};
  return notation;
}

GrammarText TextOf(CallGrammar grammar) {
  GrammarText text;
  text.kind = GrammarKind::kCalls;
  text.calls = std::make_shared<const CallGrammar>(std::move(grammar));
  return text;
}

Compiled Compile(CallGrammar grammar, const ThoughtForm& thought = {}) {
  auto compiled = CompileGrammar(TextOf(std::move(grammar)), {}, thought);
  EXPECT_TRUE(compiled.ok()) << compiled.status().message();
  return compiled.ok() ? *compiled : nullptr;
}

std::string Refused(CallGrammar grammar) {
  const auto compiled = CompileGrammar(TextOf(std::move(grammar)));
  EXPECT_FALSE(compiled.ok());
  return compiled.status().message();
}

bool Accepts(const Compiled& grammar, const std::string& text) {
  bool accepted = false;
  return grammar != nullptr && MatchText(*grammar, text, &accepted) == text.size() && accepted;
}

const std::string kOneInteger =
    R"({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], )"
    R"("additionalProperties": false})";

TEST(CallGrammarTest, ACallIsByTheSchemaOfItsFunction) {
  CallGrammar grammar;
  grammar.notation = JsonCalls("<c>", "</c>");
  grammar.functions = {{"f", kOneInteger}, {"g\"", ""}};
  const Compiled calls = Compile(grammar);
  const std::string f = R"(<c>{"name": "f", "arguments": {"a": 5}}</c>)";
  const std::string g = R"(<c>{"name": "g\"", "arguments": {"x": ["</c>"]}}</c>)";
  for (const std::string& text : {f, g, f + "\n" + g, g + "\n" + f + "\n" + f}) {
    EXPECT_TRUE(Accepts(calls, text)) << text;
  }
  for (const std::string& text :
       {std::string(), "so " + f, f + " ", f + f, f + "\n", std::string("no call"),
        std::string(R"(<c>{"name": "f", "arguments": {"a": "5"}}</c>)"),
        std::string(R"(<c>{"name": "f", "arguments": {}}</c>)"),
        std::string(R"(<c>{"name": "h", "arguments": {}}</c>)"),
        std::string(R"(<c>{"name": "g\"", "arguments": []}</c>)"),
        std::string(R"(<c>{"name": "f", "arguments": {"a":  5}}</c>)")}) {
    EXPECT_FALSE(Accepts(calls, text)) << text;
  }
  grammar.only_one = true;
  const Compiled one = Compile(grammar);
  EXPECT_TRUE(Accepts(one, f));
  EXPECT_FALSE(Accepts(one, f + "\n" + f));
}

TEST(CallGrammarTest, TextMayStandInPlaceOfCallsAndBeforeThem) {
  CallGrammar grammar;
  grammar.notation = JsonCalls("<c>", "</c>");
  grammar.functions = {{"f", kOneInteger}};
  grammar.may_be_text = true;
  const Compiled calls = Compile(grammar);
  const std::string f = R"(<c>{"name": "f", "arguments": {"a": 5}}</c>)";
  for (const std::string& text : {std::string(), std::string("text"), std::string("<c"),
                                  "I look.\n" + f, f, f + "\n" + f, "<<c" + f}) {
    EXPECT_TRUE(Accepts(calls, text)) << text;
  }
  for (const std::string& text :
       {f + " more", std::string("<c>"), std::string(R"(a <c>{"name": "f", "arguments": 1}</c>)"),
        "a" + kControl + "<x>"}) {
    EXPECT_FALSE(Accepts(calls, text)) << text;
  }
}

TEST(CallGrammarTest, TextMayHaveAFormOfItsOwn) {
  CallGrammar grammar;
  grammar.notation = JsonCalls("<c>", "</c>");
  grammar.functions = {{"f", kOneInteger}};
  grammar.may_be_text = true;
  grammar.text = std::make_shared<GrammarText>(
      GrammarText{GrammarKind::kRegularExpression, "yes|no", {}, nullptr});
  const Compiled calls = Compile(grammar);
  EXPECT_TRUE(Accepts(calls, "yes"));
  EXPECT_TRUE(Accepts(calls, R"(<c>{"name": "f", "arguments": {"a": 5}}</c>)"));
  EXPECT_FALSE(Accepts(calls, "maybe"));
  EXPECT_FALSE(Accepts(calls, R"(yes<c>{"name": "f", "arguments": {"a": 5}}</c>)"));
}

TEST(CallGrammarTest, ATextWithoutMarksBeginsUnlikeACall) {
  CallGrammar grammar;
  grammar.notation = JsonCalls("", "");
  grammar.notation.marks = {kControl + "<tag>"};
  grammar.notation.not_first = "{";
  grammar.notation.stands_alone = true;
  grammar.functions = {{"f", kOneInteger}};
  grammar.may_be_text = true;
  const Compiled calls = Compile(grammar);
  EXPECT_TRUE(Accepts(calls, R"({"name": "f", "arguments": {"a": 5}})"));
  EXPECT_TRUE(Accepts(calls, " a {"));
  EXPECT_TRUE(Accepts(calls, ""));
  EXPECT_FALSE(Accepts(calls, R"( {"name": "f", "arguments": {"a": "x"}})"));
  EXPECT_FALSE(Accepts(calls, R"({"a": 1})"));
  EXPECT_FALSE(Accepts(calls, "a\n {"));
  EXPECT_TRUE(Accepts(calls, "a\n b{\n"));
}

TEST(CallGrammarTest, ATextMayHaveNoObjectInIt) {
  CallGrammar grammar;
  grammar.notation = JsonCalls("", "");
  grammar.notation.marks = {};
  grammar.notation.excludes_objects = true;
  grammar.notation.stands_alone = true;
  grammar.functions = {{"f", kOneInteger}};
  grammar.may_be_text = true;
  const Compiled calls = Compile(grammar);
  EXPECT_TRUE(Accepts(calls, R"({"name": "f", "arguments": {"a": 5}})"));
  EXPECT_TRUE(Accepts(calls, "f() { return {}; } \"a\""));
  EXPECT_FALSE(Accepts(calls, "so: {\n \"name\": 1}"));
  EXPECT_FALSE(Accepts(calls, "{\""));
}

TEST(CallGrammarTest, MarksMayBeControlTokensAndCallsNumbered) {
  CallGrammar grammar;
  CallNotation& notation = grammar.notation;
  notation.section_begin = kControl + "<begin>";
  notation.call_begin = kControl + "<call>functions.";
  notation.is_numbered = true;
  notation.name_end = kControl + "<args>";
  notation.call_end = kControl + "<end>";
  notation.section_end = kControl + "<ends>";
  notation.marks = {notation.section_begin};
  grammar.functions = {{"f", kOneInteger}};
  const Compiled calls = Compile(grammar);
  const auto call = [](const std::string& number) {
    return kControl + "<call>functions.f" + number + kControl + "<args>{\"a\": 1}" + kControl +
           "<end>";
  };
  const std::string begin = kControl + "<begin>", end = kControl + "<ends>";
  EXPECT_TRUE(Accepts(calls, begin + call(":0") + call(":12") + end));
  EXPECT_FALSE(Accepts(calls, begin + call("") + end));
  EXPECT_FALSE(Accepts(calls, begin + call(":01") + end));
  EXPECT_FALSE(Accepts(calls, begin + end));
  EXPECT_FALSE(Accepts(calls, "<begin>" + call(":0") + end)) << "that is text";
}

TEST(CallGrammarTest, AThoughtComesFirst) {
  CallGrammar grammar;
  grammar.notation = JsonCalls("<c>", "</c>");
  grammar.functions = {{"f", kOneInteger}};
  ThoughtForm thought;
  thought.open = "<t>";
  thought.close = "</t>";
  const Compiled calls = Compile(grammar, thought);
  const std::string f = R"(<c>{"name": "f", "arguments": {"a": 5}}</c>)";
  EXPECT_TRUE(Accepts(calls, f));
  EXPECT_TRUE(Accepts(calls, "<t>why <c>?</t>\n\n" + f));
  EXPECT_FALSE(Accepts(calls, "<t>why</t>so"));
}

ThoughtForm ChannelForm() {
  ThoughtForm thought;
  thought.open = "<|channel|>analysis<|message|>";
  thought.close = "<|end|>";
  thought.channels = {kControl + "<|start|>",
                      kControl + "<|channel|>",
                      kControl + "<|constrain|>",
                      kControl + "<|message|>",
                      kControl + "<|end|>",
                      "assistant",
                      "final"};
  return thought;
}

TEST(CallGrammarTest, CallsStandInTheHeadersOfChannels) {
  CallGrammar grammar;
  grammar.notation.call_begin = kControl + "<|channel|>commentary to=functions.";
  grammar.notation.name_end = " " + kControl + "<|constrain|>json" + kControl + "<|message|>";
  grammar.notation.in_header = true;
  grammar.notation.marks = {kControl + "<|channel|>"};
  grammar.functions = {{"f", kOneInteger}};
  grammar.only_one = true;
  const auto message = [](const std::string& header, const std::string& content) {
    return kControl + "<|channel|>" + header + kControl + "<|message|>" + content;
  };
  const std::string end = kControl + "<|end|>" + kControl + "<|start|>assistant";
  const std::string json = " " + kControl + "<|constrain|>json";
  const std::string call = message("commentary to=functions.f" + json, "{\"a\": 5}");
  const std::string thought = message("analysis", "why") + end;
  const Compiled required = Compile(grammar, ChannelForm());
  EXPECT_TRUE(Accepts(required, call));
  EXPECT_TRUE(Accepts(required, thought + call));
  EXPECT_TRUE(Accepts(required, thought + message("commentary", "I look.") + end + call));
  EXPECT_FALSE(Accepts(required, thought + message("final", "so")));
  EXPECT_FALSE(Accepts(required, "so"));
  EXPECT_FALSE(
      Accepts(required, thought + message("commentary to=functions.f" + json, "{\"a\": \"\"}")));
  EXPECT_FALSE(Accepts(required, message("commentary to=functions.g" + json, "{\"a\": 5}")));
  grammar.may_be_text = true;
  const Compiled open = Compile(grammar, ChannelForm());
  EXPECT_TRUE(Accepts(open, call));
  EXPECT_TRUE(Accepts(open, thought + call));
  EXPECT_TRUE(Accepts(open, thought + message("final", "so")));
  EXPECT_FALSE(Accepts(open, message("commentary to=functions.f" + json, "{\"a\": \"\"}")));
}

std::string ElementCall(const std::string& elements) {
  return "<c>\n<f=f>\n" + elements + "</f>\n</c>";
}
std::string Element(const std::string& key, const std::string& value) {
  return "<p=" + key + ">\n" + value + "\n</p>\n";
}
CallGrammar ElementGrammar(const std::string& schema) {
  CallGrammar grammar;
  grammar.notation = Elements();
  grammar.functions = {{"f", schema}};
  return grammar;
}
bool TakesElement(const std::string& schema, const std::string& value) {
  const Compiled calls = Compile(
      ElementGrammar(R"({"type": "object", "properties": {"a": )" + schema +
                     R"(}, "required": ["a"], "$defs": {"name": {"enum": ["x", "y z"]}}})"));
  return Accepts(calls, ElementCall(Element("a", value)));
}

TEST(CallGrammarTest, ElementsStandInOrderAndOptionalOnesMayBeMissing) {
  const Compiled calls = Compile(ElementGrammar(
      R"({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "integer"}, )"
      R"("c": {"type": "array", "items": {"type": "string"}}}, "required": ["b"]})"));
  const std::string a = Element("a", "it's <b>\n\n\"so\" </p"), b = Element("b", "-12");
  const std::string c = Element("c", R"(["x", "\"y"])");
  for (const std::string& text : {a + b + c, b, a + b, b + c}) {
    EXPECT_TRUE(Accepts(calls, ElementCall(text))) << text;
  }
  for (const std::string& text :
       {std::string(), a, b + a, b + b, a + a + b, Element("b", "1.5"), Element("b", "x"),
        b + Element("c", "x"), b + Element("d", "1")}) {
    EXPECT_FALSE(Accepts(calls, ElementCall(text))) << text;
  }
}

TEST(CallGrammarTest, StringsOfElementsAreBareText) {
  EXPECT_TRUE(TakesElement(R"({"type": "string"})", ""));
  EXPECT_TRUE(TakesElement(R"({"type": "string"})", "12"));
  EXPECT_FALSE(TakesElement(R"({"type": "string"})", "a</p>b"));
  EXPECT_FALSE(TakesElement(R"({"type": "string"})", "\xC3"));
  EXPECT_TRUE(TakesElement(R"({"type": "string", "minLength": 2, "maxLength": 3})", "äö"));
  EXPECT_FALSE(TakesElement(R"({"type": "string", "minLength": 2, "maxLength": 3})", "abcd"));
  EXPECT_TRUE(TakesElement(R"({"enum": ["x", "y z"], "description": "d"})", "y z"));
  EXPECT_FALSE(TakesElement(R"({"enum": ["x", "y z"]})", "z"));
  EXPECT_TRUE(TakesElement(R"({"const": "x"})", "x"));
  EXPECT_TRUE(TakesElement(R"({"$ref": "#/$defs/name"})", "y z"));
  EXPECT_FALSE(TakesElement(R"({"$ref": "#/$defs/name"})", "\"x\""));
}

// A reader takes text that is JSON of one of the types for that.
TEST(CallGrammarTest, AStringBesideOtherTypesIsNoJson) {
  for (const char* schema : {R"({"type": ["string", "null"]})",
                             R"({"anyOf": [{"type": "string"}, {"type": "null"}]})"}) {
    EXPECT_TRUE(TakesElement(schema, "null")) << schema;
    EXPECT_TRUE(TakesElement(schema, "none")) << schema;
    EXPECT_FALSE(TakesElement(schema, "true")) << schema;
    EXPECT_FALSE(TakesElement(schema, "12")) << schema;
    EXPECT_FALSE(TakesElement(schema, "\"a\"")) << schema;
  }
  EXPECT_TRUE(TakesElement(R"({"anyOf": [{"type": "integer"}, {"$ref": "#/$defs/name"}]})", "12"));
  EXPECT_TRUE(TakesElement(R"({"anyOf": [{"type": "integer"}, {"$ref": "#/$defs/name"}]})", "x"));
  EXPECT_TRUE(TakesElement(R"({"type": ["integer", "null"], "minimum": 3})", "null"));
  EXPECT_FALSE(TakesElement(R"({"type": ["integer", "null"], "minimum": 3})", "2"));
}

// A reader would take it for the end of the argument.
TEST(CallGrammarTest, NoStringWithinAnElementHasTheMarkOfItsEnd) {
  const char* const list = R"({"type": "array", "items": {"type": "string"}})";
  EXPECT_TRUE(TakesElement(list, R"(["</p", "a"])"));
  EXPECT_FALSE(TakesElement(list, R"(["</p>"])"));
  const char* const object = R"({"type": "object"})";
  EXPECT_TRUE(TakesElement(object, R"({"a": {"p>": 1}})"));
  EXPECT_FALSE(TakesElement(object, R"({"</p>": 1})"));
}

CallGrammar MemberGrammar(ArgumentNotation arguments, const std::string& schema) {
  CallGrammar grammar;
  CallNotation& notation = grammar.notation;
  const bool is_json = arguments == ArgumentNotation::kMembers;
  notation.arguments = arguments;
  notation.name_end = "(";
  notation.call_end = ")";
  notation.key_end = is_json ? "=" : ":";
  notation.key_separator = ",";
  notation.text_end = "|";
  grammar.functions = {{"f", schema}};
  grammar.only_one = true;
  return grammar;
}

TEST(CallGrammarTest, CommasStandBetweenMembersWhicheverAreThere) {
  const Compiled calls = Compile(MemberGrammar(
      ArgumentNotation::kMembers,
      R"({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}, )"
      R"("c": {"type": "boolean"}, "d": {}}, "required": ["c"]})"));
  for (const char* text : {"f(a=1,b=\"x\",c=true,d=[1])", "f(c=true)", "f(a=1,c=false)",
                           "f(b=\"\",c=true)", "f(c=true,d={\"x\": null})"}) {
    EXPECT_TRUE(Accepts(calls, text)) << text;
  }
  for (const char* text : {"f()", "f(a=1)", "f(,c=true)", "f(c=true,)", "f(c=true,a=1)",
                           "f(a=1c=true)", "f(c=\"x\")", "f(c:true)"}) {
    EXPECT_FALSE(Accepts(calls, text)) << text;
  }
  const Compiled any = Compile(MemberGrammar(ArgumentNotation::kMembers, ""));
  EXPECT_TRUE(Accepts(any, "f()"));
  EXPECT_TRUE(Accepts(any, "f(x=1,y1=[\"a\"])"));
  EXPECT_FALSE(Accepts(any, "f(1=1)"));
}

TEST(CallGrammarTest, QuotedMembersHaveMarksAroundStrings) {
  const Compiled calls = Compile(MemberGrammar(
      ArgumentNotation::kQuotedMembers,
      R"({"type": "object", "properties": {"s": {"type": "string", "maxLength": 3}, "o": {"type": )"
      R"("object", "properties": {"x": {"type": ["integer", "null"], "minimum": 2}, "l": {"type": )"
      R"("array", "items": {"enum": ["p", "q"]}, "minItems": 1, "maxItems": 2}}}}})"));
  for (const char* text : {"f()", "f(s:|a\"b|)", "f(s:||,o:{})", "f(o:{x:2,l:[|p|,|q|]})",
                           "f(o:{l:[|q|]})", "f(o:{x:null})"}) {
    EXPECT_TRUE(Accepts(calls, text)) << text;
  }
  for (const char* text :
       {"f(s:\"a\")", "f(s:|abcd|)", "f(o:{x:1})", "f(o:{l:[]})", "f(o:{l:[|r|]})",
        "f(o:{l:[|p|,|p|,|p|]})", "f(o:{l:[|p|],x:2})", "f(s:|a|b|)"}) {
    EXPECT_FALSE(Accepts(calls, text)) << text;
  }
  const Compiled any = Compile(MemberGrammar(ArgumentNotation::kQuotedMembers, ""));
  EXPECT_TRUE(Accepts(any, "f(x:{y:[1,|a|,{}]},z:null)"));
  EXPECT_FALSE(Accepts(any, "f(x:\"a\")"));
  const auto refused = [](const std::string& schema) {
    return Refused(MemberGrammar(ArgumentNotation::kQuotedMembers,
                                 R"({"type": "object", "properties": {"a": )" + schema + "}}"));
  };
  EXPECT_EQ(
      refused(R"({"type": "array", "uniqueItems": true})"),
      "the function f: the parameter a: uniqueItems is not enforced of an array of arguments");
  EXPECT_EQ(refused(R"({"type": "string", "format": "date"})"),
            "the function f: the parameter a: format is not enforced of a string that is written "
            "without quotes");
  EXPECT_EQ(refused(R"({"$ref": "#/$defs/x"})"),
            "the function f: the parameter a: its $ref is not one to a definition of the schema");
}

// Definitions that refer to themselves end at a bound.
TEST(CallGrammarTest, RecursionOfBareValuesIsRefused) {
  const std::string schema =
      R"({"type": "object", "properties": {"a": {"$ref": "#/$defs/n"}}, "$defs": {"n": {"type": )"
      R"("object", "properties": {"n": {"$ref": "#/$defs/n"}}}}})";
  EXPECT_NE(Refused(MemberGrammar(ArgumentNotation::kQuotedMembers, schema))
                .find("its schema is nested too deeply"),
            std::string::npos);
  std::string wide = R"({"type": "object", "properties": {"a": {"$ref": "#/$defs/n"}}, "$defs": )"
                     R"({"n": {"anyOf": [{"type": "null"})";
  for (int i = 0; i < 9; ++i) {
    wide += R"(, {"type": "array", "items": {"$ref": "#/$defs/n"}})";
  }
  EXPECT_NE(Refused(MemberGrammar(ArgumentNotation::kQuotedMembers, wide + "]}}}")), "");
}

TEST(CallGrammarTest, DefinitionsAreNotReadWithoutEnd) {
  std::string schema = R"({"type": "object", "$defs": {"n": {"enum": [)";
  for (int i = 0; i < 100'000; ++i) schema += std::to_string(i) + ", ";
  schema += R"(-1]}}, "properties": {)";
  for (int i = 0; i < 500; ++i) {
    schema += (i > 0 ? ", \"p" : "\"p") + std::to_string(i) +
              R"(": {"type": "integer", "$ref": "#/$defs/n"})";
  }
  EXPECT_TRUE(Refused(ElementGrammar(schema + "}}")).starts_with("the function f: "));
}

TEST(CallGrammarTest, ElementsOfAnyArgumentsHaveAnyKeys) {
  const Compiled calls = Compile(ElementGrammar(""));
  EXPECT_TRUE(Accepts(calls, ElementCall("")));
  EXPECT_TRUE(Accepts(calls, ElementCall(Element("b", "1") + Element("a", "x\ny"))));
  EXPECT_FALSE(Accepts(calls, ElementCall(Element("a b", "1"))));
}

TEST(CallGrammarTest, WhatCannotBeEnforcedIsRefusedByName) {
  CallGrammar json;
  json.notation = JsonCalls("<c>", "</c>");
  json.functions = {{"good", ""}, {"look", R"({"type": "object", "contains": 5})"}};
  EXPECT_TRUE(Refused(json).starts_with("the function look: ")) << Refused(json);
  json.functions[1].parameters =
      R"({"type": "object", "properties": {"a": false}, "required": ["a"]})";
  EXPECT_NE(Refused(json).find("no text matches"), std::string::npos) << Refused(json);
  EXPECT_TRUE(Refused(json).starts_with("the function look: ")) << Refused(json);
  json.functions.clear();
  EXPECT_EQ(Refused(json), "there are no functions to call");
  const auto element = [](const std::string& schema) {
    return Refused(ElementGrammar(R"({"type": "object", "properties": {"a": )" + schema + "}}"));
  };
  EXPECT_EQ(element(R"({"type": "string", "pattern": "a"})"),
            "the function f: the parameter a: pattern is not enforced of a string that is written "
            "without quotes");
  EXPECT_EQ(element("{}"), "the function f: the parameter a: it must have a type");
  EXPECT_EQ(element(R"({"$ref": "#/x"})"),
            "the function f: the parameter a: its $ref is not one to a definition of the schema");
  EXPECT_EQ(Refused(ElementGrammar(R"({"type": "object", "minProperties": 1})")),
            "the function f: minProperties is not enforced of arguments that are written one by "
            "one");
  EXPECT_EQ(Refused(ElementGrammar(R"({"type": "object", "required": ["b"]})")),
            "the function f: the parameter b is required and has no schema");
  CallGrammar named = ElementGrammar("");
  named.functions[0].name = "f>";
  EXPECT_EQ(Refused(named),
            "the function f>: its name may have only letters, digits, _, - and . where the model "
            "writes it");
}

TEST(CallGrammarTest, TheDigestIsOfAllThatCounts) {
  CallGrammar grammar;
  grammar.notation = JsonCalls("<c>", "</c>");
  grammar.functions = {{"f", kOneInteger}};
  const auto digest = DigestOf(TextOf(grammar));
  EXPECT_EQ(DigestOf(TextOf(grammar)), digest);
  CallGrammar other = grammar;
  other.functions[0].parameters = "";
  EXPECT_NE(DigestOf(TextOf(other)), digest);
  other = grammar;
  other.only_one = true;
  EXPECT_NE(DigestOf(TextOf(other)), digest);
  other = grammar;
  other.notation.call_end = "}";
  EXPECT_NE(DigestOf(TextOf(other)), digest);
  other = grammar;
  other.text = std::make_shared<GrammarText>();
  EXPECT_NE(DigestOf(TextOf(other)), digest);
}

}  // namespace
}  // namespace minisgl
