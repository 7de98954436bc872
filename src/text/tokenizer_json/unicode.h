// Properties of characters, as defined by the libraries of the reference.
#pragma once

#include <cstddef>
#include <string_view>

namespace minisgl::text {

// Returns the first character of `text` and its length in bytes. REQUIRES: `text` begins with a
// well-formed character.
char32_t FirstCharacter(std::string_view text, size_t* length);

bool IsWhiteSpace(char32_t c);      // Unicode's White_Space
bool IsNumeric(char32_t c);         // any kind of number (N)
bool IsPunctuation(char32_t c);     // P, and the ASCII symbols
bool IsMark(char32_t c);            // M
bool IsNonspacingMark(char32_t c);  // Mn
bool IsControl(char32_t c);         // Cc, Cf, Co
// Characters that utf8proc decomposes or reorders in normalisation, but not the reference, whose
// tables are Unicode 9.
bool IsNewInNormalization(char32_t c);
// Alphabetic, marks, decimal digits, connectors, join controls: `\w`.
bool IsWordCharacter(char32_t c);

}  // namespace minisgl::text
