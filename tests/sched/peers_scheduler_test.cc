// Scenarios that other schedulers of the field are tested for (tests/sim/PEERS.md): the queue, the
// budget, priorities, preemption, overlap.
#include "sched/peers_fixture.h"

namespace minisgl::peers {
namespace {

using sim::SimDriver;

constexpr CacheKind kCaches[] = {CacheKind::kRadix, CacheKind::kNaive};

TEST(QueueTest, WaitingCountsUpWithEverySubmitAndDownWithEveryEnd) {
  using End = void (Scheduler::*)(RequestId);
  const std::pair<End, EndReason> ends[] = {{&Scheduler::Abort, EndReason::kAborted},
                                            {&Scheduler::Stop, EndReason::kStopped},
                                            {&Scheduler::TimeOut, EndReason::kTimedOut}};
  for (const auto& [end, reason] : ends) {
    SimDriver driver(Limits(100), Options(), 0, kEndRate);
    for (RequestId id = 1; id <= 10; ++id) {
      driver.Submit(MakeRequest(id, 10, 5));
      EXPECT_EQ(driver.scheduler().Stats().waiting, static_cast<int64_t>(id));
      EXPECT_FALSE(driver.scheduler().Idle());
    }
    for (RequestId id = 1; id <= 10; ++id) {
      (driver.scheduler().*end)(id);
      EXPECT_EQ(driver.scheduler().Stats().waiting, static_cast<int64_t>(10 - id));
    }
    EXPECT_TRUE(driver.scheduler().Idle());
    ASSERT_TRUE(driver.RunToEnd());
    for (RequestId id = 1; id <= 10; ++id) EXPECT_EQ(driver.answers()[id].reason, reason);
  }
}

TEST(QueueTest, GatedAndQueuedRequestsAreCountedAsWaiting) {
  SchedulerOptions options = Options(/*max_prefill_tokens=*/21);
  options.long_prefill_threshold = 21;
  SimDriver driver(Limits(100), options, 0, kEndRate);
  for (RequestId id = 1; id <= 5; ++id) {
    Request request = MakeRequest(id, 9 + static_cast<int64_t>(id), 5);
    request.is_gated = id > 3;
    driver.Submit(request);
  }
  ASSERT_NE(Launch(driver), nullptr);  // prompts of 10 and 11: the budget
  EXPECT_EQ(driver.scheduler().Stats().running, 2);
  EXPECT_EQ(driver.scheduler().Stats().waiting, 3);
}

TEST(QueueTest, HeldRequestsKeepTheirOrder) {
  SimDriver driver(Limits(100, /*max_running=*/1), Options(), 0, kEndRate);
  for (RequestId id = 1; id <= 4; ++id) {
    Request request = MakeRequest(id, 10, 3);
    request.is_gated = id <= 2;
    driver.Submit(request);
  }
  ASSERT_NE(Launch(driver), nullptr);
  EXPECT_EQ(Noted(driver, SchedNote::Kind::kAdmitted), (std::vector<RequestId>{3}));
  driver.scheduler().OpenGate(2);
  driver.scheduler().OpenGate(1);
  driver.CollectOne();
  EXPECT_EQ(OrderOfAdmissions(driver), (std::vector<RequestId>{1, 2, 4}));
}

TEST(BudgetTest, AllThatFitsRunsWholeInOneStep) {
  for (const CacheKind cache : kCaches) {
    SchedulerOptions options = Options();
    options.cache = cache;
    SimDriver driver(Limits(200, 10), options, 0, kEndRate);
    std::vector<Request> requests;
    for (RequestId id = 1; id <= 10; ++id) {
      requests.push_back(MakeRequest(id, 10 + static_cast<int64_t>(id), 5));
      driver.Submit(requests.back());
    }
    const auto plan = Launch(driver);
    ASSERT_EQ(plan->num_rows(), 10);
    for (int row = 0; row < 10; ++row) {
      const Request& request = requests[static_cast<size_t>(row)];
      EXPECT_EQ(RowOf(*plan, request), row) << "in order of arrival";
      EXPECT_EQ(TokensOf(*plan, request), static_cast<int64_t>(request.prompt.size()));
      EXPECT_EQ(plan->wants_token[static_cast<size_t>(row)], 1);
    }
    EXPECT_EQ(driver.scheduler().Stats().waiting, 0);
    EXPECT_EQ(driver.scheduler().Stats().running, 10);
  }
}

TEST(BudgetTest, LongPromptsAreComputedInChunksBesideEachOther) {
  for (const CacheKind cache : kCaches) {
    SchedulerOptions options = Options(/*max_prefill_tokens=*/100);
    options.long_prefill_threshold = 40;
    options.cache = cache;
    SimDriver driver(Limits(200), options, 0, kEndRate);
    const std::vector<Request> requests{MakeRequest(1, 80, 9), MakeRequest(2, 81, 9),
                                        MakeRequest(3, 82, 9)};
    for (const Request& request : requests) driver.Submit(request);
    // The threshold holds while others wait: not for the third, nor later.
    const std::vector<std::vector<int64_t>> wanted{{40, 40, 20}, {40, 41, 19}, {1, 1, 43}};
    for (const auto& tokens : wanted) {
      const auto plan = Launch(driver);
      for (size_t i = 0; i < 3; ++i) EXPECT_EQ(TokensOf(*plan, requests[i]), tokens[i]);
      EXPECT_EQ(driver.scheduler().Stats().running, 3);
      driver.CollectOne();
    }
    ASSERT_TRUE(driver.RunToEnd());
    for (const Request& request : requests) ExpectRight(driver, request);
  }
}

// As max_num_batched_tokens of vLLM: prompts get what the answers leave.
TEST(BudgetTest, TheCapOnAStepCountsPromptsAndAnswersTogether) {
  for (const StepPolicy step : {StepPolicy::kMixed, StepPolicy::kPrefillFirst}) {
    SchedulerOptions options = Options(/*max_prefill_tokens=*/40);
    options.max_step_tokens = 40;
    options.long_prefill_threshold = 40;
    options.step = step;
    SimDriver driver(Limits(200, /*max_running=*/8), options, 0, kEndRate);
    std::vector<Request> requests;
    for (RequestId id = 1; id <= 5; ++id) requests.push_back(MakeRequest(id, 4, 9));
    requests.push_back(MakeRequest(6, 100, 9));
    for (const Request& request : requests) driver.Submit(request);
    const std::vector<int64_t> wanted = step == StepPolicy::kMixed
                                            ? std::vector<int64_t>{20, 35, 35, 10}
                                            : std::vector<int64_t>{20, 40, 40, 1};
    for (const int64_t tokens : wanted) {
      const auto plan = Launch(driver);
      EXPECT_LE(plan->num_tokens(), 40);
      EXPECT_EQ(TokensOf(*plan, requests.back()), tokens);
      driver.CollectOne();
    }
    ASSERT_TRUE(driver.RunToEnd());
    for (const Request& request : requests) ExpectRight(driver, request);
  }
}

TEST(BudgetTest, PromptsAreTakenInOrderOfArrivalUpToTheBudget) {
  SchedulerOptions options = Options(/*max_prefill_tokens=*/100);
  options.long_prefill_threshold = 100;
  SimDriver driver(Limits(200, /*max_running=*/3), options, 0, kEndRate);
  const std::vector<Request> requests{MakeRequest(1, 80, 9), MakeRequest(2, 81, 9),
                                      MakeRequest(3, 10, 9), MakeRequest(4, 11, 9)};
  for (const Request& request : requests) driver.Submit(request);
  // First the budget limits, then the three rows: no request is passed over for a shorter one.
  const std::vector<std::vector<int64_t>> wanted{{80, 20, 0, 0}, {1, 61, 10, 0}};
  for (const auto& tokens : wanted) {
    const auto plan = Launch(driver);
    for (size_t i = 0; i < 4; ++i) EXPECT_EQ(TokensOf(*plan, requests[i]), tokens[i]);
    driver.CollectOne();
  }
}

TEST(BudgetTest, AShortPromptSharesTheStepOfALongOne) {
  SchedulerOptions options = Options(/*max_prefill_tokens=*/64);
  options.long_prefill_threshold = 16;
  SimDriver driver(Limits(200), options, 0, kEndRate);
  const Request large = MakeRequest(1, 100, 4), small = MakeRequest(2, 10, 4);
  driver.Submit(large);
  driver.Submit(small);
  const auto plan = Launch(driver);
  EXPECT_EQ(TokensOf(*plan, large), 16);
  EXPECT_EQ(TokensOf(*plan, small), 10);
}

TEST(BudgetTest, PromptsBelowTheThresholdAreNeverCut) {
  SchedulerOptions options = Options(/*max_prefill_tokens=*/64);
  options.long_prefill_threshold = 16;
  SimDriver driver(Limits(200), options, 0, kEndRate);
  for (RequestId id = 1; id <= 4; ++id) driver.Submit(MakeRequest(id, 12 + int64_t(id), 4));
  const auto plan = Launch(driver);
  ASSERT_EQ(plan->num_rows(), 4);
  for (int row = 0; row < 4; ++row) EXPECT_EQ(plan->extend_len(row), 13 + row);
}

// Returns the requests of a step's rows, in order.
std::vector<RequestId> RowsOf(const BatchPlan& plan, const std::vector<Request>& requests) {
  std::vector<RequestId> ids(static_cast<size_t>(plan.num_rows()), 0);
  for (const Request& request : requests) {
    const int row = RowOf(plan, request);
    if (row >= 0) ids[static_cast<size_t>(row)] = request.id;
  }
  return ids;
}

TEST(PriorityTest, AStepsRowsStandInOrderOfClassAndThenOfArrival) {
  SchedulerOptions options = Options();
  options.queue = QueuePolicy::kPriority;
  SimDriver driver(Limits(200), options, 0, kEndRate);
  const std::vector<Request> requests{MakeRequest(1, 11, 4, 2), MakeRequest(2, 12, 4, 1),
                                      MakeRequest(3, 13, 4, 1), MakeRequest(4, 14, 4, 0)};
  for (const Request& request : requests) driver.Submit(request);
  EXPECT_EQ(RowsOf(*Launch(driver), requests), (std::vector<RequestId>{4, 2, 3, 1}));
}

TEST(PriorityTest, TheBestTakeTheSeatsThereAre) {
  SchedulerOptions options = Options();
  options.queue = QueuePolicy::kPriority;
  SimDriver driver(Limits(200, /*max_running=*/2), options, 0, kEndRate);
  const std::vector<Request> requests{MakeRequest(1, 11, 4, 3), MakeRequest(2, 12, 4, 1),
                                      MakeRequest(3, 13, 4, 2), MakeRequest(4, 14, 4, 0)};
  for (const Request& request : requests) driver.Submit(request);
  EXPECT_EQ(RowsOf(*Launch(driver), requests), (std::vector<RequestId>{4, 2}));
  EXPECT_EQ(driver.scheduler().Stats().waiting, 2);
  driver.CollectOne();
  EXPECT_EQ(OrderOfAdmissions(driver), (std::vector<RequestId>{4, 2, 3, 1}));
}

TEST(PriorityTest, ManyClassesAreServedSmallestFirstAndOneInOrderOfArrival) {
  for (const bool one_class : {false, true}) {
    SchedulerOptions options = Options();
    options.queue = QueuePolicy::kPriority;
    SimDriver driver(Limits(200, /*max_running=*/1), options, 0, kEndRate);
    RequestId id = 0;
    for (const int32_t priority : {5, 1, 8, 3, 2, 7, 4, 6}) {
      driver.Submit(MakeRequest(++id, 10, 2, one_class ? 1 : priority));
    }
    const std::vector<RequestId> by_class{2, 5, 4, 7, 1, 8, 6, 3},
        by_arrival{1, 2, 3, 4, 5, 6, 7, 8};
    EXPECT_EQ(OrderOfAdmissions(driver), one_class ? by_arrival : by_class);
  }
}

TEST(PreemptionTest, NothingIsPreemptedIfThereIsRoom) {
  SimDriver driver(Limits(100, /*max_running=*/3), Optimistic(QueuePolicy::kPriority), 0, kEndRate);
  driver.Submit(MakeRequest(1, 30, 9, 5));
  driver.Submit(MakeRequest(2, 31, 9, 5));
  ASSERT_TRUE(driver.Step());
  driver.Submit(MakeRequest(3, 32, 9, 0));
  EXPECT_EQ(Launch(driver)->num_rows(), 3);
  EXPECT_EQ(driver.scheduler().Stats().running, 3);
  EXPECT_EQ(driver.scheduler().Stats().preemptions, 0);
}

// Two requests of five pages each at the end, in a pool of eight; the first is of the lower class.
struct Squeeze {
  explicit Squeeze(QueuePolicy queue) : driver(Limits(8), Optimistic(queue), 1, kEndRate) {
    driver.Submit(low);
    driver.Step();
    driver.Submit(high);
  }
  // Launches and collects, one step ahead, until a request is preempted; returns which. The step
  // before is still in flight then.
  RequestId RunToPreemption() {
    for (int step = 0; step < 100; ++step) {
      Launch(driver);
      const auto victims = Noted(driver, SchedNote::Kind::kPreempted);
      if (!victims.empty()) return victims.front();
      if (driver.engine().in_flight() == 0) return 0;
      if (driver.engine().in_flight() > 1) driver.CollectOne();
    }
    return 0;
  }

  const Request low = MakeRequest(1, 8, 12, 5), high = MakeRequest(2, 9, 11, 0);
  SimDriver driver;
};

TEST(PreemptionTest, TheLowestClassGoesAndWithinAClassTheYoungest) {
  for (const QueuePolicy queue : {QueuePolicy::kPriority, QueuePolicy::kFcfs}) {
    Squeeze squeeze(queue);
    EXPECT_EQ(squeeze.RunToPreemption(), queue == QueuePolicy::kPriority ? 1u : 2u);
    ASSERT_TRUE(squeeze.driver.RunToEnd());
    ExpectRight(squeeze.driver, squeeze.low);
    ExpectRight(squeeze.driver, squeeze.high);
    EXPECT_EQ(squeeze.driver.scheduler().Stats().preemptions, 1);
  }
}

TEST(PreemptionTest, ATokenInFlightIsKeptWhenItLands) {
  Squeeze squeeze(QueuePolicy::kPriority);
  ASSERT_EQ(squeeze.RunToPreemption(), 1u);
  ASSERT_GT(squeeze.driver.engine().in_flight(), 0);
  const size_t known = squeeze.driver.answers()[1].tokens.size();
  squeeze.driver.CollectOne();  // planned before the preemption, with a row of the victim
  EXPECT_EQ(squeeze.driver.answers()[1].tokens.size(), known + 1);
  ASSERT_TRUE(squeeze.driver.RunToEnd());
  ExpectRight(squeeze.driver, squeeze.low);
}

TEST(PreemptionTest, AReadmittedRequestSendsPromptAndAnswerSoFar) {
  Squeeze squeeze(QueuePolicy::kPriority);
  SimDriver& driver = squeeze.driver;
  ASSERT_EQ(squeeze.RunToPreemption(), 1u);
  std::shared_ptr<const BatchPlan> plan;
  while (plan == nullptr || RowOf(*plan, squeeze.low) < 0) {
    while (driver.engine().in_flight() > 0) driver.CollectOne();
    plan = Launch(driver);
    ASSERT_NE(plan, nullptr);
  }
  EXPECT_TRUE(driver.answers()[2].ended) << "there was room before";
  std::vector<TokenId> known = squeeze.low.prompt;
  const auto& answer = driver.answers()[1].tokens;
  ASSERT_GT(answer.size(), 1u);
  known.insert(known.end(), answer.begin(), answer.end());
  ASSERT_EQ(plan->token_pool_writes.size(), 1u);
  EXPECT_EQ(plan->token_pool_writes[0].first, 0);
  EXPECT_EQ(plan->tokens, known);
  EXPECT_EQ(plan->prompt_len[0], 8) << "the answer began where it began";
  EXPECT_EQ(plan->kv_len[0], static_cast<int32_t>(known.size()));
  ASSERT_TRUE(driver.RunToEnd());
  ExpectRight(driver, squeeze.low);
}

TEST(PreemptionTest, WhatItCostsIsCountedApart) {
  Squeeze squeeze(QueuePolicy::kPriority);
  ASSERT_TRUE(squeeze.driver.RunToEnd());
  const SchedulerStats stats = squeeze.driver.scheduler().Stats();
  EXPECT_EQ(stats.preemptions, 1);
  EXPECT_GT(stats.recomputed_tokens, 0);
  EXPECT_EQ(stats.computed_tokens - stats.recomputed_tokens, 8 + 9);
  EXPECT_EQ(stats.prompt_tokens, 8 + 9);
  EXPECT_EQ(stats.cached_tokens, 0) << "what it finds of itself when it comes back is no hit";
}

TEST(OverlapTest, ADecodeRowIsPlannedBeforeThePromptsTokenIsKnown) {
  SimDriver driver(Limits(100), Options(), 1, kEndRate);
  const Request request = MakeRequest(1, 8, 5);
  driver.Submit(request);
  EXPECT_EQ(TokensOf(*Launch(driver), request), 8);
  EXPECT_EQ(TokensOf(*Launch(driver), request), 1);
  EXPECT_EQ(driver.engine().in_flight(), 2);
  EXPECT_TRUE(driver.answers()[1].tokens.empty());
}

TEST(OverlapTest, ARequestJoinsWhileAStepIsInFlight) {
  for (const CacheKind cache : kCaches) {
    SchedulerOptions options = Options();
    options.step = StepPolicy::kPrefillFirst;
    options.cache = cache;
    SimDriver driver(Limits(100, /*max_running=*/2), options, 1, kEndRate);
    const Request first = MakeRequest(1, 50, 5), second = MakeRequest(2, 51, 5);
    driver.Submit(first);
    EXPECT_EQ(TokensOf(*Launch(driver), first), 50);
    driver.Submit(second);
    const auto joined = Launch(driver);
    EXPECT_EQ(TokensOf(*joined, first), 0);
    EXPECT_EQ(TokensOf(*joined, second), 51);
    driver.CollectOne();
    const auto both = Launch(driver);  // the second's first token is still in flight
    EXPECT_EQ(TokensOf(*both, first), 1);
    EXPECT_EQ(TokensOf(*both, second), 1);
    while (driver.engine().in_flight() > 0) driver.CollectOne();
    ASSERT_TRUE(driver.RunToEnd());
    ExpectRight(driver, first);
    ExpectRight(driver, second);
  }
}

TEST(OverlapTest, NoMoreTokensAreComputedThanTheAnswersNeed) {
  for (const int64_t max_tokens : {1, 2, 3, 5}) {
    SimDriver driver(Limits(100), Options(), 1, kEndRate);
    const Request first = MakeRequest(1, 10, max_tokens), second = MakeRequest(2, 11, max_tokens);
    driver.Submit(first);
    ASSERT_NE(Launch(driver), nullptr);
    driver.Submit(second);
    ASSERT_TRUE(driver.RunToEnd());
    ExpectRight(driver, first);
    ExpectRight(driver, second);
    EXPECT_EQ(driver.engine().num_tokens(), 10 + 11 + 2 * (max_tokens - 1));
  }
}

TEST(OverlapTest, AnAbortedAnswerHasWhatWasCollectedBeforeIt) {
  SimDriver driver(Limits(200, 10), Options(), 1, kEndRate);
  for (RequestId id = 1; id <= 10; ++id) driver.Submit(MakeRequest(id, 3 + int64_t(id), 20));
  ASSERT_NE(Launch(driver), nullptr);
  ASSERT_NE(Launch(driver), nullptr);
  size_t collected = 0;
  for (const RequestId id : std::vector<RequestId>{1, 9, 4, 2, 7, 5, 3, 6, 8, 10}) {
    driver.scheduler().Abort(id);
    driver.CollectOne();
    EXPECT_EQ(driver.answers()[id].reason, EndReason::kAborted);
    EXPECT_EQ(driver.answers()[id].tokens.size(), collected++);
    Launch(driver);
  }
  ASSERT_TRUE(driver.RunToEnd());
  for (RequestId id = 1; id <= 10; ++id) EXPECT_EQ(driver.answers()[id].num_ends, 1);
  EXPECT_EQ(driver.engine().violation(), "");
}

}  // namespace
}  // namespace minisgl::peers
