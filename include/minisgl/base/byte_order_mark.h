// The byte order mark that some editors write before a text in UTF-8. It is no part of the text.
#pragma once

#include <string>

#include "minisgl/base/utf8.h"

namespace minisgl {

// Takes the mark from the beginning of the text of a file.
inline void DropByteOrderMark(std::string* text) {
  if (text->starts_with(kByteOrderMark)) text->erase(0, kByteOrderMark.size());
}

}  // namespace minisgl
