// A drafter: proposes the next tokens of an answer, which a step then verifies. A wrong draft costs
// compute; none ever changes the answer.
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
  // Appends to `drafts` up to `count` tokens of the vocabulary that may follow `tokens` (prompt and
  // answer so far); none if it has no good guess. From call to call of one request `tokens` only
  // grows.
  virtual void Draft(RequestId id, std::span<const TokenId> tokens, int32_t count,
                     std::vector<TokenId>* drafts) = 0;
  // The request ended.
  virtual void Forget(RequestId id) = 0;
};

// Prompt lookup: proposes the tokens that followed the latest earlier occurrence of the final few
// tokens, in prompt or answer; longer matches first.
std::unique_ptr<Drafter> MakeNgramDrafter();

}  // namespace minisgl
