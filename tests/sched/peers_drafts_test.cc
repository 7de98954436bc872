// Scenarios that other schedulers of the field are tested for (tests/sim/PEERS.md): drafted tokens.
#include <map>

#include "sched/peers_fixture.h"

namespace minisgl::peers {
namespace {

using sim::SimDriver;

// Drafts tokens of the right answer; all after the first `right` of them are made wrong.
class HandDrafter : public Drafter {
 public:
  struct Hand {
    std::vector<TokenId> text;  // prompt and right answer
    int32_t offered = 0, right = 0;
  };
  void Draft(RequestId id, std::span<const TokenId> tokens, int32_t count,
             std::vector<TokenId>* drafts) override {
    const Hand& hand = hands[id];
    asked.emplace_back(id, std::vector<TokenId>(tokens.begin(), tokens.end()));
    for (int32_t i = 0; i < std::min(count, hand.offered); ++i) {
      const TokenId token = hand.text[tokens.size() + static_cast<size_t>(i)];
      drafts->push_back(i < hand.right ? token : (token + 1) % static_cast<TokenId>(kVocab));
    }
  }
  void Forget(RequestId id) override { forgotten.push_back(id); }

  std::map<RequestId, Hand> hands;
  std::vector<std::pair<RequestId, std::vector<TokenId>>> asked;
  std::vector<RequestId> forgotten;
};

class HandDraftsTest : public testing::Test {
 protected:
  void Start(SchedulerOptions options = Options(), int32_t num_pages = 100) {
    options.max_drafts = 8;
    drafter_ = std::make_shared<HandDrafter>();
    options.drafter = drafter_;
    driver_ = std::make_unique<SimDriver>(Limits(num_pages), options, 1, kEndRate);
  }
  void Submit(const Request& request, int32_t offered, int32_t right) {
    HandDrafter::Hand& hand = drafter_->hands[request.id];
    Request longer = request;
    longer.max_tokens += 20;  // a drafter does not know where the answer ends
    hand.text = request.prompt;
    const auto answer = AnswerOf(longer);
    hand.text.insert(hand.text.end(), answer.begin(), answer.end());
    hand.offered = offered;
    hand.right = right;
    driver_->Submit(request);
  }
  // Runs the prompts, then launches the first step with drafts.
  std::shared_ptr<const BatchPlan> LaunchGuesses() {
    Launch(*driver_);
    driver_->CollectOne();
    return Launch(*driver_);
  }
  SchedulerStats Stats() { return driver_->scheduler().Stats(); }

  std::shared_ptr<HandDrafter> drafter_;
  std::unique_ptr<SimDriver> driver_;
};

// A first draft has at most two tokens.
TEST_F(HandDraftsTest, DraftedAndAcceptedTokensAreCounted) {
  struct Row {
    int32_t offered, right;
  };
  struct Case {
    std::vector<Row> rows;
    int64_t drafted, accepted;
  };
  const Case cases[] = {
      {{{2, 2}}, 2, 2},          // all right
      {{{2, 1}}, 2, 1},          // wrong at the second
      {{{2, 0}}, 2, 0},          // wrong at the first
      {{{2, 2}, {1, 1}}, 3, 3},  // two rows
      {{{1, 1}}, 1, 1},          // one token
      {{{0, 0}}, 0, 0},          // no draft
      {{{2, 1}, {2, 0}}, 4, 1},  // both wrong, at different places
  };
  for (const Case& wanted : cases) {
    Start();
    RequestId id = 0;
    for (const Row& row : wanted.rows) {
      ++id;
      Submit(MakeRequest(id, 4 + static_cast<int64_t>(id), 20), row.offered, row.right);
    }
    const auto plan = LaunchGuesses();
    EXPECT_EQ(Stats().drafted_tokens, 0) << "counted when it is verified";
    for (size_t row = 0; row < wanted.rows.size(); ++row) {
      EXPECT_EQ(plan->num_drafts[row], wanted.rows[row].offered);
      EXPECT_EQ(plan->extend_len(static_cast<int>(row)), 1 + wanted.rows[row].offered);
    }
    driver_->CollectOne();
    EXPECT_EQ(Stats().drafted_tokens, wanted.drafted);
    EXPECT_EQ(Stats().accepted_drafts, wanted.accepted);
    for (size_t row = 0; row < wanted.rows.size(); ++row) {
      const auto& tokens = driver_->answers()[row + 1].tokens;
      EXPECT_EQ(tokens.size(), static_cast<size_t>(2 + wanted.rows[row].right));
    }
  }
}

TEST_F(HandDraftsTest, AStopTokenInsideAGuessEndsThereAndTheOtherRowGoesOn) {
  for (const size_t place : {1u, 2u}) {  // the first or second of the second step's three tokens
    Start();
    Request stops = MakeRequest(1, 5, 30);
    const Request other = MakeRequest(2, 6, 30);
    stops.stop_ids = {AnswerOf(stops)[place]};
    Submit(stops, 2, 2);
    Submit(other, 1, 1);
    EXPECT_EQ(LaunchGuesses()->num_drafts, (std::vector<int32_t>{2, 1}));
    driver_->CollectOne();
    EXPECT_EQ(driver_->answers()[1].reason, EndReason::kStopToken);
    EXPECT_EQ(driver_->answers()[1].tokens.size(), place + 1);
    EXPECT_EQ(driver_->answers()[1].tokens.back(), stops.stop_ids[0]);
    EXPECT_FALSE(driver_->answers()[2].ended);
    EXPECT_EQ(driver_->answers()[2].tokens.size(), 3u);
    ASSERT_TRUE(driver_->RunToEnd());
    ExpectRight(*driver_, other);
    EXPECT_EQ(drafter_->forgotten, (std::vector<RequestId>{1, 2}));
  }
}

TEST_F(HandDraftsTest, TheLengthEndsAnAnswerThoughTheGuessGoesOn) {
  Start();
  const Request brief = MakeRequest(1, 5, 2), other = MakeRequest(2, 6, 30);
  Submit(brief, 8, 8);
  Submit(other, 0, 0);
  const auto plan = LaunchGuesses();
  EXPECT_EQ(plan->num_drafts, (std::vector<int32_t>{0, 0}));  // its last token: nothing to draft
  driver_->CollectOne();
  EXPECT_EQ(driver_->answers()[1].reason, EndReason::kLength);
  ExpectRight(*driver_, brief);
  EXPECT_FALSE(driver_->answers()[2].ended);
}

TEST_F(HandDraftsTest, WithoutStopTokensNoTokenEndsAnAnswer) {
  Start();
  const Request request = MakeRequest(1, 5, 30);
  const auto answer = AnswerOf(request);
  Submit(request, 2, 2);
  LaunchGuesses();
  driver_->CollectOne();
  EXPECT_FALSE(driver_->answers()[1].ended);
  EXPECT_EQ(driver_->answers()[1].tokens, std::vector<TokenId>(answer.begin(), answer.begin() + 4));
}

// A draft whose row gives no token: its request was aborted, its logits were not finite, or the
// step failed.
TEST_F(HandDraftsTest, AGuessThatGivesNothingIsNoAcceptance) {
  for (const int how : {0, 1, 2}) {
    Start();
    Submit(MakeRequest(1, 5, 30), 2, 2);
    Launch(*driver_);
    driver_->CollectOne();
    if (how == 1) driver_->engine().NonFiniteInNextStep(0);
    if (how == 2) driver_->engine().FailNextStep("the device went away");
    EXPECT_EQ(Launch(*driver_)->num_drafts[0], 2);
    if (how == 0) driver_->scheduler().Abort(1);
    driver_->CollectOne();
    EXPECT_EQ(Stats().accepted_drafts, 0);
    EXPECT_GE(Stats().drafted_tokens, 0);
    EXPECT_EQ(driver_->answers()[1].tokens.size(), 1u);
    EXPECT_EQ(driver_->answers()[1].num_ends, 1);
    EXPECT_EQ(driver_->scheduler().ResetPrefixCache(), 0);
    EXPECT_EQ(Stats().pages_free, 100);
  }
}

TEST_F(HandDraftsTest, AChunkOfAPromptHasNoGuess) {
  Start(Options(/*max_prefill_tokens=*/50));
  const Request request = MakeRequest(1, 80, 20);
  Submit(request, 2, 2);
  for (const int tokens : {50, 30, 3}) {
    const auto plan = Launch(*driver_);
    EXPECT_EQ(plan->extend_len(0), tokens);
    EXPECT_EQ(plan->num_drafts[0], tokens == 3 ? 2 : 0);
    driver_->CollectOne();
  }
  ASSERT_TRUE(driver_->RunToEnd());
  ExpectRight(*driver_, request);
}

// No draft is kept for a later step: each continues all tokens known by then.
TEST_F(HandDraftsTest, EachGuessContinuesAllThatIsKnown) {
  Start();
  const std::vector<Request> requests{MakeRequest(1, 5, 30), MakeRequest(2, 6, 30)};
  Submit(requests[0], 3, 1);
  Submit(requests[1], 2, 2);
  size_t checked = 0;
  while (!driver_->scheduler().Idle()) {
    const auto plan = Launch(*driver_);
    for (; checked < drafter_->asked.size(); ++checked) {
      const auto& [id, tokens] = drafter_->asked[checked];
      std::vector<TokenId> known = requests[id - 1].prompt;
      const auto& answer = driver_->answers()[id].tokens;
      known.insert(known.end(), answer.begin(), answer.end());
      EXPECT_EQ(tokens, known);
    }
    if (plan == nullptr || driver_->engine().in_flight() > 1) driver_->CollectOne();
  }
  EXPECT_GT(checked, 10u);
  for (const Request& request : requests) ExpectRight(*driver_, request);
}

TEST_F(HandDraftsTest, DraftingCostsNoHit) {
  for (const int64_t length : {12, 13, 17}) {
    Start();
    Request request = MakeRequest(1, length, 20);
    Submit(request, 2, 1);
    ASSERT_TRUE(driver_->RunToEnd());
    request.id = 2;
    Submit(request, 2, 1);
    ASSERT_TRUE(driver_->RunToEnd());
    ExpectRight(*driver_, request);
    EXPECT_EQ(driver_->answers()[2].cached_tokens, (length - 1) / 4 * 4);
  }
}

TEST_F(HandDraftsTest, PagesAreTakenForAGuessAndGivenBackWhereItMisses) {
  for (const int32_t right : {0, 2}) {
    SchedulerOptions options = Options();
    options.cache = CacheKind::kNaive;
    Start(options);
    Submit(MakeRequest(1, 6, 20), 2, right);
    const auto plan = LaunchGuesses();
    EXPECT_EQ(plan->kv_len[0], 6 + 1 + 2);
    EXPECT_EQ(Stats().pages_free, 100 - 3);
    driver_->CollectOne();
    EXPECT_EQ(Stats().pages_free, right == 0 ? 100 - 2 : 100 - 3);
  }
}

}  // namespace
}  // namespace minisgl::peers
