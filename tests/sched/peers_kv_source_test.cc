// Scenarios that other schedulers of the field are tested for (tests/sim/PEERS.md): KV from a
// source.
#include <map>
#include <set>

#include "sched/peers_fixture.h"

namespace minisgl::peers {
namespace {

using sim::SimDriver;

// A source whose answers, and ends of loads, the test sets for each request.
class ToldSource : public KvSource {
 public:
  struct LoadJob {
    std::vector<TokenId> tokens;
    int64_t begin = 0, count = 0;
    std::vector<PageId> pages;
  };

  std::optional<int64_t> Lookup(RequestId id, const PrefixKey&, int64_t cached_len) override {
    lookups.emplace_back(id, cached_len);
    if (unknown.contains(id)) return std::nullopt;
    return past_cache.contains(id) ? past_cache[id] : 0;
  }
  void Load(RequestId id, const PrefixKey& key, int64_t begin, int64_t count,
            std::span<const PageId> pages, StateSlot) override {
    engine->BeginLoad(pages);
    jobs[id] = {
        {key.tokens().begin(), key.tokens().end()}, begin, count, {pages.begin(), pages.end()}};
    ++num_loads;
  }
  void Cancel(RequestId) override {}
  std::vector<KvLoadResult> TakeFinished() override { return std::exchange(finished, {}); }

  // Ends the load with all requested tokens.
  void Finish(RequestId id) {
    const LoadJob job = jobs.at(id);
    jobs.erase(id);
    engine->EndLoad(job.pages, job.tokens, job.begin, job.count);
    finished.push_back({id, job.count, false});
  }
  void FinishAll() {
    while (!jobs.empty()) Finish(jobs.begin()->first);
  }

  sim::SimEngine* engine = nullptr;
  std::map<RequestId, int64_t> past_cache;  // tokens that it has past the cached ones
  std::set<RequestId> unknown;              // requests about which it does not know yet
  std::vector<std::pair<RequestId, int64_t>> lookups;
  std::map<RequestId, LoadJob> jobs;
  int num_loads = 0;
  std::vector<KvLoadResult> finished;
};

class ToldSourceTest : public testing::Test {
 protected:
  void Start(int32_t num_pages, SchedulerOptions options = Options(), int32_t max_running = 8,
             int depth = 1) {
    source_ = ToldSource();
    options.kv_source = &source_;
    driver_ = std::make_unique<SimDriver>(Limits(num_pages, max_running), options, depth, kEndRate);
    source_.engine = &driver_->engine();
  }
  void StepAll() {
    while (driver_->Step()) {
    }
  }
  // Runs to the end; every load ends as soon as it begins.
  void RunToEnd() {
    for (int step = 0; step < 1000 && !driver_->scheduler().Idle(); ++step) {
      source_.FinishAll();
      driver_->Step();
    }
    ASSERT_TRUE(driver_->scheduler().Idle());
  }
  SchedulerStats Stats() { return driver_->scheduler().Stats(); }

  ToldSource source_;
  std::unique_ptr<SimDriver> driver_;
};

TEST_F(ToldSourceTest, TheSourceGoesOnWhereTheCacheEndsAndBothAreCounted) {
  Start(100);
  source_.past_cache = {{1, 8}, {2, 8}};
  const Request first = MakeRequest(1, 17, 3);
  driver_->Submit(first);
  StepAll();
  EXPECT_EQ(source_.jobs.at(1).begin, 0);
  EXPECT_EQ(source_.jobs.at(1).count, 8);
  RunToEnd();
  ExpectRight(*driver_, first);
  EXPECT_EQ(Stats().computed_tokens, 17 - 8);
  EXPECT_EQ(Stats().loaded_tokens, 8);
  EXPECT_EQ(Stats().cached_tokens, 8) << "loaded ones count";

  Request second = MakeRequest(2, 40, 3);
  std::copy(first.prompt.begin(), first.prompt.end(), second.prompt.begin());
  driver_->Submit(second);
  StepAll();
  EXPECT_EQ(source_.lookups.back(), (std::pair<RequestId, int64_t>{2, 16}));
  EXPECT_EQ(source_.jobs.at(2).begin, 16);
  EXPECT_EQ(source_.jobs.at(2).count, 8);
  RunToEnd();
  ExpectRight(*driver_, second);
  EXPECT_EQ(driver_->answers()[2].cached_tokens, 16 + 8);
  EXPECT_EQ(Stats().cached_tokens, 8 + 16 + 8);
  EXPECT_EQ(Stats().loaded_tokens, 16);
  EXPECT_EQ(Stats().computed_tokens, 17 - 8 + 40 - 16 - 8);
  EXPECT_EQ(driver_->scheduler().ResetPrefixCache(), 0);
  EXPECT_EQ(Stats().pages_free, 100);
}

TEST_F(ToldSourceTest, APromptAskedAboutAgainAndAgainCountsOnce) {
  Start(100);
  source_.unknown = {1};
  driver_->Submit(MakeRequest(1, 32, 2));
  for (int step = 0; step < 3; ++step) {
    EXPECT_EQ(Launch(*driver_), nullptr);
    EXPECT_EQ(Stats().prompt_tokens, 0);
  }
  EXPECT_GE(source_.lookups.size(), 3u);
  source_.unknown = {};
  EXPECT_EQ(Launch(*driver_)->extend_len(0), 32);
  EXPECT_EQ(Stats().prompt_tokens, 32);
}

TEST_F(ToldSourceTest, ALoadWithoutRoomBeginsWhenThereIsSome) {
  Start(/*num_pages=*/9);
  source_.past_cache = {{1, 8}, {2, 8}};
  const std::vector<Request> requests{MakeRequest(1, 24, 2), MakeRequest(2, 25, 2)};
  for (const Request& request : requests) driver_->Submit(request);
  StepAll();
  EXPECT_EQ(Stats().running, 1);
  EXPECT_EQ(Stats().waiting, 1);
  EXPECT_TRUE(source_.jobs.contains(1));
  EXPECT_FALSE(source_.jobs.contains(2));
  source_.Finish(1);
  StepAll();
  ExpectRight(*driver_, requests[0]);
  EXPECT_TRUE(source_.jobs.contains(2));
  source_.Finish(2);
  StepAll();
  ExpectRight(*driver_, requests[1]);
  EXPECT_TRUE(driver_->scheduler().Idle());
  EXPECT_EQ(Stats().pages_free + Stats().pages_cached, 9);
  EXPECT_EQ(Stats().pages_locked, 0);
}

// Two prefixes that both fit, of two requests that do not: if both were loaded, neither could go
// on.
TEST_F(ToldSourceTest, LoadsThatCannotBothEndInAnAnswerAreNotBothBegun) {
  for (const AdmissionPolicy admission :
       {AdmissionPolicy::kReserve, AdmissionPolicy::kOptimistic}) {
    SchedulerOptions options = Options();
    options.admission = admission;
    Start(/*num_pages=*/10, options);
    source_.past_cache = {{1, 16}, {2, 16}};
    const Request large = MakeRequest(1, 32, 4), small = MakeRequest(2, 20, 4);
    driver_->Submit(large);
    driver_->Submit(small);
    StepAll();
    EXPECT_EQ(source_.num_loads, 1);
    EXPECT_TRUE(source_.jobs.contains(1));
    source_.Finish(1);
    ASSERT_NE(Launch(*driver_), nullptr);
    EXPECT_FALSE(source_.jobs.contains(2));
    RunToEnd();
    ExpectRight(*driver_, large);
    ExpectRight(*driver_, small);
    EXPECT_EQ(Stats().preemptions, 0);
  }
}

TEST_F(ToldSourceTest, APreemptedRequestFindsSomeInTheCacheAndLoadsTheRest) {
  for (const int depth : {0, 1}) {
    Start(/*num_pages=*/7, Optimistic(QueuePolicy::kFcfs), 8, depth);
    source_.past_cache = {{1, 4}, {2, 4}};
    const std::vector<Request> requests{MakeRequest(1, 8, 12), MakeRequest(2, 9, 11)};
    for (const Request& request : requests) driver_->Submit(request);
    RunToEnd();
    for (const Request& request : requests) ExpectRight(*driver_, request);
    EXPECT_EQ(Stats().preemptions, 1);
    EXPECT_EQ(Stats().cached_tokens, 8) << "of first admissions";
    // Two pages were still cached when it was admitted again, and one more was loaded.
    EXPECT_EQ(source_.lookups.back(), (std::pair<RequestId, int64_t>{2, 8}));
    EXPECT_EQ(source_.num_loads, 3);
    EXPECT_EQ(Stats().loaded_tokens, 3 * 4);
    EXPECT_EQ(driver_->scheduler().ResetPrefixCache(), 0);
    EXPECT_EQ(Stats().pages_free, 7);
  }
}

// The pool is full, with the prefix that the request found: its load evicts no page of that prefix.
TEST_F(ToldSourceTest, PagesOfALoadAreNotThoseOfItsOwnMatch) {
  Start(/*num_pages=*/12);
  const Request seed = MakeRequest(1, 20, 1), other = MakeRequest(2, 28, 1);
  driver_->Submit(seed);
  ASSERT_TRUE(driver_->RunToEnd());
  driver_->Submit(other);  // younger in the cache than the seed
  ASSERT_TRUE(driver_->RunToEnd());
  EXPECT_EQ(Stats().pages_cached, 12);
  Request request = MakeRequest(3, 45, 3);
  std::copy(seed.prompt.begin(), seed.prompt.end(), request.prompt.begin());
  source_.past_cache = {{3, 20}};
  driver_->Submit(request);
  StepAll();
  ASSERT_EQ(source_.jobs.at(3).begin, 20);
  const auto& pages = source_.jobs.at(3).pages;
  EXPECT_EQ(std::set<PageId>(pages.begin(), pages.end()).size(), 5u);
  source_.Finish(3);
  StepAll();
  ExpectRight(*driver_, request);  // the engine saw each key in its place
  EXPECT_EQ(driver_->answers()[3].cached_tokens, 20 + 20);
}

TEST_F(ToldSourceTest, GatesAndLoadsEndInAnyOrderAndArrivalCounts) {
  Start(100, Options(), /*max_running=*/1);
  source_.unknown = {3};
  for (RequestId id = 1; id <= 4; ++id) {
    Request request = MakeRequest(id, 10, 2);
    request.is_gated = id <= 2;
    if (id == 4) {
      StepAll();  // the source is asked about the third, and nothing else may run
      EXPECT_EQ(Stats().running, 0);
    }
    driver_->Submit(request);
  }
  source_.unknown = {};
  driver_->scheduler().OpenGate(2);
  driver_->scheduler().OpenGate(1);
  EXPECT_EQ(OrderOfAdmissions(*driver_), (std::vector<RequestId>{1, 2, 3, 4}));
}

TEST_F(ToldSourceTest, HeldForDifferentReasonsTheyKeepTheirOrder) {
  SchedulerOptions options = Options(/*max_prefill_tokens=*/20);
  options.long_prefill_threshold = 20;
  Start(200, options);
  driver_->scheduler().OpenSession(7);
  Request running_turn = MakeRequest(1, 4, 50);
  running_turn.session = 7;
  driver_->Submit(running_turn);
  ASSERT_TRUE(driver_->Step());
  Request gated = MakeRequest(2, 5, 2), unknown = MakeRequest(3, 6, 2), turn = MakeRequest(4, 7, 2);
  const Request regular = MakeRequest(5, 20, 30), tail = MakeRequest(6, 2, 2);
  gated.is_gated = true;
  source_.unknown = {3};
  turn.session = 7;
  for (const Request& request : {gated, unknown, turn, regular, tail}) driver_->Submit(request);
  driver_->scheduler().TakeNotes();
  Launch(*driver_);
  driver_->CollectOne();
  EXPECT_EQ(Noted(*driver_, SchedNote::Kind::kAdmitted), (std::vector<RequestId>{5}))
      << "its prompt is the budget";
  driver_->scheduler().Abort(5);
  driver_->scheduler().Abort(1);
  driver_->scheduler().OpenGate(2);
  source_.unknown = {};
  while (driver_->engine().in_flight() > 0) driver_->CollectOne();
  const auto plan = Launch(*driver_);
  EXPECT_EQ(plan->prompt_len, (std::vector<int32_t>{5, 6, 7, 2}));
  EXPECT_EQ(Noted(*driver_, SchedNote::Kind::kAdmitted), (std::vector<RequestId>{2, 3, 4, 6}));
  driver_->CollectOne();
  ASSERT_TRUE(driver_->RunToEnd());
  driver_->scheduler().CloseSession(7);
}

// An abort comes after the load ended and before the scheduler asked for that.
TEST_F(ToldSourceTest, AnAbortBetweenTheEndOfALoadAndItsTelling) {
  Start(100);
  source_.past_cache = {{1, 8}};
  driver_->Submit(MakeRequest(1, 20, 2));
  StepAll();
  source_.Finish(1);
  driver_->scheduler().Abort(1);
  EXPECT_FALSE(driver_->scheduler().Idle());
  EXPECT_EQ(Launch(*driver_), nullptr);
  EXPECT_TRUE(driver_->scheduler().Idle());
  EXPECT_EQ(Stats().pages_free, 100);
  ASSERT_TRUE(driver_->RunToEnd());
  EXPECT_EQ(driver_->answers()[1].num_ends, 1);
  EXPECT_EQ(driver_->answers()[1].reason, EndReason::kAborted);
}

// The load ends long after its request, while others come and go.
TEST_F(ToldSourceTest, ALoadMayEndLongAfterItsRequest) {
  Start(30);
  source_.past_cache = {{1, 8}};
  driver_->Submit(MakeRequest(1, 20, 2));
  StepAll();
  driver_->scheduler().TimeOut(1);
  for (RequestId id = 2; id <= 6; ++id) {
    const Request other = MakeRequest(id, 40, 9);
    driver_->Submit(other);
    StepAll();
    ExpectRight(*driver_, other);
  }
  EXPECT_EQ(Stats().pages_free + Stats().pages_cached, 30 - 2);
  source_.Finish(1);
  ASSERT_TRUE(driver_->RunToEnd());
  EXPECT_EQ(Stats().pages_free + Stats().pages_cached, 30);
}

using ToldSourceDeathTest = ToldSourceTest;

TEST_F(ToldSourceDeathTest, TheEndOfALoadThatNeverBeganIsABug) {
  Start(100);
  source_.past_cache = {{1, 8}};
  driver_->Submit(MakeRequest(1, 20, 2));
  StepAll();
  source_.finished.push_back({99, 8, false});
  EXPECT_DEATH(driver_->scheduler().Next(), "a load of request 99 ended that never began");
  source_.finished.clear();
  source_.FinishAll();
  ASSERT_TRUE(driver_->RunToEnd());
}

}  // namespace
}  // namespace minisgl::peers
