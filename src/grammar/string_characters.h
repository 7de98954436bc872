// What most tokens of most answers are: runs of characters that a JSON string holds unescaped.
// Tokens of these alone are allowed or not as one, so that most masks need not look at each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "grammar/expression_table.h"

namespace minisgl::grammar {

// One character in UTF-8 but controls, `"` and `\`.
Id StringCharacter(ExpressionTable* table);

// The number of characters of `text` if it consists of whole ones of StringCharacter(), otherwise
// 0.
size_t CountStringCharacters(std::string_view text);

inline constexpr uint32_t kAnyLength = UINT32_MAX;
// Lengths beyond this are not told apart, except kAnyLength.
inline constexpr uint32_t kStringLengthMax = 31;

// A lower bound on the length up to which each text of `character`s can begin a text of
// `expression`; exact unless that takes much work. `character` comes from StringCharacter().
uint32_t AllowedStringLength(ExpressionTable* table, Id character, Id expression,
                             size_t emptiness_work_max);

}  // namespace minisgl::grammar
