#include "minisgl/text/character_columns.h"

#include <utf8proc.h>

#include <algorithm>

namespace minisgl {

int CharacterColumns(std::string_view character) {
  utf8proc_int32_t code = 0;
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(character.data());
  utf8proc_iterate(bytes, static_cast<utf8proc_ssize_t>(character.size()), &code);
  return std::clamp(utf8proc_charwidth(code), 0, 2);
}

}  // namespace minisgl
