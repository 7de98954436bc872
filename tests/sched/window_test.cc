// Layers with a sliding window give up pages that left it: what is planned with fewer window pages
// than pages, what is shared, and when it has to be computed again.
#include <gtest/gtest.h>

#include "minisgl/base/window_math.h"
#include "sched/peers_fixture.h"

namespace minisgl::peers {
namespace {

using sim::SimDriver;

constexpr int32_t kWindow = 9;
// Entitlement of one request: a window and two tokens in flight, in pages of 4.
constexpr int32_t kEntitled = 4;

EngineLimits WindowLimits(int32_t num_pages, int32_t num_window_pages, int32_t max_running = 8) {
  EngineLimits limits = Limits(num_pages, max_running);
  limits.sliding_window = kWindow;
  limits.num_window_pages = num_window_pages;
  return limits;
}

Request Continue(RequestId id, const Request& before, int64_t max_tokens) {
  Request request = before;
  request.id = id;
  const std::vector<TokenId> answer = AnswerOf(before);
  request.prompt.insert(request.prompt.end(), answer.begin(), answer.end());
  request.prompt.push_back(static_cast<TokenId>(id));
  request.max_tokens = max_tokens;
  return request;
}

TEST(WindowTest, TheEntitlementIsAWindowAndTheStepsInFlight) {
  EXPECT_EQ((WindowMath{4, kWindow}.PagesOf(2)), kEntitled);
}

TEST(WindowTest, ALongRequestRunsInAFractionOfItsLength) {
  for (const int depth : {0, 1}) {
    SimDriver driver(WindowLimits(100, kEntitled), Options(), depth, kEndRate);
    const Request request = MakeRequest(1, 150, 200);
    driver.Submit(request);
    ASSERT_TRUE(driver.RunToEnd());
    ExpectRight(driver, request);
    const SchedulerStats stats = driver.scheduler().Stats();
    EXPECT_GT(stats.reclaimed_window_pages, 70);
    EXPECT_EQ(stats.preemptions, 0);
    EXPECT_EQ(stats.pages_cached, 349 / 4) << "the pages themselves stay";
  }
}

TEST(WindowTest, WithoutWindowPagesAPlanNamesNone) {
  SimDriver driver(Limits(100), Options(), 0, kEndRate);
  driver.Submit(MakeRequest(1, 20, 3));
  const auto plan = Launch(driver);
  EXPECT_TRUE(plan->window_pages.empty() && plan->window_slots.empty());
}

TEST(WindowTest, APlanNamesAWindowPageForEachPageAndASlotForEachToken) {
  SimDriver driver(WindowLimits(100, 50), Options(), 0, kEndRate);
  driver.Submit(MakeRequest(1, 20, 3));
  const auto plan = Launch(driver);
  EXPECT_EQ(plan->window_pages.size(), plan->pages.size());
  EXPECT_EQ(plan->window_slots.size(), 20u);
  for (const WindowPageId page : plan->window_pages) EXPECT_LT(page, 50);
}

// A chunk may borrow only window pages that are not promised.
TEST(WindowTest, AChunkIsAsLongAsThereAreWindowPagesFor) {
  SimDriver driver(WindowLimits(100, kEntitled + 3), Options(), 0, kEndRate);
  const Request request = MakeRequest(1, 100, 3);
  driver.Submit(request);
  const auto plan = Launch(driver);
  EXPECT_EQ(plan->num_tokens(), (kEntitled + 3) * 4);
  ASSERT_TRUE(driver.RunToEnd());
  ExpectRight(driver, request);
}

// Admission leaves window pages for chunks, so a long prompt beside many decoding rows is not slow.
TEST(WindowTest, APromptGoesOnAtFullSpeedBesideManyThatRun) {
  SimDriver driver(WindowLimits(400, 10 * kEntitled, 20), Options(32), 0, kEndRate);
  for (RequestId id = 1; id <= 9; ++id) driver.Submit(MakeRequest(id, 3, 100));
  const Request prompt = MakeRequest(10, 250, 3);
  driver.Submit(prompt);
  int chunks = 0;
  while (!driver.scheduler().Idle()) {
    ASSERT_TRUE(driver.Step());
    chunks += TokensOf(driver.last_plan(), prompt) > 1 ? 1 : 0;
  }
  ExpectRight(driver, prompt);
  EXPECT_LE(chunks, 250 / 32 + 2);
}

TEST(WindowTest, AGuaranteedRequestWaitsForWindowPages) {
  SimDriver driver(WindowLimits(200, 2 * kEntitled + 3), Options(), 1, kEndRate);
  const Request requests[] = {MakeRequest(1, 40, 30), MakeRequest(2, 41, 30),
                              MakeRequest(3, 42, 30)};
  for (const Request& request : requests) driver.Submit(request);
  int64_t most = 0;
  while (!driver.scheduler().Idle()) {
    ASSERT_TRUE(driver.Step());
    most = std::max(most, driver.scheduler().Stats().running);
  }
  EXPECT_EQ(most, 2);
  EXPECT_EQ(driver.scheduler().Stats().preemptions, 0);
  for (const Request& request : requests) ExpectRight(driver, request);
}

// A short request is promised the pages of its length, not a whole window.
TEST(WindowTest, ShortRequestsArePromisedTheirLength) {
  SimDriver driver(WindowLimits(200, kEntitled + 3), Options(), 1, kEndRate);
  for (RequestId id = 1; id <= 3; ++id) driver.Submit(MakeRequest(id, 6, 3));  // 2 pages each
  ASSERT_NE(Launch(driver), nullptr);
  EXPECT_EQ(driver.scheduler().Stats().running, 3);
}

TEST(WindowTest, AShortageOfWindowPagesPreempts) {
  SimDriver driver(WindowLimits(200, kEntitled + 1), Optimistic(QueuePolicy::kFcfs), 1, kEndRate);
  const Request requests[] = {MakeRequest(1, 3, 60), MakeRequest(2, 4, 60), MakeRequest(3, 2, 60)};
  for (const Request& request : requests) driver.Submit(request);
  ASSERT_TRUE(driver.RunToEnd());
  EXPECT_GT(driver.scheduler().Stats().preemptions, 0);
  for (const Request& request : requests) ExpectRight(driver, request);
}

TEST(WindowTest, AMatchNeedsNoMoreThanItsLastWindow) {
  SimDriver driver(WindowLimits(200, kEntitled), Options(), 1, kEndRate);
  const Request first = MakeRequest(1, 100, 21);  // keys of 120 tokens: 30 pages
  driver.Submit(first);
  ASSERT_TRUE(driver.RunToEnd());
  EXPECT_GT(driver.scheduler().Stats().reclaimed_window_pages, 20);
  const Request next = Continue(2, first, 5);
  driver.Submit(next);
  ASSERT_TRUE(driver.RunToEnd());
  ExpectRight(driver, next);
  EXPECT_EQ(driver.answers()[2].cached_tokens, 120) << "holes before the last window do not matter";
}

TEST(WindowTest, AMatchEndsBeforeAHoleWithinItsReach) {
  SimDriver driver(WindowLimits(200, 2 * kEntitled), Options(), 1, kEndRate);
  const Request first = MakeRequest(1, 64, 1), other = MakeRequest(2, 18, 1);
  driver.Submit(first);
  ASSERT_TRUE(driver.RunToEnd());
  driver.Submit(other);  // reclaims five window pages
  ASSERT_TRUE(driver.RunToEnd());
  // Only the last three of the first 16 pages have a window page: no shorter prefix has the two
  // pages that its window needs.
  Request shorter = first;
  shorter.id = 3;
  shorter.prompt.resize(57);
  driver.Submit(shorter);
  ASSERT_TRUE(driver.RunToEnd());
  ExpectRight(driver, shorter);
  EXPECT_EQ(driver.answers()[3].cached_tokens, 0);
}

// Pages computed again fill the holes: later matches find them.
TEST(WindowTest, WhatIsComputedAgainFillsTheHoles) {
  SimDriver driver(WindowLimits(200, 2 * kEntitled), Options(), 1, kEndRate);
  const Request first = MakeRequest(1, 31, 1);
  Request again = first, third = first;
  again.id = 2;
  third.id = 3;
  driver.Submit(first);
  ASSERT_TRUE(driver.RunToEnd());
  driver.Submit(MakeRequest(9, 36, 1));  // reclaims all
  ASSERT_TRUE(driver.RunToEnd());
  driver.Submit(again);
  ASSERT_TRUE(driver.RunToEnd());
  EXPECT_EQ(driver.answers()[2].cached_tokens, 0);
  EXPECT_GT(driver.scheduler().Stats().remapped_pages, 0);
  const int64_t cached = driver.scheduler().Stats().pages_cached;
  driver.Submit(third);
  ASSERT_TRUE(driver.RunToEnd());
  EXPECT_EQ(driver.answers()[3].cached_tokens, 28);
  EXPECT_EQ(driver.scheduler().Stats().pages_cached, cached);
  for (const Request& request : {first, again, third}) ExpectRight(driver, request);
}

// One request has moved past the shared prefix, the other begins after it: window pages that the
// second needs stay while it needs them.
TEST(WindowTest, ReadersAtDifferentPlacesKeepWhatEachNeeds) {
  for (const auto cache : {CacheKind::kRadix, CacheKind::kNaive}) {
    SchedulerOptions options = Options(16);
    options.cache = cache;
    SimDriver driver(WindowLimits(300, 3 * kEntitled), options, 1, kEndRate);
    const Request first = MakeRequest(1, 48, 120);
    Request second = first, third = first;
    second.id = 2;
    second.prompt.push_back(7);
    second.max_tokens = 40;
    third.id = 3;
    third.prompt.resize(40);
    third.max_tokens = 90;
    driver.Submit(first);
    for (int i = 0; i < 12; ++i) ASSERT_TRUE(driver.Step());
    driver.Submit(second);
    for (int i = 0; i < 6; ++i) ASSERT_TRUE(driver.Step());
    driver.Submit(third);
    ASSERT_TRUE(driver.RunToEnd());
    for (const Request& request : {first, second, third}) ExpectRight(driver, request);
  }
}

TEST(WindowTest, ASessionsNextTurnFindsItsLastWindowOrComputesAgain) {
  for (const bool is_disturbed : {false, true}) {
    SimDriver driver(WindowLimits(300, 2 * kEntitled), Options(), 1, kEndRate);
    driver.scheduler().OpenSession(5);
    Request turn = MakeRequest(1, 40, 20);
    turn.session = 5;
    driver.Submit(turn);
    ASSERT_TRUE(driver.RunToEnd());
    if (is_disturbed) {
      driver.Submit(MakeRequest(9, 70, 30));
      ASSERT_TRUE(driver.RunToEnd());
    }
    Request next = Continue(2, turn, 10);
    driver.Submit(next);
    ASSERT_TRUE(driver.RunToEnd());
    ExpectRight(driver, next);
    EXPECT_EQ(driver.answers()[2].cached_tokens, is_disturbed ? 0 : 56);
    driver.scheduler().CloseSession(5);
  }
}

TEST(WindowTest, AbortsGiveEverythingBack) {
  for (int steps = 0; steps < 12; ++steps) {
    SimDriver driver(WindowLimits(100, 3 * kEntitled), Options(16), 1, kEndRate);
    for (RequestId id = 1; id <= 3; ++id) driver.Submit(MakeRequest(id, 20, 40));
    for (int i = 0; i < steps; ++i) driver.Step();
    for (RequestId id = 1; id <= 3; ++id) driver.scheduler().Abort(id);
    ASSERT_TRUE(driver.RunToEnd());
    EXPECT_EQ(driver.scheduler().ResetPrefixCache(), 0);
    EXPECT_EQ(driver.scheduler().Stats().window_pages_free, 3 * kEntitled);
  }
}

class UnwantedSource final : public KvSource {
 public:
  std::optional<int64_t> Lookup(RequestId, const PrefixKey&, int64_t) override {
    ADD_FAILURE() << "what it writes has no place for window pages";
    return 0;
  }
  void Load(RequestId, const PrefixKey&, int64_t, int64_t, std::span<const PageId>,
            StateSlot) override {}
  void Cancel(RequestId) override {}
  std::vector<KvLoadResult> TakeFinished() override { return {}; }
};

TEST(WindowTest, ASourceOfKeysIsNotAsked) {
  UnwantedSource source;
  SchedulerOptions options = Options();
  options.kv_source = &source;
  SimDriver driver(WindowLimits(100, 2 * kEntitled), options, 1, kEndRate);
  const Request request = MakeRequest(1, 40, 3);
  driver.Submit(request);
  ASSERT_TRUE(driver.RunToEnd());
  ExpectRight(driver, request);
}

TEST(WindowDeathTest, TooFewWindowPagesForOneRequestIsABug) {
  EXPECT_DEATH(Scheduler(WindowLimits(100, kEntitled - 1), Options()), "3 window pages");
}

}  // namespace
}  // namespace minisgl::peers
