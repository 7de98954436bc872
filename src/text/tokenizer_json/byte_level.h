// The spelling of bytes as printable characters in byte-level vocabularies: a printable Latin-1
// character spells its own byte, the characters from U+0100 spell the others (a space is "Ġ").
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace minisgl::text {

// Appends the spelling of `bytes`.
void AppendByteSpelling(std::string_view bytes, std::string* out);

// Returns the bytes of `spelling`; nullopt if a character does not spell a byte.
std::optional<std::string> BytesOfSpelling(std::string_view spelling);

}  // namespace minisgl::text
