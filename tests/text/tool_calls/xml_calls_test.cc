// Dialects that write values as bare text: qwen3_coder, glm4, minimax_m2, dsml.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tool_call_cases.h"

namespace minisgl::xml_calls {
namespace {

Json TypedTools() {
  Json::Array two{Json("string"), Json("null")};
  return Json(Json::Array{ToolWithTypes("f", {{"s", Json("string")},
                                              {"i", Json("integer")},
                                              {"n", Json("number")},
                                              {"b", Json("boolean")},
                                              {"o", Json("object")},
                                              {"a", Json("array")},
                                              {"z", Json("null")},
                                              {"m", Json(two)}})});
}

using Arguments = std::vector<std::pair<std::string, std::string>>;

std::string Qwen(const std::string& name, const Arguments& arguments) {
  std::string text = "<tool_call>\n<function=" + name + ">\n";
  for (const auto& [key, value] : arguments) {
    text += "<parameter=" + key + ">\n" + value + "\n</parameter>\n";
  }
  return text + "</function>\n</tool_call>";
}

std::string Glm(const std::string& name, const Arguments& arguments) {
  std::string text = "<tool_call>" + name + "\n";
  for (const auto& [key, value] : arguments) {
    text += "<arg_key>" + key + "</arg_key>\n<arg_value>" + value + "</arg_value>\n";
  }
  return text + "</tool_call>";
}

std::string Minimax(const std::string& name, const Arguments& arguments) {
  std::string text = "<minimax:tool_call>\n<invoke name=\"" + name + "\">\n";
  for (const auto& [key, value] : arguments) {
    text += "<parameter name=\"" + key + "\">" + value + "</parameter>\n";
  }
  return text + "</invoke>\n</minimax:tool_call>";
}

const std::string kDsml = "\uff5cDSML\uff5c";

std::string Dsml(const std::string& name, const Arguments& arguments, const std::string& section) {
  std::string text = "<" + kDsml + section + ">\n<" + kDsml + "invoke name=\"" + name + "\">\n";
  for (const auto& [key, value] : arguments) {
    text += "<" + kDsml + "parameter name=\"" + key + "\">" + value + "</" + kDsml + "parameter>\n";
  }
  return text + "</" + kDsml + "invoke>\n</" + kDsml + section + ">";
}

struct Written {
  ToolDialect dialect = ToolDialect::kNone;
  std::string text;
};

std::vector<Written> InEach(const std::string& name, const Arguments& arguments) {
  return {{ToolDialect::kQwen3Coder, Qwen(name, arguments)},
          {ToolDialect::kGlm4, Glm(name, arguments)},
          {ToolDialect::kMinimaxM2, Minimax(name, arguments)},
          {ToolDialect::kDsml, Dsml(name, arguments, "function_calls")},
          {ToolDialect::kDsml, Dsml(name, arguments, "tool_calls")}};
}

TEST(XmlCallsTest, ValuesTakeTheTypesOfTheSchema) {
  const std::vector<std::pair<Arguments, std::string>> cases = {
      {{}, "{}"},
      {{{"s", "Oslo"}, {"i", "3"}}, "{\"s\": \"Oslo\", \"i\": 3}"},
      {{{"s", "3"}}, "{\"s\": \"3\"}"},
      {{{"s", "null"}}, "{\"s\": \"null\"}"},
      {{{"s", "{\"a\": 1}"}}, "{\"s\": \"{\\\"a\\\": 1}\"}"},
      {{{"s", ""}}, "{\"s\": \"\"}"},
      {{{"s", " a\n b "}}, "{\"s\": \" a\\n b \"}"},
      {{{"s", "\xC3\xA9 \\n \"q\" \xF0\x9F\x98\x80"}},
       "{\"s\": \"\xC3\xA9 \\\\n \\\"q\\\" \xF0\x9F\x98\x80\"}"},
      {{{"i", "9007199254740993"}}, "{\"i\": 9007199254740993}"},
      {{{"i", "three"}}, "{\"i\": \"three\"}"},
      {{{"n", "1.50"}}, "{\"n\": 1.50}"},
      {{{"b", "true"}}, "{\"b\": true}"},
      {{{"b", "False"}}, "{\"b\": false}"},
      {{{"b", "maybe"}}, "{\"b\": \"maybe\"}"},
      {{{"o", "{\"z\": {\"y\": [1, 2.0]}, \"x\": null}"}},
       "{\"o\": {\"z\": {\"y\": [1, 2.0]}, \"x\": null}}"},
      {{{"a", "[1, \"two\"]"}}, "{\"a\": [1, \"two\"]}"},
      {{{"a", "[1, "}}, "{\"a\": \"[1, \"}"},
      {{{"z", "null"}}, "{\"z\": null}"},
      {{{"m", "null"}, {"s", "x"}}, "{\"m\": null, \"s\": \"x\"}"},
      {{{"m", "x"}}, "{\"m\": \"x\"}"},
      // Markup in a value.
      {{{"s", "<b>x</b> </parameter> x <parameter=y> </function>"}},
       "{\"s\": \"<b>x</b> </parameter> x <parameter=y> </function>\"}"},
      {{{"s", "<tool_call>x</tool_call></arg_value> <invoke>"}},
       "{\"s\": \"<tool_call>x</tool_call></arg_value> <invoke>\"}"},
  };
  for (const auto& [arguments, json] : cases) {
    for (const Written& written : InEach("f", arguments)) {
      ExpectCalls(written.dialect, TypedTools(),
                  {{"Look:\n" + written.text + "\n", "Look:", {{"f", json, ""}}}});
    }
  }
}

TEST(XmlCallsTest, ValuesWithoutATypeAreReadAsPublished) {
  for (const Written& written : InEach("f", {{"u", "7"}, {"v", "seven"}})) {
    const bool is_text =
        written.dialect == ToolDialect::kQwen3Coder || written.dialect == ToolDialect::kMinimaxM2;
    const std::string json =
        is_text ? "{\"u\": \"7\", \"v\": \"seven\"}" : "{\"u\": 7, \"v\": \"seven\"}";
    ExpectCalls(written.dialect, TypedTools(), {{written.text, "", {{"f", json, ""}}}});
    ExpectCalls(written.dialect, Json(), {{written.text, "", {{"f", json, ""}}}});
  }
}

TEST(XmlCallsTest, SeveralCalls) {
  for (const Written& written : InEach("f", {{"s", "x"}})) {
    const ToolCall call{"f", "{\"s\": \"x\"}", ""};
    ExpectCalls(written.dialect, TypedTools(),
                {{written.text + "\n" + written.text, "", {call, call}},
                 {"A\n" + written.text + written.text + "\nB", "A\nB", {call, call}}});
  }
}

TEST(XmlCallsTest, SeveralCallsOfASection) {
  const ToolCall f{"f", "{}", ""}, g{"g", "{}", ""};
  ExpectCalls(ToolDialect::kMinimaxM2, Json(),
              {{"<minimax:tool_call>\n<invoke name=\"f\">\n</invoke>\n<invoke name=\"g\">\n"
                "</invoke>\n</minimax:tool_call>",
                "",
                {f, g}},
               {"<invoke name=\"f\"></invoke> B", "B", {f}},
               {"<minimax:tool_call><invoke name=\"f\"></invoke>", "", {f}},
               {"<minimax:tool_call><invoke name=\"f\"></invoke><invoke name=\"x</invoke>"
                "</minimax:tool_call>",
                "<invoke name=\"x</invoke>",
                {f}}});
  ExpectCalls(ToolDialect::kQwen3Coder, Json(),
              {{"<tool_call><function=f></function></tool_call>", "", {f}},
               {"<function=f>\n</function>\n<function=g>\n</function>", "", {f, g}},
               {"<tool_call>\n<function=f>\n</function>\n</tool_", "", {f}}});
  ExpectCalls(ToolDialect::kGlm4, Json(),
              {{"<tool_call>f</tool_call><tool_call>g\n</tool_call>", "", {f, g}},
               {"<tool_call>f<arg_key>k</arg_key><arg_value>v</arg_value></tool_call>",
                "",
                {{"f", "{\"k\": \"v\"}", ""}}}});
}

TEST(XmlCallsTest, ADsmlMarkNamesStrings) {
  const auto parameter = [](const std::string& attributes, const std::string& value) {
    return "<" + kDsml + "invoke name=\"g\"><" + kDsml + "parameter name=\"k\"" + attributes + ">" +
           value + "</" + kDsml + "parameter></" + kDsml + "invoke>";
  };
  ExpectCalls(ToolDialect::kDsml, TypedTools(),
              {{parameter(" string=\"true\"", "3"), "", {{"g", "{\"k\": \"3\"}", ""}}},
               {parameter(" string=\"false\"", "3"), "", {{"g", "{\"k\": 3}", ""}}},
               {parameter(" string=\"false\"", "x"), "", {{"g", "{\"k\": \"x\"}", ""}}},
               {parameter("", "[1]"), "", {{"g", "{\"k\": [1]}", ""}}}});
}

TEST(XmlCallsTest, BrokenCallsAreContent) {
  const std::string good = "<tool_call>\n<function=g>\n</function>\n</tool_call>";
  for (const std::string& broken : {
           std::string("<tool_call>\n<function=f>\n<parameter=a>\n1\n</function>\n</tool_call>"),
           std::string("<tool_call>\n<function=>\n</function>\n</tool_call>"),
           std::string("<tool_call>\n<function=f>\nx\n</function>\n</tool_call>"),
           std::string("<tool_call>\n<function=f>\n</tool_call>"),
           std::string("<tool_call></tool_call>"),
           std::string("</tool_call>"),
       }) {
    ExpectCalls(ToolDialect::kQwen3Coder, Json(),
                {{broken, broken, {}}, {broken + "\n" + good, broken, {{"g", "{}", ""}}}});
  }
  for (const std::string& broken : {
           std::string("<tool_call>f\n<arg_key>a</arg_key>\n</tool_call>"),
           std::string("<tool_call>\n<arg_key>a</arg_key><arg_value>1</arg_value></tool_call>"),
           std::string("<tool_call>f\nx</tool_call>"),
           std::string("<tool_call></tool_call>"),
       }) {
    ExpectCalls(ToolDialect::kGlm4, Json(), {{"A " + broken, "A " + broken, {}}});
  }
  for (const std::string& broken : {
           std::string("<minimax:tool_call></minimax:tool_call>"),
           std::string("<minimax:tool_call><invoke name=f></invoke></minimax:tool_call>"),
       }) {
    ExpectCalls(ToolDialect::kMinimaxM2, Json(), {{"A " + broken, "A " + broken, {}}});
  }
}

// Cut anywhere before its last mark but one, the text is content.
TEST(XmlCallsTest, CutCallsAreContent) {
  for (const Written& written : InEach("f", {{"s", "x"}, {"i", "1"}})) {
    const size_t last = written.text.rfind("\n</");
    const size_t end = written.dialect == ToolDialect::kGlm4 ? written.text.size() : last;
    for (size_t size = 1; size < end; ++size) {
      const std::string cut = written.text.substr(0, size);
      EXPECT_EQ(ReadToolCalls(written.dialect, Json(), cut, {}).content, cut);
    }
  }
}

TEST(XmlCallsTest, TimeIsLinear) {
  for (const Written& written : InEach("f", {{"s", "x"}})) {
    ExpectLinear(written.dialect, "", written.text);
    const std::string& text = written.text;
    for (size_t size = 8; size < text.size(); size += 17) {
      ExpectLinear(written.dialect, "", text.substr(0, size));
      ExpectLinear(written.dialect, text.substr(0, size), "</parameter></arg_value> x");
    }
  }
}

}  // namespace
}  // namespace minisgl::xml_calls
