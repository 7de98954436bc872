// The tokens that an answer may have, whatever its text is: only tokens of a list, if there is one,
// and no token that completes a banned sequence.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "minisgl/runtime/runtime.h"
#include "minisgl/token_constraint.h"

namespace minisgl::runtime {

// Immutable; shared by the answers of a prompt. Thread-safe.
class TokenLimits {
 public:
  // Null if the answer may have any token, or has none (max_tokens 0). Ids outside the vocabulary
  // count for nothing.
  static std::shared_ptr<const TokenLimits> Of(const Prompt& prompt, int64_t vocab_size);

  bool Allows(std::span<const TokenId> answer, TokenId token) const;
  // Clears the bits of tokens that may not follow `answer`. True if any is left.
  bool Cut(std::span<const TokenId> answer, std::span<uint32_t> mask) const;
  // True if there is a list and none of its tokens may follow `answer`.
  bool LeavesNone(std::span<const TokenId> answer) const;
  int64_t vocab_size() const { return vocab_size_; }

 private:
  TokenLimits(const Prompt& prompt, int64_t vocab_size);
  // The tokens that would complete a banned sequence after `answer`.
  std::vector<TokenId> Completing(std::span<const TokenId> answer) const;

  const int64_t vocab_size_;
  std::vector<uint32_t> allowed_;  // a bit for each token; empty: all
  const std::vector<std::vector<TokenId>> banned_;
};

class ThoughtBudget;

// What a bound on thoughts forces is allowed whatever the limits are: the model could not end its
// thought otherwise.
class LimitedConstraint final : public TokenConstraint {
 public:
  // `inner`: what else the answer must be; null: nothing. `thoughts`: `inner`, if it is a bound on
  // thoughts; null otherwise.
  LimitedConstraint(std::shared_ptr<const TokenLimits> limits,
                    std::shared_ptr<TokenConstraint> inner, ThoughtBudget* thoughts = nullptr);

  MaskOutcome FillMask(std::span<uint32_t> mask, int64_t* work_left) override;
  bool Accept(TokenId token) override;
  void RollBack(int64_t count) override;
  bool MayEnd() const override;
  bool MustEnd() const override;
  std::vector<TokenId> ForcedTokens(int32_t count) override;

 private:
  bool IsForced() const;

  const std::shared_ptr<const TokenLimits> limits_;
  const std::shared_ptr<TokenConstraint> inner_;
  ThoughtBudget* const thoughts_;
  std::vector<TokenId> answer_;  // accepted
};

// Returns `constraint`, which may be null, within the limits; as it is if there are none.
std::shared_ptr<TokenConstraint> WithLimits(std::shared_ptr<const TokenLimits> limits,
                                            std::shared_ptr<TokenConstraint> constraint,
                                            ThoughtBudget* thoughts = nullptr);

}  // namespace minisgl::runtime
