// The check of a sentencepiece normalisation table (precompiled_charsmap).
#pragma once

#include <string_view>

#include "minisgl/base/status.h"

namespace minisgl::text {

// Checks a precompiled normalisation table: a double-array trie whose every walk stays inside it,
// ends in a well-formed replacement, and passes few enough rules for the library's result array.
Status CheckCharsmap(std::string_view blob);

}  // namespace minisgl::text
