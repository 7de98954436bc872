// The spelling of bytes as printable characters in byte-level vocabularies: a byte that is a
// printable Latin-1 character is itself, the others are U+0100 onwards (a space is "Ġ").
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace minisgl::text {

void AppendByteSpelling(std::string_view bytes, std::string* out);

// The bytes that `spelling` stands for; none where a character stands for no byte.
std::optional<std::string> BytesOfSpelling(std::string_view spelling);

}  // namespace minisgl::text
