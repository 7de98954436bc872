// A constraint on the tokens that may come next in one answer.
//
// An object is the state after some tokens, and the tokens that it allows depend on them alone: the
// scheduler may ask again, in any order, and plan steps as it likes. Used by one thread at a time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "minisgl/base/ids.h"

namespace minisgl {

// kNone: no token may follow, and the answer cannot go on. kLater: the mask takes too much work to
// wait for, and another thread makes it.
enum class MaskOutcome : uint8_t { kMade, kNone, kLater };

class TokenConstraint {
 public:
  virtual ~TokenConstraint() = default;

  // Sets the bits of the tokens that may follow, end tokens among them exactly where the answer may
  // end (bit t % 32 of word t / 32). REQUIRES a word for each 32 tokens of the vocabulary, all 0.
  // Does at most about `*work_left` units of work, which the implementation defines, and lowers
  // `*work_left` by the work done. Returns kLater until the mask that another thread makes is ready
  // (Scheduler::MaskReady), then kMade or kNone.
  virtual MaskOutcome FillMask(std::span<uint32_t> mask, int64_t* work_left) = 0;
  // Takes the next token. False if it may not follow; then nothing changes.
  virtual bool Accept(TokenId token) = 0;
  // Takes back the last `count` tokens that were accepted.
  virtual void RollBack(int64_t count) = 0;
  // MayEnd: true if the answer may end here. MustEnd: true if nothing but an end may follow.
  virtual bool MayEnd() const = 0;
  virtual bool MustEnd() const = 0;
  // Returns at most `count` tokens of the text that must follow, as far as it is known, as a model
  // would most likely spell it. Only a guess: FillMask may allow other spellings of the same text.
  virtual std::vector<TokenId> ForcedTokens(int32_t count) = 0;
  // False if every token may follow, so that no mask is needed: after the accepted tokens
  // (`ahead` 0), or, as far as can be guessed, after `ahead` more that are not known yet. If a
  // guess of false turns out to be wrong, the token sampled there is dropped and sampled again.
  virtual bool NeedsMask(int64_t /*ahead*/) { return true; }
};

}  // namespace minisgl
