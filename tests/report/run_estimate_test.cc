// Estimates of a run: shared prefixes, pages, speeds.
#include "report/run_estimate.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "minisgl/base/json.h"
#include "program/fakes.h"
#include "report/pool_model.h"
#include "report/prefix_counter.h"

namespace minisgl::report {
namespace {

using Ids = std::vector<TokenId>;

TEST(PrefixCounterTest, SharesWholePagesButNeverTheLastToken) {
  PrefixCounter counter(4);
  counter.Add(Ids{1, 2, 3, 4, 5, 6, 7, 8});
  EXPECT_EQ(counter.shared_tokens(), 0);
  EXPECT_EQ(counter.unique_pages(), 2);
  counter.Add(Ids{1, 2, 3, 4, 5, 6, 7, 8});  // the second page ends with the last token
  EXPECT_EQ(counter.shared_tokens(), 4);
  counter.Add(Ids{1, 2, 3, 4, 5, 6, 7, 8, 9});
  EXPECT_EQ(counter.shared_tokens(), 4 + 8);
  // The same page after another prefix is another page.
  counter.Add(Ids{1, 2, 3, 9, 5, 6, 7, 8, 9});
  EXPECT_EQ(counter.shared_tokens(), 4 + 8);
  counter.Add(Ids{1, 2, 3});
  counter.Add(Ids{});
  EXPECT_EQ(counter.shared_tokens(), 4 + 8);
  EXPECT_EQ(counter.unique_pages(), 4);
  EXPECT_EQ(counter.shared_pages(), 2);
}

// Random prompts with common prefixes, compared to a set of all prefixes.
class PrefixCounterRandomTest : public ::testing::Test {
 protected:
  static constexpr int kPage = 2;

  Ids NextPrompt() {
    Ids prompt;
    const uint64_t length = 1 + random_.Next() % 12;
    for (uint64_t i = 0; i < length; ++i) {
      prompt.push_back(static_cast<TokenId>(random_.Next() % 3));
    }
    return prompt;
  }
  // Counts the pages already present, then adds all, like the cache.
  int64_t AddTo(std::set<Ids>* seen, const Ids& prompt) {
    int64_t shared = 0;
    for (size_t end = kPage; end <= prompt.size(); end += kPage) {
      const bool is_new = seen->emplace(prompt.begin(), prompt.begin() + end).second;
      if (!is_new && end < prompt.size()) shared += kPage;
    }
    return shared;
  }

  struct {
    uint64_t state = 7;
    uint64_t Next() {
      state = state * 6364136223846793005u + 1442695040888963407u;
      return state >> 33;
    }
  } random_;
};

TEST_F(PrefixCounterRandomTest, CountsWhatATreeOfPrefixesHolds) {
  PrefixCounter counter(kPage);
  std::set<Ids> seen;
  int64_t shared = 0;
  for (int i = 0; i < 2000; ++i) {
    const Ids prompt = NextPrompt();
    shared += AddTo(&seen, prompt);
    counter.Add(prompt);
    ASSERT_EQ(counter.shared_tokens(), shared);
  }
  EXPECT_EQ(counter.unique_pages(), static_cast<int64_t>(seen.size()));
  EXPECT_TRUE(counter.is_exact());
}

// 200,000 pages, each added twice, with room for 4,096.
TEST(PrefixCounterTest, ASampleEstimatesWhatDoesNotFit) {
  PrefixCounter counter(1, 4096);
  for (int round = 0; round < 2; ++round) {
    for (TokenId id = 0; id < 200000; ++id) counter.Add(Ids{id, 0});
  }
  EXPECT_FALSE(counter.is_exact());
  // Each of the two tokens is a page, and only the first can be shared.
  EXPECT_NEAR(static_cast<double>(counter.unique_pages()), 400000, 40000);
  EXPECT_NEAR(static_cast<double>(counter.shared_tokens()), 200000, 30000);
  EXPECT_NEAR(static_cast<double>(counter.shared_pages()), 200000, 30000);
}

TEST_F(PrefixCounterRandomTest, APoolForAllFindsWhatATreeHolds) {
  PrefixCounter counter(kPage);
  PoolModel pool(kPage, 1 << 16);
  for (int i = 0; i < 2000; ++i) {
    const Ids prompt = NextPrompt();
    counter.Add(prompt);
    pool.Add(prompt, static_cast<int64_t>(random_.Next() % 5));
    ASSERT_EQ(pool.found_tokens(), counter.shared_tokens());
  }
}

TEST(PoolModelTest, TheLeastRecentlyUsedPageIsEvicted) {
  const auto found = [](const std::vector<TokenId>& order) {
    PoolModel pool(2, 4);
    for (const TokenId stem : order) pool.Add(Ids{stem, stem, stem, stem, 9}, 0);
    return pool.found_tokens();
  };
  // Each prompt has two pages of its own: two of three prompts fit.
  EXPECT_EQ(found({1, 2, 3, 1, 2, 3}), 0);
  EXPECT_EQ(found({1, 1, 2, 2, 3, 3}), 3 * 4);
  EXPECT_EQ(found({1, 2, 1, 2, 3, 1}), 2 * 4);
}

TEST(PoolModelTest, APrefixOutlivesItsContinuations) {
  PoolModel pool(2, 3);
  for (TokenId tail = 10; tail < 20; ++tail) pool.Add(Ids{1, 1, tail, tail, tail}, 4);
  EXPECT_EQ(pool.found_tokens(), 9 * 2);
  // An answer as long as the pool evicts everything.
  pool.Add(Ids{7}, 1000000000);
  pool.Add(Ids{1, 1, 1}, 0);
  EXPECT_EQ(pool.found_tokens(), 9 * 2);
}

Prompt PromptOf(Ids ids, int64_t max_tokens) {
  Prompt prompt;
  prompt.ids = std::move(ids);
  prompt.max_tokens = max_tokens;
  return prompt;
}

EngineLimits Limits(int32_t num_pages) {
  EngineLimits limits;
  limits.vocab_size = 1000;
  limits.page_size = 4;
  limits.num_pages = num_pages;
  limits.max_running_requests = 8;
  limits.max_seq_len = 64;
  return limits;
}

TEST(RunEstimatorTest, CountsTokensAnswersAndPages) {
  RunEstimator estimator(Limits(100), true, std::nullopt);
  const Ids stem = {1, 2, 3, 4, 5, 6, 7, 8};
  for (TokenId i = 0; i < 3; ++i) {
    Ids ids = stem;
    ids.push_back(100 + i);
    estimator.Add({PromptOf(ids, 4)});
  }
  estimator.Add({PromptOf({9}, -1), PromptOf({9}, 1000)});
  estimator.AddBad();
  const RunEstimate estimate = estimator.Finish();
  EXPECT_EQ(estimate.rows, 5);
  EXPECT_EQ(estimate.bad_rows, 1);
  EXPECT_EQ(estimate.requests, 5);
  EXPECT_EQ(estimate.prompt_tokens, 29);
  EXPECT_EQ(estimate.longest_prompt, 9);
  EXPECT_EQ(estimate.cached_tokens, 16);
  EXPECT_EQ(estimate.computed_tokens, 13);
  EXPECT_EQ(estimate.answer_tokens_max, 3 * 4 + 2 * 63);
  EXPECT_EQ(estimate.unlimited_requests, 1);
  EXPECT_FALSE(estimate.answer_tokens);
  // Three requests of 12 cached tokens with two common pages; two of 63.
  EXPECT_EQ(estimate.pages_needed, 2 + 3 * 1 + 2 * 16);
  EXPECT_TRUE(estimate.fits());
  EXPECT_EQ(estimate.at_once, 5);
}

TEST(RunEstimatorTest, ASmallPoolRunsFewAtOnce) {
  RunEstimator estimator(Limits(12), true, std::nullopt);
  const Ids stem = {1, 2, 3, 4, 5, 6, 7, 8};
  for (TokenId i = 0; i < 20; ++i) {
    Ids ids = stem;
    ids.push_back(100 + i);
    estimator.Add({PromptOf(ids, 12)});  // 20 tokens: 2 shared pages, 3 of its own
  }
  const RunEstimate estimate = estimator.Finish();
  EXPECT_EQ(estimate.pages_needed, 2 + 20 * 3);
  EXPECT_FALSE(estimate.fits());
  EXPECT_EQ(estimate.at_once, 3);
  RunEstimator naive(Limits(12), false, std::nullopt);
  for (TokenId i = 0; i < 20; ++i) naive.Add({PromptOf(stem, 13)});
  EXPECT_EQ(naive.Finish().cached_tokens, 0);
  EXPECT_EQ(naive.Finish().pages_needed, 20 * 5);
  EXPECT_EQ(naive.Finish().at_once, 2);
}

TEST(RunEstimatorTest, AnEmptyInputHasAnEstimate) {
  const RunEstimate estimate = RunEstimator(Limits(12), true, std::nullopt).Finish();
  EXPECT_EQ(estimate.at_once, 0);
  EXPECT_EQ(TimeOf(estimate, {1, 1, {}, ""}).total_s(), 0);
}

TEST(RunEstimatorTest, AnEarlierRunTellsHowLongAnswersAre) {
  RunEstimator estimator(Limits(100), true, RunSpeed{0.5, 2, 10.0, "w"});
  estimator.Add({PromptOf({1, 2, 3}, -1)});
  estimator.Add({PromptOf({4, 5, 6}, 4)});  // at most max_tokens
  const RunEstimate estimate = estimator.Finish();
  ASSERT_TRUE(estimate.answer_tokens);
  EXPECT_EQ(*estimate.answer_tokens, 14);
  const EstimatedTime time = TimeOf(estimate, {0.5, 2, 10.0, "w"});
  EXPECT_DOUBLE_EQ(time.prompts_s, 3);
  EXPECT_DOUBLE_EQ(time.answers_s, 28);
}

Json Summary(double seconds, int64_t computed, int64_t answered) {
  Json json = Json(Json::Object());
  json.Set("model", "wren").Set("device", "cpu").Set("seconds", seconds);
  json.Set("rows_done", 10).Set("rows_failed", 0).Set("preemptions", 0);
  json.Set("prompt_tokens", computed).Set("cached_tokens", 0).Set("computed_tokens", computed);
  return json.Set("completion_tokens", answered);
}

// A run in which a computed token took 1 ms and an answer token 10 ms, as its series shows.
TEST(RunSpeedTest, TheSeriesTellsPromptsFromAnswers) {
  Json summary = Summary(44, 4000, 4000);
  Json series = Json(Json::Object());
  for (const term::TimeSeriesColumn& column : term::TimeSeriesColumns()) {
    series.Set(column.name, *ParseJson("[0, 0, 0, 0]"));
  }
  series.Set("time_s", *ParseJson("[4, 14, 34, 44]"));
  series.Set("computed_tokens_per_s", *ParseJson("[1000, 0, 0, 0]"));
  series.Set("completion_tokens_per_s", *ParseJson("[0, 100, 100, 100]"));
  summary.Set("time_series", std::move(series));
  const Result<RunSpeed> speed = ParseRunSpeed(summary, "f");
  ASSERT_TRUE(speed.ok()) << speed.status().message();
  EXPECT_NEAR(speed->prompt_token_s, 0.001, 1e-5);
  EXPECT_NEAR(speed->answer_token_s, 0.01, 1e-5);
  EXPECT_EQ(speed->answer_tokens_mean, 400);
  EXPECT_EQ(speed->what, "wren, cpu");
}

TEST(RunSpeedTest, WithoutASeriesAllTokensCostTheSame) {
  const Result<RunSpeed> speed = ParseRunSpeed(Summary(8, 300, 100), "f");
  ASSERT_TRUE(speed.ok()) << speed.status().message();
  EXPECT_DOUBLE_EQ(speed->prompt_token_s, 0.02);
  EXPECT_DOUBLE_EQ(speed->answer_token_s, 0.02);
}

TEST(RunSpeedTest, ABenchmarkTellsToo) {
  const auto parse = [](const char* text) { return ParseRunSpeed(*ParseJson(text), "f"); };
  const Result<RunSpeed> speed = parse(R"({"bench": "nano",
      "workload": {"prompt_tokens": 1000, "output_tokens": 200},
      "median": {"seconds": 30}, "decoding": {"tokens_per_s": 10}})");
  ASSERT_TRUE(speed.ok()) << speed.status().message();
  EXPECT_DOUBLE_EQ(speed->answer_token_s, 0.1);
  EXPECT_DOUBLE_EQ(speed->prompt_token_s, 0.01);
  EXPECT_FALSE(speed->answer_tokens_mean);
  EXPECT_TRUE(parse(R"({"bench": "nano", "workload": {"prompt_tokens": 1, "output_tokens": 2},
      "median": {"seconds": 30}})")
                  .ok());
  for (const char* bad :
       {R"({"bench": "attn-decode"})", R"({"bench": "nano", "workload": 3, "median": {}})",
        R"({"bench": "nano", "workload": {"prompt_tokens": 1, "output_tokens": 2},
            "median": {"seconds": 0}})",
        R"({"bench": "nano", "workload": {"prompt_tokens": -1, "output_tokens": 2},
            "median": {"seconds": 1}})"}) {
    EXPECT_EQ(parse(bad).status().code(), StatusCode::kBadInput) << bad;
  }
}

}  // namespace
}  // namespace minisgl::report
