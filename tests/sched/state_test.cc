// Layers with a state: which slots rows read and write, which snapshots stay in the prefix cache,
// and what is computed again.
#include <gtest/gtest.h>

#include "sched/peers_fixture.h"

namespace minisgl::peers {
namespace {

using sim::SimDriver;

// With one step in flight beside the one that is planned.
constexpr int32_t kSlotsOfRequest = StateSlotsPerRequest(2);

EngineLimits StateLimits(int32_t num_slots, int32_t max_running = 8) {
  EngineLimits limits = Limits(400, max_running);
  limits.num_state_slots = num_slots;
  return limits;
}

// The first `shared` tokens of prompt 1, then `own` that no other id has.
Request Branch(RequestId id, int64_t shared, int64_t own, int64_t max_tokens = 3) {
  Request request = MakeRequest(id, own, max_tokens);
  const Request stem = MakeRequest(1, shared, 1);
  request.prompt.insert(request.prompt.begin(), stem.prompt.begin(), stem.prompt.end());
  return request;
}

int64_t CachedOf(SimDriver& driver, RequestId id) { return driver.answers()[id].cached_tokens; }

void AnswerAll(SimDriver& driver, const std::vector<Request>& requests) {
  for (const Request& request : requests) driver.Submit(request);
  ASSERT_TRUE(driver.RunToEnd());
  for (const Request& request : requests) ExpectRight(driver, request);
}

TEST(StateTest, ARowReadsOneSlotAndWritesAnother) {
  SimDriver driver(StateLimits(10), Options(), 0, kEndRate);
  driver.Submit(MakeRequest(1, 6, 3));
  const auto plan = Launch(driver);
  // The end of the prompt's last whole page is marked.
  ASSERT_EQ(plan->state_segments.size(), 2u);
  const StateSegment first = plan->state_segments[0], second = plan->state_segments[1];
  EXPECT_EQ(first.read, kZeroState);
  EXPECT_EQ(first.num_tokens, 4);
  EXPECT_EQ(second.read, first.write);
  EXPECT_EQ(second.num_tokens, 2);
  driver.CollectOne();
  const auto next = Launch(driver);
  ASSERT_EQ(next->state_segments.size(), 1u);
  EXPECT_EQ(next->state_segments[0].read, second.write);
  EXPECT_NE(next->state_segments[0].write, second.write);
}

TEST(StateTest, WithoutSlotsAPlanHasNoSegments) {
  SimDriver driver(Limits(100), Options(), 0, kEndRate);
  driver.Submit(MakeRequest(1, 20, 3));
  EXPECT_TRUE(Launch(driver)->state_segments.empty());
}

TEST(StateTest, TheSamePromptGoesOnFromItsLastWholePage) {
  SimDriver driver(StateLimits(10), Options(), 1, kEndRate);
  Request again = MakeRequest(1, 50, 3);
  AnswerAll(driver, {again});
  again.id = 2;
  AnswerAll(driver, {again});
  EXPECT_EQ(CachedOf(driver, 2), 48);
}

TEST(StateTest, PromptsThatWaitTogetherShareWhatTheyHaveInCommon) {
  for (const int depth : {0, 1}) {
    SimDriver driver(StateLimits(40), Options(32), depth, kEndRate);
    AnswerAll(driver, {Branch(2, 41, 20), Branch(3, 41, 21), Branch(4, 41, 22), Branch(5, 81, 23),
                       Branch(6, 81, 24)});
    for (const RequestId id : {3, 4}) EXPECT_EQ(CachedOf(driver, id), 40) << id;
    // One of these computes the other 40 tokens.
    EXPECT_EQ(CachedOf(driver, 5), 40);
    EXPECT_EQ(CachedOf(driver, 6), 80);
  }
}

TEST(StateTest, ThePrefixOfARequestThatCameLaterIsMarkedToo) {
  SimDriver driver(StateLimits(40), Options(16), 0, kEndRate);
  driver.Submit(Branch(2, 81, 20));
  ASSERT_TRUE(driver.Step());
  driver.Submit(Branch(3, 61, 21));  // waits for the prefix that is being computed
  ASSERT_TRUE(driver.RunToEnd());
  ExpectRight(driver, Branch(2, 81, 20));
  ExpectRight(driver, Branch(3, 61, 21));
  EXPECT_EQ(CachedOf(driver, 3), 60);
}

TEST(StateTest, TheSecondOnACachedPathLeavesASnapshotForTheThird) {
  SimDriver driver(StateLimits(40), Options(), 1, kEndRate);
  AnswerAll(driver, {Branch(2, 81, 20)});
  AnswerAll(driver, {Branch(3, 41, 21)});
  EXPECT_EQ(CachedOf(driver, 3), 0) << "pages are cached, but no state";
  AnswerAll(driver, {Branch(4, 41, 22)});
  EXPECT_EQ(CachedOf(driver, 4), 40);
}

// The pages are cached, the state is not: one computes it for all that wait.
TEST(StateTest, ThoseThatWaitOnACachedPathShareTheSnapshotOfTheFirst) {
  for (const int depth : {0, 1}) {
    SimDriver driver(StateLimits(40), Options(32), depth, kEndRate);
    AnswerAll(driver, {Branch(2, 81, 20)});
    AnswerAll(driver, {Branch(3, 41, 21), Branch(4, 41, 22), Branch(5, 61, 23), Branch(6, 61, 24)});
    EXPECT_EQ(CachedOf(driver, 3), 0);
    EXPECT_EQ(CachedOf(driver, 4), 40);
    EXPECT_EQ(CachedOf(driver, 5), 40) << "it computes the rest for the last one";
    EXPECT_EQ(CachedOf(driver, 6), 60);
  }
}

// Without a slot to leave it in, each computes it, and waits for one of the others at most.
TEST(StateTest, NoneWaitsTwiceForAStateThatIsNotLeft) {
  SimDriver driver(StateLimits(4 * kSlotsOfRequest, 4), Options(64), 1, kEndRate);
  AnswerAll(driver, {Branch(2, 81, 20)});
  std::vector<Request> requests;
  for (RequestId id = 3; id <= 10; ++id) {
    requests.push_back(Branch(id, 41, 18 + static_cast<int64_t>(id), 30));
    driver.Submit(requests.back());
  }
  int64_t most = 0;
  while (driver.Step()) most = std::max(most, driver.scheduler().Stats().running);
  EXPECT_EQ(most, 4);
  for (const Request& request : requests) ExpectRight(driver, request);
}

TEST(StateTest, ATurnGoesOnFromTheEndOfTheAnswerBefore) {
  for (const int depth : {0, 1}) {
    SimDriver driver(StateLimits(10), Options(), depth, kEndRate);
    driver.scheduler().OpenSession(7);
    Request turn = MakeRequest(1, 21, 30);
    turn.session = 7;
    AnswerAll(driver, {turn});
    const std::vector<TokenId> answer = AnswerOf(turn);
    turn.id = 2;
    turn.prompt.insert(turn.prompt.end(), answer.begin(), answer.end());
    turn.prompt.push_back(5);
    AnswerAll(driver, {turn});
    EXPECT_EQ(CachedOf(driver, 2), 48) << "of 50 whose keys were computed";
    driver.scheduler().CloseSession(7);
  }
}

TEST(StateTest, ALongPromptHasSnapshotsInItsMiddle) {
  EngineLimits limits = StateLimits(20);
  limits.num_pages = 5000;
  limits.max_seq_len = 10000;
  SimDriver driver(limits, Options(), 1, kEndRate);
  AnswerAll(driver, {Branch(2, 9001, 20)});
  AnswerAll(driver, {Branch(3, 5001, 21)});
  EXPECT_EQ(CachedOf(driver, 3), 4096);
  AnswerAll(driver, {Branch(4, 9001, 22)});
  EXPECT_EQ(CachedOf(driver, 4), 8192);
}

TEST(StateTest, SlotsBoundTheRequestsThatRunAtATime) {
  SimDriver driver(StateLimits(2 * kSlotsOfRequest + 1), Options(), 1, kEndRate);
  std::vector<Request> requests;
  for (RequestId id = 1; id <= 6; ++id) {
    requests.push_back(MakeRequest(id, 10 + static_cast<int64_t>(id), 20));
    driver.Submit(requests.back());
  }
  int64_t most = 0;
  while (driver.Step()) most = std::max(most, driver.scheduler().Stats().running);
  EXPECT_EQ(most, 2);
  for (const Request& request : requests) ExpectRight(driver, request);
}

TEST(StateTest, SnapshotsGiveWayToRequests) {
  SimDriver driver(StateLimits(2 * kSlotsOfRequest), Options(), 1, kEndRate);
  for (RequestId id = 1; id <= 10; ++id) {
    AnswerAll(driver, {MakeRequest(2 * id, 30, 9), MakeRequest(2 * id + 1, 31, 9)});
  }
  const SchedulerStats stats = driver.scheduler().Stats();
  EXPECT_GT(stats.evicted_snapshots, 10);
  EXPECT_EQ(stats.snapshots + stats.state_slots_free, stats.state_slots_total);
}

// Without the prefix cache no snapshot is kept.
TEST(StateTest, ACacheThatKeepsNothingHasNoSnapshots) {
  SchedulerOptions options = Options();
  options.cache = CacheKind::kNaive;
  SimDriver driver(StateLimits(10), options, 1, kEndRate);
  AnswerAll(driver, {MakeRequest(1, 50, 9)});
  EXPECT_EQ(driver.scheduler().Stats().state_slots_free, 10);
}

// A drafter of tokens that are never right.
class WrongDrafter final : public Drafter {
 public:
  void Draft(RequestId, std::span<const TokenId> tokens, int32_t count,
             std::vector<TokenId>* drafts) override {
    uint64_t prefix = 1;
    for (const TokenId token : tokens) prefix = sim::Extend(prefix, token);
    const TokenId right = sim::NextToken(prefix, kVocab, kEndRate);
    drafts->assign(static_cast<size_t>(count), right == 1 ? 2 : 1);
  }
  void Forget(RequestId) override {}
};

// With slots to spare the state after the last token that was accepted is there; without, tokens
// are computed again.
TEST(StateTest, RejectedDraftsLeaveTheStateBeforeThem) {
  for (const bool has_spare : {true, false}) {
    SchedulerOptions options = Options();
    options.cache = CacheKind::kNaive;
    options.max_drafts = 3;
    options.drafter = std::make_shared<WrongDrafter>();
    SimDriver driver(StateLimits(has_spare ? kSlotsOfRequest + 3 : kSlotsOfRequest), options, 0,
                     kEndRate);
    AnswerAll(driver, {MakeRequest(1, 10, 40)});
    const SchedulerStats stats = driver.scheduler().Stats();
    EXPECT_GT(stats.drafted_tokens, 0);
    EXPECT_EQ(stats.accepted_drafts, 0);
    if (has_spare) {
      EXPECT_EQ(stats.computed_tokens, 10);
    } else {
      EXPECT_GT(stats.computed_tokens, 10);
    }
  }
}

}  // namespace
}  // namespace minisgl::peers
