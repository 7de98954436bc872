// Requests with a constraint: masks, forced tokens, ends, gates. The simulation checks the same
// beside everything else; here each rule stands alone.
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <vector>

#include "sched/sched_fixture.h"
#include "sim/sim_constraint.h"
#include "sim/sim_driver.h"

namespace minisgl::sched {
namespace {

using sim::SimDriver;

// Exactly these tokens, and then the end. What a test asks of it beyond that stands in its fields.
class ListConstraint final : public TokenConstraint {
 public:
  explicit ListConstraint(std::vector<TokenId> list) : list_(std::move(list)) {}

  MaskOutcome FillMask(std::span<uint32_t> mask, int64_t* work_left) override {
    const auto set = [&](TokenId id) { mask[static_cast<size_t>(id) / 32] |= 1u << (id % 32); };
    if (at_ == late_at && *work_left < INT64_MAX) {
      ++num_late;
      return MaskOutcome::kLater;
    }
    if (at_ == stuck_at) return MaskOutcome::kNone;
    if (MayEnd()) set(0);
    if (at_ < list_.size()) set(list_[at_]);
    return MaskOutcome::kMade;
  }
  bool Accept(TokenId token) override {
    const bool is_end = token == 0 && MayEnd();
    if (!is_end && (at_ >= list_.size() || token != list_[at_])) return false;
    at_ = is_end ? list_.size() : at_ + 1;
    return true;
  }
  void RollBack(int64_t count) override { at_ -= static_cast<size_t>(count); }
  bool MayEnd() const override { return at_ >= may_end_from || MustEnd(); }
  bool MustEnd() const override { return at_ == list_.size(); }
  std::vector<TokenId> ForcedTokens(int32_t count) override {
    if (!is_forced) return {};
    std::vector<TokenId> rest(list_.begin() + static_cast<std::ptrdiff_t>(at_), list_.end());
    if (std::ssize(rest) > count) rest.resize(static_cast<size_t>(count));
    return rest;
  }

  size_t stuck_at = SIZE_MAX, may_end_from = SIZE_MAX;
  size_t late_at = SIZE_MAX;  // its mask there comes later, until this is changed
  int num_late = 0;           // masks asked for there
  bool is_forced = false;

 private:
  std::vector<TokenId> list_;
  size_t at_ = 0;
};

// Every token, except at one place. It is not known before the token before it.
class LateConstraint final : public TokenConstraint {
 public:
  LateConstraint(size_t place, TokenId token) : place_(place), token_(token) {}

  MaskOutcome FillMask(std::span<uint32_t> mask, int64_t*) override {
    if (at_ == place_) {
      mask[static_cast<size_t>(token_) / 32] |= 1u << (token_ % 32);
      return MaskOutcome::kMade;
    }
    for (TokenId id = 0; id < kVocab; ++id) mask[static_cast<size_t>(id) / 32] |= 1u << (id % 32);
    return MaskOutcome::kMade;
  }
  bool Accept(TokenId token) override {
    if (at_ == place_ && token != token_) return false;
    ++at_;
    return true;
  }
  void RollBack(int64_t count) override { at_ -= static_cast<size_t>(count); }
  bool MayEnd() const override { return true; }
  bool MustEnd() const override { return false; }
  std::vector<TokenId> ForcedTokens(int32_t) override { return {}; }
  bool NeedsMask(int64_t ahead) override { return ahead == 0 && at_ == place_; }

 private:
  const size_t place_;
  const TokenId token_;
  size_t at_ = 0;
};

EngineLimits ConstraintLimits(int32_t max_step_drafts = 0) {
  EngineLimits limits;
  limits.vocab_size = kVocab;
  limits.page_size = 4;
  limits.num_pages = 100;
  limits.max_running_requests = 8;
  limits.max_seq_len = 200;
  limits.max_step_tokens = 64 + 8;
  limits.max_step_drafts = max_step_drafts;
  return limits;
}

SchedulerOptions ConstraintOptions() {
  SchedulerOptions options;
  options.max_prefill_tokens = 64;
  options.step = StepPolicy::kMixed;
  return options;
}

std::vector<TokenId> CountUp(TokenId count) {
  std::vector<TokenId> list;
  for (TokenId id = 1; id <= count; ++id) list.push_back(id);
  return list;
}

TEST(ConstraintTest, TheAnswerIsWhatItsConstraintAllowsAtAnyDepth) {
  for (const int depth : {0, 1, 2}) {
    SimDriver driver(ConstraintLimits(), ConstraintOptions(), depth, kEndRate);
    Request request = MakeRequest(1, 9, 50);
    request.constraint = std::make_shared<ListConstraint>(CountUp(20));
    const Request free = MakeRequest(2, 9, 20);
    driver.Submit(request);
    driver.Submit(free);
    ASSERT_TRUE(driver.RunToEnd());
    EXPECT_EQ(driver.answers()[1].tokens, CountUp(20));
    EXPECT_EQ(driver.answers()[1].reason, EndReason::kStopToken);
    EXPECT_FALSE(driver.answers()[1].cut_in_constraint);
    ExpectRight(driver, free);
    EXPECT_EQ(driver.answers()[2].cut_in_constraint, false);
  }
}

// The token after the place that turns out to need a mask was in flight without one.
TEST(ConstraintTest, ATokenSampledWithoutTheMaskThatItNeededIsSampledAgain) {
  std::vector<TokenId> first;
  for (const int depth : {0, 1, 2}) {
    for (const int32_t max_prefill : {2, 64}) {
      SchedulerOptions options = ConstraintOptions();
      options.max_prefill_tokens = max_prefill;
      SimDriver driver(ConstraintLimits(), options, depth, /*end_rate=*/0);
      for (const RequestId id : {1, 2, 3}) {
        Request request = MakeRequest(id, 9, 20);
        request.stop_ids = {};
        request.constraint = std::make_shared<LateConstraint>(id == 1 ? 0 : 3 * id, 7);
        driver.Submit(request);
      }
      ASSERT_TRUE(driver.RunToEnd());
      EXPECT_EQ(driver.answers()[1].tokens.at(0), 7);
      EXPECT_EQ(driver.answers()[2].tokens.at(6), 7);
      EXPECT_EQ(driver.answers()[3].tokens.at(9), 7);
      std::vector<TokenId> all;
      for (const RequestId id : {1, 2, 3}) {
        const std::vector<TokenId>& tokens = driver.answers()[id].tokens;
        EXPECT_EQ(tokens.size(), 20u);
        all.insert(all.end(), tokens.begin(), tokens.end());
      }
      if (first.empty()) first = all;
      EXPECT_EQ(all, first) << depth << " " << max_prefill;
    }
  }
}

// Nothing but the end may follow the last token, so no step is spent on an end token.
TEST(ConstraintTest, EndsWithoutAStepWhereNothingElseMayFollow) {
  SimDriver driver(ConstraintLimits(), ConstraintOptions(), 0, kEndRate);
  Request request = MakeRequest(1, 9, 50);
  request.stop_ids = {0};
  request.constraint = std::make_shared<ListConstraint>(CountUp(5));
  driver.Submit(request);
  ASSERT_TRUE(driver.RunToEnd());
  EXPECT_EQ(driver.answers()[1].tokens, CountUp(5));
  EXPECT_EQ(driver.scheduler().Stats().steps, 5);
}

TEST(ConstraintTest, LengthCutsInsideIt) {
  SimDriver driver(ConstraintLimits(), ConstraintOptions(), 1, kEndRate);
  for (const RequestId id : {1, 2}) {
    Request request = MakeRequest(id, 9, 5);
    auto constraint = std::make_shared<ListConstraint>(CountUp(9));
    if (id == 2) constraint->may_end_from = 5;
    request.constraint = constraint;
    driver.Submit(request);
  }
  ASSERT_TRUE(driver.RunToEnd());
  EXPECT_EQ(driver.answers()[1].reason, EndReason::kLength);
  EXPECT_TRUE(driver.answers()[1].cut_in_constraint);
  EXPECT_EQ(driver.answers()[2].reason, EndReason::kLength);
  EXPECT_FALSE(driver.answers()[2].cut_in_constraint);
}

TEST(ConstraintTest, ForcedTokensTakeFewerSteps) {
  std::vector<int64_t> steps;
  for (const int32_t max_step_drafts : {0, 4, 40}) {
    SimDriver driver(ConstraintLimits(max_step_drafts), ConstraintOptions(), 1, kEndRate);
    Request request = MakeRequest(1, 9, 100);
    auto constraint = std::make_shared<ListConstraint>(CountUp(60));
    constraint->is_forced = true;
    request.constraint = constraint;
    driver.Submit(request);
    ASSERT_TRUE(driver.RunToEnd());
    EXPECT_EQ(driver.answers()[1].tokens, CountUp(60));
    const SchedulerStats stats = driver.scheduler().Stats();
    EXPECT_EQ(stats.drafted_tokens, stats.accepted_drafts);
    EXPECT_EQ(stats.drafted_tokens > 0, max_step_drafts > 0);
    steps.push_back(stats.steps);
  }
  EXPECT_EQ(steps[0], 60 + 1);  // one was launched before the last token was known
  EXPECT_LE(steps[1], 1 + 60 / 5 + 3);
  EXPECT_LE(steps[2], 5);
}

TEST(ConstraintTest, MinTokensHoldTheEndBackWhereTheAnswerCanGoOn) {
  for (const int32_t min_tokens : {0, 4, 30}) {
    SimDriver driver(ConstraintLimits(), ConstraintOptions(), 1, kEndRate);
    Request request = MakeRequest(1, 9, 100);
    request.stop_ids = {0};
    request.sampling.min_tokens = min_tokens;
    request.sampling.banned_until_min = {0};
    auto constraint = std::make_shared<ListConstraint>(CountUp(10));
    constraint->may_end_from = 0;
    request.constraint = constraint;
    driver.Submit(request);
    ASSERT_TRUE(driver.RunToEnd());
    const sim::Answer& answer = driver.answers()[1];
    EXPECT_EQ(answer.reason, EndReason::kStopToken);
    EXPECT_GE(std::ssize(answer.tokens), std::min(min_tokens, 10));
  }
}

TEST(ConstraintTest, NoTokenToChooseEndsOneRequest) {
  SimDriver driver(ConstraintLimits(), ConstraintOptions(), 1, kEndRate);
  Request request = MakeRequest(1, 9, 50);
  auto constraint = std::make_shared<ListConstraint>(CountUp(20));
  constraint->stuck_at = 7;
  request.constraint = constraint;
  const Request free = MakeRequest(2, 9, 20);
  driver.Submit(request);
  driver.Submit(free);
  ASSERT_TRUE(driver.RunToEnd());
  EXPECT_EQ(driver.answers()[1].tokens, CountUp(7));
  EXPECT_EQ(driver.answers()[1].reason, EndReason::kFailed);
  EXPECT_EQ(driver.answers()[1].error_code, "invalid_grammar");
  ExpectRight(driver, free);
}

// A mask that comes later keeps its own request waiting, and no other: at the first token, at later
// ones, and behind drafts.
TEST(ConstraintTest, AMaskThatComesLaterHoldsUpItsOwnRequestAlone) {
  for (const int depth : {0, 1, 2}) {
    for (const size_t late_at : {0, 1, 7, 19}) {
      for (const bool is_forced : {false, true}) {
        SimDriver driver(ConstraintLimits(is_forced ? 40 : 0), ConstraintOptions(), depth,
                         kEndRate);
        Request request = MakeRequest(1, 9, 50);
        auto constraint = std::make_shared<ListConstraint>(CountUp(20));
        constraint->late_at = late_at;
        constraint->is_forced = is_forced;
        request.constraint = constraint;
        const Request free = MakeRequest(2, 9, 60);
        driver.Submit(request);
        driver.Submit(free);
        while (driver.Step()) {
        }
        ExpectRight(driver, free);
        EXPECT_EQ(driver.answers()[1].tokens, CountUp(static_cast<TokenId>(late_at)));
        EXPECT_EQ(constraint->num_late, 1);
        EXPECT_FALSE(driver.scheduler().Idle());
        EXPECT_TRUE(driver.scheduler().WaitsOutside());
        driver.scheduler().MaskReady(1);  // too early: it waits once more
        while (driver.Step()) {
        }
        EXPECT_EQ(constraint->num_late, 2);
        constraint->late_at = SIZE_MAX;
        driver.scheduler().MaskReady(1);
        driver.scheduler().MaskReady(99);
        ASSERT_TRUE(driver.RunToEnd());
        EXPECT_EQ(driver.answers()[1].tokens, CountUp(20));
        EXPECT_EQ(driver.answers()[1].reason, EndReason::kStopToken);
      }
    }
  }
}

TEST(ConstraintTest, ARequestEndsWhileItsMaskIsBeingMade) {
  SimDriver driver(ConstraintLimits(), ConstraintOptions(), 1, kEndRate);
  for (const RequestId id : {1, 2}) {
    Request request = MakeRequest(id, 9, 50);
    auto constraint = std::make_shared<ListConstraint>(CountUp(20));
    constraint->late_at = 5;
    request.constraint = constraint;
    driver.Submit(request);
  }
  while (driver.Step()) {
  }
  driver.scheduler().Abort(1);
  driver.scheduler().TimeOut(2);
  driver.scheduler().MaskReady(1);
  driver.scheduler().MaskReady(2);
  ASSERT_TRUE(driver.RunToEnd());
  EXPECT_EQ(driver.answers()[1].reason, EndReason::kAborted);
  EXPECT_EQ(driver.answers()[2].reason, EndReason::kTimedOut);
  EXPECT_EQ(driver.answers()[1].tokens, CountUp(5));
}

// A prompt of whole pages: its last page is not in the cache while its first mask is made, and
// another request with the same prompt computes it.
TEST(ConstraintTest, APromptIsNotWaitedForWhileAMaskIsBeingMade) {
  SimDriver driver(ConstraintLimits(), ConstraintOptions(), 1, kEndRate);
  Request request = MakeRequest(1, 12, 50);
  auto constraint = std::make_shared<ListConstraint>(CountUp(20));
  constraint->late_at = 0;
  request.constraint = constraint;
  Request free = MakeRequest(2, 14, 20);
  std::copy(request.prompt.begin(), request.prompt.end(), free.prompt.begin());
  driver.Submit(request);
  driver.Submit(free);
  while (driver.Step()) {
  }
  ExpectRight(driver, free);
  constraint->late_at = SIZE_MAX;
  driver.scheduler().MaskReady(1);
  ASSERT_TRUE(driver.RunToEnd());
  EXPECT_EQ(driver.answers()[1].tokens, CountUp(20));
}

TEST(ConstraintTest, ComesWithTheGateOrTheGateFails) {
  SimDriver driver(ConstraintLimits(), ConstraintOptions(), 1, kEndRate);
  for (const RequestId id : {1, 2}) {
    Request request = MakeRequest(id, 9, 50);
    request.is_gated = true;
    driver.Submit(request);
  }
  EXPECT_FALSE(driver.Step());
  EXPECT_TRUE(driver.scheduler().WaitsOutside());
  driver.scheduler().OpenGate(1, std::make_shared<ListConstraint>(CountUp(3)));
  driver.scheduler().FailGate(2, "invalid_grammar", "line 1");
  driver.scheduler().FailGate(2, "invalid_grammar", "again");
  driver.scheduler().FailGate(1, "invalid_grammar", "its gate is open");
  driver.scheduler().FailGate(99, "invalid_grammar", "unknown");
  ASSERT_TRUE(driver.RunToEnd());
  EXPECT_EQ(driver.answers()[1].tokens, CountUp(3));
  EXPECT_EQ(driver.answers()[2].error_code, "invalid_grammar");
  EXPECT_EQ(driver.answers()[2].num_ends, 1);
  EXPECT_TRUE(driver.answers()[2].tokens.empty());
}

// A row that was aborted after the launch still gets masks: the engine waits for them.
TEST(ConstraintTest, MasksComeForRowsThatEndedMeanwhile) {
  SimDriver driver(ConstraintLimits(), ConstraintOptions(), 1, kEndRate);
  Request request = MakeRequest(1, 9, 50);
  request.constraint = std::make_shared<ListConstraint>(CountUp(20));
  driver.Submit(request);
  Scheduler& scheduler = driver.scheduler();
  const auto plan = scheduler.Next();
  ASSERT_TRUE(plan != nullptr && plan->has_masks());
  driver.engine().Launch(plan);
  EXPECT_EQ(scheduler.Next(), nullptr);  // until the masks are taken
  scheduler.Abort(1);
  std::optional<StepMasks> masks = scheduler.TakeMasks();
  ASSERT_TRUE(masks.has_value());
  EXPECT_EQ(std::ssize(masks->words), MaskWords(kVocab));
  EXPECT_FALSE(scheduler.TakeMasks().has_value());
  driver.engine().SupplyMasks(*std::move(masks));
  ASSERT_TRUE(driver.RunToEnd());
  EXPECT_EQ(driver.answers()[1].reason, EndReason::kAborted);
  EXPECT_TRUE(driver.answers()[1].tokens.empty());
}

TEST(ConstraintTest, ATokenThatItDoesNotAllowIsAFault) {
  SimDriver driver(ConstraintLimits(), ConstraintOptions(), 0, kEndRate);
  Request request = MakeRequest(1, 9, 50);
  request.constraint = std::make_shared<ListConstraint>(CountUp(20));
  driver.Submit(request);
  const auto plan = driver.scheduler().Next();
  ASSERT_TRUE(plan != nullptr && driver.scheduler().TakeMasks().has_value());
  StepResult result;
  result.rows.resize(1);
  result.rows[0].outcome = RowResult::Outcome::kToken;
  result.rows[0].token = 17;
  driver.scheduler().Collect(result);
  const std::vector<SchedEvent> events = driver.scheduler().TakeEvents();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].error_code, "internal");
  EXPECT_NE(events[0].error_message.find("17"), std::string::npos);
}

}  // namespace
}  // namespace minisgl::sched
