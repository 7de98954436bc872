// Conventions for pieces (the spellings of tokens) that sentencepiece and tokenizer.json share.
#pragma once

#include <cstddef>
#include <string_view>

namespace minisgl::text {

inline constexpr size_t kPieceBytesMax = 4096;

// A space inside a piece: U+2581 ("▁").
inline constexpr std::string_view kSpaceSymbol = "\xE2\x96\x81";

}  // namespace minisgl::text
