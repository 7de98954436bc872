#include <gtest/gtest.h>

#include <string>

#include "tool_call_cases.h"

namespace minisgl::hermes_calls {
namespace {

const std::string kOpen = "<tool_call>", kClose = "</tool_call>";

std::string Tagged(const std::string& json) { return kOpen + "\n" + json + "\n" + kClose; }

void Expect(const std::vector<ToolCallCase>& cases) {
  ExpectCalls(ToolDialect::kHermes, Json(), cases);
}

TEST(HermesTest, ContentStandsAroundCalls) {
  const std::string f = Tagged("{\"name\": \"f\", \"arguments\": {\"a\": 1}}");
  const std::string g = Tagged("{\"name\": \"g\", \"arguments\": {}}");
  const ToolCall call_f{"f", "{\"a\": 1}", ""}, call_g{"g", "{}", ""};
  Expect({
      {"", "", {}},
      {"  no call \n", "  no call \n", {}},
      {f, "", {call_f}},
      {f + "\n" + g, "", {call_f, call_g}},
      {f + g + "\n\n", "", {call_f, call_g}},
      {"Let me see.\n" + f, "Let me see.", {call_f}},
      {"\n\nLet me see.\n\n" + f + "\n", "\n\nLet me see.", {call_f}},
      {"A\n" + f + "\n\n" + g + "  B \n", "A\nB \n", {call_f, call_g}},
      {"A" + f + " B", "A B", {call_f}},
      {f + "\nB\n" + g + "C", "B\nC", {call_f, call_g}},
      {"a < b <tool> <tool_cal" + f, "a < b <tool> <tool_cal", {call_f}},
  });
}

TEST(HermesTest, ArgumentsStayAsWritten) {
  Expect({
      {Tagged("{\"arguments\": {\"b\": 9007199254740993, \"a\": 1.10, \"c\": {\"z\": [1e5, null], "
              "\"y\": {}}}, \"name\": \"f\"}"),
       "",
       {{"f", "{\"b\": 9007199254740993, \"a\": 1.10, \"c\": {\"z\": [1e5, null], \"y\": {}}}",
         ""}}},
      {Tagged("{\"name\": \"f\", \"arguments\": {\"s\": \"\xC3\xA9\\u00e9\\\"\\\\\\n\"}}"),
       "",
       {{"f", "{\"s\": \"\xC3\xA9\\u00e9\\\"\\\\\\n\"}", ""}}},
      {Tagged("{\"name\": \"n\\u00e4me\", \"arguments\": {}}"), "", {{"n\xC3\xA4me", "{}", ""}}},
      // As text.
      {Tagged("{\"name\": \"f\", \"arguments\": \"{\\\"a\\\": 1.0}\"}"),
       "",
       {{"f", "{\"a\": 1.0}", ""}}},
      {Tagged("{\"name\": \"f\", \"arguments\": \"\"}"), "", {{"f", "{}", ""}}},
      {Tagged("{\"name\": \"f\", \"arguments\": null}"), "", {{"f", "{}", ""}}},
      {Tagged("{\"name\": \"f\"}"), "", {{"f", "{}", ""}}},
      {Tagged("{\"name\": \"f\", \"parameters\": {\"a\": 1}}"), "", {{"f", "{\"a\": 1}", ""}}},
      {Tagged("{\"id\": \"c1\", \"name\": \"f\", \"arguments\": {}}"), "", {{"f", "{}", "c1"}}},
      {Tagged("{\"type\": \"function\", \"function\": {\"name\": \"f\", \"arguments\": {}}}"),
       "",
       {{"f", "{}", ""}}},
      {Tagged("[{\"name\": \"f\", \"arguments\": {}}, {\"name\": \"g\"}]"),
       "",
       {{"f", "{}", ""}, {"g", "{}", ""}}},
  });
}

TEST(HermesTest, MarksInAStringAreItsText) {
  const std::string arguments = "{\"s\": \"<tool_call>x</tool_call><think>\\\"}\"}";
  Expect({{Tagged("{\"name\": \"f\", \"arguments\": " + arguments + "}"),
           "",
           {{"f", arguments, ""}}}});
}

TEST(HermesTest, ACallMayLackTheLastMark) {
  const std::string f = kOpen + "{\"name\": \"f\", \"arguments\": {}}";
  const ToolCall call{"f", "{}", ""};
  Expect({
      {f, "", {call}},
      {"A\n" + f + "\n</tool_c", "A", {call}},
      {f + "\n" + f, "", {call, call}},
      {f + kOpen, "<tool_call>", {call}},
  });
}

TEST(HermesTest, ABrokenCallIsContent) {
  const std::string good = Tagged("{\"name\": \"g\", \"arguments\": {}}");
  const ToolCall call{"g", "{}", ""};
  for (const std::string& broken : {
           Tagged("{\"name\": \"f\", \"arguments\": {\"a\": 1}"),
           Tagged("{\"name\": \"f\", \"arguments\": {\"a\": 1}}}"),
           Tagged("{\"name\": \"f\", \"arguments\": {\"a\": 1,}}"),
           Tagged("{\"name\": \"f\", \"arguments\": {\"a\": \"x}}"),
           Tagged("{\"name\": \"f\", \"arguments\": {\"a\": \"\\ud800\"}}"),
           Tagged("{\"name\": \"f\", \"arguments\": {'a': 1}}"),
           Tagged("{\"name\": \"f\", \"arguments\": [1]}"),
           Tagged("{\"name\": \"f\", \"arguments\": \"x\"}"),
           Tagged("{\"name\": 1, \"arguments\": {}}"),
           Tagged("{\"name\": \"\", \"arguments\": {}}"),
           Tagged("{\"arguments\": {}}"),
           Tagged("[]"),
           Tagged("f(1)"),
           Tagged(""),
           std::string("<tool_call>x<tool_call></tool_call>"),
       }) {
    Expect({
        {broken, broken, {}},
        {"A " + broken + " B\n", "A " + broken + " B\n", {}},
        {broken + "\n" + good, broken, {call}},
        {good + broken, broken, {call}},
    });
  }
  for (const std::string& cut :
       {kOpen + "{\"name\": \"f\", \"argume", kOpen,
        kOpen + "{\"name\": \"f\", \"arguments\": {\"a\": \"" + kClose, std::string("<tool_c")}) {
    Expect({{"A\n" + cut, "A\n" + cut, {}}});
  }
}

TEST(HermesTest, DeepNestingIsNoCall) {
  const std::string deep =
      Tagged("{\"name\": \"f\", \"arguments\": {\"a\": " + std::string(5000, '[') +
             std::string(5000, ']') + "}}");
  Expect({{deep, deep, {}}});
}

TEST(HermesTest, TimeIsLinear) {
  const auto hermes = ToolDialect::kHermes;
  ExpectLinear(hermes, "", "text < ");
  ExpectLinear(hermes, "", " \n");
  ExpectLinear(hermes, "", Tagged("{\"name\": \"f\", \"arguments\": {\"a\": 1}}"));
  ExpectLinear(hermes, kOpen + "{\"name\": \"f\", \"arguments\": {\"a\": \"", "x</tool_call>");
  ExpectLinear(hermes, kOpen + "{\"name\": \"f\", \"arguments\": [", "{\"a\": 1}, ");
  ExpectLinear(hermes, "", kOpen);
  ExpectLinear(hermes, "", kOpen + "{\"a\": \"");
  ExpectLinear(hermes, "", kOpen + "{\"a");
  ExpectLinear(hermes, "", kOpen + "[" + kClose);
}

}  // namespace
}  // namespace minisgl::hermes_calls
