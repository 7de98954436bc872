// Reasoning of rows: the effort that a row asks for, and reasoning apart from the text of answers.
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "batch/row.h"
#include "batch/row_conversation.h"
#include "batch/row_output.h"
#include "batch/row_prompt.h"
#include "program/fakes.h"

namespace minisgl::batch {
namespace {

// Returns a model whose template is `source`.
TextModel ReasoningModel(const std::string& source) {
  TextModel text = FakeTextModel(false);
  auto chat = ChatTemplate::Parse(source, "template");
  EXPECT_TRUE(chat.ok()) << chat.status().message();
  text.chat_template = std::move(chat).value();
  return text;
}

Row ReasoningRow(const std::string& members) {
  ParsedRow parsed = ParseRow("{" + members + "}", 0, 1);
  EXPECT_FALSE(parsed.error) << members;
  return std::move(parsed.row);
}

constexpr const char* kOneMessage = R"("messages": [{"role": "user", "content": "a"}])";

std::optional<RowError> ApplyEffort(const std::string& source, const std::string& effort, Row* row,
                                    const std::string& more = "") {
  *row = ReasoningRow(kOneMessage + (R"(, "reasoning_effort": ")" + effort + "\"" + more));
  return ApplySwitches(ReasoningModel(source), row);
}

TEST(ReasoningEffortTest, GoesToATemplateThatKnowsLevels) {
  Row row;
  EXPECT_FALSE(ApplyEffort("{{ reasoning_effort }}{{ enable_thinking }}", "low", &row));
  EXPECT_EQ(row.template_kwargs.Dump(), R"({"reasoning_effort": "low"})");
  EXPECT_TRUE(row.warnings.empty());
}

TEST(ReasoningEffortTest, TurnsASwitch) {
  Row row;
  EXPECT_FALSE(ApplyEffort("{{ enable_thinking }}", "none", &row));
  EXPECT_EQ(row.template_kwargs.Dump(), R"({"enable_thinking": false})");
  EXPECT_TRUE(row.warnings.empty());
  EXPECT_FALSE(ApplyEffort("{{ thinking }}", "high", &row));
  EXPECT_EQ(row.template_kwargs.Dump(), R"({"thinking": true})");
  EXPECT_EQ(row.warnings.size(), 1u) << "there are no levels of it";
  EXPECT_FALSE(ApplyEffort("{{ thinking }}", "high", &row,
                           R"(, "chat_template_kwargs": {"thinking": false})"));
  EXPECT_EQ(row.template_kwargs.Dump(), R"({"thinking": false})") << "the nearer word counts";
}

TEST(ReasoningEffortTest, IsAWarningOfTheRunIfNothingReadsIt) {
  Row row;
  EXPECT_FALSE(ApplyEffort("{{ messages[0].content }}", "high", &row));
  EXPECT_TRUE(row.warnings.empty());
  ASSERT_EQ(row.notes.size(), 1u);
  EXPECT_EQ(row.notes[0].level, LogLevel::kWarning);
  EXPECT_EQ(row.notes[0].text,
            "reasoning_effort: the chat template has no switch for it (it was ignored)");
  EXPECT_EQ(MissingSwitch(ReasoningModel("{{ thinking }}"), "reasoning_effort"), "");
  EXPECT_TRUE(ApplyEffort("{{ reasoning_effort }}", "high", &row,
                          R"(, "chat_template_kwargs": {"reasoning_effort": "low"})"));
}

// A prompt without messages has no template to read it.
TEST(ReasoningEffortTest, IsNotedOfAPromptWithoutMessagesToo) {
  const TextModel text = ReasoningModel("{{ messages[0].content }}");
  const std::string effort = R"(, "reasoning": {"effort": "low"})";
  for (const auto& [prompt, num_notes] : {std::pair(R"("prompt": "a")", size_t{1}),
                                          std::pair(R"("prompt_token_ids": [60])", size_t{0})}) {
    Row row = ReasoningRow(prompt + effort);
    Conversation conversation;
    EXPECT_FALSE(TakeConversation(text, &row, &conversation));
    EXPECT_EQ(row.notes.size(), num_notes) << prompt;
    EXPECT_EQ(conversation.raw.text.empty(), num_notes == 0);
    EXPECT_EQ(conversation.raw.after.empty(), num_notes == 1);
  }
}

TEST(VerbosityTest, GoesToATemplateThatReadsIt) {
  Row row = ReasoningRow(std::string(kOneMessage) + R"(, "verbosity": "low")");
  EXPECT_FALSE(ApplySwitches(ReasoningModel("{{ verbosity }}"), &row));
  EXPECT_EQ(row.template_kwargs.Dump(), R"({"verbosity": "low"})");
  EXPECT_TRUE(row.notes.empty());
  EXPECT_TRUE(ApplySwitches(ReasoningModel("{{ verbosity }}"), &row)) << "given twice";
  Row other = ReasoningRow(std::string(kOneMessage) + R"(, "verbosity": "low")");
  EXPECT_FALSE(ApplySwitches(ReasoningModel("{{ thinking }}"), &other));
  EXPECT_TRUE(other.template_kwargs.is_null());
  ASSERT_EQ(other.notes.size(), 1u);
  EXPECT_TRUE(other.notes[0].text.starts_with("verbosity: "));
}

TEST(RowReasoningTest, PromptsSayWhatOfTheirAnswersIsReasoning) {
  const TextModel text =
      ReasoningModel("{{ messages[0].content }}<think>{% if x %}</think></s>{% endif %}");
  PromptBuilderOptions options;
  options.hide_reasoning = true;
  const PromptBuilder builder(&text, SmallLimits(), options);
  std::vector<Prompt> prompts;
  Row row = ReasoningRow(kOneMessage);
  ASSERT_FALSE(builder.Build(&row, &prompts));
  EXPECT_EQ(row.reasoning, (ReasoningTags{"<think>", "</think>", true}));
  EXPECT_EQ(prompts[0].reasoning, row.reasoning);
  EXPECT_TRUE(row.hide_reasoning);
  row = ReasoningRow(kOneMessage + std::string(R"(, "chat_template_kwargs": {"x": true})"));
  ASSERT_FALSE(builder.Build(&row, &prompts));
  ReasoningTags closed{"<think>", "</think>"};
  closed.is_closed = true;
  EXPECT_EQ(row.reasoning, closed);
  // These prompts do not go through a template.
  for (const char* prompt : {R"("prompt": "<think>")", R"("prompt_token_ids": [60])"}) {
    row = ReasoningRow(prompt);
    ASSERT_FALSE(builder.Build(&row, &prompts));
    EXPECT_TRUE(row.reasoning.none()) << prompt;
    EXPECT_TRUE(prompts[0].reasoning.none()) << prompt;
  }
}

TEST(RowReasoningTest, RowsCarryItApartFromTheText) {
  Row row = ReasoningRow(R"("id": 1, "prompt": "a", "n": 2, "model": "m")");
  row.reasoning = {"<think>", "</think>"};
  RowAnswer first, second;
  first.text = "<think>\nwhy\n</think>\n\nso";
  second.text = "so";
  first.parts = PartsOfText(row.reasoning, first.text);
  second.parts = PartsOfText(row.reasoning, second.text);
  first.finish_reason = second.finish_reason = "stop";
  first.usage.completion_tokens = 5;
  second.usage.completion_tokens = 2;
  first.usage.reasoning_tokens = 3;
  EXPECT_EQ(FormatAnswerRow(row, {first, second}, ByteTokenizer()),
            R"({"id": 1, "index": 0, "usage": {"prompt_tokens": 0, "cached_tokens": 0, )"
            R"("completion_tokens": 7, "reasoning_tokens": 3}, "model": "m", "choices": )"
            R"([{"index": 0, "text": "so", )"
            R"("reasoning": "why", "finish_reason": "stop"}, {"index": 1, "text": "so", )"
            R"("finish_reason": "stop"}]})"
            "\n");
}

TEST(ThoughtBudgetTest, IsAFieldUnderTheNamesOfOthers) {
  for (const char* field : {R"("thinking_token_budget": 20)", R"("thinking_budget_tokens": 20.0)",
                            R"("thinking_budget": 20)", R"("reasoning_budget_tokens": 20)",
                            R"("reasoning": {"max_tokens": 20, "effort": null})",
                            R"("sampling_params": {"thinking_token_budget": 20})"}) {
    EXPECT_EQ(ReasoningRow(kOneMessage + std::string(", ") + field).thought_budget, 20) << field;
  }
  const Row off = ReasoningRow(kOneMessage + std::string(R"(, "reasoning": {"enabled": false})"));
  EXPECT_EQ(off.thought_budget, 0);
  const Row hidden = ReasoningRow(
      kOneMessage + std::string(R"(, "reasoning": {"exclude": true, "effort": "low"}, )"
                                R"("reasoning_budget_message": "Stop.")"));
  EXPECT_TRUE(hidden.hide_reasoning);
  EXPECT_EQ(hidden.reasoning_effort, "low");
  EXPECT_EQ(hidden.thought_message, "Stop.");
  EXPECT_FALSE(hidden.thought_budget);
}

TEST(ThoughtBudgetTest, WhatIsWrongWithItIsNamed) {
  const auto error = [](const std::string& members) {
    const ParsedRow parsed = ParseRow("{" + (kOneMessage + (", " + members)) + "}", 0, 1);
    return parsed.error ? parsed.error->code + ": " + parsed.error->message : "";
  };
  EXPECT_EQ(error(R"("thinking_token_budget": -2)"),
            "invalid_row: thinking_token_budget must be an integer from 0 to 2147483647, or -1 for "
            "no limit (found -2)");
  EXPECT_EQ(error(R"("reasoning": {"max_tokens": -1})"),
            "invalid_row: reasoning.max_tokens must be an integer from 0 to 2147483647 (found -1)");
  EXPECT_EQ(error(R"("reasoning": {"effort": "much"})"),
            "invalid_row: reasoning.effort must be none, minimal, low, medium, high, xhigh or max "
            "(found \"much\")");
  EXPECT_EQ(error(R"("reasoning": {"enabled": 1})"),
            "invalid_row: reasoning.enabled must be true or false (found 1)");
  EXPECT_EQ(error(R"("reasoning": {"depth": 1})"),
            "unsupported_field: reasoning.depth is not a known field of reasoning");
  for (const char* twice : {R"("thinking_token_budget": 1, "thinking_budget": 2)",
                            R"("thinking_token_budget": 1, "reasoning": {"max_tokens": 2})",
                            R"("reasoning": {"max_tokens": 2}, "thinking_token_budget": 1)"}) {
    EXPECT_EQ(error(twice),
              "invalid_row: thinking_token_budget is given twice, under two spellings");
  }
  EXPECT_EQ(error(R"("reasoning": {"effort": "low"}, "reasoning_effort": "high")"),
            "invalid_row: reasoning_effort is given twice, under two spellings");
}

TEST(ThoughtBudgetTest, GoesToPromptsWithReasoningAlone) {
  const TextModel thinks = ReasoningModel("{{ messages[0].content }}<think>{# </think> #}");
  const TextModel plain = ReasoningModel("{{ messages[0].content }}");
  PromptBuilderOptions options;
  options.defaults.thought_budget = 30;
  options.defaults.thought_message = "Now.";
  const auto build = [&](const TextModel& text, const std::string& members, size_t num_warnings) {
    const PromptBuilder builder(&text, SmallLimits(), options);
    std::vector<Prompt> prompts;
    Row row = ReasoningRow(members);
    EXPECT_FALSE(builder.Build(&row, &prompts));
    EXPECT_EQ(row.warnings.size(), num_warnings) << members;
    return prompts.at(0);
  };
  const std::string message = kOneMessage;
  EXPECT_EQ(build(thinks, message, 0).thought_budget, 30);
  EXPECT_EQ(build(thinks, message, 0).thought_message, "Now.");
  EXPECT_EQ(build(thinks, message + R"(, "thinking_budget": 4)", 0).thought_budget, 4);
  EXPECT_EQ(build(thinks, message + R"(, "thinking_budget": -1)", 0).thought_budget, -1);
  EXPECT_EQ(build(plain, message, 0).thought_budget, -1);
  EXPECT_EQ(build(plain, message + R"(, "thinking_budget": 4)", 1).thought_budget, -1);
  EXPECT_EQ(build(thinks, R"("prompt": "a", "thinking_budget": 4)", 1).thought_budget, -1);
}

}  // namespace
}  // namespace minisgl::batch
