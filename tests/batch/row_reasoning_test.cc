// Reasoning of rows: the effort that a row asks for, and reasoning apart from the text of answers.
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "batch/row.h"
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
  EXPECT_EQ(row.reasoning, (ReasoningTags{"<think>", "</think>", false}));
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
  first.finish_reason = second.finish_reason = "stop";
  EXPECT_EQ(FormatAnswerRow(row, {first, second}, ByteTokenizer()),
            R"({"id": 1, "index": 0, "usage": {"prompt_tokens": 0, "cached_tokens": 0, )"
            R"("completion_tokens": 0}, "model": "m", "choices": [{"index": 0, "text": "so", )"
            R"("reasoning": "why", "finish_reason": "stop"}, {"index": 1, "text": "so", )"
            R"("finish_reason": "stop"}]})"
            "\n");
}

}  // namespace
}  // namespace minisgl::batch
