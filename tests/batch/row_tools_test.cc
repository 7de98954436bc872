// The fields of rows that concern calls of tools, and what prompts make of them.
#include "batch/row_tools.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "batch/row.h"
#include "batch/row_prompt.h"
#include "minisgl/grammar/grammar.h"
#include "program/fakes.h"

namespace minisgl::batch {
namespace {

const std::string kMessage = R"("messages": [{"role": "user", "content": "a"}])";
const std::string kTwoTools =
    R"("tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", )"
    R"("properties": {"a": {"type": "integer"}}}}}, {"name": "g"}])";

ParsedRow ParseTools(const std::string& members) {
  return ParseRow("{" + kMessage + (members.empty() ? "" : ", ") + members + "}", 3, 7);
}

Row GoodTools(const std::string& members) {
  ParsedRow parsed = ParseTools(members);
  EXPECT_FALSE(parsed.error) << members << ": " << parsed.error->message;
  return std::move(parsed.row);
}

RowError BadTools(const std::string& members) {
  const ParsedRow parsed = ParseTools(members);
  EXPECT_TRUE(parsed.error) << members;
  return parsed.error.value_or(RowError());
}

TEST(RowToolsTest, AChoiceIsAWordOrAFunctionInTheFormsOfClients) {
  const struct {
    const char* choice;
    ToolUse use;
    std::vector<std::string> allowed;
    bool is_named;
  } cases[] = {
      {R"("auto")", ToolUse::kAuto, {}, false},
      {R"("none")", ToolUse::kNone, {}, false},
      {R"("required")", ToolUse::kRequired, {}, false},
      {R"("any")", ToolUse::kRequired, {}, false},
      {R"({"type": "auto"})", ToolUse::kAuto, {}, false},
      {R"({"type": "any"})", ToolUse::kRequired, {}, false},
      {R"({"type": "none"})", ToolUse::kNone, {}, false},
      {R"({"type": "function", "function": {"name": "g"}})", ToolUse::kRequired, {"g"}, true},
      {R"({"type": "function", "name": "g"})", ToolUse::kRequired, {"g"}, true},
      {R"({"type": "tool", "name": "f"})", ToolUse::kRequired, {"f"}, true},
      {R"({"function": {"name": "f"}})", ToolUse::kRequired, {"f"}, true},
      {R"({"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": )"
       R"([{"type": "function", "function": {"name": "f"}}, {"type": "function", "name": "g"}]}})",
       ToolUse::kRequired,
       {"f", "g"},
       false},
      {R"({"type": "allowed_tools", "mode": "auto", "tools": [{"name": "g"}]})",
       ToolUse::kAuto,
       {"g"},
       false},
  };
  for (const auto& [choice, use, allowed, is_named] : cases) {
    for (const bool comes_first : {false, true}) {
      const std::string field = std::string(R"("tool_choice": )") + choice;
      const Row row = GoodTools(comes_first ? field + ", " + kTwoTools : kTwoTools + ", " + field);
      EXPECT_EQ(row.tool_settings.use, use) << choice;
      EXPECT_EQ(row.tool_settings.allowed, allowed) << choice;
      EXPECT_EQ(row.tool_settings.is_named, is_named) << choice;
      EXPECT_EQ(row.tools.is_null(), use == ToolUse::kNone) << choice;
    }
  }
}

TEST(RowToolsTest, OtherChoicesAreErrorsOfTheField) {
  for (const char* choice :
       {"true", "1", R"("")", R"("f")", R"("AUTO")", "[]", "{}", R"({"type": "function"})",
        R"({"type": "function", "function": {}})", R"({"type": "function", "function": "f"})",
        R"({"type": "function", "function": {"name": ""}})", R"({"type": "web_search"})",
        R"({"type": "function", "function": {"name": 5}})",
        R"({"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": []}})",
        R"({"type": "allowed_tools", "allowed_tools": {"mode": "none", "tools": [{"name": "f"}]}})",
        R"({"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [5]}})",
        R"({"type": "any", "disable_parallel_tool_use": 1})"}) {
    const RowError error = BadTools(kTwoTools + R"(, "tool_choice": )" + choice);
    EXPECT_EQ(error.code, "unsupported_field") << choice;
    EXPECT_EQ(error.field, "tool_choice") << choice;
    EXPECT_NE(error.message.find("must be auto, none, required"), std::string::npos)
        << error.message;
  }
}

TEST(RowToolsTest, AChoiceNeedsItsTool) {
  EXPECT_EQ(BadTools(R"("tool_choice": "required")").message,
            "tool_choice asks for a call, but the row has no tools");
  EXPECT_EQ(BadTools(R"("tools": [], "tool_choice": "required")").field, "tool_choice");
  EXPECT_EQ(
      BadTools(kTwoTools + R"(, "tool_choice": {"type": "function", "name": "h\u001b"})").message,
      "tool_choice names the function h\\x1b, which is not one of the tools");
  EXPECT_EQ(BadTools(R"("tools": [{"type": "web_search"}, 5], "tool_choice": "required")").message,
            "tool_choice asks for a call, but no tool is a function with a name");
  GoodTools(R"("tool_choice": "auto")");
  GoodTools(R"("tool_choice": "none", "tools": [])");
}

TEST(RowToolsTest, ParallelCallsMayBeSwitchedOff) {
  EXPECT_TRUE(GoodTools(kTwoTools).tool_settings.parallel);
  EXPECT_TRUE(GoodTools(kTwoTools + R"(, "parallel_tool_calls": true)").tool_settings.parallel);
  EXPECT_FALSE(GoodTools(kTwoTools + R"(, "parallel_tool_calls": false)").tool_settings.parallel);
  EXPECT_FALSE(GoodTools(kTwoTools + R"(, "tool_choice": {"type": "auto", )"
                                     R"("disable_parallel_tool_use": true})")
                   .tool_settings.parallel);
  EXPECT_EQ(BadTools(R"("parallel_tool_calls": 1)").field, "parallel_tool_calls");
}

class ToolPromptTest : public ::testing::Test {
 protected:
  std::optional<RowError> BuildRow(const std::string& members) {
    text_.tool_dialect = dialect_;
    const PromptBuilder builder(&text_, SmallLimits(), PromptBuilderOptions());
    row_ = GoodTools(members);
    return builder.Build(&row_, &prompts_);
  }

  TextModel text_ = FakeTextModel();
  std::optional<ToolDialect> dialect_ = ToolDialect::kHermes;
  Row row_;
  std::vector<Prompt> prompts_;
};

TEST_F(ToolPromptTest, CallsAreReadOfRowsWithToolsAlone) {
  ASSERT_FALSE(BuildRow(""));
  EXPECT_EQ(row_.calls, nullptr);
  ASSERT_FALSE(BuildRow(kTwoTools + R"(, "tool_choice": "none")"));
  EXPECT_EQ(row_.calls, nullptr);
  ASSERT_FALSE(BuildRow(kTwoTools + R"(, "parse_tool_calls": false)"));
  EXPECT_EQ(row_.calls, nullptr);
  ASSERT_FALSE(BuildRow(kTwoTools + R"(, "parse_tool_calls": true)"));
  ASSERT_NE(row_.calls, nullptr);
  EXPECT_EQ(row_.calls->tools.as_array().size(), 2u);
  EXPECT_FALSE(row_.calls->only_first);
  EXPECT_EQ(prompts_.front().grammar, nullptr) << "the model may write anything";
  ASSERT_FALSE(BuildRow(kTwoTools + R"(, "parallel_tool_calls": false)"));
  EXPECT_TRUE(row_.calls->only_first);
  dialect_ = ToolDialect::kNone;
  ASSERT_FALSE(BuildRow(kTwoTools));
  EXPECT_EQ(row_.calls, nullptr);
}

TEST_F(ToolPromptTest, ARequiredCallIsWhatTheAnswerMustBe) {
  ASSERT_FALSE(BuildRow(kTwoTools + R"(, "tool_choice": "required")"));
  ASSERT_NE(prompts_.front().grammar, nullptr);
  const CallGrammar& grammar = *prompts_.front().grammar->calls;
  ASSERT_EQ(grammar.functions.size(), 2u);
  EXPECT_EQ(grammar.functions[0].name, "f");
  EXPECT_EQ(grammar.functions[0].parameters,
            R"({"type": "object", "properties": {"a": {"type": "integer"}}})");
  EXPECT_EQ(grammar.functions[1].parameters, "") << "any arguments";
  EXPECT_FALSE(grammar.may_be_text);
  EXPECT_FALSE(grammar.only_one);
  ASSERT_FALSE(BuildRow(kTwoTools + R"(, "tool_choice": {"type": "function", "name": "g"})"));
  EXPECT_EQ(prompts_.front().grammar->calls->functions.size(), 1u);
  EXPECT_TRUE(prompts_.front().grammar->calls->only_one);
}

TEST_F(ToolPromptTest, AStrictFunctionLeavesTextOpen) {
  const std::string strict =
      R"("tools": [{"type": "function", "function": {"name": "f", "strict": true, "parameters": )"
      R"({"properties": {}}}}, {"type": "function", "function": {"name": "g", "strict": false, )"
      R"("parameters": {"type": "string"}}}])";
  ASSERT_FALSE(BuildRow(strict));
  const CallGrammar& grammar = *prompts_.front().grammar->calls;
  EXPECT_TRUE(grammar.may_be_text);
  EXPECT_EQ(grammar.text, nullptr);
  EXPECT_EQ(grammar.functions[0].parameters, R"({"properties": {}, "type": "object"})");
  EXPECT_EQ(grammar.functions[1].parameters, "") << "it is not strict";
  ASSERT_FALSE(BuildRow(strict + R"(, "response_format": {"type": "json_object"})"));
  ASSERT_NE(prompts_.front().grammar->calls->text, nullptr);
  EXPECT_EQ(prompts_.front().grammar->calls->text->kind, GrammarKind::kJsonObject);
}

TEST_F(ToolPromptTest, WhatCannotBeForcedIsRefusedByName) {
  const std::string required = R"(, "tool_choice": "required")";
  const auto error = BuildRow(kTwoTools + required + R"(, "guided_regex": "a")");
  ASSERT_TRUE(error);
  EXPECT_EQ(error->message,
            "tool_choice and guided_regex both say what the answer must be; give one of them");
  const auto no_object = BuildRow(
      R"("tools": [{"name": "f", "parameters": {"type": "string"}}], "tool_choice": "required")");
  ASSERT_TRUE(no_object);
  EXPECT_EQ(no_object->code, "invalid_grammar");
  EXPECT_EQ(no_object->message, "the function f: parameters must be a schema of an object");
  dialect_ = ToolDialect::kNone;
  const auto unknown = BuildRow(kTwoTools + required);
  ASSERT_TRUE(unknown);
  EXPECT_EQ(unknown->code, "unsupported_field");
  EXPECT_EQ(unknown->field, "tool_choice");
}

}  // namespace
}  // namespace minisgl::batch
