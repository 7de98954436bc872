// The language of a regular expression with assertions.
//
// A lookahead is a condition on the rest of the text, so the rest is made first: what a piece
// matches, followed by a language of what stands behind it, is a language again, in which a
// lookahead is an intersection or a difference. A lookbehind is a condition on the text before it,
// which is known if it has no assertions itself or begins where the text does.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "grammar/pattern_piece.h"
#include "minisgl/base/status.h"
#include "minisgl/grammar/expression.h"

namespace minisgl::grammar {

// One way through the group of a loop: `body`, which is not empty, where the rest of the text from
// its beginning on is in `condition`, and from its end on in `after`.
struct LoopWay {
  ExpressionId condition, body, after;
};

class PatternLanguage {
 public:
  // `error_at` makes the error of a place in the text of the expression.
  using ErrorAt = std::function<Status(size_t at, const std::string& what)>;
  PatternLanguage(PatternText* text, ErrorAt error_at)
      : text_(*text), set_(text->set()), error_at_(std::move(error_at)) {}

  // The texts that `whole` matches, with `around` before and behind it. kBadInput for lookbehind
  // and loops that are not supported, and for a pattern whose anchors allow no text.
  Result<ExpressionId> Of(const PiecePointer& whole, ExpressionId around);

 private:
  // A list of the pieces that follow. Lists share their ends.
  struct Rest {
    PiecePointer head;
    const Rest* tail = nullptr;
    uint32_t reach = 0;
  };
  // The text before a place, from some place on: the beginning of the text, or one before which
  // nothing needs to be seen.
  struct Run {
    ExpressionId language;
    uint32_t shortest = 0;
    bool at_start = false;
  };

  const Rest* Prepend(PiecePointer head, const Rest* tail);
  const Rest* PrependAll(const std::vector<PiecePointer>& parts, const Rest* tail);
  static uint32_t ReachOf(const Rest* rest) { return rest == nullptr ? 0 : rest->reach; }
  Run NoText(bool at_start) const { return {set_.Empty(), 0, at_start}; }

  // The language of `before`, `rest` and `behind` one after the other.
  ExpressionId Walk(const Rest* rest, Run before, ExpressionId behind);
  ExpressionId WalkSteps(const Rest* rest, Run before, ExpressionId behind);
  ExpressionId WalkAhead(const Rest* rest, const Run& before, ExpressionId behind);
  ExpressionId WalkAheadFrom(const Rest* rest, const Run& before, ExpressionId behind);
  ExpressionId WalkAlternatives(const Rest* rest, const Run& before, ExpressionId behind);
  ExpressionId WalkRepeat(const Rest* rest, const Run& before, ExpressionId behind);
  ExpressionId WalkRepeatInContext(const Rest* rest, const Run& before, ExpressionId behind);
  ExpressionId WalkLoop(const Rest* rest, const Run& before, ExpressionId behind);
  bool FindWays(const Piece& loop, std::vector<LoopWay>* ways);
  // Narrows `condition` by the lookaheads from parts[*at] on, and moves `*at` behind them.
  ExpressionId Conditions(const std::vector<PiecePointer>& parts, size_t* at);
  // True, and `before` narrowed, if the text that a lookbehind looks at is known.
  bool LookBehind(const Piece& piece, Run* before);
  const Rest* BehindFirst(const Rest* rest);
  ExpressionId Fail(size_t at, const std::string& what);
  ExpressionId Impossible(const Piece& anchor);

  static constexpr int kDepthMax = 1000;
  static constexpr int kStepsMax = 20'000;
  static constexpr size_t kWaysMax = 64;  // through the group of a loop

  PatternText& text_;
  ExpressionSet& set_;
  ErrorAt error_at_;
  Status status_;
  int depth_ = 0, steps_ = 0;
  const Piece* impossible_ = nullptr;  // an anchor at a place where it cannot match
  std::deque<Rest> rests_;
};

// The language X = ways X | end: any number of ways one after the other, then `end`, each way's
// condition looking at all that follows. kBadInput if it has more states than a limit.
Result<ExpressionId> LoopLanguage(ExpressionSet& set, const std::vector<LoopWay>& ways,
                                  ExpressionId end);

}  // namespace minisgl::grammar
