// Validation of a sentencepiece normalisation table (precompiled_charsmap).
#pragma once

#include <string_view>

#include "minisgl/base/status.h"

namespace minisgl::text {

// Checks that every walk through the table's double-array trie stays inside it, ends in a
// well-formed replacement, and meets no more rules than the library's result array can hold.
Status CheckCharsmap(std::string_view blob);

}  // namespace minisgl::text
