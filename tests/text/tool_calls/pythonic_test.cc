#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tool_call_cases.h"

namespace minisgl::pythonic_calls {
namespace {

void Expect(const std::vector<ToolCallCase>& cases) {
  ExpectCalls(ToolDialect::kPythonic, Json(), cases);
}

struct Around {
  std::string open, close;
};
const Around kAround[] = {{"[", "]"},
                          {"<|python_start|>[", "]<|python_end|>"},
                          {"<|tool_call_start|>[", "]<|tool_call_end|>"},
                          {"<function_calls>\n", "\n</function_calls>"}};

TEST(PythonicTest, ValuesAreLiterals) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "{}"},
      {"a=1", "{\"a\": 1}"},
      {"a='x', b=\"y\"", "{\"a\": \"x\", \"b\": \"y\"}"},
      {"a = -1.50 , b=9007199254740993,", "{\"a\": -1.50, \"b\": 9007199254740993}"},
      {"a=True, b=False, c=None", "{\"a\": true, \"b\": false, \"c\": null}"},
      {"a=true, b=false, c=null", "{\"a\": true, \"b\": false, \"c\": null}"},
      {"a=[1, 'x', [], (2, 3)]", "{\"a\": [1, \"x\", [], [2, 3]]}"},
      {"a={'k': {\"l\": [None]}, 'm': {}}", "{\"a\": {\"k\": {\"l\": [null]}, \"m\": {}}}"},
      {"a=''", "{\"a\": \"\"}"},
      {"a='it\\'s \\\\ \\n \\x41 \\u00e9 \\ud83d\\ude00 \\q'",
       "{\"a\": \"it's \\\\ \\n A \xC3\xA9 \xF0\x9F\x98\x80 \\\\q\"}"},
      {"a='\xC3\xA9\xF0\x9F\x98\x80'", "{\"a\": \"\xC3\xA9\xF0\x9F\x98\x80\"}"},
      {"a='[f(x=1)]</function_calls><|python_end|>'",
       "{\"a\": \"[f(x=1)]</function_calls><|python_end|>\"}"},
      // Without escapes, as some templates write them.
      {"a='it's', b='x'", "{\"a\": \"it's\", \"b\": \"x\"}"},
      {"a='two\nlines'", "{\"a\": \"two\\nlines\"}"},
      {"a='''x 'y' z'''", "{\"a\": \"x 'y' z\"}"},
      {"a=007, b=1_000, c=.5, d=2., e=1e5",
       "{\"a\": 7, \"b\": 1000, \"c\": 0.5, \"d\": 2.0, "
       "\"e\": 1e5}"},
      {"a=1, b=2, a=3", "{\"a\": 3, \"b\": 2}"},
  };
  for (const auto& [written, json] : cases) {
    for (const Around& around : kAround) {
      const std::string text = around.open + "f(" + written + ")" + around.close;
      const ToolCall call{"f", json, ""};
      Expect({{text, "", {call}},
              {"A\n" + text + "\nB", "A\nB", {call}},
              {text + "\n" + text, "", {call, call}}});
    }
  }
}

TEST(PythonicTest, SeveralCalls) {
  const ToolCall f{"f", "{\"a\": 1}", ""}, g{"my.g", "{}", ""};
  Expect({{"[f(a=1), my.g()]", "", {f, g}},
          {"[f(a=1),\n my.g(),]", "", {f, g}},
          {"<|tool_call_start|>[f(a=1), my.g()]<|tool_call_end|>Done.", "Done.", {f, g}},
          {"<function_calls>\nf(a=1)\nmy.g()\n</function_calls>", "", {f, g}},
          {"<function_calls>f(a=1)", "", {f}},
          {"<|python_start|>[f(a=1)]<|python_en", "", {f}},
          {"<|tool_call_start|>[{\"name\": \"f\", \"arguments\": {\"a\": 1}}]<|tool_call_end|>",
           "",
           {f}}});
}

TEST(PythonicTest, OtherTextIsContent) {
  for (const std::string text : {"[]",
                                 "[1, 2]",
                                 "[f]",
                                 "[link](http://a.b)",
                                 "[f(a=1)](http://a.b)",
                                 "[f(1)]",
                                 "[f(a=b)]",
                                 "See [f(a=1)]",
                                 "[f(a=1)",
                                 "[f(a='x",
                                 "[f(a=1]",
                                 "[f(a=1), x]",
                                 "[f(**k)]",
                                 "f(a=1)",
                                 "<|python_start|>[f(a=)]<|python_end|>",
                                 "<|python_start|>",
                                 "<function_calls>",
                                 "<function_calls>\nf(a=1\n</function_calls>",
                                 "<|tool_call_start|>[]<|tool_call_end|>",
                                 "<|tool_call_start|>[f(a=1)] x<|tool_call_end|>",
                                 "[f(a=nan)]",
                                 "[f(a=0x1F)]",
                                 "[f(a={1, 2})]",
                                 "[f(a=1 + 2)]"}) {
    Expect({{text, text, {}}});
  }
  const std::string deep = "[f(a=" + std::string(200, '[') + std::string(200, ']') + ")]";
  Expect({{deep, deep, {}}});
}

TEST(PythonicTest, TimeIsLinear) {
  const auto pythonic = ToolDialect::kPythonic;
  for (const Around& around : kAround) {
    ExpectLinear(pythonic, "", around.open + "f(a=1)" + around.close + "\n");
    ExpectLinear(pythonic, around.open + "f(a='", "x' ");
    ExpectLinear(pythonic, around.open + "f(a=[", "'x', ");
    ExpectLinear(pythonic, "", around.open + "f(a='\n");
    ExpectLinear(pythonic, "", around.open + "f(a=[\n");
    ExpectLinear(pythonic, around.open + "f(a='", "'            ");
  }
}

}  // namespace
}  // namespace minisgl::pythonic_calls
