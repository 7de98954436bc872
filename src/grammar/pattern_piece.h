// A regular expression as a tree, for the parts whose language depends on the text around them.
//
// The parser makes expressions of everything without assertions at once (kPlain); the tree holds
// assertions (`^`, `$`, lookahead, lookbehind) and what contains them. Lengths are code points.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "minisgl/base/status.h"
#include "minisgl/grammar/code_point_set.h"
#include "minisgl/grammar/expression.h"

namespace minisgl::grammar {

enum class PieceKind : uint8_t {
  kPlain,   // `language`
  kBegin,   // the text begins here
  kEnd,     // the text ends here
  kAhead,   // parts[0] matches (or not, if negative) the beginning of what follows
  kBehind,  // parts[0] matches (or not) the end of what stands before
  kSequence,
  kAlternatives,
  kRepeat,  // parts[0], from `min` to `max` times
};

struct Piece;
using PiecePointer = std::shared_ptr<const Piece>;

struct Piece {
  static constexpr uint32_t kUnbounded = ExpressionSet::kUnbounded;

  PieceKind kind = PieceKind::kPlain;
  bool negative = false;
  bool looks_ahead = false;  // a kEnd or kAhead inside: depends on the text behind the piece
  ExpressionId language{};
  uint32_t min = 0, max = 0;
  uint32_t shortest = 0, longest = 0;  // upper and lower bounds of what it matches
  // With so many code points before it the piece needs to see no more of them. kBegin: 1, because
  // any code point before it decides.
  uint32_t reach = 0;
  size_t at = 0;  // place in the text of the expression, for messages
  std::vector<PiecePointer> parts;
};

PiecePointer PlainPiece(ExpressionId language, uint32_t shortest, uint32_t longest);
// `kind` is kBegin or kEnd.
PiecePointer AnchorPiece(PieceKind kind, size_t at);
// `kind` is kAhead or kBehind.
PiecePointer LookPiece(PieceKind kind, bool negative, PiecePointer inside, size_t at);
PiecePointer SequencePiece(std::vector<PiecePointer> parts);
PiecePointer AlternativesPiece(std::vector<PiecePointer> parts);
PiecePointer RepeatPiece(PiecePointer operand, uint32_t min, uint32_t max, size_t at);

// Sums and products of lengths: kUnbounded and what reaches it stay so.
uint32_t AddLengths(uint32_t a, uint32_t b);
uint32_t MultiplyLengths(uint32_t a, uint32_t b);
// What is left to see of `reach` code points before a piece of at least `shortest`.
uint32_t ReachBefore(uint32_t reach, uint32_t shortest);

// The characters that an expression is over.
class PatternText {
 public:
  // Spells one code point of a set; null: in UTF-8.
  PatternText(ExpressionSet& set, const std::function<ExpressionId(const CodePointSet&)>& spell)
      : set_(set), spell_(spell) {}

  ExpressionSet& set() const { return set_; }
  ExpressionId Spell(const CodePointSet& points) const;
  ExpressionId Any();  // every text
  // The texts of `language` that `condition` matches, or does not match.
  ExpressionId Narrow(ExpressionId language, ExpressionId condition, bool negative) const;
  // Joins plain pieces of a sequence, and narrows them by assertions that they decide alone.
  void Tidy(std::vector<PiecePointer>* parts);

 private:
  ExpressionSet& set_;
  const std::function<ExpressionId(const CodePointSet&)>& spell_;
  std::optional<ExpressionId> any_;
};

}  // namespace minisgl::grammar
