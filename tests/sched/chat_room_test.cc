// What other requests compute beside a chat's turn.
#include <gtest/gtest.h>

#include <vector>

#include "sched/sched_fixture.h"
#include "sim/sim_driver.h"

namespace minisgl::sched {
namespace {

using sim::SimDriver;

constexpr RequestId kTurn = 99;

EngineLimits RoomLimits(int32_t num_pages = 400) {
  EngineLimits limits;
  limits.vocab_size = kVocab;
  limits.page_size = 4;
  limits.num_pages = num_pages;
  limits.max_running_requests = 12;
  limits.max_seq_len = 200;
  limits.max_step_tokens = 32 + limits.max_running_requests;
  return limits;
}

SchedulerOptions RoomOptions(int64_t room, int64_t keys_per_token = 0) {
  SchedulerOptions options;
  options.max_prefill_tokens = 32;
  options.step = StepPolicy::kMixed;
  options.admission = AdmissionPolicy::kOptimistic;
  options.queue = QueuePolicy::kPriority;
  options.room_beside_chat = room;
  options.keys_per_token = keys_per_token;
  return options;
}

// Ten rows whose prompts are computed, and then a turn whose prompt is, too.
struct Crowd {
  explicit Crowd(SimDriver* driver) {
    for (RequestId id = 1; id <= 10; ++id) {
      rows.push_back(MakeRequest(id, 8, 60));
      driver->Submit(rows.back());
    }
    while (driver->answers()[10].tokens.empty()) driver->Step();
    turn = MakeRequest(kTurn, 8, 20, kChatPriority);
    driver->Submit(turn);
    driver->Step();
    EXPECT_EQ(driver->answers()[kTurn].tokens.size(), 1u) << "the turn waits for no other step";
  }
  std::vector<Request> rows;
  Request turn;
};

int64_t TokensOf(SimDriver& driver) {
  int64_t tokens = 0;
  for (RequestId id = 1; id <= 10; ++id) tokens += std::ssize(driver.answers()[id].tokens);
  return tokens;
}

TEST(ChatRoomTest, AStepBesideATurnHasFewOtherRowsAndTheOldestGoFirst) {
  SimDriver driver(RoomLimits(), RoomOptions(3000), 0, kEndRate);
  const Crowd crowd(&driver);
  const size_t first = driver.answers()[1].tokens.size();
  const size_t fourth = driver.answers()[4].tokens.size();
  for (size_t step = 1; step < 20; ++step) {
    driver.Step();
    EXPECT_EQ(driver.last_plan().num_rows(), 1 + 3);
    EXPECT_EQ(driver.answers()[kTurn].tokens.size(), 1 + step) << "a token in each step";
  }
  EXPECT_EQ(driver.answers()[1].tokens.size(), first + 19);
  EXPECT_EQ(driver.answers()[4].tokens.size(), fourth) << "it keeps its pages and waits";
  driver.Step();
  EXPECT_EQ(driver.last_plan().num_rows(), 10) << "after the turn all go on";
  ASSERT_TRUE(driver.RunToEnd());
  for (const Request& row : crowd.rows) ExpectRight(driver, row);
  ExpectRight(driver, crowd.turn);
  EXPECT_EQ(driver.scheduler().Stats().preemptions, 0);
}

TEST(ChatRoomTest, WithoutABoundAllRowsAreInEachStep) {
  SimDriver driver(RoomLimits(), RoomOptions(0), 0, kEndRate);
  const Crowd crowd(&driver);
  driver.Step();
  EXPECT_EQ(driver.last_plan().num_rows(), 11);
  ASSERT_TRUE(driver.RunToEnd());
  ExpectRight(driver, crowd.turn);
}

TEST(ChatRoomTest, RoomForLessThanARowIsSaved) {
  SimDriver driver(RoomLimits(), RoomOptions(250), 0, kEndRate);
  const Crowd crowd(&driver);
  const int64_t before = TokensOf(driver);
  for (int step = 0; step < 16; ++step) driver.Step();
  EXPECT_EQ(TokensOf(driver) - before, 4) << "one row in each fourth step";
  ASSERT_TRUE(driver.RunToEnd());
  for (const Request& row : crowd.rows) ExpectRight(driver, row);
}

// A row of 8 to 30 keys takes the room of two tokens and more.
TEST(ChatRoomTest, KeysTakeRoom) {
  SimDriver driver(RoomLimits(), RoomOptions(6000, 10), 0, kEndRate);
  const Crowd crowd(&driver);
  driver.Step();
  EXPECT_GE(driver.last_plan().num_rows(), 1 + 2);
  EXPECT_LE(driver.last_plan().num_rows(), 1 + 3);
  ASSERT_TRUE(driver.RunToEnd());
}

TEST(ChatRoomTest, PromptsTakeTheRoomThatRowsLeave) {
  SimDriver driver(RoomLimits(), RoomOptions(5000), 0, kEndRate);
  driver.Submit(MakeRequest(1, 8, 60));
  driver.Submit(MakeRequest(kTurn, 8, 30, kChatPriority));
  driver.Step();
  driver.Submit(MakeRequest(2, 60, 4));
  driver.Step();
  EXPECT_EQ(driver.last_plan().num_tokens(), 1 + 1 + 4);
  ASSERT_TRUE(driver.RunToEnd());
  ExpectRight(driver, MakeRequest(2, 60, 4));
}

// The keys of a chunk's last token count for all of its tokens: 5 take room 7,500, 6 take 9,600.
TEST(ChatRoomTest, AChunkOfAPromptTakesNoMoreRoomThanThereIs) {
  SimDriver driver(RoomLimits(), RoomOptions(8000, 10), 0, kEndRate);
  driver.Submit(MakeRequest(kTurn, 8, 30, kChatPriority));
  driver.Step();
  driver.Submit(MakeRequest(2, 60, 4));
  driver.Step();
  EXPECT_EQ(driver.last_plan().num_tokens(), 1 + 5);
  ASSERT_TRUE(driver.RunToEnd());
  ExpectRight(driver, MakeRequest(2, 60, 4));
}

// The oldest row has many keys and needs more room than a step has; the others do not pass it.
TEST(ChatRoomTest, ALongRowIsNotOvertakenForEver) {
  SimDriver driver(RoomLimits(), RoomOptions(2000, 10), 0, kEndRate);
  const Request longest = MakeRequest(1, 60, 20);
  driver.Submit(longest);
  for (RequestId id = 2; id <= 6; ++id) driver.Submit(MakeRequest(id, 8, 60));
  const auto has_begun = [&driver](RequestId id) { return !driver.answers()[id].tokens.empty(); };
  while (!has_begun(1) || !has_begun(6)) driver.Step();
  driver.Submit(MakeRequest(kTurn, 8, 40, kChatPriority));
  const size_t before = driver.answers()[1].tokens.size();
  for (int step = 0; step < 36; ++step) driver.Step();
  EXPECT_GE(driver.answers()[1].tokens.size(), before + 8) << "a token in each fourth step or so";
  ASSERT_TRUE(driver.RunToEnd());
  ExpectRight(driver, longest);
}

// Rows that hold what a turn waits for are not slowed down: the pool has no page for it, and no row
// may be preempted.
TEST(ChatRoomTest, ATurnThatCannotBeAdmittedBoundsNothing) {
  SchedulerOptions options = RoomOptions(1000);
  options.admission = AdmissionPolicy::kReserve;
  SimDriver driver(RoomLimits(4 * 8), options, 0, kEndRate);
  for (RequestId id = 1; id <= 4; ++id) driver.Submit(MakeRequest(id, 8, 24));
  while (driver.answers()[4].tokens.empty()) driver.Step();
  driver.Submit(MakeRequest(kTurn, 8, 24, kChatPriority));
  driver.Step();
  EXPECT_EQ(driver.last_plan().num_rows(), 4);
  EXPECT_TRUE(driver.answers()[kTurn].tokens.empty());
  ASSERT_TRUE(driver.RunToEnd());
  ExpectRight(driver, MakeRequest(kTurn, 8, 24, kChatPriority));
}

TEST(ChatRoomTest, PrefillFirstBoundsTheRowsOfAnswers) {
  SchedulerOptions options = RoomOptions(2000);
  options.step = StepPolicy::kPrefillFirst;
  SimDriver driver(RoomLimits(), options, 0, kEndRate);
  const Crowd crowd(&driver);
  driver.Step();
  EXPECT_EQ(driver.last_plan().num_rows(), 1 + 2);
  ASSERT_TRUE(driver.RunToEnd());
  for (const Request& row : crowd.rows) ExpectRight(driver, row);
}

// With one more step planned, the turn would wait for two.
TEST(ChatRoomTest, WhileASessionIsOpenNoStepIsPlannedBesideALongOne) {
  for (const int64_t longest : {0, 4}) {
    SchedulerOptions options = RoomOptions(3000);
    options.long_step_tokens = longest;
    SimDriver driver(RoomLimits(), options, 1, kEndRate);
    for (RequestId id = 1; id <= 10; ++id) driver.Submit(MakeRequest(id, 8, 60));
    for (int step = 0; step < 10; ++step) driver.Step();
    EXPECT_EQ(driver.engine().in_flight(), 1) << "without a session steps overlap";
    driver.scheduler().OpenSession(7);
    Request turn = MakeRequest(kTurn, 8, 1, kChatPriority);
    turn.session = 7;
    driver.Submit(turn);
    while (driver.answers()[kTurn].num_ends == 0) driver.Step();
    while (driver.engine().in_flight() > 0) driver.CollectOne();
    ASSERT_NE(driver.Launch(), nullptr);
    EXPECT_EQ(driver.Launch() == nullptr, longest > 0);
    driver.scheduler().CloseSession(7);
    ASSERT_TRUE(driver.RunToEnd());
    for (RequestId id = 1; id <= 10; ++id) ExpectRight(driver, MakeRequest(id, 8, 60));
  }
}

TEST(ChatRoomTest, ThePromptsProgressIsToldIfItIsWanted) {
  SimDriver driver(RoomLimits(), RoomOptions(0), 0, kEndRate);
  Request request = MakeRequest(1, 100, 2);
  request.wants_progress = true;
  driver.Submit(request);
  ASSERT_TRUE(driver.RunToEnd());
  EXPECT_EQ(driver.answers()[1].progress, (std::vector<int64_t>{32, 64, 96}));
  driver.Submit(MakeRequest(2, 100, 2));
  ASSERT_TRUE(driver.RunToEnd());
  EXPECT_TRUE(driver.answers()[2].progress.empty());
  ExpectRight(driver, request);
}

}  // namespace
}  // namespace minisgl::sched
