#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tool_call_cases.h"

namespace minisgl::gemma4_calls {
namespace {

std::string Gemma(const std::string& body) {
  return "<|tool_call>call:f{" + body + "}<tool_call|>";
}
const std::string kQ = "<|\"|>";

TEST(Gemma4Test, Values) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "{}"},
      {"a:" + kQ + "x" + kQ, "{\"a\": \"x\"}"},
      {"a:" + kQ + kQ, "{\"a\": \"\"}"},
      {"a:9007199254740993,b:1.50,c:true,d:false,e:null,f:None",
       "{\"a\": 9007199254740993, \"b\": 1.50, \"c\": true, \"d\": false, \"e\": null, "
       "\"f\": null}"},
      {"a:{b:{c:[1,{},[]]}}", "{\"a\": {\"b\": {\"c\": [1, {}, []]}}}"},
      {"a:{" + kQ + "b c" + kQ + ":1}", "{\"a\": {\"b c\": 1}}"},
      {"a:[" + kQ + "x,y]}" + kQ + "," + kQ + "<tool_call|>\n\\n" + kQ + "]",
       "{\"a\": [\"x,y]}\", \"<tool_call|>\\n\\\\n\"]}"},
      {"a:" + kQ + "\xC3\xA9 \"q\" \xF0\x9F\x98\x80" + kQ,
       "{\"a\": \"\xC3\xA9 \\\"q\\\" \xF0\x9F\x98\x80\"}"},
      {"a:Oslo now", "{\"a\": \"Oslo now\"}"},
      {"a: \"x\\n\" , \"b\": 1", "{\"a\": \"x\\n\", \"b\": 1}"},
  };
  for (const auto& [body, json] : cases) {
    const ToolCall call{"f", json, ""};
    const std::string text = Gemma(body);
    ExpectCalls(ToolDialect::kGemma4, Json(),
                {{text, "", {call}},
                 {"A\n" + text + text + "\n B", "A\nB", {call, call}},
                 {text.substr(0, text.size() - 3), "", {call}}});
  }
}

TEST(Gemma4Test, BrokenAndCutCallsAreContent) {
  for (const std::string& text :
       {Gemma("a"), Gemma("a:"), Gemma("a:1,"), Gemma("a:[1"), Gemma("a:" + kQ + "x"), Gemma(":1"),
        Gemma("a:1}"), std::string("<|tool_call>call:{}<tool_call|>"),
        std::string("<|tool_call>f<tool_call|>"), std::string("<|tool_call>call:f{a:1"),
        Gemma("a:" + std::string(100, '[') + std::string(100, ']'))}) {
    ExpectCalls(ToolDialect::kGemma4, Json(), {{"A " + text, "A " + text, {}}});
  }
  const std::string text = Gemma("a:" + kQ + "x" + kQ + ",b:[1,{c:2}]");
  for (size_t size = 1; size < text.rfind('<'); ++size) {
    const std::string cut = text.substr(0, size);
    EXPECT_EQ(ReadToolCalls(ToolDialect::kGemma4, Json(), cut, {}).content, cut);
  }
}

TEST(Gemma4Test, TimeIsLinear) {
  const auto gemma = ToolDialect::kGemma4;
  ExpectLinear(gemma, "", Gemma("a:1"));
  ExpectLinear(gemma, "", "<|tool_call>call:f{a:" + kQ);
  ExpectLinear(gemma, "<|tool_call>call:f{a:" + kQ, "<tool_call|>");
  ExpectLinear(gemma, "<|tool_call>call:f{a:[1", ",{b:2}");
  ExpectLinear(gemma, "", "<|tool_call>call:f{");
}

}  // namespace
}  // namespace minisgl::gemma4_calls
