// tiktoken's rank files. Each line is a token's bytes in base64, a space, and its rank ("IQ== 0").
//
// They are recognised only to explain why they cannot be used: such a file contains neither the
// pattern that cuts text into words nor the special tokens.
#pragma once

#include <string_view>

namespace minisgl::text {

// True if the first line of `bytes` has the form of a rank file. No sentencepiece model begins so.
bool IsRankFile(std::string_view bytes);

}  // namespace minisgl::text
