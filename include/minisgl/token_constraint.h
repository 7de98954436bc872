// Which tokens may come next in one answer.
//
// An object is the state after some tokens. Which tokens it allows is a function of those alone:
// the scheduler may ask again, in any order, and plan steps as it likes. Used by one thread at a
// time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "minisgl/base/ids.h"

namespace minisgl {

class TokenConstraint {
 public:
  virtual ~TokenConstraint() = default;

  // Sets the bits of the tokens that may follow, end tokens among them exactly where the answer may
  // end (bit t % 32 of word t / 32). REQUIRES a word for each 32 tokens of the vocabulary, all 0.
  // False if none may: the answer cannot go on.
  virtual bool FillMask(std::span<uint32_t> mask) = 0;
  // Takes the next token. False if it may not follow; then nothing changes.
  virtual bool Accept(TokenId token) = 0;
  // Takes back the last `count` tokens that were accepted.
  virtual void RollBack(int64_t count) = 0;
  // True if the answer may end here, and if it must: nothing but an end may follow.
  virtual bool MayEnd() const = 0;
  virtual bool MustEnd() const = 0;
  // What must follow, as far as it is known, in the tokens that a model would most likely choose;
  // at most `count`. Only a guess: FillMask may allow other spellings of the same text.
  virtual std::vector<TokenId> ForcedTokens(int32_t count) = 0;
};

}  // namespace minisgl
