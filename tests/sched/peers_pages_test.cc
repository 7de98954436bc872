// Scenarios that other schedulers of the field are tested for (tests/sim/PEERS.md): pages that a
// step in flight uses, and which pages of a request the prefix cache has at what time.
#include "sched/peers_fixture.h"

namespace minisgl::peers {
namespace {

using sim::SimDriver;

constexpr int32_t kNumPages = 40;
constexpr int64_t kPromptLen = 9;  // three pages of four

// With the cache that keeps nothing, so that every released page is free or deferred.
class FenceTest : public testing::Test {
 protected:
  void Start(SchedulerOptions options = Options(), int32_t max_in_flight = 2) {
    options.cache = CacheKind::kNaive;
    EngineLimits limits = Limits(kNumPages);
    limits.max_in_flight = max_in_flight;
    driver_ = std::make_unique<SimDriver>(limits, options, 1, kEndRate);
  }
  // A request that ends with its first token.
  static Request MakeBrief(RequestId id, int64_t length = kPromptLen) {
    Request request = MakeRequest(id, length, 9);
    request.stop_ids = {AnswerOf(request).front()};
    return request;
  }
  int64_t NumFree() { return driver_->scheduler().Stats().pages_free; }

  std::unique_ptr<SimDriver> driver_;
};

TEST_F(FenceTest, PagesOfAnEndedAnswerWaitForTheStepInFlight) {
  Start();
  driver_->Submit(MakeBrief(1));
  ASSERT_NE(Launch(*driver_), nullptr);
  ASSERT_NE(Launch(*driver_), nullptr);  // one step too many, which only the first token shows
  driver_->CollectOne();
  EXPECT_EQ(driver_->answers()[1].reason, EndReason::kStopToken);
  EXPECT_EQ(NumFree(), kNumPages - 3);
  driver_->CollectOne();
  EXPECT_EQ(NumFree(), kNumPages);
}

TEST_F(FenceTest, PagesAreFreeAtOnceWhereNoStepNamesThem) {
  Start();
  driver_->Submit(MakeBrief(1));
  ASSERT_NE(Launch(*driver_), nullptr);
  driver_->CollectOne();
  EXPECT_TRUE(driver_->answers()[1].ended);
  EXPECT_EQ(NumFree(), kNumPages);
}

TEST_F(FenceTest, AnAbortFreesWhenTheLastStepInFlightIsCollected) {
  for (const int in_flight : {1, 2, 3}) {
    Start(Options(), /*max_in_flight=*/3);
    driver_->Submit(MakeRequest(1, kPromptLen, 9));
    for (int i = 0; i < in_flight; ++i) ASSERT_NE(Launch(*driver_), nullptr);
    driver_->scheduler().Abort(1);
    for (int i = 0; i < in_flight; ++i) {
      EXPECT_EQ(NumFree(), kNumPages - 3) << i << " of " << in_flight << " collected";
      driver_->CollectOne();
    }
    EXPECT_EQ(NumFree(), kNumPages);
    EXPECT_TRUE(driver_->scheduler().Idle());
  }
}

TEST_F(FenceTest, AnAbortInTheMiddleOfAPromptWaitsForItsChunk) {
  Start(Options(/*max_prefill_tokens=*/16));
  driver_->Submit(MakeRequest(1, 33, 9));
  EXPECT_EQ(Launch(*driver_)->extend_len(0), 16);
  driver_->scheduler().Abort(1);
  EXPECT_EQ(NumFree(), kNumPages - 4);
  driver_->CollectOne();
  EXPECT_EQ(NumFree(), kNumPages);
}

TEST_F(FenceTest, SeveralThatEndTogetherAreFreedTogether) {
  Start();
  driver_->Submit(MakeBrief(1));
  driver_->Submit(MakeBrief(2, kPromptLen + 1));
  ASSERT_NE(Launch(*driver_), nullptr);
  ASSERT_NE(Launch(*driver_), nullptr);
  driver_->CollectOne();
  EXPECT_TRUE(driver_->answers()[1].ended);
  EXPECT_TRUE(driver_->answers()[2].ended);
  EXPECT_EQ(NumFree(), kNumPages - 6);
  driver_->CollectOne();
  EXPECT_EQ(NumFree(), kNumPages);
}

TEST_F(FenceTest, AnAnswerThatEndsByItsLengthWaitsForNoOtherStep) {
  Start();
  const Request brief = MakeRequest(1, kPromptLen, 1), lasting = MakeRequest(2, 10, 30);
  driver_->Submit(brief);
  driver_->Submit(lasting);
  ASSERT_EQ(Launch(*driver_)->num_rows(), 2);
  const auto plan = Launch(*driver_);
  EXPECT_EQ(RowOf(*plan, brief), -1);
  EXPECT_GE(RowOf(*plan, lasting), 0);
  const int64_t free = NumFree();
  driver_->CollectOne();
  EXPECT_TRUE(driver_->answers()[1].ended);
  EXPECT_EQ(driver_->engine().in_flight(), 1);
  EXPECT_EQ(NumFree(), free + 3);
}

TEST_F(FenceTest, PagesOfAPreemptedRequestWaitForTheStepInFlight) {
  SchedulerOptions options = Optimistic(QueuePolicy::kFcfs);
  options.cache = CacheKind::kNaive;
  SimDriver driver(Limits(7), options, 1, kEndRate);
  const Request stays = MakeRequest(1, 8, 12), goes = MakeRequest(2, 9, 11);
  driver.Submit(stays);
  driver.Submit(goes);
  bool seen = false;
  while (!driver.scheduler().Idle()) {
    const int64_t free = driver.scheduler().Stats().pages_free;
    const auto plan = Launch(driver);
    if (Noted(driver, SchedNote::Kind::kPreempted).size() == 1) {
      seen = true;
      // No page of the victim is free yet, and the request that needs one skips this step.
      EXPECT_EQ(driver.scheduler().Stats().pages_free, free);
      EXPECT_EQ(plan, nullptr);
      EXPECT_EQ(driver.engine().in_flight(), 1);
      driver.CollectOne();
      EXPECT_GT(driver.scheduler().Stats().pages_free, free);
      continue;
    }
    if (driver.engine().in_flight() > 1 || plan == nullptr) driver.CollectOne();
  }
  EXPECT_TRUE(seen);
  ExpectRight(driver, stays);
  ExpectRight(driver, goes);
}

TEST(CachedPrefixTest, AnAnswersPageEntersWhenItIsWhole) {
  SimDriver driver(Limits(kNumPages), Options(), 0, kEndRate);
  driver.Submit(MakeRequest(1, 7, 8));
  // After the prompt 7 tokens have keys, then one more with each step.
  for (const int64_t cached : {1, 2, 2, 2, 2, 3}) {
    ASSERT_TRUE(driver.Step());
    EXPECT_EQ(driver.scheduler().Stats().pages_cached, cached);
  }
}

// The token that ended an answer was sampled and never computed: its KV is never found in the
// cache, whatever steps ran past the end.
TEST(CachedPrefixTest, AnAnswersLastTokenIsNotCached) {
  for (const int depth : {0, 1, 2}) {
    for (const bool by_length : {true, false}) {
      EngineLimits limits = Limits(200, 8, /*page_size=*/1);
      limits.max_in_flight = 3;
      SimDriver driver(limits, Options(), depth, kEndRate);
      Request first = MakeRequest(1, 4, by_length ? 3 : 20);
      if (!by_length) first.stop_ids = {AnswerOf(first)[2]};
      driver.Submit(first);
      ASSERT_TRUE(driver.RunToEnd());
      const auto& answer = driver.answers()[1].tokens;
      ASSERT_EQ(answer.size(), 3u);
      Request next = MakeRequest(2, 1, 1);
      next.prompt = first.prompt;
      next.prompt.insert(next.prompt.end(), answer.begin(), answer.end());
      next.prompt.push_back(1);
      driver.Submit(next);
      ASSERT_TRUE(driver.RunToEnd());
      ExpectRight(driver, next);
      EXPECT_EQ(driver.answers()[2].cached_tokens, 4 + 3 - 1) << depth << by_length;
    }
  }
}

TEST(CachedPrefixTest, TheNextTurnFindsPromptAndAnswerOfTheLast) {
  SimDriver driver(Limits(200), Options(), 1, kEndRate);
  std::vector<Request> turns;
  for (RequestId id = 1; id <= 5; ++id) {
    turns.push_back(MakeRequest(id, 20 + static_cast<int64_t>(id), 30));
    driver.Submit(turns.back());
  }
  ASSERT_TRUE(driver.RunToEnd());
  for (Request& turn : turns) {
    const auto& answer = driver.answers()[turn.id].tokens;
    turn.prompt.insert(turn.prompt.end(), answer.begin(), answer.end());
    turn.id += 10;
    driver.Submit(turn);
  }
  const auto plan = Launch(driver);
  for (const Request& turn : turns) {
    const auto length = static_cast<int64_t>(turn.prompt.size());
    EXPECT_EQ(TokensOf(*plan, turn), length - (length - 1) / 4 * 4);
  }
  while (driver.engine().in_flight() > 0) driver.CollectOne();
  ASSERT_TRUE(driver.RunToEnd());
  for (const Request& turn : turns) ExpectRight(driver, turn);
}

// A hit without room to admit it: although tried at each step, it changes no lock and counts once.
TEST(CachedPrefixTest, AHitThatWaitsForRoomLocksNothingAndCountsOnce) {
  SimDriver driver(Limits(20), Options(), 0, kEndRate);
  const Request seed = MakeRequest(1, 12, 1);
  driver.Submit(seed);
  ASSERT_TRUE(driver.RunToEnd());
  const Request large = MakeRequest(2, 20, 36);  // 14 pages of 20
  driver.Submit(large);
  ASSERT_TRUE(driver.Step());
  Request hit = MakeRequest(3, 24, 17);  // 10 pages, 3 of them cached
  std::copy(seed.prompt.begin(), seed.prompt.end(), hit.prompt.begin());
  driver.Submit(hit);
  int steps = 0;
  while (!driver.answers()[2].ended) {
    const int64_t locked = driver.scheduler().Stats().pages_locked;
    EXPECT_EQ(RowOf(*Launch(driver), hit), -1);
    EXPECT_EQ(driver.scheduler().Stats().pages_locked, locked);
    EXPECT_EQ(driver.scheduler().Stats().cached_tokens, 0);
    driver.CollectOne();
    ++steps;
  }
  EXPECT_EQ(steps, 35);
  ASSERT_TRUE(driver.RunToEnd());
  ExpectRight(driver, hit);
  EXPECT_EQ(driver.answers()[3].cached_tokens, 12);
  EXPECT_EQ(driver.scheduler().Stats().cached_tokens, 12);
  EXPECT_EQ(driver.scheduler().Stats().prompt_tokens, 12 + 20 + 24);
}

TEST(CachedPrefixTest, ACacheThatKeepsNothingCountsNoHits) {
  SchedulerOptions options = Options();
  options.cache = CacheKind::kNaive;
  SimDriver driver(Limits(kNumPages), options, 0, kEndRate);
  Request request = MakeRequest(1, 20, 3);
  for (request.id = 1; request.id <= 2; ++request.id) {
    driver.Submit(request);
    ASSERT_TRUE(driver.RunToEnd());
  }
  const SchedulerStats stats = driver.scheduler().Stats();
  EXPECT_EQ(stats.prompt_tokens, 40);
  EXPECT_EQ(stats.cached_tokens, 0);
  EXPECT_EQ(stats.computed_tokens, 40);
  EXPECT_EQ(stats.pages_cached, 0);
}

TEST(CachedPrefixTest, AResetLeavesWhatRunningRequestsHold) {
  SimDriver driver(Limits(200, 10), Options(), 1, kEndRate);
  std::vector<Request> requests;
  for (RequestId id = 1; id <= 10; ++id) {
    requests.push_back(MakeRequest(id, 8 + static_cast<int64_t>(id), 9));
    driver.Submit(requests.back());
  }
  for (int step = 0; step < 4; ++step) ASSERT_TRUE(driver.Step());
  const int64_t locked = driver.scheduler().Stats().pages_locked;
  EXPECT_GT(locked, 10);
  EXPECT_EQ(driver.scheduler().ResetPrefixCache(), locked);
  EXPECT_EQ(driver.scheduler().Stats().running, 10);
  ASSERT_TRUE(driver.RunToEnd());
  for (const Request& request : requests) ExpectRight(driver, request);
  EXPECT_EQ(driver.scheduler().ResetPrefixCache(), 0);
  EXPECT_EQ(driver.scheduler().Stats().pages_free, 200);
}

TEST(CachedPrefixTest, NotesCountThePagesThatEnterAndLeave) {
  for (const bool record : {true, false}) {
    SchedulerOptions options = Options();
    options.record_notes = record;
    SimDriver driver(Limits(10), options, 0, kEndRate);
    std::map<SchedNote::Kind, int64_t> sums;
    for (RequestId id = 1; id <= 2; ++id) {
      driver.Submit(MakeRequest(id, 32, 1));  // 8 pages of 10
      ASSERT_TRUE(driver.RunToEnd());
      for (const SchedNote& note : driver.scheduler().TakeNotes()) sums[note.kind] += note.value;
    }
    EXPECT_TRUE(driver.scheduler().TakeNotes().empty()) << "taken once";
    EXPECT_EQ(sums[SchedNote::Kind::kPagesStored], record ? 16 : 0);
    EXPECT_EQ(sums[SchedNote::Kind::kPagesEvicted], record ? 6 : 0);
    driver.scheduler().ResetPrefixCache();
    const auto notes = driver.scheduler().TakeNotes();
    ASSERT_EQ(notes.size(), record ? 1u : 0u);
    if (!record) continue;
    EXPECT_EQ(notes[0].kind, SchedNote::Kind::kCacheReset);
  }
}

// No page is reserved: a request that needs all pages runs, and one token more never fits.
TEST(CachedPrefixTest, ARequestMayTakeEveryPageThereIs) {
  SimDriver driver(Limits(10), Options(), 1, kEndRate);
  const Request all = MakeRequest(1, 20, 21), more = MakeRequest(2, 20, 22);
  driver.Submit(all);
  driver.Submit(more);
  EXPECT_EQ(driver.answers()[2].error_code, "length_exceeded");
  ASSERT_TRUE(driver.RunToEnd());
  ExpectRight(driver, all);
  EXPECT_EQ(driver.scheduler().Stats().pages_peak, 10);
}

}  // namespace
}  // namespace minisgl::peers
