// Conversations: order of turns, the prefix kept between them, and the place kept free for them.
#include <gtest/gtest.h>

#include "sched/sched_fixture.h"
#include "sim/sim_driver.h"

namespace minisgl::sched {
namespace {

using sim::RightAnswer;
using sim::SimDriver;

constexpr SessionId kSession = 7;

EngineLimits SessionLimits(int32_t num_pages, int32_t max_running = 4) {
  EngineLimits limits;
  limits.vocab_size = kVocab;
  limits.page_size = 4;
  limits.num_pages = num_pages;
  limits.max_running_requests = max_running;
  limits.max_seq_len = 200;
  limits.max_step_tokens = 32 + max_running;
  return limits;
}

SchedulerOptions SessionOptions(AdmissionPolicy admission = AdmissionPolicy::kOptimistic) {
  SchedulerOptions options;
  options.max_prefill_tokens = 32;
  options.step = StepPolicy::kMixed;
  options.admission = admission;
  options.queue = QueuePolicy::kPriority;
  return options;
}

Request MakeTurn(RequestId id, std::vector<TokenId> prompt, int64_t max_tokens) {
  Request request;
  request.id = id;
  request.prompt = std::move(prompt);
  request.max_tokens = max_tokens;
  request.session = kSession;
  request.priority = kChatPriority;
  return request;
}

// Returns the prompt, its right answer, and another question.
std::vector<TokenId> Continue(const Request& turn) {
  std::vector<TokenId> prompt = turn.prompt;
  const auto answer = RightAnswer(turn.prompt, turn.max_tokens, false, kVocab, kEndRate);
  prompt.insert(prompt.end(), answer.begin(), answer.end());
  for (TokenId token = 1; token <= 5; ++token) prompt.push_back(token);
  return prompt;
}

TEST(SessionsTest, ATurnWaitsForTheEndOfTheTurnBeforeIt) {
  SimDriver driver(SessionLimits(100), SessionOptions(), 1, kEndRate);
  driver.scheduler().OpenSession(kSession);
  const Request first = MakeTurn(1, MakeRequest(1, 9, 1).prompt, 10);
  const Request second = MakeTurn(2, Continue(first), 10);
  driver.Submit(first);
  driver.Submit(second);
  while (!driver.answers()[1].ended) {
    EXPECT_TRUE(driver.answers()[2].tokens.empty());
    ASSERT_TRUE(driver.Step());
  }
  ASSERT_TRUE(driver.RunToEnd());
  EXPECT_EQ(driver.answers()[2].tokens, RightAnswer(second.prompt, 10, false, kVocab, kEndRate));
  // All whole pages of the first turn: 9 + 10 tokens, the last without keys.
  EXPECT_EQ(driver.answers()[2].cached_tokens, (9 + 10 - 1) / 4 * 4);
  driver.scheduler().CloseSession(kSession);
}

TEST(SessionsTest, ThePrefixSurvivesABatchThatFillsThePool) {
  for (const bool in_session : {false, true}) {
    SimDriver driver(SessionLimits(60), SessionOptions(AdmissionPolicy::kReserve), 1, kEndRate);
    driver.scheduler().OpenSession(kSession);
    Request first = MakeTurn(1, MakeRequest(1, 41, 1).prompt, 8);
    Request second = MakeTurn(2, Continue(first), 8);
    if (!in_session) first.session = second.session = 0;
    driver.Submit(first);
    ASSERT_TRUE(driver.RunToEnd());
    for (RequestId id = 10; id < 30; ++id) driver.Submit(MakeRequest(id, 40, 20));
    ASSERT_TRUE(driver.RunToEnd());
    driver.Submit(second);
    ASSERT_TRUE(driver.RunToEnd());
    EXPECT_EQ(driver.answers()[2].cached_tokens, in_session ? 48 : 0);
    EXPECT_EQ(driver.scheduler().Stats().session_pages > 0, in_session);
    driver.scheduler().CloseSession(kSession);
    EXPECT_EQ(driver.scheduler().Stats().pages_locked, 0);
    EXPECT_EQ(driver.scheduler().Stats().session_pages, 0);
  }
}

// A request that needs the whole pool gets it: a session loses its prefix if others need the pages.
TEST(SessionsTest, ThePrefixGoesWhereMemoryIsShort) {
  SimDriver driver(SessionLimits(20), SessionOptions(), 1, kEndRate);
  driver.scheduler().OpenSession(kSession);
  driver.Submit(MakeTurn(1, MakeRequest(1, 40, 1).prompt, 4));
  ASSERT_TRUE(driver.RunToEnd());
  EXPECT_GT(driver.scheduler().Stats().session_pages, 0);
  const Request large = MakeRequest(2, 50, 30);
  driver.Submit(large);
  ASSERT_TRUE(driver.RunToEnd());
  EXPECT_EQ(driver.answers()[2].tokens, RightAnswer(large.prompt, 30, false, kVocab, kEndRate));
  EXPECT_EQ(driver.scheduler().Stats().session_pages, 0);
  EXPECT_EQ(driver.scheduler().Stats().preemptions, 0);
}

TEST(SessionsTest, ARowIsKeptFreeWhileTheSessionIsOpen) {
  for (const bool is_open : {false, true}) {
    SimDriver driver(SessionLimits(400), SessionOptions(), 0, kEndRate);
    if (is_open) driver.scheduler().OpenSession(kSession);
    for (RequestId id = 10; id < 16; ++id) driver.Submit(MakeRequest(id, 4, 40));
    for (int i = 0; i < 3; ++i) driver.Step();
    EXPECT_EQ(driver.scheduler().Stats().running, is_open ? 3 : 4);
    if (!is_open) continue;
    driver.Submit(MakeTurn(1, {1, 2, 3, 4, 5}, 10));
    driver.Step();
    EXPECT_EQ(driver.scheduler().Stats().running, 4);
    EXPECT_FALSE(driver.answers()[1].tokens.empty());
    EXPECT_EQ(driver.scheduler().Stats().preemptions, 0);
  }
}

// As many sessions as rows, each with turns without a pause: a batch row is answered nevertheless.
TEST(SessionsTest, ManySessionsDoNotStarveABatchRow) {
  for (const QueuePolicy queue : {QueuePolicy::kPriority, QueuePolicy::kFcfs}) {
    SchedulerOptions options = SessionOptions();
    options.queue = queue;
    SimDriver driver(SessionLimits(400), options, 1, kEndRate);
    for (SessionId session = 1; session <= 4; ++session) driver.scheduler().OpenSession(session);
    RequestId next = 100;
    std::vector<RequestId> talking;
    const auto talk = [&](SessionId session) {
      Request turn = MakeTurn(next++, {1, 2, 3, static_cast<TokenId>(next % 70)}, 6);
      turn.session = session;
      driver.Submit(turn);
      return turn.id;
    };
    for (SessionId session = 1; session <= 3; ++session) talking.push_back(talk(session));
    driver.Submit(MakeRequest(1, 4, 5));
    for (int step = 0; step < 6000 && !driver.answers()[1].ended; ++step) {
      for (size_t i = 0; i < talking.size(); ++i) {
        if (driver.answers()[talking[i]].ended) talking[i] = talk(i + 1);
      }
      driver.Step();
    }
    EXPECT_TRUE(driver.answers()[1].ended);
  }
}

// A turn that waits for room keeps its own prefix, and no batch request overtakes it.
TEST(SessionsTest, ATurnThatWaitsForRoomKeepsItsPrefixAndItsPlace) {
  SimDriver driver(SessionLimits(100, /*max_running=*/20),
                   SessionOptions(AdmissionPolicy::kReserve), 1, kEndRate);
  driver.scheduler().OpenSession(kSession);
  const Request first = MakeTurn(1, MakeRequest(1, 60, 1).prompt, 9);
  const Request second = MakeTurn(2, Continue(first), 100);
  driver.Submit(first);
  ASSERT_TRUE(driver.RunToEnd());
  const int64_t kept = driver.scheduler().Stats().session_pages;
  for (RequestId id = 10; id < 40; ++id) driver.Submit(MakeRequest(id, 8, 12));
  for (int i = 0; i < 4; ++i) driver.Step();
  driver.Submit(second);
  size_t running = 100;
  while (driver.answers()[2].tokens.empty()) {
    ASSERT_TRUE(driver.Step());
    const SchedulerStats stats = driver.scheduler().Stats();
    if (driver.answers()[2].tokens.empty() && stats.session_pages == kept) {
      EXPECT_LE(static_cast<size_t>(stats.running), running);
      running = static_cast<size_t>(stats.running);
    }
  }
  ASSERT_TRUE(driver.RunToEnd());
  EXPECT_EQ(driver.answers()[2].cached_tokens, (60 + 9 - 1) / 4 * 4);
  EXPECT_EQ(driver.answers()[2].tokens, RightAnswer(second.prompt, 100, false, kVocab, kEndRate));
}

// With a single row, batch requests still run while a session is open, and its turn preempts them.
TEST(SessionsTest, TheOnlyRowServesBoth) {
  SimDriver driver(SessionLimits(100, /*max_running=*/1), SessionOptions(), 0, kEndRate);
  driver.scheduler().OpenSession(kSession);
  const Request row = MakeRequest(10, 4, 40);
  driver.Submit(row);
  for (int i = 0; i < 5; ++i) driver.Step();
  EXPECT_GT(driver.answers()[10].tokens.size(), 2u);
  driver.Submit(MakeTurn(1, {1, 2, 3, 4, 5}, 4));
  ASSERT_TRUE(driver.RunToEnd());
  EXPECT_EQ(driver.scheduler().Stats().preemptions, 1);
  EXPECT_EQ(driver.answers()[10].tokens, RightAnswer(row.prompt, 40, false, kVocab, kEndRate));
}

TEST(SessionsTest, ClosingEndsWhatRunsAndWhatWaits) {
  SimDriver driver(SessionLimits(100), SessionOptions(), 1, kEndRate);
  driver.scheduler().OpenSession(kSession);
  driver.Submit(MakeTurn(1, {1, 2, 3, 4, 5}, 100));
  driver.Submit(MakeTurn(2, {1, 2, 3, 4, 6}, 100));
  driver.Submit(MakeTurn(3, {1, 2, 3, 4, 7}, 100));
  for (int i = 0; i < 5; ++i) driver.Step();
  driver.scheduler().CloseSession(kSession);
  ASSERT_TRUE(driver.RunToEnd());
  driver.Submit(MakeTurn(4, {1, 2, 3, 4, 8}, 100));
  for (RequestId id = 1; id <= 4; ++id) {
    EXPECT_EQ(driver.answers()[id].num_ends, 1) << id;
    EXPECT_EQ(driver.answers()[id].reason, EndReason::kAborted) << id;
  }
  EXPECT_TRUE(driver.answers()[2].tokens.empty());
  driver.scheduler().CloseSession(kSession);  // twice: the second does nothing
  EXPECT_EQ(driver.scheduler().Stats().pages_locked, 0);
}

TEST(SessionsTest, AbortingAWaitingTurnLetsTheOneAfterItGo) {
  SimDriver driver(SessionLimits(100), SessionOptions(), 1, kEndRate);
  driver.scheduler().OpenSession(kSession);
  driver.Submit(MakeTurn(1, {1, 2, 3, 4, 5}, 20));
  driver.Submit(MakeTurn(2, {1, 2, 3, 4, 6}, 20));
  driver.Submit(MakeTurn(3, {1, 2, 3, 4, 7}, 20));
  driver.Step();
  driver.scheduler().Abort(2);
  ASSERT_TRUE(driver.RunToEnd());
  EXPECT_EQ(driver.answers()[1].tokens.size(), 20u);
  EXPECT_EQ(driver.answers()[2].reason, EndReason::kAborted);
  EXPECT_EQ(driver.answers()[3].tokens.size(), 20u);
}

// A turn that can never fit does not block the session.
TEST(SessionsTest, ATurnThatFailsIsNoTurn) {
  SimDriver driver(SessionLimits(100), SessionOptions(), 1, kEndRate);
  driver.scheduler().OpenSession(kSession);
  driver.Submit(MakeTurn(1, {1, 2, 3, 4, 5}, 1000));
  EXPECT_EQ(driver.answers()[1].error_code, "length_exceeded");
  driver.Submit(MakeTurn(2, {1, 2, 3, 4, 6}, 20));
  ASSERT_TRUE(driver.RunToEnd());
  EXPECT_EQ(driver.answers()[2].tokens.size(), 20u);
}

}  // namespace
}  // namespace minisgl::sched
