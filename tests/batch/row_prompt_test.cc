// From a row and the defaults of a run to prompts: precedence and conflicts.
#include "batch/row_prompt.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "minisgl/base/random.h"
#include "program/fakes.h"

namespace minisgl::batch {
namespace {

// Returns the error of a row with `members`, "" if there is none.
std::string ErrorOf(const std::string& members, const load::SamplingDefaults& defaults) {
  const TextModel text = FakeTextModel();
  PromptBuilderOptions options;
  options.defaults = defaults;
  const PromptBuilder builder(&text, SmallLimits(), options);
  ParsedRow parsed = ParseRow("{\"prompt\": \"a\"" + members + "}", 0, 1);
  std::vector<Prompt> prompts;
  if (!parsed.error) parsed.error = builder.Build(&parsed.row, &prompts);
  EXPECT_EQ(parsed.error ? parsed.error->field : "min_tokens", "min_tokens");
  return parsed.error ? parsed.error->message : "";
}

// One of the two values is in the row and the other a default, or both are defaults.
TEST(RowPromptTest, MinTokensAboveTheEffectiveMaxTokensIsAnError) {
  load::SamplingDefaults defaults;
  defaults.max_tokens = 5;
  defaults.max_tokens_origin = "--max-tokens";
  EXPECT_EQ(ErrorOf(", \"min_tokens\": 6", defaults),
            "min_tokens is more than max_tokens (found 6 and 5 of --max-tokens)");
  EXPECT_EQ(ErrorOf(", \"min_tokens\": 5", defaults), "");
  EXPECT_EQ(ErrorOf(", \"min_tokens\": 6, \"max_tokens\": 6", defaults), "");
  EXPECT_EQ(ErrorOf(", \"min_tokens\": 6, \"max_tokens\": -1", defaults), "");
  defaults.sampling.min_tokens = 4;
  defaults.min_tokens_origin = "--min-tokens";
  EXPECT_EQ(ErrorOf(", \"max_tokens\": 3", defaults),
            "min_tokens is more than max_tokens (found 4 of --min-tokens and 3)");
  EXPECT_EQ(ErrorOf("", defaults), "");
  defaults.max_tokens = 2;
  defaults.max_tokens_origin = "generation_config.json";
  EXPECT_EQ(ErrorOf("", defaults),
            "min_tokens is more than max_tokens (found 4 of --min-tokens and 2 of "
            "generation_config.json)");
  defaults.max_tokens = -1;
  EXPECT_EQ(ErrorOf("", defaults), "");
}

TEST(RowPromptTest, ARowReplacesTheSettingsThatItSetsAndKeepsTheOthers) {
  const TextModel text = FakeTextModel();
  PromptBuilderOptions options;
  options.defaults.sampling.top_p = 0.5;
  options.defaults.sampling.temperature = 0.5;
  options.defaults.max_tokens = 5;
  options.defaults.stop = {"END"};
  options.defaults.ignore_eos = true;
  const PromptBuilder builder(&text, SmallLimits(), options);
  const auto build = [&builder](const std::string& row) {
    ParsedRow parsed = ParseRow(row, 0, 1);
    std::vector<Prompt> prompts;
    EXPECT_FALSE(builder.Build(&parsed.row, &prompts)) << row;
    return prompts.empty() ? Prompt() : prompts[0];
  };
  const Prompt kept = build(R"({"prompt": "a", "temperature": 0})");
  EXPECT_EQ(kept.sampling.temperature, 0);
  EXPECT_EQ(kept.sampling.top_p, 0.5);
  EXPECT_EQ(kept.max_tokens, 5);
  EXPECT_EQ(kept.stop, std::vector<std::string>{"END"});
  EXPECT_TRUE(kept.ignore_eos);
  const Prompt replaced =
      build(R"({"prompt": "a", "max_tokens": -1, "stop": [], "ignore_eos": false})");
  EXPECT_EQ(replaced.sampling.temperature, 0.5);
  EXPECT_EQ(replaced.max_tokens, -1);
  EXPECT_TRUE(replaced.stop.empty());
  EXPECT_FALSE(replaced.ignore_eos);
}

TEST(RowPromptTest, ASeedOfMinusOneDependsOnTheRowsIndex) {
  const TextModel text = FakeTextModel();
  PromptBuilderOptions options;
  options.defaults.sampling.seed = 7;
  const PromptBuilder builder(&text, SmallLimits(), options);
  for (const char* seed : {"-1", "-1.0", "null"}) {
    const std::string row = std::string(R"({"prompt": "a", "n": 2, "seed": )") + seed + "}";
    ParsedRow parsed = ParseRow(row, 3, 4);
    std::vector<Prompt> prompts;
    ASSERT_FALSE(builder.Build(&parsed.row, &prompts)) << row;
    ASSERT_EQ(prompts.size(), 2u);
    EXPECT_EQ(prompts[0].sampling.seed, DeriveSeed(7, 3));
    EXPECT_EQ(prompts[1].sampling.seed, AnswerSeed(DeriveSeed(7, 3), 1));
  }
}

}  // namespace
}  // namespace minisgl::batch
