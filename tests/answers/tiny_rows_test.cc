// Promise 1 through the whole program for models whose layers are unlike the demo model's.
#include <gtest/gtest.h>

#include <string>

#include "answers/run_program.h"
#include "answers/schedule_settings.h"
#include "answers/tiny_model_fixture.h"

namespace minisgl::answers {
namespace {

using TinyRowsTest = TinyModelTest;

TEST_P(TinyRowsTest, AreTheSameUnderEverySchedule) {
  ExpectIdenticalRows(dir_.path(), WriteRows());
}

// Prompt tokens that a run computes.
int64_t ComputedTokens(const std::string& model, const std::string& file) {
  int64_t computed = 0;
  const ProgramRun run = RunProgram({"run", "-m", model, "--file", file, "--quiet", "-n", "2"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  for (const Json& row : run.Rows()) {
    const Json& usage = *row.Find("usage");
    computed += usage.Find("prompt_tokens")->as_int() - usage.Find("cached_tokens")->as_int();
  }
  return computed;
}

// A prefix is shared only where a snapshot of the states is: little is computed twice for that.
TEST_P(TinyRowsTest, SharePrefixesAsTheDemoModelDoes) {
  for (const std::string& file : {PromptFile("notes.jsonl"), PromptFile("conversations.jsonl")}) {
    const int64_t expected = ComputedTokens(DemoModel(), file);
    EXPECT_LE(ComputedTokens(dir_.path(), file), expected * 6 / 5) << file;
  }
}

INSTANTIATE_TEST_SUITE_P(All, TinyRowsTest,
                         testing::Values("gemma4_text", "lfm2_moe", "qwen3_next",
                                         "granitemoehybrid", "deepseek_v2"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace minisgl::answers
