// Dialects that write arguments as JSON: llama3_json, mistral, granite, deepseek, kimi_k2.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tool_call_cases.h"

namespace minisgl::object_calls {
namespace {

const std::string kArguments =
    "{\"b\": 9007199254740993, \"a\": {\"z\": [1.0, null, \"\\u00e9\"]}}";

std::string Llama(const std::string& name, const std::string& json) {
  return "{\"name\": \"" + name + "\", \"parameters\": " + json + "}";
}
std::string Named(const std::string& name, const std::string& json) {
  return "{\"name\": \"" + name + "\", \"arguments\": " + json + "}";
}
const std::string kSep = "<\uff5ctool\u2581sep\uff5c>";
const std::string kBegin = "<\uff5ctool\u2581call\u2581begin\uff5c>";
const std::string kEnd = "<\uff5ctool\u2581call\u2581end\uff5c>";
const std::string kSection = "<\uff5ctool\u2581calls\u2581begin\uff5c>";
const std::string kSectionEnd = "<\uff5ctool\u2581calls\u2581end\uff5c>";

std::string DeepseekV3(const std::string& name, const std::string& json) {
  return kBegin + "function" + kSep + name + "\n```json\n" + json + "\n```" + kEnd;
}
std::string DeepseekV31(const std::string& name, const std::string& json) {
  return kBegin + name + kSep + json + kEnd;
}
std::string Kimi(const std::string& id, const std::string& json) {
  return "<|tool_call_begin|>" + id + "<|tool_call_argument_begin|>" + json + "<|tool_call_end|>";
}
const std::string kKimiSection = "<|tool_calls_section_begin|>";
const std::string kKimiEnd = "<|tool_calls_section_end|>";

struct Form {
  ToolDialect dialect = ToolDialect::kNone;
  std::string begin, call_begin, call_end, end;  // around JSON
  std::string id;
};

// Each with a call of f.
std::vector<Form> Forms() {
  return {
      {ToolDialect::kLlama3Json, "", "{\"name\": \"f\", \"parameters\": ", "}", "", ""},
      {ToolDialect::kLlama3Json, "", "<|python_tag|>{\"name\": \"f\", \"parameters\": ", "}", "",
       ""},
      {ToolDialect::kLlama3Json, "", "<function=f>", "</function>", "", ""},
      {ToolDialect::kMistral, "", "[TOOL_CALLS]f[ARGS]", "", "", ""},
      {ToolDialect::kMistral, "", "[TOOL_CALLS]f", "", "", ""},
      {ToolDialect::kMistral, "", "[TOOL_CALLS]f[CALL_ID]abcdefghi[ARGS]", "", "", "abcdefghi"},
      {ToolDialect::kMistral, "", "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": ", "}]", "", ""},
      {ToolDialect::kMistralV3, "", "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": ",
       ", \"id\": \"abcdefghi\"}]", "", "abcdefghi"},
      {ToolDialect::kMistralV3, "", "[TOOL_CALLS]f[ARGS]", "", "", ""},
      {ToolDialect::kGranite, "", "<|tool_call|>[{\"name\": \"f\", \"arguments\": ", "}]", "", ""},
      {ToolDialect::kGranite, "", "<tool_call>[{\"arguments\": ", ", \"name\": \"f\"}]", "", ""},
      {ToolDialect::kGranite, "", "[{\"name\": \"f\", \"arguments\": ", "}]", "", ""},
      {ToolDialect::kGranite, "", "<function_call> {\"name\": \"f\", \"arguments\": ", "}", "", ""},
      {ToolDialect::kDeepseekV3, kSection, kBegin + "function" + kSep + "f\n```json\n",
       "\n```" + kEnd, kSectionEnd, ""},
      {ToolDialect::kDeepseekV31, kSection, kBegin + "f" + kSep, kEnd, kSectionEnd, ""},
      {ToolDialect::kKimiK2, kKimiSection,
       "<|tool_call_begin|>functions.f:0"
       "<|tool_call_argument_begin|>",
       "<|tool_call_end|>", kKimiEnd, "functions.f:0"},
  };
}

TEST(ObjectCallsTest, ArgumentsStayAsWritten) {
  for (const Form& form : Forms()) {
    const std::string in_string = "{\"s\": \"]}<|tool_call_end|>[TOOL_CALLS]</tool_call> \\\"\"}";
    for (const std::string& arguments :
         {kArguments, std::string("{}"), in_string, std::string("{\n  \"a\": [\n    1\n  ]\n}")}) {
      const ToolCall call{"f", arguments, form.id};
      const std::string one = form.call_begin + arguments + form.call_end;
      ExpectCalls(form.dialect, Json(),
                  {{form.begin + one + form.end, "", {call}},
                   {"Look:\n" + form.begin + one + form.end, "Look:", {call}},
                   {form.begin + one + "\n" + one + form.end, "", {call, call}},
                   {"A\n" + form.begin + one + form.end + "\n\nB", "A\nB", {call}},
                   {form.begin + one, "", {call}}});
    }
  }
}

TEST(ObjectCallsTest, NoArguments) {
  for (const Form& form : Forms()) {
    ExpectCalls(form.dialect, Json(),
                {{form.begin + form.call_begin + (form.call_begin.ends_with('{') ? "" : "{}") +
                      form.call_end + form.end,
                  "",
                  {{"f", "{}", form.id}}}});
  }
  for (const Form& form : Forms()) {
    const bool is_function = form.call_begin == "<function=f>";
    if (is_function || form.call_begin.ends_with("S]f")) continue;
    ExpectCalls(form.dialect, Json(),
                {{form.begin + form.call_begin + "null" + form.call_end + form.end,
                  "",
                  {{"f", "{}", form.id}}}});
  }
}

TEST(ObjectCallsTest, BrokenAndCutCallsAreContent) {
  for (const Form& form : Forms()) {
    if (form.dialect == ToolDialect::kMistral) continue;
    for (const std::string& arguments :
         {std::string("{\"a\": 1"), std::string("{\"a\": x}"), std::string("{\"a\": \"b}"),
          std::string("[1]"), std::string("{\"a\": 1}}")}) {
      const std::string text =
          "A " + form.begin + "\n" + form.call_begin + arguments + form.call_end + form.end;
      ExpectCalls(form.dialect, Json(), {{text, text, {}}});
    }
    const std::string text = form.begin + form.call_begin + kArguments + form.call_end + form.end;
    const size_t end = (form.begin + form.call_begin + kArguments).size();
    for (size_t size = 1; size < end; ++size) {
      const std::string cut = text.substr(0, size);
      if (cut.ends_with("[ARGS]")) continue;  // lacks nothing but arguments
      EXPECT_EQ(ReadToolCalls(form.dialect, Json(), cut, {}).content, cut);
    }
  }
}

TEST(ObjectCallsTest, MistralGivesBrokenArguments) {
  ExpectCalls(ToolDialect::kMistral, Json(),
              {{"A[TOOL_CALLS]f[ARGS]{\"a\": 1", "A", {{"f", "{\"a\": 1", ""}}},
               {"[TOOL_CALLS]f[ARGS]{\"a\": 1}} \n", "", {{"f", "{\"a\": 1}}", ""}}},
               {"[TOOL_CALLS]f[ARGS]{\"a\": x}[TOOL_CALLS]g[ARGS]{}",
                "",
                {{"f", "{\"a\": x}", ""}, {"g", "{}", ""}}},
               {"[TOOL_CALLS]f[ARGS]Oslo", "", {{"f", "Oslo", ""}}},
               {"[TOOL_CALLS]f[ARGS]", "", {{"f", "{}", ""}}},
               {"[TOOL_CALLS]f[ARGS]{\"a\": 1}\nDone.", "Done.", {{"f", "{\"a\": 1}", ""}}},
               {"[TOOL_CALLS]f", "[TOOL_CALLS]f", {}},
               {"[TOOL_CALLS]", "[TOOL_CALLS]", {}},
               {"[TOOL_CALLS]two words[ARGS]{}", "[TOOL_CALLS]two words[ARGS]{}", {}},
               {"[TOOL_CALLS][{\"name\": \"f\"", "[TOOL_CALLS][{\"name\": \"f\"", {}}});
}

TEST(ObjectCallsTest, LlamaCallsAreObjectsWithANameAndArguments) {
  const ToolCall f{"f", "{\"a\": 1}", ""}, g{"g", "{}", ""};
  const std::string call_f = Llama("f", "{\"a\": 1}"), call_g = Llama("g", "{}");
  ExpectCalls(ToolDialect::kLlama3Json, Json(),
              {{call_f + "; " + call_g, "", {f, g}},
               {call_f + ";\n" + call_g + ";", "", {f, g}},
               {"  " + call_f + "\n" + call_g + "\n", "", {f, g}},
               {"<|python_tag|>" + call_f + ";" + call_g, "", {f, g}},
               {"Sure.\n" + call_f + "\nDone.", "Sure.\nDone.", {f}},
               {Named("f", "{\"a\": 1}"), "", {f}},
               {"Sure: " + call_f + " Done {f}.", "Sure: Done {f}.", {f}},
               {"{\"a\": 1}", "{\"a\": 1}", {}},
               {"{\"name\": \"Ada\"}", "{\"name\": \"Ada\"}", {}},
               {"{\"inner\":\n" + call_f + "\n}", "{\"inner\":\n" + call_f + "\n}", {}},
               {"{ x\n" + call_f, "{ x", {f}},
               {"<|python_tag|>brave_search.call(query=\"Oslo \\\"x\\\"\")",
                "",
                {{"brave_search", "{\"query\": \"Oslo \\\"x\\\"\"}", ""}}},
               {"<|python_tag|>print(1)", "<|python_tag|>print(1)", {}},
               {"{\"type\": \"function\", \"name\": \"f\", \"parameters\": {\"a\": 1}}", "", {f}}});
}

TEST(ObjectCallsTest, IdsOfKimi) {
  const auto call = [](const std::string& id) { return kKimiSection + Kimi(id, "{}") + kKimiEnd; };
  ExpectCalls(ToolDialect::kKimiK2, Json(),
              {{call("functions.a.b:12"), "", {{"a.b", "{}", "functions.a.b:12"}}},
               {call(" functions.f:0 "), "", {{"f", "{}", "functions.f:0"}}},
               {call("f"), "", {{"f", "{}", "f"}}},
               {call(""), call(""), {}}});
}

TEST(ObjectCallsTest, SectionsOfDeepseek) {
  const ToolCall f{"f", "{}", ""}, g{"g", "{}", ""};
  const std::string bad = kBegin + "f" + kSep + "x" + kEnd;
  ExpectCalls(
      ToolDialect::kDeepseekV31, Json(),
      {{kSection + DeepseekV31("f", "{}") + DeepseekV31("g", "{}") + kSectionEnd, "", {f, g}},
       {kSection + kSectionEnd, kSection + kSectionEnd, {}},
       {kSection + bad + DeepseekV31("g", "{}") + kSectionEnd, kSection + bad + kSectionEnd, {g}},
       {kSection + DeepseekV31("f", "{}") + bad + kSectionEnd, bad, {f}},
       {kBegin + "f" + kSep + "{}" + kBegin + "g" + kSep + "{}", "", {f, g}}});
  ExpectCalls(
      ToolDialect::kDeepseekV3, Json(),
      {{kSection + DeepseekV3("f", "{}") + "\n" + DeepseekV3("g", "{}") + kSectionEnd, "", {f, g}},
       {kSection + kBegin + "function" + kSep + "f\n{}" + kEnd, "", {f}}});
}

TEST(ObjectCallsTest, TimeIsLinear) {
  for (const Form& form : Forms()) {
    const std::string one = form.call_begin + "{\"a\": 1}" + form.call_end;
    ExpectLinear(form.dialect, form.begin, one + "\n");
    ExpectLinear(form.dialect, form.begin + form.call_begin, "{\"a\": ");
    ExpectLinear(form.dialect, form.begin + form.call_begin + "{\"a\": \"", one);
    ExpectLinear(form.dialect, form.begin + form.call_begin + "{\"a\": [1", ", {\"x\": \"}\"}");
    ExpectLinear(form.dialect, form.begin, form.call_begin + "\n");
    ExpectLinear(form.dialect, form.begin, "\n" + form.call_begin + "{\"a\": \"");
    ExpectLinear(form.dialect, form.begin, "{ [ \n");
  }
}

}  // namespace
}  // namespace minisgl::object_calls
