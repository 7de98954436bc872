// UTF-8: validation, repair, and display of untrusted bytes.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace minisgl {

// The byte order mark, which a text may begin with.
inline constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

// Length in bytes of the well-formed character at the beginning of `text`; 0 if it begins with
// none. Well-formed: Unicode 15, table 3-7 (no overlong forms, no surrogates, at most U+10FFFF).
size_t Utf8CharLength(std::string_view text);

// True if `text` is a proper prefix, not empty, of a well-formed character.
bool IsIncompleteUtf8(std::string_view text);

bool IsValidUtf8(std::string_view text);

// `text` with each maximal ill-formed run replaced by U+FFFD, as the Unicode standard recommends
// ("substitution of maximal subparts").
std::string ReplaceInvalidUtf8(std::string_view text);

// True if `character`, one well-formed character outside of ASCII, is invisible and changes how the
// text around it is displayed: C1 controls, bidirectional controls, line and paragraph separators,
// tags. They must never be sent to a terminal.
bool IsDisplayControl(std::string_view character);

// `text` for messages: control characters become \xNN or \n, \t, \r; ill-formed bytes \xNN; display
// controls \xNN, \uNNNN or \UNNNNNNNN. Truncated to about `bytes_max` bytes at a character
// boundary, followed by "...".
std::string Visible(std::string_view text, size_t bytes_max = 80);

// Appends the UTF-8 encoding of `code_point`. REQUIRES code_point <= 0x10FFFF.
void AppendUtf8(char32_t code_point, std::string* out);

}  // namespace minisgl
