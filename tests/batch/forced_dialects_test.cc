// What is forced in each dialect is read back as calls, each by the schema of its function: random
// walks through the grammar of a row's tools.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "batch/call_notation.h"
#include "long_form.h"
#include "minisgl/grammar/grammar.h"
#include "minisgl/grammar/json_schema.h"
#include "minisgl/grammar/matcher.h"
#include "minisgl/text/thought_reader.h"
#include "minisgl/text/tool_calls.h"
#include "program/fakes.h"

namespace minisgl::batch {
namespace {

// Some spellings are control tokens.
class MarkTokenizer : public ByteTokenizer {
 public:
  explicit MarkTokenizer(std::set<std::string, std::less<>> marks) : marks_(std::move(marks)) {}
  std::optional<TokenId> IdOf(std::string_view spelling) const override {
    if (marks_.contains(spelling)) return 1000;
    return ByteTokenizer::IdOf(spelling);
  }

 private:
  const std::set<std::string, std::less<>> marks_;
};

const char* const kWeather =
    R"({"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer", )"
    R"("minimum": 0, "maximum": 30}, "unit": {"enum": ["C", "F"]}, "raw": {"type": "boolean"}}, )"
    R"("required": ["city"], "additionalProperties": false})";
const char* const kPlan =
    R"({"type": "object", "properties": {"at": {"type": "object", "properties": {"x": {"type": )"
    R"("number"}, "name": {"type": "string"}}, "required": ["x"], "additionalProperties": false}, )"
    R"("tags": {"type": "array", "items": {"type": "string"}, "maxItems": 3}, "note": {"type": )"
    R"(["string", "null"], "maxLength": 40}}, "additionalProperties": false})";
const char* const kNothing =
    R"({"type": "object", "properties": {}, "additionalProperties": false})";

Json ToolsOf(const std::map<std::string, std::string>& functions) {
  Json tools = Json(Json::Array());
  for (const auto& [name, schema] : functions) {
    Json tool, function;
    function.Set("name", name).Set("parameters", *ParseJson(schema));
    tool.Set("type", "function").Set("function", std::move(function));
    tools.Append(std::move(tool));
  }
  return tools;
}

class ForcedDialectTest : public ::testing::Test {
 protected:
  static inline const std::map<std::string, std::string> kFunctions = {
      {"weather", kWeather}, {"plan", kPlan}, {"stop", kNothing}};

  struct Form {
    ToolDialect dialect;
    std::set<std::string, std::less<>> marks;
  };

  // A text of the grammar; "" if the walk found no end.
  std::string Walk(const std::shared_ptr<const CompiledGrammar>& grammar,
                   std::vector<std::string> helpers) {
    Matcher matcher(grammar);
    std::string text;
    const auto take = [&](const std::string& bytes) {
      if (!matcher.Accept(bytes)) return false;
      text += bytes;
      return true;
    };
    while (text.size() < 6000) {
      if (matcher.MustEnd() || (matcher.IsAccepting() && random_() % 4 == 0)) return text;
      if (const std::string forced = matcher.ForcedBytes(); !forced.empty()) {
        take(forced);
        continue;
      }
      std::shuffle(helpers.begin(), helpers.end(), random_);
      if (random_() % 3 > 0 && std::any_of(helpers.begin(), helpers.end(), take)) continue;
      std::vector<uint8_t> bytes;
      const ByteSet next = matcher.NextBytes();
      for (int byte = 0; byte < 256; ++byte) {
        if (next.Contains(static_cast<uint8_t>(byte))) bytes.push_back(static_cast<uint8_t>(byte));
      }
      if (bytes.empty()) return text;
      take(std::string(1, static_cast<char>(bytes[random_() % bytes.size()])));
    }
    return "";
  }

  static std::vector<std::string> HelpersOf(const CallNotation& notation) {
    std::vector<std::string> helpers = {"\"", "}",  "]",  ",",    ":",     " ",
                                        "\n", "\\", "</", "null", "true",  "12",
                                        "a",  "é",  "<",  "word", "False", "{\"name\": "};
    for (const std::string* part :
         {&notation.section_begin, &notation.section_end, &notation.call_begin, &notation.name_end,
          &notation.call_end, &notation.key_begin, &notation.key_end, &notation.value_end,
          &notation.text_end}) {
      if (!part->empty()) helpers.push_back(*part);
    }
    helpers.insert(helpers.end(), notation.marks.begin(), notation.marks.end());
    return helpers;
  }

  void CheckCalls(const Form& form, const ToolCallPiece& piece, const std::string& text) {
    for (const ToolCall& call : piece.calls) {
      const auto schema = schemas_.find(call.name);
      ASSERT_NE(schema, schemas_.end()) << NameOf(form.dialect) << ": " << text;
      bool accepted = false;
      MatchText(*schema->second, call.arguments, &accepted);
      EXPECT_TRUE(accepted) << NameOf(form.dialect) << ": " << call.arguments << "\n" << text;
    }
  }

  void Check(const Form& form, bool may_be_text) {
    const MarkTokenizer tokenizer(form.marks);
    const auto notation = NotationOf(form.dialect, tokenizer);
    ASSERT_TRUE(notation) << NameOf(form.dialect);
    CallGrammar grammar;
    grammar.notation = *notation;
    for (const auto& [name, schema] : kFunctions) grammar.functions.push_back({name, schema});
    grammar.may_be_text = may_be_text;
    GrammarText text;
    text.kind = GrammarKind::kCalls;
    text.calls = std::make_shared<const CallGrammar>(grammar);
    const auto compiled = CompileGrammar(text);
    ASSERT_TRUE(compiled.ok()) << NameOf(form.dialect) << ": " << compiled.status().message();
    const Json tools = ToolsOf(kFunctions);
    int num_texts = 0;
    std::set<std::string> called;
    const int count = ShortOrLong(60, 2000);
    for (int i = 0; i < count; ++i) {
      std::string answer = Walk(*compiled, HelpersOf(*notation));
      if (answer.empty()) continue;
      ++num_texts;
      std::erase(answer, kControlMark);
      const ToolCallPiece piece = ReadSpelledToolCalls(form.dialect, tools, answer);
      CheckCalls(form, piece, answer);
      for (const ToolCall& call : piece.calls) called.insert(call.name);
      if (may_be_text) continue;
      EXPECT_FALSE(piece.calls.empty()) << NameOf(form.dialect) << ": " << answer;
      EXPECT_EQ(piece.content, "") << NameOf(form.dialect) << ": " << answer;
    }
    EXPECT_GE(num_texts, count / 2) << NameOf(form.dialect);
    if (!may_be_text) {
      EXPECT_EQ(called.size(), kFunctions.size()) << NameOf(form.dialect);
    }
  }

  void SetUp() override {
    for (const auto& [name, schema] : kFunctions) {
      auto compiled = CompileJsonSchema(schema, {.any_order = true});
      ASSERT_TRUE(compiled.ok()) << compiled.status().message();
      schemas_[name] = *compiled;
    }
  }

  static std::vector<Form> Forms() {
    std::vector<Form> forms;
    for (const ToolDialectName& known : ToolDialectNames()) forms.push_back({known.dialect, {}});
    forms.push_back({ToolDialect::kHermes, {"<tool_call>", "</tool_call>"}});
    forms.push_back({ToolDialect::kMistral, {"[TOOL_CALLS]", "[ARGS]"}});
    forms.push_back({ToolDialect::kGemma4, {"<|tool_call>", "<tool_call|>", "<|\"|>"}});
    forms.push_back({ToolDialect::kPythonic, {"<|python_start|>", "<|python_end|>"}});
    forms.push_back({ToolDialect::kPythonic, {"<|tool_call_start|>", "<|tool_call_end|>"}});
    forms.push_back({ToolDialect::kPythonic, {"<function_calls>", "</function_calls>"}});
    forms.push_back({ToolDialect::kGlm4, {"<tool_call>", "</tool_call>", "<arg_value>"}});
    return forms;
  }

  std::mt19937 random_{7};
  std::map<std::string, std::shared_ptr<const CompiledGrammar>> schemas_;
};

TEST_F(ForcedDialectTest, ForcedCallsAreReadAsCallsBySchema) {
  for (const Form& form : Forms()) Check(form, /*may_be_text=*/false);
}

TEST_F(ForcedDialectTest, WhateverIsReadOfOpenAnswersIsBySchema) {
  for (const Form& form : Forms()) Check(form, /*may_be_text=*/true);
}

}  // namespace
}  // namespace minisgl::batch
