// Batching, admission and queue policies: what shares a step, which request is preempted when pages
// run out, and which is next.
#include <gtest/gtest.h>

#include <algorithm>

#include "sched/sched_fixture.h"
#include "sim/sim_driver.h"

namespace minisgl::sched {
namespace {

using sim::SimDriver;

EngineLimits PolicyLimits(int32_t page_size, int32_t num_pages, int32_t max_running = 8) {
  EngineLimits limits;
  limits.vocab_size = kVocab;
  limits.page_size = page_size;
  limits.num_pages = num_pages;
  limits.max_running_requests = max_running;
  limits.max_seq_len = 200;
  limits.max_step_tokens = 32 + max_running;
  return limits;
}

SchedulerOptions PolicyOptions(StepPolicy step, AdmissionPolicy admission, QueuePolicy queue) {
  SchedulerOptions options;
  options.max_prefill_tokens = 32;
  options.step = step;
  options.admission = admission;
  options.queue = queue;
  return options;
}

// The tokens of `id` that come while a prompt of 160 tokens, submitted after its first, is computed
// in chunks of 32.
size_t TokensBesideALongPrompt(StepPolicy step) {
  SimDriver driver(PolicyLimits(4, 200),
                   PolicyOptions(step, AdmissionPolicy::kReserve, QueuePolicy::kFcfs), 0, kEndRate);
  driver.Submit(MakeRequest(1, 8, 30));
  driver.Step();
  driver.Submit(MakeRequest(2, 160, 2));
  while (driver.answers()[2].tokens.empty()) driver.Step();
  return driver.answers()[1].tokens.size();
}

TEST(StepPolicyTest, MixedStepsLetAnswersGoOnBesideALongPrompt) {
  EXPECT_EQ(TokensBesideALongPrompt(StepPolicy::kPrefillFirst), 1u);
  EXPECT_GE(TokensBesideALongPrompt(StepPolicy::kMixed), 6u);
}

// A long prompt takes a quarter of each step beside a chat's answer, and all of it beside another
// row's; the chat's own prompt takes all.
TEST(StepPolicyTest, AChatsAnswerWaitsForShortStepsOnly) {
  for (const bool is_chat : {true, false}) {
    SimDriver driver(
        PolicyLimits(4, 200),
        PolicyOptions(StepPolicy::kMixed, AdmissionPolicy::kOptimistic, QueuePolicy::kPriority), 0,
        kEndRate);
    const int32_t priority = is_chat ? kChatPriority : 0;
    driver.Submit(MakeRequest(1, 32, 60, priority));
    driver.Step();
    EXPECT_EQ(driver.last_plan().num_tokens(), 32);
    driver.Submit(MakeRequest(2, 160, 2));
    driver.Step();
    EXPECT_EQ(driver.last_plan().num_tokens(), 1 + (is_chat ? 8 : 32));
    driver.Submit(MakeRequest(3, 20, 2, priority));
    driver.Step();
    EXPECT_EQ(driver.last_plan().num_tokens(), 1 + (is_chat ? 8 + 20 : 32));
    ASSERT_TRUE(driver.RunToEnd());
  }
}

// Half-computed long prompts of the batch do not delay a turn that arrives.
TEST(StepPolicyTest, ATurnIsComputedBesideLongPromptsAtOnce) {
  for (const StepPolicy step : {StepPolicy::kMixed, StepPolicy::kPrefillFirst}) {
    SimDriver driver(PolicyLimits(4, 400),
                     PolicyOptions(step, AdmissionPolicy::kOptimistic, QueuePolicy::kPriority), 0,
                     kEndRate);
    for (RequestId id = 1; id <= 4; ++id) driver.Submit(MakeRequest(id, 190, 2));
    driver.Step();
    driver.Step();
    driver.Submit(MakeRequest(9, 20, 4, kChatPriority));
    driver.Step();
    EXPECT_EQ(driver.answers()[9].tokens.size(), 1u);
    ASSERT_TRUE(driver.RunToEnd());
  }
}

TEST(AdmissionTest, OptimisticRunsMoreAtOnceAndPreemptsWithTheSameAnswers) {
  for (int depth : {0, 1}) {
    std::vector<Request> requests;
    for (RequestId id = 1; id <= 6; ++id) requests.push_back(MakeRequest(id, 8, 60));
    int64_t steps[2] = {0, 0};
    for (AdmissionPolicy admission : {AdmissionPolicy::kReserve, AdmissionPolicy::kOptimistic}) {
      SimDriver driver(PolicyLimits(4, 40),
                       PolicyOptions(StepPolicy::kMixed, admission, QueuePolicy::kFcfs), depth,
                       kEndRate);
      for (const Request& request : requests) driver.Submit(request);
      ASSERT_TRUE(driver.RunToEnd());
      for (const Request& request : requests) ExpectRight(driver, request);
      const SchedulerStats stats = driver.scheduler().Stats();
      const bool is_optimistic = admission == AdmissionPolicy::kOptimistic;
      EXPECT_EQ(stats.preemptions > 0, is_optimistic);
      EXPECT_EQ(stats.prompt_tokens, 6 * 8) << "a prompt counts once, however often it comes back";
      steps[is_optimistic ? 1 : 0] = stats.steps;
    }
    EXPECT_LT(steps[1], steps[0]);
  }
}

TEST(AdmissionTest, PreemptionsOfARequestAreBounded) {
  // A pool of little more than one request, and many of them: all finish, each preempted within the
  // bound (checked by the scheduler's invariants after every call).
  SimDriver driver(
      PolicyLimits(1, 70),
      PolicyOptions(StepPolicy::kMixed, AdmissionPolicy::kOptimistic, QueuePolicy::kFcfs), 1,
      kEndRate);
  std::vector<Request> requests;
  for (RequestId id = 1; id <= 30; ++id) requests.push_back(MakeRequest(id, 4, 60));
  for (const Request& request : requests) driver.Submit(request);
  ASSERT_TRUE(driver.RunToEnd());
  for (const Request& request : requests) ExpectRight(driver, request);
  EXPECT_GT(driver.scheduler().Stats().preemptions, 10);
}

TEST(AdmissionTest, CachedTokensAreThoseOfTheFirstAdmission) {
  SimDriver driver(
      PolicyLimits(4, 24),
      PolicyOptions(StepPolicy::kMixed, AdmissionPolicy::kOptimistic, QueuePolicy::kFcfs), 1,
      kEndRate);
  for (RequestId id = 1; id <= 4; ++id) driver.Submit(MakeRequest(id, 8, 40));
  ASSERT_TRUE(driver.RunToEnd());
  EXPECT_GT(driver.scheduler().Stats().preemptions, 0);
  for (RequestId id = 1; id <= 4; ++id) EXPECT_EQ(driver.answers()[id].cached_tokens, 0);
}

TEST(AdmissionTest, AnAbortOfAPreemptedRequestAnswersIt) {
  for (int64_t stage = 1; stage < 60; ++stage) {
    SimDriver driver(
        PolicyLimits(4, 24),
        PolicyOptions(StepPolicy::kMixed, AdmissionPolicy::kOptimistic, QueuePolicy::kFcfs), 1,
        kEndRate);
    const Request first = MakeRequest(1, 8, 40);
    driver.Submit(first);
    for (RequestId id = 2; id <= 4; ++id) driver.Submit(MakeRequest(id, 8, 40));
    for (int64_t step = 0; step < stage; ++step) driver.Step();
    driver.scheduler().Abort(4);
    ASSERT_TRUE(driver.RunToEnd());
    ExpectRight(driver, first);
    EXPECT_EQ(driver.answers()[4].num_ends, 1);
    EXPECT_EQ(driver.scheduler().ResetPrefixCache(), 0);
    EXPECT_EQ(driver.scheduler().Stats().pages_free, 24);
  }
}

// Returns the order in which requests of one token each end, one running at a time.
std::vector<RequestId> OrderOfEnds(QueuePolicy queue, const std::vector<Request>& requests) {
  SimDriver driver(PolicyLimits(4, 60, 1),
                   PolicyOptions(StepPolicy::kMixed, AdmissionPolicy::kReserve, queue), 0,
                   kEndRate);
  for (const Request& request : requests) driver.Submit(request);
  std::vector<RequestId> order;
  while (!driver.scheduler().Idle()) {
    driver.Step();
    for (const auto& [id, answer] : driver.answers()) {
      if (answer.ended && std::find(order.begin(), order.end(), id) == order.end())
        order.push_back(id);
    }
  }
  return order;
}

TEST(QueuePolicyTest, PriorityTakesTheSmallestFirstAndFcfsTheEarliest) {
  const std::vector<Request> requests{MakeRequest(1, 8, 1, 5), MakeRequest(2, 8, 1, -2),
                                      MakeRequest(3, 8, 1, 5), MakeRequest(4, 8, 1, kChatPriority)};
  EXPECT_EQ(OrderOfEnds(QueuePolicy::kPriority, requests), (std::vector<RequestId>{4, 2, 1, 3}));
  EXPECT_EQ(OrderOfEnds(QueuePolicy::kFcfs, requests), (std::vector<RequestId>{1, 2, 3, 4}));
}

TEST(QueuePolicyTest, AgeingBoundsTheWaitOfTheLowestClass) {
  std::vector<Request> requests{MakeRequest(1, 8, 1, 100)};
  for (RequestId id = 2; id <= 600; ++id) requests.push_back(MakeRequest(id, 8, 1, 0));
  const std::vector<RequestId> order = OrderOfEnds(QueuePolicy::kPriority, requests);
  const auto place = std::find(order.begin(), order.end(), RequestId{1}) - order.begin();
  EXPECT_EQ(place, kAgeingAdmissions);
}

TEST(QueuePolicyTest, OneThatDoesNotFitIsBypassedButNotForEver) {
  SimDriver driver(PolicyLimits(4, 30, 8),
                   PolicyOptions(StepPolicy::kMixed, AdmissionPolicy::kReserve, QueuePolicy::kFcfs),
                   0, kEndRate);
  driver.Submit(MakeRequest(1, 8, 40));          // 12 pages
  const Request large = MakeRequest(2, 80, 30);  // 28 pages: not beside the first
  driver.Submit(large);
  for (RequestId id = 3; id <= 90; ++id) driver.Submit(MakeRequest(id, 4, 1));
  int64_t small_before_large = 0;
  while (!driver.answers()[2].ended) {
    ASSERT_TRUE(driver.Step());
    if (driver.answers()[2].tokens.empty()) {
      small_before_large = 0;
      for (RequestId id = 3; id <= 90; ++id)
        small_before_large += driver.answers()[id].ended ? 1 : 0;
    }
  }
  ExpectRight(driver, large);
  EXPECT_GE(small_before_large, 5);
  // Sixteen overtake it, and a few run beside its chunks; without the bound it would be all 88.
  EXPECT_LE(small_before_large, 40);
  ASSERT_TRUE(driver.RunToEnd());
}

TEST(ChatTest, ATurnTakesThePlaceOfABatchRow) {
  SimDriver driver(
      PolicyLimits(4, 60, 2),
      PolicyOptions(StepPolicy::kMixed, AdmissionPolicy::kOptimistic, QueuePolicy::kPriority), 1,
      kEndRate);
  std::vector<Request> rows;
  for (RequestId id = 1; id <= 3; ++id) {
    rows.push_back(MakeRequest(id, 8, 60));
    driver.Submit(rows.back());
  }
  for (int step = 0; step < 10; ++step) driver.Step();
  const Request turn = MakeRequest(9, 12, 4, kChatPriority);
  driver.Submit(turn);
  int64_t steps = 0;
  while (driver.answers()[9].tokens.empty()) {
    ASSERT_TRUE(driver.Step());
    ASSERT_LE(++steps, 5) << "the turn waits for batch rows";
  }
  ASSERT_TRUE(driver.RunToEnd());
  ExpectRight(driver, turn);
  for (const Request& row : rows) ExpectRight(driver, row);
  EXPECT_GE(driver.scheduler().Stats().preemptions, 1);
}

}  // namespace
}  // namespace minisgl::sched
