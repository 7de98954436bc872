// The demo model's skills through the whole program: greedy answers get the same scores as in a
// reference implementation (from the README of its training: 59, 188 and 40 in any precision).
#include <gtest/gtest.h>

#include "answers/run_program.h"

namespace minisgl::answers {
namespace {

ProgramRun RunFile(const std::string& name, const std::string& quantize = "none") {
  ProgramRun run =
      RunProgram({"run", "-m", DemoModel(), "--file", PromptFile(name), "--quiet", "--device",
                  quantize == "none" ? "auto" : "cpu", "--quantize", quantize});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  return run;
}

TEST(ScoresTest, NotesAreAnsweredFromTheSharedPrompt) {
  const auto rows = RunFile("notes.jsonl").Rows();
  ASSERT_EQ(rows.size(), 60u);
  EXPECT_GE(CountRight(rows), 59);
}

TEST(ScoresTest, SingleQuestionsOfEverySkill) {
  const auto rows = RunFile("mixed.jsonl").Rows();
  ASSERT_EQ(rows.size(), 200u);
  EXPECT_GE(CountRight(rows), 188);
}

TEST(ScoresTest, ConversationsRememberTheirFirstTurn) {
  const auto rows = RunFile("conversations.jsonl").Rows();
  ASSERT_EQ(rows.size(), 40u);
  EXPECT_GE(CountRight(rows), 40);
}

TEST(ScoresTest, StoriesRunToTheirEndOrTheirLength) {
  const auto rows = RunFile("stories.jsonl").Rows();
  ASSERT_EQ(rows.size(), 24u);
  for (const Json& row : rows) {
    ASSERT_NE(row.Find("finish_reason"), nullptr) << row.Dump();
    const std::string& reason = row.Find("finish_reason")->as_string();
    EXPECT_TRUE(reason == "stop" || reason == "length") << row.Dump();
    EXPECT_FALSE(row.Find("text")->as_string().empty());
  }
}

// Sixty prompts with a common prefix compute it once: less than 15 % of the submitted tokens.
TEST(ScoresTest, TheSharedNotesAreComputedOnce) {
  const auto rows = RunFile("notes.jsonl").Rows();
  int64_t prompt = 0, cached = 0;
  for (const Json& row : rows) {
    const Json* usage = row.Find("usage");
    ASSERT_NE(usage, nullptr) << row.Dump();
    prompt += usage->Find("prompt_tokens")->as_int();
    cached += usage->Find("cached_tokens")->as_int();
  }
  EXPECT_LT(prompt - cached, prompt * 15 / 100) << prompt << " submitted, " << cached << " cached";
}

// Quantized weights change logits by 1 %. The model keeps its scores, and nearly every answer.
TEST(ScoresTest, QuantizedWeightsAnswerAlike) {
  const auto notes = RunFile("notes.jsonl", "int8").Rows();
  ASSERT_EQ(notes.size(), 60u);
  EXPECT_GE(CountRight(notes), 58);
  const auto rows = RunFile("mixed.jsonl", "int8").Rows();
  const auto whole = RunFile("mixed.jsonl").Rows();
  ASSERT_EQ(rows.size(), 200u);
  EXPECT_GE(CountRight(rows), 184);
  const std::vector<std::string> texts = Comparable(rows), whole_texts = Comparable(whole);
  int same = 0;
  for (size_t i = 0; i < rows.size(); ++i) same += texts[i] == whole_texts[i];
  EXPECT_GE(same, 190);
}

// int4 changes logits by 5 %. Each lower bound is two rows below the bound for whole weights
// (found: 60, 188 and 40).
TEST(ScoresTest, Int4KeepsTheScores) {
  EXPECT_GE(CountRight(RunFile("notes.jsonl", "int4").Rows()), 58);
  EXPECT_GE(CountRight(RunFile("mixed.jsonl", "int4").Rows()), 186);
  EXPECT_GE(CountRight(RunFile("conversations.jsonl", "int4").Rows()), 38);
}

}  // namespace
}  // namespace minisgl::answers
