// The constraint of an answer whose thoughts have a bound.
//
// Every token may follow while the bound is not reached. Then come, one by one, the tokens of a
// message, if there is one, and those that close the thought; after that every token again. The
// bound is on all thoughts of the answer together: one that begins after it was reached is closed
// at once, without the message.
//
// If the bound is reached inside of a character, the thought goes on to the end of the character.
// If the model has already begun to close the thought, the rest of its closing tokens follow.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "minisgl/token_constraint.h"
#include "runtime/thought_tracker.h"

namespace minisgl::runtime {

class ThoughtBudget final : public TokenConstraint {
 public:
  // `budget`: tokens of thought, at least 0. `message`: a text, "" for none; there is none with a
  // budget of 0. `answer`: the constraint of the whole answer, thoughts included; null: none. A
  // token that it forbids is not forced. `vocab_size`: of the model.
  ThoughtBudget(std::shared_ptr<const ThoughtMarks> marks, bool starts_inside, int64_t budget,
                const std::string& message, int64_t vocab_size,
                std::shared_ptr<TokenConstraint> answer = nullptr);

  MaskOutcome FillMask(std::span<uint32_t> mask, int64_t* work_left) override;
  bool Accept(TokenId token) override;
  void RollBack(int64_t count) override;
  bool MayEnd() const override { return answer_ == nullptr || answer_->MayEnd(); }
  bool MustEnd() const override { return answer_ != nullptr && answer_->MustEnd(); }
  std::vector<TokenId> ForcedTokens(int32_t count) override;
  bool NeedsMask(int64_t ahead) override;

  // True if one token alone may follow, because it is forced.
  bool forces() { return Forced().has_value(); }

 private:
  // The state after some of the answer's tokens.
  struct State {
    ThoughtState thought;
    // The tokens that close the thought, and the next of them; null: it is not being closed.
    const std::vector<TokenId>* closing = nullptr;
    size_t next = 0;
    bool has_closed = false;  // a thought was closed here, or its message cannot be said
  };

  // Returns the token that must follow; nothing if others may.
  std::optional<TokenId> Forced();
  // True if the token is in the vocabulary and the answer's constraint allows it.
  bool MayFollow(TokenId token);
  // Returns the tokens that close the thought from here on, or from state_.next on if that has
  // begun, without the message if the answer's constraint forbids its first token. Null: none must
  // follow.
  const std::vector<TokenId>* ClosingNow();
  bool IsSpent() const;
  // True if the last tokens end inside of a character.
  bool IsInCharacter() const;
  // Returns the tokens that close the thought at this place.
  const std::vector<TokenId>& Closing();
  void Advance(TokenId token);

  ThoughtTracker tracker_;
  const int64_t budget_, vocab_size_;
  const std::shared_ptr<TokenConstraint> answer_;
  std::vector<TokenId> with_message_, close_;
  // By the number of bytes of the closing mark that are there: the tokens of the rest of it.
  std::map<uint16_t, std::vector<TokenId>> rest_;
  std::vector<TokenId> tokens_;  // the accepted ones
  State state_;                  // its `thought` is unused: tracker_ has it
  std::deque<State> before_;     // the states before each of the last few tokens
};

}  // namespace minisgl::runtime
