// Greedy answers against an independent implementation's (tests/golden/README.md), all prompts of a
// model in one batch that starts chunked and ends ragged.
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/engine_driver.h"
#include "minisgl/base/json.h"
#include "minisgl/base/mapped_file.h"

namespace minisgl {
namespace {

std::vector<TokenId> ToIds(const Json& array) {
  std::vector<TokenId> ids;
  for (const Json& id : array.as_array()) ids.push_back(static_cast<TokenId>(id.as_int()));
  return ids;
}

class GoldenGreedyTest : public testing::TestWithParam<const char*> {};

TEST_P(GoldenGreedyTest, AnswersAsTheReferenceDoes) {
  const std::string root = MINISGL_SOURCE_DIR;
  const auto text =
      ReadFile(root + "/tests/golden/" + GetParam() + "_greedy.json", uint64_t{64} << 20);
  ASSERT_TRUE(text.ok()) << text.status().message();
  const auto golden = ParseJson(*text);
  ASSERT_TRUE(golden.ok()) << golden.status().message();
  const std::string dir = root + "/" + golden->Find("model")->as_string();
  const auto config = LoadModelConfig(dir);
  const auto checkpoint = Checkpoint::Open(dir);
  ASSERT_TRUE(config.ok() && checkpoint.ok());

  EngineDriver driver(*config, **checkpoint, {.num_threads = 2, .max_running_requests = 32});
  std::vector<TestRow*> rows;
  std::vector<std::vector<TokenId>> answers;
  for (const Json& test_case : golden->Find("cases")->as_array()) {
    rows.push_back(driver.AddRow(ToIds(*test_case.Find("prompt_token_ids"))));
    answers.push_back(ToIds(*test_case.Find("token_ids")));
  }
  ASSERT_GT(rows.size(), 0u);
  const auto unfinished = [&](size_t i) { return rows[i]->results.size() < answers[i].size(); };
  for (bool any = true; any;) {
    any = false;
    for (size_t i = 0; i < rows.size(); ++i) {
      if (!unfinished(i)) continue;
      driver.Extend(rows[i], std::min(19, rows[i]->known_len - rows[i]->computed_len));
      any = true;
    }
    if (any) {
      ASSERT_TRUE(driver.Step().ok());
    }
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    std::vector<TokenId> said;
    for (const RowResult& result : rows[i]->results) said.push_back(result.token);
    EXPECT_EQ(said, answers[i]) << "case " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(All, GoldenGreedyTest, testing::Values("wren", "qwen2", "qwen3"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace minisgl
