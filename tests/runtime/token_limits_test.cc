// Answers whose tokens are limited to a list, or may not complete banned sequences: through the
// serving loop, over an engine that samples any token that a mask allows.
#include "runtime/token_limits.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "runtime/runtime_fixture.h"

namespace minisgl::runtime {
namespace {

constexpr int64_t kVocabulary = 50;

// Allows `a` at even places of an answer and `b` at odd ones, and an end (0) after four tokens.
class Alternating final : public TokenConstraint {
 public:
  MaskOutcome FillMask(std::span<uint32_t> mask, int64_t*) override {
    for (TokenId id = 0; id < 32; ++id) {
      if (Allows(id)) mask[0] |= uint32_t{1} << id;
    }
    return MaskOutcome::kMade;
  }
  bool Accept(TokenId token) override {
    if (!Allows(token)) return false;
    ++length_;
    return true;
  }
  void RollBack(int64_t count) override { length_ -= count; }
  bool MayEnd() const override { return length_ >= 4; }
  bool MustEnd() const override { return false; }
  std::vector<TokenId> ForcedTokens(int32_t) override { return {7, 9, 7, 9}; }

 private:
  bool Allows(TokenId id) const {
    return (id == 0 && MayEnd()) || (length_ % 2 == 0 ? id == 7 || id == 8 : id == 9 || id == 10);
  }
  int64_t length_ = 0;
};

std::shared_ptr<const TokenLimits> Limits(std::vector<TokenId> allowed,
                                          std::vector<std::vector<TokenId>> banned) {
  Prompt prompt;
  prompt.allowed_token_ids = std::move(allowed);
  prompt.banned_sequences = std::move(banned);
  return TokenLimits::Of(prompt, kVocabulary);
}

std::vector<TokenId> Allowed(TokenConstraint* constraint) {
  std::vector<uint32_t> mask(2);
  int64_t work_left = INT64_MAX;
  const MaskOutcome outcome = constraint->FillMask(mask, &work_left);
  std::vector<TokenId> ids;
  for (TokenId id = 0; id < 64; ++id) {
    if ((mask[static_cast<size_t>(id) / 32] >> (id % 32) & 1) != 0) ids.push_back(id);
  }
  EXPECT_EQ(outcome == MaskOutcome::kMade, !ids.empty());
  return ids;
}

bool Contains(const std::vector<TokenId>& ids, const std::vector<TokenId>& sequence) {
  return std::search(ids.begin(), ids.end(), sequence.begin(), sequence.end()) != ids.end();
}

TEST(TokenLimitsTest, OnlyTheLastTokenOfASequenceIsTakenOut) {
  LimitedConstraint constraint(Limits({}, {{4}, {5, 6}, {5, 6, 7}, {1, 2, 3, 60}}), nullptr);
  EXPECT_EQ(std::ssize(Allowed(&constraint)), kVocabulary - 1);
  EXPECT_FALSE(constraint.Accept(4));
  ASSERT_TRUE(constraint.Accept(6));
  ASSERT_TRUE(constraint.Accept(5));
  const std::vector<TokenId> after_five = Allowed(&constraint);
  EXPECT_EQ(std::ssize(after_five), kVocabulary - 2);
  EXPECT_FALSE(std::binary_search(after_five.begin(), after_five.end(), 6));
  EXPECT_FALSE(constraint.Accept(6));
  constraint.RollBack(1);
  EXPECT_TRUE(constraint.Accept(6));
  EXPECT_TRUE(constraint.MayEnd());
  EXPECT_FALSE(constraint.MustEnd());
}

TEST(TokenLimitsTest, AnAnswerEndsIfItsListHasNothingLeft) {
  LimitedConstraint constraint(Limits({3, 4, 999, -1}, {{3, 3}, {3, 4}, {4, 3, 4}}), nullptr);
  EXPECT_EQ(Allowed(&constraint), (std::vector<TokenId>{3, 4}));
  ASSERT_TRUE(constraint.Accept(4));
  EXPECT_FALSE(constraint.MustEnd());
  ASSERT_TRUE(constraint.Accept(3));
  EXPECT_TRUE(Allowed(&constraint).empty());
  EXPECT_TRUE(constraint.MustEnd());
  EXPECT_EQ(Limits({}, {}), nullptr);
}

TEST(TokenLimitsTest, WhatElseTheAnswerMustBeHoldsToo) {
  LimitedConstraint constraint(Limits({}, {{8}, {7, 9, 7}}), std::make_shared<Alternating>());
  EXPECT_EQ(constraint.ForcedTokens(9), (std::vector<TokenId>{7, 9}));
  EXPECT_EQ(Allowed(&constraint), (std::vector<TokenId>{7}));
  ASSERT_TRUE(constraint.Accept(7));
  EXPECT_FALSE(constraint.Accept(7));
  EXPECT_EQ(Allowed(&constraint), (std::vector<TokenId>{9, 10}));
  ASSERT_TRUE(constraint.Accept(9));
  EXPECT_TRUE(Allowed(&constraint).empty());
  EXPECT_FALSE(constraint.MayEnd());
  constraint.RollBack(2);
  EXPECT_EQ(Allowed(&constraint), (std::vector<TokenId>{7}));
}

// Ids of answers under the limits of every prompt, with and without overlap and drafts.
TEST(TokenLimitsTest, AnswersKeepThemUnderEverySchedule) {
  std::vector<std::vector<TokenId>> expected;
  for (const bool overlap : {true, false}) {
    for (const int32_t prefill : {8, 32}) {
      RuntimeOptions options;
      options.overlap = overlap;
      options.scheduler.max_prefill_tokens = prefill;
      LoopDriver driver(options);
      std::vector<RequestId> requests;
      for (TokenId i = 0; i < 12; ++i) {
        Prompt prompt = MakePrompt(i, 6 + i, 40);
        prompt.stop_token_ids = {0};
        if (i % 3 != 1) prompt.allowed_token_ids = {0, 3, 4, 5};
        if (i % 3 != 0) prompt.banned_sequences = {{3, 4}, {4, 4}, {5, 3, 3}, {11}};
        prompt.sampling.min_tokens = i % 2 == 0 ? 20 : 0;
        requests.push_back(driver.Submit(std::move(prompt)));
      }
      driver.RunToRest();
      std::vector<std::vector<TokenId>> ids;
      for (size_t i = 0; i < requests.size(); ++i) {
        const Collected& told = driver.Told()[requests[i]];
        EXPECT_EQ(told.num_done, 1);
        EXPECT_NE(told.done.finish_reason, FinishReason::kError) << told.done.error_message;
        ids.push_back(told.ids);
        if (i % 3 != 1) {
          EXPECT_TRUE(std::all_of(told.ids.begin(), told.ids.end(),
                                  [](TokenId id) { return id == 0 || (id >= 3 && id <= 5); }));
        }
        if (i % 3 == 0) continue;
        for (const std::vector<TokenId>& banned :
             {std::vector<TokenId>{3, 4}, {4, 4}, {5, 3, 3}, {11}}) {
          EXPECT_FALSE(Contains(told.ids, banned)) << i;
        }
      }
      if (expected.empty()) expected = ids;
      EXPECT_EQ(ids, expected) << "overlap " << overlap << ", prefill " << prefill;
    }
  }
  EXPECT_TRUE(std::any_of(expected.begin(), expected.end(),
                          [](const auto& ids) { return std::ssize(ids) >= 20; }));
}

}  // namespace
}  // namespace minisgl::runtime
