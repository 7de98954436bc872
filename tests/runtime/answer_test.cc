// The end of an answer if a step gave several tokens.
#include "runtime/answer.h"

#include <gtest/gtest.h>

#include <string>

namespace minisgl::runtime {
namespace {

class AnswerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto tokenizer = Tokenizer::Load(MINISGL_SOURCE_DIR "/tests/models/wren");
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
    tokenizer_ = std::move(tokenizer).value();
  }

  // Returns the events of an answer of the letters of `spelled`, one per token, that ends with
  // `end`.
  Event Tell(const std::string& spelled, SchedEvent end) {
    Prompt prompt;
    prompt.ids = {1};
    prompt.stop = {"cd"};
    Answer answer(7, 0, prompt, tokenizer_.get(), &queue_);
    for (const char letter : spelled) {
      RowResult token;
      token.outcome = RowResult::Outcome::kToken;
      token.token = tokenizer_->IdOf(std::string(1, letter)).value();
      answer.AcceptToken(token);
    }
    end.kind = SchedEvent::Kind::kEnd;
    const FinishReason reason = answer.End(end);
    Event done;
    text_.clear();
    while (const auto event = queue_.Pop(std::chrono::milliseconds(0))) {
      text_ += event->text;
      done = *event;
    }
    EXPECT_EQ(done.kind, Event::Kind::kDone);
    EXPECT_EQ(done.finish_reason, reason);
    return done;
  }

  static SchedEvent Ends(EndReason reason) {
    SchedEvent end;
    end.reason = reason;
    if (reason == EndReason::kFailed) end.error_code = "nan_logits";
    return end;
  }

  std::unique_ptr<Tokenizer> tokenizer_;
  EventQueue queue_;
  std::string text_;
};

// The tokens after the stop string came with the same step, and so did the end: with one token per
// step neither would exist.
TEST_F(AnswerTest, AStopStringEndsItWhateverTheStepGaveBeyond) {
  for (const EndReason reason : {EndReason::kLength, EndReason::kStopToken, EndReason::kFailed}) {
    const Event done = Tell("abcdef", Ends(reason));
    EXPECT_EQ(text_, "ab");
    EXPECT_EQ(done.finish_reason, FinishReason::kStop);
    EXPECT_EQ(done.error_code, "");
    EXPECT_EQ(done.usage.completion_tokens, 4);
  }
}

TEST_F(AnswerTest, WithoutAStopStringTheEndIsTheSchedulers) {
  EXPECT_EQ(Tell("abc", Ends(EndReason::kLength)).finish_reason, FinishReason::kLength);
  EXPECT_EQ(text_, "abc");
  EXPECT_EQ(Tell("abc", Ends(EndReason::kTimedOut)).finish_reason, FinishReason::kTimeout);
  EXPECT_EQ(text_, "abc") << "the text so far is kept";
  EXPECT_EQ(Tell("abc", Ends(EndReason::kFailed)).error_code, "nan_logits");
}

// "<s>" is in the text only if it is kept, at its place among the other tokens.
TEST_F(AnswerTest, SpecialTokensAreKeptIfRequested) {
  const std::vector<TokenId> ids = {*tokenizer_->IdOf("a"), *tokenizer_->bos_id(),
                                    *tokenizer_->IdOf("b")};
  for (const bool keeps : {false, true}) {
    Prompt prompt;
    prompt.ids = {1};
    if (keeps) prompt.kept_special_ids = {*tokenizer_->bos_id()};
    Answer answer(7, 0, prompt, tokenizer_.get(), &queue_);
    for (const TokenId id : ids) {
      RowResult token;
      token.outcome = RowResult::Outcome::kToken;
      token.token = id;
      answer.AcceptToken(token);
    }
    answer.End(Ends(EndReason::kLength));
    std::string text;
    while (const auto event = queue_.Pop(std::chrono::milliseconds(0))) text += event->text;
    EXPECT_EQ(text, keeps ? "a<s>b" : "ab");
  }
}

// The token that ends an answer has no text, except if stops are part of the answer; then a control
// token has the text that other control tokens have.
TEST_F(AnswerTest, WhatEndsItIsPartOfItIfRequested) {
  const std::vector<TokenId> ids = {*tokenizer_->IdOf("a"), *tokenizer_->bos_id(),
                                    *tokenizer_->IdOf("b")};
  struct Case {
    bool include_stop, keep_special;
    std::vector<TokenId> stop_ids;
    std::vector<std::string> stop;
    std::string text;
  };
  const TokenId b = ids[2], eos = *tokenizer_->eos_id();
  for (const Case& c :
       {Case{false, false, {b}, {}, "a"}, Case{true, false, {b}, {}, "ab"},
        Case{false, true, {b}, {}, "a<s>"}, Case{true, true, {b}, {}, "a<s>b"},
        Case{true, false, {eos}, {"b"}, "ab"}, Case{true, true, {eos}, {}, "a<s>b</s>"},
        Case{false, true, {eos}, {}, "a<s>b"}, Case{true, false, {eos}, {}, "ab"}}) {
    Prompt prompt;
    prompt.ids = {1};
    prompt.include_stop = c.include_stop;
    prompt.keep_special = c.keep_special;
    prompt.kept_special_ids = {*tokenizer_->bos_id()};
    if (!c.keep_special) prompt.kept_special_ids.clear();
    prompt.stop_token_ids = c.stop_ids;
    prompt.stop = c.stop;
    std::vector<TokenId> answer = ids;
    if (c.stop_ids.front() == eos) answer.push_back(eos);
    EXPECT_EQ(AnswerText(prompt, answer, *tokenizer_), c.text);
  }
}

}  // namespace
}  // namespace minisgl::runtime
