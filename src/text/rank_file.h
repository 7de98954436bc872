// Rank files: lines of a token's bytes in base64, a space and its rank ("IQ== 0"), as tiktoken
// reads them.
//
// They are recognised only to say why they cannot be used: such a file does not hold the pattern
// that cuts text into words, nor the special tokens.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace minisgl::text {

// The bytes that `text` (RFC 4648, with padding) stands for; none where it is no base64.
std::optional<std::string> DecodeBase64(std::string_view text);

// Whether the first line of `bytes` is one of a rank file. No sentencepiece model begins so.
bool IsRankFile(std::string_view bytes);

}  // namespace minisgl::text
