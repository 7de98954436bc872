// Requests that wait for something outside: a gate, a KV source, a deadline.
#include <gtest/gtest.h>

#include "sched/sched_fixture.h"
#include "sim/sim_driver.h"
#include "sim/sim_source.h"

namespace minisgl::sched {
namespace {

using sim::SimDriver;

EngineLimits GateLimits(int32_t num_pages = 100, int32_t max_running = 4) {
  EngineLimits limits;
  limits.vocab_size = kVocab;
  limits.page_size = 4;
  limits.num_pages = num_pages;
  limits.max_running_requests = max_running;
  limits.max_seq_len = 200;
  limits.max_step_tokens = 32 + max_running;
  return limits;
}

SchedulerOptions GateOptions() {
  SchedulerOptions options;
  options.max_prefill_tokens = 32;
  options.step = StepPolicy::kMixed;
  return options;
}

Request MakeGated(RequestId id, int64_t length, int64_t max_tokens) {
  Request request = MakeRequest(id, length, max_tokens);
  request.is_gated = true;
  return request;
}

// More gated requests than a step looks at in the queue.
TEST(GatesTest, AThousandGatedRequestsBlockNoOther) {
  SimDriver driver(GateLimits(), GateOptions(), 1, kEndRate);
  for (RequestId id = 1; id <= 1000; ++id) driver.Submit(MakeGated(id, 4, 2));
  const Request free = MakeRequest(2000, 8, 10);
  driver.Submit(free);
  while (driver.Step()) {
  }
  ExpectRight(driver, free);
  EXPECT_TRUE(driver.scheduler().WaitsOutside());
  EXPECT_FALSE(driver.scheduler().Idle());
  EXPECT_EQ(driver.scheduler().Stats().waiting, 1000);
  for (RequestId id = 1; id <= 1000; ++id) driver.scheduler().OpenGate(id);
  ASSERT_TRUE(driver.RunToEnd());
  for (RequestId id = 1; id <= 1000; ++id) ASSERT_EQ(driver.answers()[id].tokens.size(), 2u);
}

TEST(GatesTest, AGatedRequestKeepsItsPlace) {
  SimDriver driver(GateLimits(100, /*max_running=*/1), GateOptions(), 0, kEndRate);
  driver.Submit(MakeRequest(1, 4, 20));
  driver.Step();
  driver.Submit(MakeGated(2, 4, 3));
  driver.Submit(MakeRequest(3, 4, 3));
  driver.scheduler().OpenGate(2);
  while (driver.answers()[2].tokens.empty()) {
    ASSERT_TRUE(driver.answers()[3].tokens.empty());
    ASSERT_TRUE(driver.Step());
  }
  ASSERT_TRUE(driver.RunToEnd());
}

TEST(GatesTest, OpeningTwiceOrAnUnknownGateDoesNothingAndAnAbortEndsTheWait) {
  SimDriver driver(GateLimits(), GateOptions(), 0, kEndRate);
  driver.Submit(MakeGated(1, 4, 3));
  driver.Submit(MakeGated(2, 4, 3));
  driver.scheduler().OpenGate(99);
  driver.scheduler().OpenGate(2);
  driver.scheduler().OpenGate(2);
  driver.scheduler().Abort(1);
  ASSERT_TRUE(driver.RunToEnd());
  EXPECT_EQ(driver.answers()[1].reason, EndReason::kAborted);
  EXPECT_EQ(driver.answers()[2].tokens.size(), 3u);
  driver.scheduler().OpenGate(2);
}

TEST(GatesTest, ADeadlineEndsARequestAtEveryStage) {
  for (const bool gated : {true, false}) {
    for (int steps = 0; steps < 6; ++steps) {
      SimDriver driver(GateLimits(), GateOptions(), 1, kEndRate);
      driver.Submit(gated ? MakeGated(1, 60, 20) : MakeRequest(1, 60, 20));
      for (int i = 0; i < steps; ++i) driver.Step();
      driver.scheduler().TimeOut(1);
      driver.scheduler().TimeOut(1);
      ASSERT_TRUE(driver.RunToEnd());
      EXPECT_EQ(driver.answers()[1].num_ends, 1);
      EXPECT_EQ(driver.answers()[1].reason, EndReason::kTimedOut);
      EXPECT_EQ(driver.scheduler().Stats().pages_locked, 0);
    }
  }
}

// A source that the test controls: has a set number of tokens of every prompt, and ends loads on
// call.
class HandSource : public KvSource {
 public:
  std::optional<int64_t> Lookup(RequestId, const PrefixKey&, int64_t cached_len) override {
    ++lookups;
    if (!known) return std::nullopt;
    return std::max<int64_t>(has - cached_len, 0);
  }
  void Load(RequestId id, const PrefixKey& key, int64_t begin, int64_t count,
            std::span<const PageId> pages, StateSlot) override {
    engine->BeginLoad(pages);
    loads.push_back({id,
                     {key.tokens().begin(), key.tokens().end()},
                     begin,
                     count,
                     {pages.begin(), pages.end()}});
  }
  void Cancel(RequestId) override { ++cancels; }
  std::vector<KvLoadResult> TakeFinished() override { return std::exchange(finished, {}); }

  void Finish(int64_t good) {
    const LoadJob job = loads.front();
    loads.erase(loads.begin());
    engine->EndLoad(job.pages, job.tokens, job.begin, good);
    finished.push_back({job.id, good, good < job.count});
  }

  struct LoadJob {
    RequestId id;
    std::vector<TokenId> tokens;
    int64_t begin, count;
    std::vector<PageId> pages;
  };
  sim::SimEngine* engine = nullptr;
  bool known = true;
  int64_t has = 0;
  int64_t lookups = 0, cancels = 0;
  std::vector<LoadJob> loads;
  std::vector<KvLoadResult> finished;
};

class KvSourceTest : public testing::Test {
 protected:
  void Start(int32_t num_pages = 100, KvFailurePolicy failure = KvFailurePolicy::kRecompute) {
    SchedulerOptions options = GateOptions();
    options.kv_source = &source_;
    options.kv_failure = failure;
    driver_ = std::make_unique<SimDriver>(GateLimits(num_pages), options, 1, kEndRate);
    source_.engine = &driver_->engine();
  }
  void StepAll() {
    while (driver_->Step()) {
    }
  }
  HandSource source_;
  std::unique_ptr<SimDriver> driver_;
};

TEST_F(KvSourceTest, WhatIsLoadedIsNotComputed) {
  Start();
  source_.has = 1000;  // the last token is computed nevertheless
  const Request request = MakeRequest(1, 41, 5);
  driver_->Submit(request);
  StepAll();
  ASSERT_EQ(source_.loads.size(), 1u);
  EXPECT_EQ(source_.loads[0].count, 40);
  EXPECT_TRUE(driver_->scheduler().WaitsOutside());
  source_.Finish(40);
  ASSERT_TRUE(driver_->RunToEnd());
  ExpectRight(*driver_, request);
  EXPECT_EQ(driver_->scheduler().Stats().computed_tokens, 1);
  EXPECT_EQ(driver_->scheduler().Stats().loaded_tokens, 40);
  // And it is in the prefix cache for the next request.
  source_.has = 0;
  Request again = request;
  again.id = 2;
  driver_->Submit(again);
  ASSERT_TRUE(driver_->RunToEnd());
  ExpectRight(*driver_, again);
  EXPECT_EQ(driver_->answers()[2].cached_tokens, 40);
}

TEST_F(KvSourceTest, OthersRunWhileALoadTakesItsTime) {
  Start();
  source_.has = 20;
  const Request slow = MakeRequest(1, 41, 5);
  driver_->Submit(slow);
  driver_->Step();
  source_.has = 0;
  const Request quick = MakeRequest(2, 20, 30);
  driver_->Submit(quick);
  StepAll();
  ExpectRight(*driver_, quick);
  EXPECT_TRUE(driver_->answers()[1].tokens.empty());
  source_.Finish(20);
  ASSERT_TRUE(driver_->RunToEnd());
  ExpectRight(*driver_, slow);
}

TEST_F(KvSourceTest, ALookupThatIsNotKnownYetBlocksNoOther) {
  Start();
  source_.known = false;
  for (RequestId id = 1; id <= 200; ++id) driver_->Submit(MakeRequest(id, 8, 2));
  StepAll();
  EXPECT_TRUE(driver_->scheduler().WaitsOutside());
  const int64_t lookups = source_.lookups;
  driver_->Step();
  EXPECT_LE(source_.lookups - lookups, 200);  // a step asks about a bounded number
  source_.known = true;
  ASSERT_TRUE(driver_->RunToEnd());
  for (RequestId id = 1; id <= 200; ++id) ASSERT_EQ(driver_->answers()[id].tokens.size(), 2u);
}

TEST_F(KvSourceTest, AFailedLoadIsComputed) {
  for (const int64_t good : {0, 3, 4, 17, 39}) {
    Start();
    source_.has = 40;
    const Request request = MakeRequest(1, 44, 5);
    driver_->Submit(request);
    StepAll();
    source_.Finish(good);
    ASSERT_TRUE(driver_->RunToEnd());
    ExpectRight(*driver_, request);
    EXPECT_EQ(driver_->scheduler().Stats().computed_tokens, 44 - good / 4 * 4);
    EXPECT_EQ(driver_->scheduler().Stats().failed_loads, 1);
  }
}

TEST_F(KvSourceTest, AFailedLoadFailsTheRequestWhereThatIsWanted) {
  Start(100, KvFailurePolicy::kFail);
  source_.has = 40;
  driver_->Submit(MakeRequest(1, 44, 5));
  StepAll();
  source_.Finish(12);
  ASSERT_TRUE(driver_->RunToEnd());
  EXPECT_EQ(driver_->answers()[1].reason, EndReason::kFailed);
  EXPECT_EQ(driver_->answers()[1].error_code, "kv_load_failed");
  EXPECT_EQ(driver_->scheduler().ResetPrefixCache(), 0);
  EXPECT_EQ(driver_->scheduler().Stats().pages_free, 100);
}

// The pages of an aborted load are not reused until the source ends it.
TEST_F(KvSourceTest, PagesAreFreeOnlyWhenTheSourceLetsGo) {
  Start();
  source_.has = 40;
  driver_->Submit(MakeRequest(1, 44, 5));
  StepAll();
  driver_->scheduler().Abort(1);
  EXPECT_EQ(source_.cancels, 1);
  EXPECT_EQ(driver_->scheduler().Stats().pages_free, 90);
  EXPECT_FALSE(driver_->scheduler().Idle());
  const Request other = MakeRequest(2, 100, 60);
  source_.has = 0;
  driver_->Submit(other);
  StepAll();
  ExpectRight(*driver_, other);
  source_.Finish(0);
  ASSERT_TRUE(driver_->RunToEnd());
  EXPECT_EQ(driver_->scheduler().Stats().pages_free + driver_->scheduler().Stats().pages_cached,
            100);
  EXPECT_TRUE(driver_->scheduler().Idle());
}

// Pages of an abandoned load count as pending: a request that needs them waits and does not
// preempt.
TEST_F(KvSourceTest, ARequestThatNeedsPagesOfAnAbandonedLoadWaits) {
  Start(/*num_pages=*/12);
  source_.has = 40;
  driver_->Submit(MakeRequest(1, 44, 2));
  StepAll();
  driver_->scheduler().Abort(1);
  source_.has = 0;
  const Request other = MakeRequest(2, 40, 4);
  driver_->Submit(other);
  StepAll();
  EXPECT_FALSE(driver_->answers()[2].ended);
  EXPECT_TRUE(driver_->scheduler().WaitsOutside());
  source_.Finish(0);
  ASSERT_TRUE(driver_->RunToEnd());
  ExpectRight(*driver_, other);
  EXPECT_EQ(driver_->scheduler().Stats().preemptions, 0);
}

}  // namespace
}  // namespace minisgl::sched
