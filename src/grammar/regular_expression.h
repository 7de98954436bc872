// Regular expressions as people write them: the syntax common to Python, Rust and ECMA-262.
//
// Literals, `.` (no newline), classes with ranges and negation, \d \D \w \W \s \S (ASCII as in
// ECMA-262, except \s, which is ECMA-262's white space), escapes \t \n \r \f \v \0 \xHH \uHHHH
// \u{H...} \U00HHHHHH \cX and escaped punctuation, \p{...} of general categories, groups
// (capturing, (?:...), (?<name>...), (?P<name>...)), `|`, quantifiers * + ? {m} {m,} {m,n} with a
// lazy `?`, which has no effect on what is matched, anchors `^` or \A and `$` or \z, lookahead,
// lookbehind where the text that it looks at is known, word boundaries \b and \B (ASCII, as \w).
// Refused by name and place: backreferences, conditionals, flags, possessive and atomic groups,
// unknown escapes and properties, counts above kRepeatCountMax, lookahead in a loop except at the
// beginning of its group, other lookbehind, anchors that allow no text.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "minisgl/base/status.h"
#include "minisgl/grammar/expression.h"

namespace minisgl::grammar {

inline constexpr uint32_t kRepeatCountMax = 100'000;

struct RegularExpressionOptions {
  // The expression may match anywhere in the text (the `pattern` of JSON schemas), except where
  // `^` and `$` hold it. Otherwise it matches the whole text.
  bool search = false;
  // Spells one code point of a set; null: in UTF-8. The schema compiler spells code points as in
  // JSON strings. Called once for each class or literal character, also for the parts that `search`
  // adds.
  std::function<ExpressionId(const CodePointSet&)> code_points;
};

// kBadInput with the byte offset in `text` and what stands there. Appends to `set`.
Result<ExpressionId> ParseRegularExpression(std::string_view text,
                                            const RegularExpressionOptions& options,
                                            ExpressionSet& set);

}  // namespace minisgl::grammar
