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

// kNone: no token may follow, and the answer cannot go on. kLater: it takes too much work to be
// waited for; it is being made elsewhere.
enum class MaskOutcome : uint8_t { kMade, kNone, kLater };

class TokenConstraint {
 public:
  virtual ~TokenConstraint() = default;

  // Sets the bits of the tokens that may follow, end tokens among them exactly where the answer may
  // end (bit t % 32 of word t / 32). REQUIRES a word for each 32 tokens of the vocabulary, all 0.
  // Does about `*work_left` of work at most, in units of its own, and lowers it by what it did.
  // After kLater the mask is asked for again when it is known to be ready (Scheduler::MaskReady);
  // asked for earlier, it is kLater again, and asked for then, kMade or kNone.
  virtual MaskOutcome FillMask(std::span<uint32_t> mask, int64_t* work_left) = 0;
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
  // False if every token may follow, so that no mask is needed: after the accepted tokens
  // (`ahead` 0), or, as far as can be guessed, after `ahead` more that are not known yet. If a
  // guess of false turns out to be wrong, what was sampled there is dropped and sampled again.
  virtual bool NeedsMask(int64_t /*ahead*/) { return true; }
};

}  // namespace minisgl
