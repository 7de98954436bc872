// What most tokens of most answers are: runs of characters that a JSON string holds unescaped.
// Tokens of these alone are allowed or not as one, so that most masks need not look at each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#include "grammar/expression_table.h"

namespace minisgl::grammar {

// One character in UTF-8 but controls, `"` and `\`.
Id StringCharacter(ExpressionTable* table);

// The number of characters of `text` if it consists of whole ones of StringCharacter(), otherwise
// 0.
size_t CountStringCharacters(std::string_view text);

inline constexpr uint32_t kAnyLength = UINT32_MAX;
// Lengths beyond this are not told apart, except kAnyLength.
inline constexpr uint32_t kStringLengthMax = 40;

// How texts of StringCharacter()s relate to an expression, by their number of characters.
struct StringLengths {
  // Each text of 1 to `all` of them may begin a text of the expression: a lower bound.
  uint32_t all = 0;
  // No text of more than `some` may, and none of any length is a whole text of the expression or
  // passes one on its way; otherwise kAnyLength. An upper bound.
  uint32_t some = kAnyLength;
};

// Finds StringLengths, and remembers them by expression.
class StringLengthFinder {
 public:
  // `character` comes from StringCharacter().
  StringLengthFinder(ExpressionTable* table, Id character, size_t emptiness_work_max)
      : table_(table), character_(character), emptiness_work_max_(emptiness_work_max) {}

  // If a search was stopped (Liveness::kStopped), a bound without a search, which is not
  // remembered: see TakeStopped.
  StringLengths Find(Id expression);
  // True if a search was stopped since the last call.
  bool TakeStopped() { return std::exchange(stopped_, false); }
  size_t memory_bytes() const { return known_.memory_bytes(); }

 private:
  StringLengths Search(Id expression);
  bool TakesOneEach(Id operand);
  bool SearchRepeat(Id expression, StringLengths* lengths);
  bool SearchParts(Id expression, StringLengths* lengths);

  ExpressionTable* table_;
  Id character_;
  size_t emptiness_work_max_;
  KeyMap known_;     // `all` and `some`, 16 bits each
  KeyMap one_each_;  // by operand of a repetition: it takes one character at a time
  int depth_ = 0;
  bool stopped_ = false;
};

}  // namespace minisgl::grammar
