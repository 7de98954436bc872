// Drafted tokens: how many each request gets, what is rolled back, when drafting stops, and the
// drafter by prompt lookup. The simulation too checks that drafts do not change answers.
#include <gtest/gtest.h>

#include <numeric>

#include "sched/draft_pacer.h"
#include "sched/sched_fixture.h"
#include "sim/sim_drafter.h"
#include "sim/sim_driver.h"

namespace minisgl::sched {
namespace {

using sim::RightAnswer;
using sim::SimDrafter;
using sim::SimDriver;

EngineLimits DraftLimits(int32_t max_step_drafts = 32, int32_t num_pages = 100) {
  EngineLimits limits;
  limits.vocab_size = kVocab;
  limits.page_size = 4;
  limits.num_pages = num_pages;
  limits.max_running_requests = 40;
  limits.max_seq_len = 200;
  limits.max_step_tokens = 32 + 40;
  limits.max_step_drafts = max_step_drafts;
  return limits;
}

SchedulerOptions DraftOptions(int32_t max_drafts, int64_t right_percent) {
  SchedulerOptions options;
  options.max_prefill_tokens = 32;
  options.step = StepPolicy::kMixed;
  options.max_drafts = max_drafts;
  options.drafter =
      std::make_shared<SimDrafter>(sim::DrafterPlan{right_percent, 0}, kVocab, kEndRate);
  return options;
}

TEST(DraftsTest, RightGuessesTakeFewerStepsAndWrongOnesGiveTheSameAnswer) {
  std::vector<int64_t> plans;
  for (const int64_t right_percent : {-1, 0, 60, 100}) {
    SimDriver driver(DraftLimits(), DraftOptions(right_percent < 0 ? 0 : 4, right_percent), 1,
                     kEndRate);
    const Request request = MakeRequest(1, 10, 60);
    driver.Submit(request);
    ASSERT_TRUE(driver.RunToEnd());
    ExpectRight(driver, request);
    const SchedulerStats stats = driver.scheduler().Stats();
    plans.push_back(stats.steps);
    EXPECT_EQ(stats.accepted_drafts == stats.drafted_tokens,
              right_percent == 100 || stats.drafted_tokens == 0);
    EXPECT_EQ(stats.pages_free + stats.pages_cached, stats.pages_total);
  }
  EXPECT_EQ(plans[0], 60);
  EXPECT_EQ(plans[1], 60);
  EXPECT_LT(plans[2], 60);
  EXPECT_LE(plans[3], 60 / 3);
}

TEST(DraftsTest, NeverMoreThanOfARowOfAStepOrOfTheBudget) {
  for (const int32_t step_drafts : {1, 5, 100}) {
    SimDriver driver(DraftLimits(step_drafts), DraftOptions(3, 100), 0, kEndRate);
    for (RequestId id = 1; id <= 20; ++id) driver.Submit(MakeRequest(id, 4, 40));
    int32_t largest = 0;
    while (driver.Step()) {
      const BatchPlan& plan = driver.last_plan();
      const int32_t sum = std::accumulate(plan.num_drafts.begin(), plan.num_drafts.end(), 0);
      largest = std::max(largest, sum);
      EXPECT_LE(sum, step_drafts);
      EXPECT_LE(plan.num_tokens() - plan.num_rows(), 32);
      for (int32_t drafts : plan.num_drafts) EXPECT_LE(drafts, 3);
    }
    EXPECT_GE(largest, std::min(step_drafts, 20));
    EXPECT_EQ(driver.engine().violation(), "");
  }
}

TEST(DraftsTest, NothingIsDraftedPastTheLastToken) {
  for (const int64_t max_tokens : {1, 2, 3, 5, 6}) {
    SimDriver driver(DraftLimits(), DraftOptions(8, 100), 0, kEndRate);
    const Request request = MakeRequest(1, 5, max_tokens);
    driver.Submit(request);
    while (driver.Step()) EXPECT_LE(driver.last_plan().kv_len[0], 5 + max_tokens - 1);
    ExpectRight(driver, request);
  }
}

TEST(DraftsTest, WhatFollowsAnEndTokenInsideAGuessIsDropped) {
  int ends_inside = 0;
  for (RequestId id = 1; id <= 40; ++id) {
    SchedulerOptions options = DraftOptions(8, 100);
    options.drafter = std::make_shared<SimDrafter>(sim::DrafterPlan{100, 0}, kVocab, 6);
    SimDriver driver(DraftLimits(), options, 1, /*end_rate=*/6);
    Request request = MakeRequest(id, 6, 60);
    request.stop_ids = {0};
    driver.Submit(request);
    ASSERT_TRUE(driver.RunToEnd());
    const auto right = RightAnswer(request.prompt, 60, true, kVocab, 6);
    EXPECT_EQ(driver.answers()[id].tokens, right);
    EXPECT_FALSE(driver.answers()[id].token_after_end);
    const SchedulerStats stats = driver.scheduler().Stats();
    ends_inside += stats.accepted_drafts + stats.steps > static_cast<int64_t>(right.size()) ? 1 : 0;
  }
  EXPECT_GT(ends_inside, 0);
}

// A draft continues collected tokens: no step is planned beside one in flight while any request
// drafts, and steps overlap again when none does.
TEST(DraftsTest, StepsOverlapAgainWhenNoRequestDrafts) {
  SimDriver driver(DraftLimits(), DraftOptions(4, /*right_percent=*/0), 1, kEndRate);
  const Request request = MakeRequest(1, 4, 100);
  driver.Submit(request);
  bool drafted_alone = true, overlapped = false;
  while (!driver.scheduler().Idle()) {
    const auto plan = driver.scheduler().Next();
    if (plan != nullptr) {
      const bool has_drafts = plan->num_drafts[0] > 0;
      if (has_drafts && driver.engine().in_flight() > 0) drafted_alone = false;
      driver.engine().Launch(plan);
      overlapped |= driver.engine().in_flight() == 2;
      if (driver.engine().in_flight() == 1 && !has_drafts) continue;
    }
    driver.CollectOne();
  }
  EXPECT_TRUE(drafted_alone);
  EXPECT_TRUE(overlapped);
  ExpectRight(driver, request);
}

TEST(DraftsTest, AFullBatchIsNotDraftedFor) {
  SimDriver driver(DraftLimits(32, 1000), DraftOptions(4, 100), 0, kEndRate);
  for (RequestId id = 1; id <= 36; ++id) driver.Submit(MakeRequest(id, 1, 30));
  size_t full_steps = 0;
  while (driver.Step()) {
    const BatchPlan& plan = driver.last_plan();
    int num_decodes = 0;
    for (size_t row = 0; row < plan.kv_len.size(); ++row) {
      num_decodes += plan.kv_len[row] - plan.num_drafts[row] > plan.prompt_len[row] ? 1 : 0;
    }
    if (num_decodes <= 32) continue;
    const int32_t sum = std::accumulate(plan.num_drafts.begin(), plan.num_drafts.end(), 0);
    ++full_steps;
    EXPECT_EQ(sum, 0);
  }
  EXPECT_GT(full_steps, 10u);
}

// The rows fill the pool to the last page: drafts are cut, and no request is preempted for one.
TEST(DraftsTest, NothingIsPreemptedForADraft) {
  for (const int32_t max_drafts : {0, 8}) {
    SimDriver driver(DraftLimits(32, 14), DraftOptions(max_drafts, 50), 0, kEndRate);
    std::vector<Request> requests;
    for (RequestId id = 1; id <= 2; ++id) requests.push_back(MakeRequest(id, 8, 20));
    for (const Request& request : requests) driver.Submit(request);
    ASSERT_TRUE(driver.RunToEnd());
    EXPECT_EQ(driver.scheduler().Stats().preemptions, 0);
    for (const Request& request : requests) ExpectRight(driver, request);
  }
}

TEST(DraftPacerTest, PausesWhereGuessesMissAndGrowsWhereTheyHit) {
  DraftPacer pacer;
  EXPECT_EQ(pacer.length(16), 2);
  pacer.CountVerified(2, 2, 3);
  pacer.CountVerified(4, 4, 8);
  EXPECT_EQ(pacer.length(16), 8);
  EXPECT_EQ(pacer.length(6), 6);
  pacer.CountVerified(8, 2, 11);
  EXPECT_EQ(pacer.length(16), 3);
  int64_t answer_len = 12;
  int steps = 0;
  while (pacer.Wants(answer_len)) {
    pacer.CountVerified(3, 0, answer_len++);
    ASSERT_LT(++steps, 40);
  }
  EXPECT_GT(steps, 3);
  // The pause ends, and the next one is longer unless a draft was accepted meanwhile.
  const auto pause = [&pacer](int64_t from) {
    int64_t length = 0;
    while (!pacer.Wants(from + length)) ++length;
    return length;
  };
  const int64_t first = pause(answer_len);
  answer_len += first;
  while (pacer.Wants(answer_len)) pacer.CountNoGuess(answer_len++);
  EXPECT_GT(pause(answer_len), first);
}

std::vector<TokenId> Guess(Drafter* drafter, const std::vector<TokenId>& tokens, int32_t count) {
  std::vector<TokenId> drafts;
  drafter->Draft(1, tokens, count, &drafts);
  return drafts;
}

TEST(NgramDrafterTest, GuessesWhatFollowedBefore) {
  const auto drafter = MakeNgramDrafter();
  EXPECT_EQ(Guess(drafter.get(), {5, 6, 7, 8, 9, 1, 6, 7}, 3), (std::vector<TokenId>{8, 9, 1}));
}

TEST(NgramDrafterTest, PrefersTheLongerMatchAndThenTheLaterPlace) {
  // "2 3" stood before 30 and later before 40; "1 2 3" only before 30.
  EXPECT_EQ(Guess(MakeNgramDrafter().get(), {1, 2, 3, 30, 9, 2, 3, 40, 1, 2, 3}, 1),
            (std::vector<TokenId>{30}));
  EXPECT_EQ(Guess(MakeNgramDrafter().get(), {2, 3, 30, 9, 2, 3, 40, 8, 2, 3}, 1),
            (std::vector<TokenId>{40}));
}

TEST(NgramDrafterTest, HasNoGuessForWhatIsNew) {
  const auto drafter = MakeNgramDrafter();
  EXPECT_TRUE(Guess(drafter.get(), {1}, 4).empty());
  EXPECT_TRUE(Guess(drafter.get(), {1, 2}, 4).empty());
  EXPECT_TRUE(Guess(drafter.get(), {1, 2, 3, 4, 5}, 4).empty());
}

TEST(NgramDrafterTest, ARepetitionGoesOnPastTheEndOfTheText) {
  EXPECT_EQ(Guess(MakeNgramDrafter().get(), {9, 1, 2, 1, 2, 1, 2}, 5),
            (std::vector<TokenId>{1, 2, 1, 2, 1}));
  EXPECT_EQ(Guess(MakeNgramDrafter().get(), {7, 7, 7}, 4), (std::vector<TokenId>{7, 7, 7, 7}));
}

// A long prompt is indexed in parts; in the end all of it is in the index.
TEST(NgramDrafterTest, ALongPromptIsIndexedOverSeveralCalls) {
  std::vector<TokenId> tokens;
  for (TokenId i = 0; i < 9000; ++i) tokens.push_back(i);
  tokens.insert(tokens.end(), {8000, 8001, 8002});
  const auto drafter = MakeNgramDrafter();
  EXPECT_TRUE(Guess(drafter.get(), tokens, 2).empty());
  for (int i = 0; i < 3; ++i) Guess(drafter.get(), tokens, 2);
  EXPECT_EQ(Guess(drafter.get(), tokens, 2), (std::vector<TokenId>{8003, 8004}));
}

// The drafter gives the same draft if asked after each token or once at the end, for texts of few
// distinct tokens.
TEST(NgramDrafterTest, TheIndexGrowsToTheSameGuesses) {
  const auto growing = MakeNgramDrafter();
  std::vector<TokenId> tokens;
  uint64_t state = 3;
  for (int i = 0; i < 300; ++i) {
    state = sim::Extend(state, i);
    tokens.push_back(static_cast<TokenId>(state % 4));
    EXPECT_EQ(Guess(growing.get(), tokens, 6), Guess(MakeNgramDrafter().get(), tokens, 6));
  }
  growing->Forget(1);
  EXPECT_TRUE(Guess(growing.get(), {1, 2, 3}, 6).empty());
}

}  // namespace
}  // namespace minisgl::sched
