// UTF-8: validity, and showing untrusted bytes to a person.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace minisgl {

// Length in bytes of the well-formed character (Unicode 15, table 3-7: no overlong forms, no
// surrogates, nothing past U+10FFFF) that `text` begins with; 0 where it begins with none.
size_t Utf8CharLength(std::string_view text);

// True where `text` (not empty) could still become a well-formed character if more bytes followed:
// a proper prefix of one.
bool IsIncompleteUtf8(std::string_view text);

bool IsValidUtf8(std::string_view text);

// `text` with each maximal ill-formed run replaced by U+FFFD, as the Unicode standard recommends
// ("substitution of maximal subparts").
std::string ReplaceInvalidUtf8(std::string_view text);

// Whether `character`, one well-formed character past ASCII, shows nothing itself and changes how
// what stands around it is shown: C1 controls, controls of direction (bidi), separators of lines
// and paragraphs, tags. No terminal is to see one.
bool IsDisplayControl(std::string_view character);

// For messages: control characters as \xNN or \n, \t, \r; ill-formed bytes as \xNN; display
// controls as \xNN, \uNNNN or \UNNNNNNNN; cut to about `bytes_max` with "..." at a character
// boundary.
std::string Visible(std::string_view text, size_t bytes_max = 80);

// Appends the UTF-8 form of `code_point` (<= 0x10FFFF).
void AppendUtf8(char32_t code_point, std::string* out);

}  // namespace minisgl
