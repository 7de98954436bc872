// Who guesses the next tokens of an answer. A guess costs computing when it is wrong and never
// changes the answer.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "minisgl/sched/request.h"

namespace minisgl {

// Used by the scheduler's thread alone.
class Drafter {
 public:
  virtual ~Drafter() = default;
  // Up to `count` tokens of the vocabulary that may follow `tokens` (prompt and answer so far),
  // appended to `drafts`; none where there is no good guess. `tokens` only grows from call to call
  // of one request.
  virtual void Draft(RequestId id, std::span<const TokenId> tokens, int32_t count,
                     std::vector<TokenId>* drafts) = 0;
  // The request ended.
  virtual void Forget(RequestId id) = 0;
};

// Prompt lookup: what followed the last place where the final few tokens stood before, in prompt or
// answer; longer matches first.
std::unique_ptr<Drafter> MakeNgramDrafter();

}  // namespace minisgl
