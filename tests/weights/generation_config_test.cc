// generation_config.json: keys that are read, keys that are passed over, and every bad value by its
// key.
#include <gtest/gtest.h>

#include "minisgl/weights/model_config.h"
#include "test_files.h"

namespace minisgl {
namespace {

constexpr int64_t kVocabSize = 300;

Result<GenerationConfig> ParseGeneration(const std::string& text) {
  return ParseGenerationConfig(text, "generation_config.json", kVocabSize);
}

TEST(GenerationConfigTest, ReadsEveryField) {
  const auto config =
      ParseGeneration(R"({"eos_token_id": [2, 7], "do_sample": true, "temperature": 0.6,
      "top_k": 50, "top_p": 0.9, "min_p": 0.05,
      "repetition_penalty": 1.1, "max_new_tokens": 256})");
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->eos_token_ids, (std::vector<TokenId>{2, 7}));
  EXPECT_EQ(config->do_sample, true);
  EXPECT_EQ(config->temperature, 0.6);
  EXPECT_EQ(config->top_k, 50);
  EXPECT_EQ(config->top_p, 0.9);
  EXPECT_EQ(config->min_p, 0.05);
  EXPECT_EQ(config->repetition_penalty, 1.1);
  EXPECT_EQ(config->max_new_tokens, 256);
}

TEST(GenerationConfigTest, WhatIsAbsentStaysUnset) {
  for (const char* text : {"{}", R"({"temperature": null, "eos_token_id": null, "num_beams": 4,
                                     "transformers_version": "5.0.0", "top_h": {}})"}) {
    SCOPED_TRACE(text);
    const auto config = ParseGeneration(text);
    ASSERT_TRUE(config.ok()) << config.status().message();
    EXPECT_TRUE(config->eos_token_ids.empty());
    EXPECT_FALSE(config->do_sample || config->temperature || config->top_k || config->top_p ||
                 config->min_p || config->repetition_penalty || config->max_new_tokens);
  }
}

// Off in files that are written for several engines.
TEST(GenerationConfigTest, MinusOneIsOff) {
  const auto config = ParseGeneration(R"({"temperature": -1, "top_k": -1, "top_p": -1.0,
      "min_p": -1, "repetition_penalty": -1, "max_new_tokens": -1, "eos_token_id": -1})");
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_FALSE(config->temperature || config->top_k || config->top_p || config->min_p ||
               config->repetition_penalty || config->max_new_tokens);
  EXPECT_TRUE(config->eos_token_ids.empty());
  EXPECT_EQ(ParseGeneration(R"({"eos_token_id": [2, null, -1, 7]})")->eos_token_ids,
            (std::vector<TokenId>{2, 7}));
}

TEST(GenerationConfigTest, RefusesBadValuesByKey) {
  struct Case {
    const char* key;
    std::vector<const char*> values;
  };
  const std::vector<Case> cases = {
      {"eos_token_id", {"300", "-2", "2.0", "\"2\"", "[2, 300]", "[[2]]", "true", "2147483648"}},
      {"do_sample", {"0", "1", "\"true\"", "[]", "{}"}},
      {"temperature", {"-0.1", "101", "1e300", "\"1\"", "[1]", "true"}},
      {"top_k", {"-2", "1.5", "50.0", "2147483648", "\"50\"", "true"}},
      {"top_p", {"-0.1", "-2", "1.01", "\"0.9\"", "[0.9]", "true"}},
      {"min_p", {"-0.1", "1.01", "\"0\"", "{}", "true"}},
      {"repetition_penalty", {"0", "-2", "101", "\"1\"", "false"}},
      {"max_new_tokens", {"0", "-2", "1.5", "2147483648", "9223372036854775807", "\"256\""}},
  };
  for (const Case& c : cases) {
    for (const char* value : c.values) {
      SCOPED_TRACE(fmt::format("{} = {}", c.key, value));
      const auto config = ParseGeneration(fmt::format(R"({{"{}": {}}})", c.key, value));
      ASSERT_FALSE(config.ok());
      ExpectError(config.status(), StatusCode::kBadInput,
                  fmt::format("generation_config.json: key \"{}\": found", c.key));
    }
  }
}

TEST(GenerationConfigTest, AMissingFileIsAnEmptyConfigurationAndABadOneAnError) {
  TempDir dir;
  const auto none = LoadGenerationConfig(dir.path(), kVocabSize);
  ASSERT_TRUE(none.ok());
  EXPECT_TRUE(none->eos_token_ids.empty());
  dir.Write("generation_config.json", R"({"eos_token_id": 2})");
  EXPECT_EQ(LoadGenerationConfig(dir.path(), kVocabSize)->eos_token_ids, std::vector<TokenId>{2});
  dir.Write("generation_config.json", "[");
  ExpectError(LoadGenerationConfig(dir.path(), kVocabSize).status(), StatusCode::kBadInput,
              "generation_config.json");
}

}  // namespace
}  // namespace minisgl
