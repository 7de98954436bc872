// Runs of characters that a JSON string holds unescaped, which most tokens of most answers are.
// Such tokens are allowed or not as one, so that most masks need not look at each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "grammar/expression_table.h"

namespace minisgl::grammar {

// One character in UTF-8 but controls, `"` and `\`.
Id StringCharacter(ExpressionTable* table);

// Removes whole characters of StringCharacter() from the beginning of `text`; returns their number.
size_t SkipStringCharacters(std::string_view* text);

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

// r{min,max} t, where r takes one character of StringCharacter() at a time and t begins with none:
// all texts of n of them lead to the same place, for each n up to `max`.
struct StringRun {
  uint32_t min = 0;
  uint32_t max = kAnyLength;
};

// Every text of at most `length` bytes that are in `groups` (token_trie.h) may begin what follows.
struct FreeRun {
  uint32_t groups = 0;
  uint32_t length = 0;
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
  // Nothing if `expression` has not the form of a StringRun.
  std::optional<StringRun> FindRun(Id expression);
  // A lower bound; not remembered. REQUIRES that some text matches `expression`.
  FreeRun FindFreeRun(Id expression);
  // True if a search was stopped since the last call.
  bool TakeStopped() { return std::exchange(stopped_, false); }
  size_t memory_bytes() const { return known_.memory_bytes(); }

 private:
  StringLengths Search(Id expression);
  bool TakesOneEach(Id operand);
  uint32_t NonAsciiGroupsOf(Id operand);
  bool TakesEachOf(std::vector<std::pair<Id, Id>> open);
  uint32_t GroupsOf(Id operand);
  FreeRun FreeRunOfTerm(Id term);
  bool SearchRepeat(Id expression, StringLengths* lengths);
  bool SearchParts(Id expression, StringLengths* lengths);

  ExpressionTable* table_;
  Id character_;
  size_t emptiness_work_max_;
  KeyMap known_;     // `all` and `some`, 16 bits each
  KeyMap groups_;    // by operand of a repetition: GroupsOf
  KeyMap one_each_;  // by operand of a repetition: it takes one character at a time
  int depth_ = 0;
  bool stopped_ = false;
};

}  // namespace minisgl::grammar
