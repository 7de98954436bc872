// Where the serving loop gets the constraints of answers from.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "minisgl/base/status.h"
#include "minisgl/runtime/runtime.h"
#include "minisgl/token_constraint.h"

namespace minisgl::runtime {

// One answer's constraint, or why there is none (kBadInput: its grammar is refused).
struct GrammarOutcome {
  RequestId id = 0;
  Status status;
  std::shared_ptr<TokenConstraint> constraint;  // the caller's own; set if the status is OK
  std::vector<std::string> warnings;            // CompiledGrammar::warnings
};

class GrammarSource {
 public:
  virtual ~GrammarSource() = default;
  // Asks for the constraint of a request; prompt.grammar is set. Its outcome comes from a later
  // TakeFinished.
  virtual void Ask(RequestId id, const Prompt& prompt) = 0;
  // The request ended: no outcome is wanted any more, though one may still come.
  virtual void Forget(RequestId id) = 0;
  // Outcomes since the last call.
  virtual std::vector<GrammarOutcome> TakeFinished() = 0;
  // Requests whose masks came later than their constraints could wait for
  // (TokenConstraint::FillMask), and are made: since the last call.
  virtual std::vector<RequestId> TakeReadyMasks() = 0;
};

}  // namespace minisgl::runtime
