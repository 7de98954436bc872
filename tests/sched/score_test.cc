// Requests whose prompts are scored: which tokens a step scores, what they take from the cache, and
// how they end.
#include <gtest/gtest.h>

#include "sched/sched_fixture.h"
#include "sim/sim_driver.h"

namespace minisgl::sched {
namespace {

using sim::SimDriver;

EngineLimits ScoreLimits() {
  EngineLimits limits;
  limits.vocab_size = kVocab;
  limits.page_size = 4;
  limits.num_pages = 60;
  limits.max_running_requests = 4;
  limits.max_seq_len = 100;
  limits.max_step_tokens = 20;
  return limits;
}

SchedulerOptions ScoreOptions() {
  SchedulerOptions options;
  options.max_prefill_tokens = 16;
  return options;
}

Request ScoredRequest(RequestId id, int64_t length, int32_t begin, int64_t max_tokens) {
  Request request = MakeRequest(id, length, max_tokens);
  request.sampling.num_prompt_logprobs = 0;
  request.sampling.prompt_logprobs_begin = begin;
  return request;
}

std::vector<TokenId> ScoredTokens(SimDriver& driver, RequestId id) {
  std::vector<TokenId> tokens;
  for (const RowResult& result : driver.answers()[id].scored) tokens.push_back(result.token);
  return tokens;
}

std::vector<TokenId> PromptFrom(const Request& request, int64_t begin) {
  return {request.prompt.begin() + begin, request.prompt.end()};
}

TEST(ScoredRequestTest, ARequestWithoutAnAnswerEndsAfterItsLastScore) {
  SimDriver driver(ScoreLimits(), ScoreOptions(), 1, kEndRate);
  const Request request = ScoredRequest(1, 40, 1, 0);
  driver.Submit(request);
  ASSERT_TRUE(driver.RunToEnd());
  EXPECT_EQ(driver.engine().violation(), "");
  EXPECT_EQ(ScoredTokens(driver, 1), PromptFrom(request, 1));
  EXPECT_EQ(driver.answers()[1].reason, EndReason::kLength);
  EXPECT_EQ(driver.answers()[1].num_ends, 1);
  EXPECT_TRUE(driver.answers()[1].tokens.empty());
  // The last token has no successor, so it is not computed.
  EXPECT_EQ(driver.scheduler().Stats().computed_tokens, 39);
  EXPECT_EQ(driver.scheduler().Stats().steps, 3);
}

TEST(ScoredRequestTest, StepsNameTheTokensThatTheyScore) {
  SimDriver driver(ScoreLimits(), ScoreOptions(), 0, kEndRate);
  const Request request = ScoredRequest(1, 24, 10, 2);
  driver.Submit(request);
  driver.Step();
  EXPECT_EQ(driver.last_plan().num_scored, std::vector<int32_t>{7});  // after positions 9 to 15
  EXPECT_EQ(driver.last_plan().scored_ids,
            std::vector<TokenId>(request.prompt.begin() + 10, request.prompt.begin() + 17));
  EXPECT_EQ(driver.last_plan().wants_token, std::vector<uint8_t>{0});
  while (driver.answers()[1].tokens.empty()) driver.Step();
  EXPECT_EQ(driver.last_plan().num_scored, std::vector<int32_t>{7});
  EXPECT_EQ(driver.last_plan().wants_token, std::vector<uint8_t>{1});
  ASSERT_TRUE(driver.RunToEnd());
  EXPECT_TRUE(driver.last_plan().num_scored.empty());  // a decode step
  EXPECT_EQ(ScoredTokens(driver, 1), PromptFrom(request, 10));
  ExpectRight(driver, request);
}

// The token before the first one to score is computed, and so are all after it.
TEST(ScoredRequestTest, OnlyThePartBeforeTheScoresComesFromTheCache) {
  struct Case {
    int32_t begin;
    int64_t cached;
  };
  for (const Case& wanted : {Case{1, 0}, Case{4, 0}, Case{5, 4}, Case{20, 16}, Case{21, 20}}) {
    SimDriver driver(ScoreLimits(), ScoreOptions(), 0, kEndRate);
    driver.Submit(MakeRequest(1, 40, 1));
    ASSERT_TRUE(driver.RunToEnd());
    Request request = ScoredRequest(2, 40, wanted.begin, 0);
    request.prompt = MakeRequest(1, 40, 1).prompt;
    driver.Submit(request);
    ASSERT_TRUE(driver.RunToEnd());
    EXPECT_EQ(driver.answers()[2].cached_tokens, wanted.cached) << "from " << wanted.begin;
    EXPECT_EQ(ScoredTokens(driver, 2), PromptFrom(request, wanted.begin));
  }
}

// Texts after one prompt: the second waits for the first one's pages and shares them.
TEST(ScoredRequestTest, TwoRowsOfOnePromptComputeItOnce) {
  SimDriver driver(ScoreLimits(), ScoreOptions(), 1, kEndRate);
  for (RequestId id = 1; id <= 2; ++id) {
    Request request = ScoredRequest(1, 32, 32, 0);
    request.id = id;
    request.prompt.push_back(static_cast<TokenId>(id));
    request.prompt.push_back(3);
    driver.Submit(request);
  }
  ASSERT_TRUE(driver.RunToEnd());
  // The second computes the last page of the prompt, whose last position gives the first score, and
  // one token of the text.
  EXPECT_EQ(driver.answers()[2].cached_tokens, 28);
  EXPECT_EQ(driver.scheduler().Stats().computed_tokens, 33 + 5);
  EXPECT_EQ(driver.answers()[1].scored.size(), 2u);
  EXPECT_EQ(driver.answers()[2].scored.size(), 2u);
}

TEST(ScoredRequestTest, AStepThatGivesNoFiniteLogitsEndsIt) {
  SimDriver driver(ScoreLimits(), ScoreOptions(), 1, kEndRate);
  driver.engine().NonFiniteInNextStep(0);
  driver.Submit(ScoredRequest(1, 40, 1, 0));
  ASSERT_TRUE(driver.RunToEnd());
  EXPECT_EQ(driver.answers()[1].reason, EndReason::kFailed);
  EXPECT_EQ(driver.answers()[1].error_code, "nan_logits");
}

// A prompt as long as the context can be scored: nothing follows it.
TEST(ScoredRequestTest, APromptMayFillTheContext) {
  SimDriver driver(ScoreLimits(), ScoreOptions(), 1, kEndRate);
  driver.Submit(ScoredRequest(1, 100, 1, 0));
  driver.Submit(ScoredRequest(2, 101, 1, 0));
  ASSERT_TRUE(driver.RunToEnd());
  EXPECT_EQ(driver.answers()[1].scored.size(), 99u);
  EXPECT_EQ(driver.answers()[2].error_code, "length_exceeded");
}

}  // namespace
}  // namespace minisgl::sched
