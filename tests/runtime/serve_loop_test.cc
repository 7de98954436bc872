// The serving loop driven by the test, with a clock that the test moves: deadlines, sessions,
// figures, failures.
#include "runtime/serve_loop.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <new>
#include <stdexcept>
#include <vector>

#include "minisgl/base/check.h"
#include "minisgl/base/json.h"
#include "runtime/runtime_fixture.h"
#include "sim/sim_drafter.h"

namespace minisgl::runtime {
namespace {

EngineLimits OneRow() {
  EngineLimits limits = SmallLimits();
  limits.max_running_requests = 1;
  return limits;
}

bool IsPrefixOf(const std::vector<TokenId>& ids, const std::vector<TokenId>& whole) {
  return ids.size() <= whole.size() && std::equal(ids.begin(), ids.end(), whole.begin());
}

std::vector<TokenId> Right(const Prompt& prompt) {
  return sim::RightAnswer(prompt.ids, prompt.max_tokens, true, 50, 0);
}

TEST(ServeLoopTest, AQueuedRequestEndsAtItsDeadline) {
  LoopDriver driver({}, OneRow());
  const RequestId runs = driver.Submit(MakePrompt(1, 10, 60));
  const RequestId waits = driver.Submit(MakePrompt(2, 10, 60), 0.5);
  driver.Turns(5);
  EXPECT_EQ(driver.Told().count(waits), 0u);
  driver.Advance(0.5);
  driver.Turns(1);
  const Collected& told = driver.Told()[waits];
  EXPECT_EQ(told.num_done, 1);
  EXPECT_EQ(told.done.finish_reason, FinishReason::kTimeout);
  EXPECT_EQ(told.done.error_code, "");
  EXPECT_TRUE(told.ids.empty());
  driver.RunToRest();
  EXPECT_EQ(driver.Told()[runs].ids, Right(MakePrompt(1, 10, 60)));
  EXPECT_EQ(driver.loop.Stats().waiting_s.count(), 1) << "one was never admitted";
}

TEST(ServeLoopTest, ARunningRequestEndsAtItsDeadlineAndKeepsItsTokens) {
  for (const bool overlap : {false, true}) {
    RuntimeOptions options;
    options.overlap = overlap;
    LoopDriver driver(options);
    const Prompt prompt = MakePrompt(1, 10, 100);
    const RequestId id = driver.Submit(prompt, 0.5);
    const RequestId other = driver.Submit(MakePrompt(5, 10, 100));
    driver.Turns(10);
    driver.Advance(0.5);
    driver.RunToRest();
    const Collected& told = driver.Told()[id];
    EXPECT_EQ(told.num_done, 1);
    EXPECT_EQ(told.done.finish_reason, FinishReason::kTimeout);
    EXPECT_GE(told.ids.size(), 8u);
    EXPECT_LE(told.ids.size(), 11u);
    EXPECT_TRUE(IsPrefixOf(told.ids, Right(prompt)));
    EXPECT_EQ(told.done.usage.completion_tokens, static_cast<int64_t>(told.ids.size()));
    EXPECT_EQ(driver.Told()[other].ids.size(), 100u);
  }
}

TEST(ServeLoopTest, TheVocabularyEndsWithItsLastToken) {
  const TokenId last = SmallLimits().vocab_size - 1;
  for (const TokenId id : {TokenId{-1}, TokenId{0}, last, last + 1}) {
    LoopDriver driver;
    Prompt prompt = MakePrompt(1, 10, 5);
    prompt.ids.back() = id;
    const RequestId request = driver.Submit(prompt);
    driver.RunToRest();
    const bool is_token = id >= 0 && id <= last;
    EXPECT_EQ(driver.Told()[request].done.finish_reason == FinishReason::kError, !is_token) << id;
    EXPECT_EQ(driver.Told()[request].ids.size(), is_token ? 5u : 0u) << id;
  }
}

TEST(ServeLoopTest, AnAnswerThatIsWholeInTimeHasNoDeadlineLeft) {
  LoopDriver driver;
  const RequestId id = driver.Submit(MakePrompt(1, 10, 5), 0.5);
  EXPECT_TRUE(driver.loop.NextDeadline().has_value());
  driver.RunToRest();
  EXPECT_EQ(driver.Told()[id].done.finish_reason, FinishReason::kLength);
  EXPECT_FALSE(driver.loop.NextDeadline().has_value());
  driver.Advance(10);
  EXPECT_FALSE(driver.loop.Turn());
  EXPECT_EQ(driver.Told()[id].num_done, 1);
}

// The last token and the deadline come with the same step: the answer is complete.
TEST(ServeLoopTest, TheDeadlineIsLookedAtAfterTheStepThatWasUnderWay) {
  RuntimeOptions options;
  options.overlap = false;
  LoopDriver driver(options);
  const RequestId id = driver.Submit(MakePrompt(1, 10, 1), 0.5);
  driver.engine.before_launch = [&driver] { driver.Advance(1); };
  driver.RunToRest();
  EXPECT_EQ(driver.Told()[id].done.finish_reason, FinishReason::kLength);
}

TEST(ServeLoopTest, TheNextDeadlineIsTheEarliestAndCountsFromSubmit) {
  LoopDriver driver;
  const auto begin = driver.now;
  driver.Submit(MakePrompt(1, 10, 50), 3);
  driver.Submit(MakePrompt(2, 10, 50), 2);
  const RequestId none = driver.Submit(MakePrompt(3, 10, 50), 1e300);
  driver.Submit(MakePrompt(4, 10, 50), std::numeric_limits<double>::quiet_NaN());
  EXPECT_EQ(driver.loop.NextDeadline(), begin + std::chrono::seconds(2));
  driver.Advance(2);
  driver.Turns(1);
  EXPECT_EQ(driver.loop.NextDeadline(), begin + std::chrono::seconds(3));
  driver.Advance(2);
  driver.Turns(1);
  EXPECT_FALSE(driver.loop.NextDeadline().has_value());
  driver.RunToRest();
  EXPECT_EQ(driver.Told()[none].done.finish_reason, FinishReason::kLength);
}

TEST(ServeLoopTest, ATimeoutOfNothingEndsBeforeAnythingRuns) {
  LoopDriver driver;
  const RequestId zero = driver.Submit(MakePrompt(1, 10, 50), 0);
  const RequestId negative = driver.Submit(MakePrompt(1, 10, 50), -5);
  driver.RunToRest();
  EXPECT_EQ(driver.Told()[zero].done.finish_reason, FinishReason::kTimeout);
  EXPECT_EQ(driver.Told()[negative].done.finish_reason, FinishReason::kTimeout);
  EXPECT_EQ(driver.loop.Stats().scheduler.steps, 0);
}

TEST(ServeLoopTest, ATurnOfASessionWaitsForTheTurnBefore) {
  LoopDriver driver;
  driver.loop.OpenSession(1);
  Prompt first = MakePrompt(1, 10, 20);
  first.session = 1;
  Prompt second = first;
  const auto answer = Right(first);
  second.ids.insert(second.ids.end(), answer.begin(), answer.end());
  const RequestId a = driver.Submit(first);
  const RequestId b = driver.Submit(second);
  const RequestId other = driver.Submit(MakePrompt(20, 10, 5));
  while (driver.Told()[a].num_done == 0) {
    EXPECT_EQ(driver.Told().count(b), 0u) << "a turn ran beside the turn before it";
    driver.Turns(1);
  }
  EXPECT_EQ(driver.Told()[other].num_done, 1) << "the waiting turn held another request up";
  driver.RunToRest();
  EXPECT_EQ(driver.Told()[b].ids, Right(second));
  EXPECT_GE(driver.Told()[b].done.usage.cached_tokens, 24);
  // Idle, and the session holds pages: Turn above checked the page counts.
  const SchedulerStats stats = driver.loop.scheduler().Stats();
  EXPECT_EQ(stats.sessions, 1);
  EXPECT_GT(stats.session_pages, 0);
  driver.loop.CloseSession(1);
  EXPECT_FALSE(driver.loop.Turn());
  EXPECT_EQ(driver.loop.scheduler().Stats().sessions, 0);
  EXPECT_EQ(driver.loop.scheduler().Stats().pages_locked, 0);
}

TEST(ServeLoopTest, SessionsMayShareAPrefix) {
  LoopDriver driver;
  for (const SessionId session : {1, 2, 3}) {
    driver.loop.OpenSession(session);
    Prompt turn = MakePrompt(1, 40, 5);
    turn.session = session;
    driver.Submit(turn);
  }
  driver.RunToRest();
  const SchedulerStats stats = driver.loop.scheduler().Stats();
  EXPECT_GE(stats.pages_locked, 10);
  EXPECT_LE(stats.pages_locked, 12);
  driver.loop.AbortAll();
  driver.RunToRest();
  EXPECT_EQ(driver.loop.scheduler().Stats().pages_locked, 0);
}

TEST(ServeLoopTest, ClosingASessionAbortsItsTurns) {
  LoopDriver driver;
  driver.loop.OpenSession(1);
  Prompt turn = MakePrompt(1, 10, 50);
  turn.session = 1;
  const RequestId runs = driver.Submit(turn);
  const RequestId waits = driver.Submit(turn);
  const RequestId other = driver.Submit(MakePrompt(20, 10, 5));
  driver.Turns(4);
  driver.loop.CloseSession(1);
  driver.loop.CloseSession(1);
  driver.loop.CloseSession(77);
  driver.RunToRest();
  EXPECT_EQ(driver.Told()[runs].done.finish_reason, FinishReason::kAborted);
  EXPECT_FALSE(driver.Told()[runs].ids.empty());
  EXPECT_EQ(driver.Told()[waits].done.finish_reason, FinishReason::kAborted);
  EXPECT_EQ(driver.Told()[other].done.finish_reason, FinishReason::kLength);
  const RequestId late = driver.Submit(turn);
  EXPECT_EQ(driver.Told()[late].done.error_code, "invalid_row");
}

TEST(ServeLoopTest, MarksOutsideThePromptAreRefused) {
  LoopDriver driver;
  for (const std::vector<KeyMark>& marks :
       {std::vector<KeyMark>{{10, {}}}, {{-1, {}}}, {{5, {}}, {4, {}}}}) {
    Prompt prompt = MakePrompt(1, 10, 5);
    prompt.marks = marks;
    const RequestId id = driver.Submit(prompt);
    EXPECT_EQ(driver.Told()[id].done.error_code, "invalid_row");
  }
}

TEST(ServeLoopTest, AbortAllEndsEverythingAndClosesTheSessions) {
  LoopDriver driver({}, OneRow());
  driver.loop.OpenSession(1);
  driver.loop.OpenSession(2);
  Prompt turn = MakePrompt(1, 10, 50);
  turn.session = 2;
  driver.Submit(turn);
  for (TokenId first = 1; first < 5; ++first) driver.Submit(MakePrompt(first, 10, 50), 5);
  driver.Turns(4);
  driver.loop.AbortAll();
  driver.RunToRest();
  for (RequestId id = 1; id <= 5; ++id) {
    EXPECT_EQ(driver.Told()[id].num_done, 1);
    EXPECT_EQ(driver.Told()[id].done.finish_reason, FinishReason::kAborted);
  }
  EXPECT_TRUE(driver.loop.Idle());
  EXPECT_FALSE(driver.loop.NextDeadline().has_value());
  EXPECT_EQ(driver.loop.scheduler().Stats().sessions, 0);
  EXPECT_EQ(driver.loop.scheduler().Stats().pages_locked, 0);
}

TEST(ServeLoopTest, LatenciesAreThoseOfTheClock) {
  RuntimeOptions options;
  options.overlap = false;
  LoopDriver driver(options, OneRow());
  driver.Submit(MakePrompt(1, 10, 5));
  driver.Submit(MakePrompt(2, 10, 3));
  driver.Advance(1);
  driver.RunToRest();
  const RuntimeStats stats = driver.loop.Stats();
  // The second is admitted when the five steps of the first were collected.
  EXPECT_EQ(stats.waiting_s.count(), 2);
  EXPECT_DOUBLE_EQ(stats.waiting_s.sum(), 1 + 1.05);
  EXPECT_EQ(stats.first_token_s.count(), 2);
  EXPECT_DOUBLE_EQ(stats.first_token_s.sum(), 1.01 + 1.06);
  EXPECT_EQ(stats.between_tokens_s.count(), 4 + 2);
  EXPECT_NEAR(stats.between_tokens_s.sum(), 6 * 0.01, 1e-9);
  EXPECT_NEAR(stats.between_tokens_s.max(), 0.01, 1e-9);
  EXPECT_EQ(stats.host_step_s.count(), stats.scheduler.steps);
  EXPECT_EQ(stats.host_step_s.sum(), 0) << "time in the engine was counted as the host's";
  // The same, as the end events report it.
  const AnswerTimes first = driver.Told()[1].done.times, second = driver.Told()[2].done.times;
  EXPECT_NEAR(first.admitted_s, 1, 1e-9);
  EXPECT_NEAR(first.first_token_s, 1.01, 1e-9);
  EXPECT_NEAR(first.last_token_s, 1.05, 1e-9);
  EXPECT_NEAR(second.admitted_s, 1.05, 1e-9);
  EXPECT_NEAR(second.first_token_s, 1.06, 1e-9);
  EXPECT_NEAR(second.last_token_s, 1.08, 1e-9);
}

TEST(ServeLoopTest, APreemptedRequestHasWaitedOnce) {
  EngineLimits limits = SmallLimits();
  limits.num_pages = 50;
  RuntimeOptions options;
  options.scheduler.admission = AdmissionPolicy::kOptimistic;
  LoopDriver driver(options, limits);
  for (TokenId first = 0; first < 8; ++first) driver.Submit(MakePrompt(first * 5, 20, 80));
  driver.RunToRest();
  const RuntimeStats stats = driver.loop.Stats();
  EXPECT_GT(stats.scheduler.preemptions, 0) << "the case never arose";
  EXPECT_EQ(stats.waiting_s.count(), 8);
  EXPECT_EQ(stats.first_token_s.count(), 8);
  EXPECT_EQ(stats.between_tokens_s.count(), 8 * 79);
}

// Tokens of one step come at once; with drafts a step may give several.
TEST(ServeLoopTest, TokensOfOneStepHaveNoTimeBetweenThem) {
  EngineLimits limits = SmallLimits();
  limits.max_step_drafts = 16;
  RuntimeOptions options;
  options.scheduler.max_drafts = 4;
  options.scheduler.drafter =
      std::make_shared<sim::SimDrafter>(sim::DrafterPlan{80, 20}, limits.vocab_size, 0);
  std::string text;
  options.trace_sink = [&text](std::string_view piece) { text += piece; };
  LoopDriver driver(options, limits);
  const Prompt prompt = MakePrompt(1, 10, 100);
  const RequestId id = driver.Submit(prompt);
  driver.RunToRest();
  EXPECT_EQ(driver.Told()[id].ids, Right(prompt));
  const RuntimeStats stats = driver.loop.Stats();
  EXPECT_GT(stats.scheduler.accepted_drafts, 0);
  EXPECT_EQ(stats.between_tokens_s.count(), 99);
  EXPECT_NEAR(stats.between_tokens_s.sum(), static_cast<double>(stats.scheduler.steps - 1) * 0.01,
              1e-9);
  driver.loop.FinishTrace();
  const auto trace = ParseJson(text);
  ASSERT_TRUE(trace.ok()) << trace.status().message();
  int64_t drafts = 0, accepted = 0, prefills = 0;
  for (const Json& event : trace->Find("traceEvents")->as_array()) {
    const Json* count = event.Find("args")->Find("drafts");
    if (count != nullptr) drafts += count->as_int();
    const Json* const right = event.Find("args")->Find("accepted_drafts");
    if (right != nullptr) accepted += right->as_int();
    prefills += event.Find("name")->as_string() == "prefill" ? 1 : 0;
  }
  EXPECT_EQ(drafts, stats.scheduler.drafted_tokens);
  EXPECT_EQ(accepted, stats.scheduler.accepted_drafts);
  EXPECT_EQ(prefills, 1) << "a step that verifies drafts is a decode step";
}

// A sink receives each figure once, and those of a request before its end.
TEST(ServeLoopTest, AStatsSinkIsToldEverythingOnce) {
  TimedEngine::Time now{std::chrono::hours(1)};
  TimedEngine engine(SmallLimits(), &now);
  EventQueue queue;
  RuntimeStats seen;
  int num_with_histograms = 0, num_calls = 0, num_done = 0;
  RuntimeOptions options;
  options.scheduler.max_prefill_tokens = 32;
  const auto sink = [&](const RuntimeStats& news) {
    ++num_calls;
    num_with_histograms += news.host_step_s.count() + news.between_tokens_s.count() > 0 ? 1 : 0;
    seen.scheduler = news.scheduler;
    seen.between_tokens_s.Add(news.between_tokens_s);
    seen.first_token_s.Add(news.first_token_s);
    seen.waiting_s.Add(news.waiting_s);
    seen.host_step_s.Add(news.host_step_s);
  };
  ServeLoop loop(
      &engine, nullptr, options, [&now] { return now; }, sink);
  engine.step_time = std::chrono::milliseconds(1);
  loop.Submit({1, 0, MakePrompt(1, 10, 20), &queue, now});
  loop.Submit({2, 0, MakePrompt(9, 10, 100), &queue, now});
  for (bool more = true; more;) {
    more = loop.Turn();
    while (const auto event = queue.Pop(std::chrono::milliseconds(0))) {
      if (event->kind != Event::Kind::kDone) continue;
      ++num_done;
      EXPECT_EQ(seen.scheduler.finished, num_done);
      EXPECT_GE(seen.between_tokens_s.count(), event->usage.completion_tokens - 1);
    }
  }
  EXPECT_EQ(num_done, 2);
  EXPECT_EQ(seen.waiting_s.count(), 2);
  EXPECT_EQ(seen.first_token_s.count(), 2);
  EXPECT_EQ(seen.between_tokens_s.count(), 19 + 99);
  EXPECT_EQ(seen.host_step_s.count(), seen.scheduler.steps);
  EXPECT_LT(num_with_histograms, num_calls / 10) << "histograms go out with every step";
}

TEST(ServeLoopTest, AfterAFailureEachRequestGetsOneEnd) {
  LoopDriver driver;
  int launches = 0;
  driver.engine.before_launch = [&launches] {
    if (++launches == 5) throw std::bad_alloc();
  };
  driver.loop.OpenSession(1);
  for (TokenId first = 0; first < 12; ++first) driver.Submit(MakePrompt(first, 10, 50), 5);
  try {
    driver.RunToRest();
    FAIL() << "nothing was thrown";
  } catch (const std::bad_alloc&) {
    driver.loop.FailAll("internal", "out of memory");
  }
  EXPECT_EQ(driver.Told().size(), 12u);
  for (const auto& [id, told] : driver.Told()) {
    EXPECT_EQ(told.num_done, 1);
    EXPECT_EQ(told.done.error_code, "internal");
    EXPECT_EQ(told.done.error_message, "out of memory");
  }
  EXPECT_TRUE(driver.loop.Idle());
  EXPECT_FALSE(driver.loop.NextDeadline().has_value());
  EXPECT_FALSE(driver.loop.Turn());
  driver.loop.Abort(3);
  driver.loop.CloseSession(1);
  driver.loop.AbortAll();
  const RequestId late = driver.Submit(MakePrompt(1, 10, 50));
  EXPECT_EQ(driver.Told()[late].done.error_message, "out of memory");
}

// Another way to fail: while a request is being taken, after it was registered.
TEST(ServeLoopTest, ARequestThatBreaksTheLoopGetsOneEnd) {
  LoopDriver driver;
  Request twice;
  twice.id = 1;
  twice.prompt = {1, 2, 3};
  twice.max_tokens = 5;
  driver.loop.scheduler().Submit(twice);
  SetCheckHandler([](const std::string& what) { throw std::runtime_error(what); });
  Submission submission{1, 1, MakePrompt(1, 10, 5), &driver.queue, driver.now};
  EXPECT_THROW(driver.loop.Submit(std::move(submission)), std::runtime_error);
  SetCheckHandler(nullptr);
  EXPECT_EQ(submission.queue, nullptr) << "whoever holds it would tell it again";
  driver.loop.FailAll("internal", "broken");
  EXPECT_EQ(driver.Told()[1].num_done, 1);
  EXPECT_EQ(driver.Told()[1].done.error_message, "broken");
}

// A source that promises all whole pages and loads none.
class BrokenSource : public KvSource {
 public:
  std::optional<int64_t> Lookup(RequestId, const PrefixKey& key, int64_t cached_len) override {
    return static_cast<int64_t>(key.size()) / 4 * 4 - cached_len;
  }
  void Load(RequestId id, const PrefixKey&, int64_t, int64_t, std::span<const PageId>,
            StateSlot) override {
    finished_.push_back({id, 0, true});
  }
  void Cancel(RequestId) override {}
  std::vector<KvLoadResult> TakeFinished() override { return std::exchange(finished_, {}); }

 private:
  std::vector<KvLoadResult> finished_;
};

TEST(ServeLoopTest, ARequestThatFailsWhileAStepIsPlannedIsToldAtOnce) {
  BrokenSource source;
  RuntimeOptions options;
  options.scheduler.kv_source = &source;
  options.scheduler.kv_failure = KvFailurePolicy::kFail;
  LoopDriver driver(options);
  const RequestId id = driver.Submit(MakePrompt(1, 10, 5));
  for (int turns = 0; !driver.loop.Idle(); ++turns) {
    ASSERT_LT(turns, 10);
    driver.loop.Turn();
  }
  EXPECT_EQ(driver.Told()[id].num_done, 1);
  EXPECT_EQ(driver.Told()[id].done.error_code, "kv_load_failed");
}

TEST(ServeLoopTest, WhileAllWaitsForTheSourceThereIsNothingToDo) {
  SlowSource source(5);
  RuntimeOptions options;
  options.scheduler.kv_source = &source;
  LoopDriver driver(options);
  const RequestId id = driver.Submit(MakePrompt(1, 10, 5));
  EXPECT_FALSE(driver.loop.Turn());
  EXPECT_TRUE(driver.loop.WaitsOutside());
  EXPECT_FALSE(driver.loop.Idle());
  for (int turns = 0; !driver.loop.Turn(); ++turns) ASSERT_LT(turns, 10);
  driver.RunToRest();
  EXPECT_EQ(driver.Told()[id].ids, Right(MakePrompt(1, 10, 5)));
}

TEST(ServeLoopTest, ADeadlinePassesWhileTheSourceIsWaitedFor) {
  SlowSource source(1000000);
  RuntimeOptions options;
  options.scheduler.kv_source = &source;
  LoopDriver driver(options);
  const RequestId id = driver.Submit(MakePrompt(1, 10, 5), 1);
  driver.RunToRest();
  EXPECT_EQ(driver.Told().count(id), 0u);
  driver.Advance(1);
  EXPECT_FALSE(driver.loop.Turn());
  EXPECT_EQ(driver.Told()[id].done.finish_reason, FinishReason::kTimeout);
  EXPECT_TRUE(driver.loop.Idle());
}

}  // namespace
}  // namespace minisgl::runtime
