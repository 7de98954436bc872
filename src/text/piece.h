// The spelling of a token, a piece of text, as sentencepiece and the tokenizers after it write it.
#pragma once

#include <cstddef>
#include <string_view>

namespace minisgl::text {

inline constexpr size_t kPieceBytesMax = 4096;

// The spelling of a space inside pieces: U+2581.
inline constexpr std::string_view kSpaceSymbol = "\xE2\x96\x81";

}  // namespace minisgl::text
