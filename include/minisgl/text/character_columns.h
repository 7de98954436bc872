// How many columns of a terminal a character takes.
#pragma once

#include <string_view>

namespace minisgl {

// 0 for combining and invisible characters, 2 for wide ones (East Asian, emoji), else 1. REQUIRES
// that `character` is one well-formed character of UTF-8.
int CharacterColumns(std::string_view character);

}  // namespace minisgl
