// Properties of characters, as the reference's libraries define them.
#pragma once

#include <cstddef>
#include <string_view>

namespace minisgl::text {

// The character that `text` begins with, and its length in bytes. REQUIRES `text` not empty and
// well-formed there.
char32_t FirstCharacter(std::string_view text, size_t* length);

bool IsWhiteSpace(char32_t c);   // Unicode's White_Space
bool IsNumeric(char32_t c);      // any kind of number (N)
bool IsPunctuation(char32_t c);  // P, and the ASCII symbols
bool IsMark(char32_t c);         // M
// Characters that utf8proc takes apart or moves in normalisation and the reference, whose tables
// are Unicode 9's, leaves alone.
bool IsNewInNormalization(char32_t c);
// Alphabetic, marks, decimal digits, connectors, join controls: `\w`.
bool IsWordCharacter(char32_t c);

}  // namespace minisgl::text
